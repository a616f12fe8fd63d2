"""Commands for the history of a space: show and undo operations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from commonplace.cli import options, terminal
from commonplace.cli.options import AsJson, Data, Embedding, Space, argument, option
from commonplace.cli.terminal import (
    bold,
    count_with_noun,
    dim,
    emit_json,
    local_time,
    note,
    one_line,
    say,
)
from commonplace.text.hidden import escape_hidden

if TYPE_CHECKING:
    from commonplace.engine.history.changes import Change
    from commonplace.engine.model import Operation

# Names of rows by table, singular and plural; other tables change only together with these.
TABLE_NOUNS = {
    "memories": ("memory", "memories"),
    "links": ("link", "links"),
    "facts": ("fact", "facts"),
    "clusters": ("cluster", "clusters"),
    "artifacts": ("artifact", "artifacts"),
    "contents": ("version of an artifact", "versions of artifacts"),
    "reviews": ("review", "reviews"),
}
# Columns that change together with other columns, and are not shown.
_HIDDEN_COLUMNS = {"version", "updated_at", "hash", "seq", "format", "origin", "num"}


def undo(
    operation: Annotated[
        str | None, argument("OPERATION", "An operation from the log (default: the newest).")
    ] = None,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
    embedding: Embedding = None,
) -> None:
    """Undo an operation.

    All its changes are reverted. If a later change conflicts, the error names that change.
    An import is undone as a whole, even if the log shows it as several operations.
    """
    from commonplace.engine.binding import engine_call, lease
    from commonplace.engine.finding import listing
    from commonplace.engine.history import changes

    with options.open_memory(data, space, embedding) as memory:
        if operation is not None:
            with lease(memory) as opened:
                operation = listing.full_operation_id(opened, operation)
        undone = memory.undo(operation)
        target = next(
            (each for each in memory.history.operations(limit=1000) if each.id == undone.undoes),
            None,
        )
        made = engine_call(memory, changes.of_operation, undone.id).changes
    summary = describe_changes(made)
    if as_json:
        emit_json({**undone.as_dict(), "changed": summary})
        return
    what = f"{target.name} of {local_time(target.at, seconds=True)}" if target else undone.undoes
    say(escape_hidden(f"undone: {what}"))
    if summary:
        say(dim(one_line(f"now: {summary}", terminal.columns())))


def log(
    limit: Annotated[int, option("--limit -n N", "Maximum number of results.")] = 20,
    since: Annotated[str | None, option("--since WHEN", "Only operations since this time.")] = None,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
) -> None:
    """Show operations and who did them, the newest first. With --json, one object per line.

    \b
      commonplace log --since yesterday
      commonplace undo 3f2a
    """
    from commonplace.engine.binding import engine_call
    from commonplace.engine.history import changes, timeline

    first = options.parse_time(since, "since")
    older: list[Operation] = []
    with options.open_memory(data, space) as memory:
        operations = memory.history.operations(limit=limit)
        if isinstance(first, datetime):
            operations = [each for each in operations if each.at >= first]
            if len(operations) == limit:
                older = memory.history.operations(limit=1, before=operations[-1].seq)
        made = engine_call(memory, changes.of_each_operation, operations)
        erased = engine_call(memory, changes.erased_counts, operations)
    purged = max((each.seq for each in operations if each.name == "purge"), default=0)
    undone: set[str | None] = set()
    for each in operations:  # the newest first; an undo that was undone itself does not count
        if each.id not in undone:
            undone.add(each.undoes)
    imports = {timeline.label(each) for each in operations if each.id in undone} - {None}
    for each, changed in zip(operations, made, strict=True):
        label, summary = timeline.label(each), describe_changes(changed)
        if each.seq in erased:
            verb = "purged" if each.name == "purge" else "deleted as expired:"
            summary = f"{verb} {count_with_noun(erased[each.seq], *TABLE_NOUNS['memories'])}"
        elif not changed and each.seq < purged:
            summary = f"{each.name}: the changed memories were purged later"
        gone = not each.undoes and (each.id in undone or label in imports)
        if as_json:
            emit_json({**each.as_dict(), "changed": summary, "undone": gone})
        else:
            _show_operation(each, summary, label, undone=gone)
    if isinstance(first, datetime) and older and older[0].at >= first and not as_json:
        note("there are more since then; see them with --limit.")


def _show_operation(each: Operation, summary: str, label: str | None, *, undone: bool) -> None:
    by = " ".join(
        f"{part} {value}" for part, value in each.origin.as_dict().items() if value != label
    )
    name = f"undo {each.undoes[:8]}" if each.undoes else each.name
    if undone:
        name += " (undone)"
    room = terminal.columns() - 10
    say(f"{bold(each.id[:8])}  {one_line(summary or name, room)}")
    parts = (local_time(each.at, seconds=True), name, by)
    say(dim("          " + one_line(" · ".join(part for part in parts if part), room)))


def describe_changes(changed: Sequence[Change]) -> str:
    """Describe changes: the memory or fact, if it is only one, or else the numbers of rows.

    The result is empty if there are no changes.
    """
    memories = [each for each in changed if each.table == "memories"]
    if len(memories) == 1:
        rest = Counter(each.table for each in changed if each.table != "memories")
        more = [
            count_with_noun(rest[name], *TABLE_NOUNS[name]) for name in TABLE_NOUNS if rest[name]
        ]
        return _describe_memory_change(memories[0]) + (f" (and {', '.join(more)})" if more else "")
    if not memories and len(changed) == 1 and changed[0].table == "facts":
        return _describe_fact_change(changed[0])
    groups = Counter((_verb(each), each.table) for each in changed if each.table in TABLE_NOUNS)
    summary: dict[str, list[str]] = {}
    for (verb, table), count in groups.items():
        summary.setdefault(verb, []).append(count_with_noun(count, *TABLE_NOUNS[table]))
    return ", ".join(f"{verb} {' and '.join(what)}" for verb, what in summary.items())


def _verb(change: Change) -> str:
    before, after = change.before, change.after
    if before is None:
        return "stored"
    if after is None:
        return "removed"
    states = (before.get("state"), after.get("state"))
    if states[0] != states[1]:
        return {"archived": "hid", "active": "recovered"}.get(str(states[1]), "changed")
    return "changed"


def _describe_memory_change(change: Change) -> str:
    """Describe the change of one memory: its text, the texts before and after, or the fields."""
    verb, row = _verb(change), change.after or change.before
    assert row is not None
    before, after = change.before, change.after
    text = str(row["text"])
    if verb != "changed" or before is None or after is None:
        return f"{verb}: {text}"
    if before["text"] != after["text"]:
        return f"changed: {_before_and_after(str(before['text']), str(after['text']))}"
    fields = [name for name in after if name not in _HIDDEN_COLUMNS and before[name] != after[name]]
    summary = [
        f"{name} {_short_value(before[name])} → {_short_value(after[name])}" for name in fields
    ]
    return f"changed {'; '.join(summary) or 'nothing'}: {text}"


def _before_and_after(before: str, after: str) -> str:
    """Return two texts on one line; if they are too long, each gets half of the line."""
    room = terminal.columns() - 10 - len("changed:  → ")
    longest = room if terminal.width(before + after) <= room else room // 2
    return f"{one_line(before, longest)} → {one_line(after, longest)}"


def _short_value(value: Any) -> str:
    """Return a stored value as short text; join the items of a list."""
    if isinstance(value, str) and value.startswith("["):
        return ", ".join(map(str, json.loads(value))) or "none"
    return one_line(str(value), 30) if value not in (None, "") else "none"


def _describe_fact_change(change: Change) -> str:
    row = change.after or change.before
    assert row is not None
    return f"{_verb(change)} the fact: {row['subject']} {row['predicate']} {row['object']}"


COMMANDS = (undo, log)
