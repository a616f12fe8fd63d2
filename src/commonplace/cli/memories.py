"""Commands for single memories."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commonplace.cli import INTERRUPTED, asking, options, terminal
from commonplace.cli.options import (
    AllowSecrets,
    AsJson,
    Data,
    Embedding,
    GlobalOption,
    Id,
    Ids,
    ProjectOption,
    Space,
    argument,
    option,
)
from commonplace.cli.terminal import (
    bold,
    count_with_noun,
    dim,
    emit_json,
    join_into_lines,
    local_time,
    note,
    one_line,
    say,
    tell,
)
from commonplace.dialects import registry
from commonplace.errors import InvalidInput, NotFound
from commonplace.text.hidden import escape_hidden

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.content.projects import Project
    from commonplace.engine.library import OpenSpace
    from commonplace.engine.maintenance.purge import Proof
    from commonplace.engine.model import Link, Memory, Version

NOTHING_FOUND = 1
LEAST_TAG_COLUMNS = 10  # columns; with less room, tags are only counted
LEAST_PURGE_CHARS = 4  # least characters of `purge --text`
LEAST_SEARCHED_CHARS = 12  # least characters of a purged text that is then looked for elsewhere

AsOf = Annotated[str | None, option("--as-of WHEN", "Show the state at that time.")]


def remember(
    details: dict[str, Any],
    text: Annotated[
        list[str] | None, argument("TEXT...|-", "What to remember; - or a pipe reads stdin.")
    ] = None,
    tag: Annotated[list[str] | None, option("--tag TAG", "A tag; repeatable.")] = None,
    everywhere: GlobalOption = False,
    project: ProjectOption = None,
    allow_secrets: AllowSecrets = False,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
    embedding: Embedding = None,
) -> None:
    """Store a memory. It is on disk when this returns.

    In a repository it belongs to that project, and is not found in others.

    \b
      commonplace remember "We ship on Thursdays" --kind decision --tag release
      commonplace remember Alice moved to the vision team
      git log -5 | commonplace remember --title "What changed this week"
      commonplace remember "Retries are capped at 5" --source https://example.org
    """
    from commonplace.engine.content import write_policy

    options.refuse_together({"--global": everywhere, "--project": project})
    here = None if everywhere else options.current_project(project)
    masked: list[str] = []
    words = _text_to_remember(text)  # before a space is created
    with (
        options.open_memory(
            data, space, embedding, create=True, project=here, allow_secrets=allow_secrets
        ) as memory,
        write_policy.apply_policy(masked=masked),
    ):
        stored = memory.remember(words, tags=tag or (), **details)
    _tell_masked(masked)
    shown = {**stored.as_dict(), **({"masked": masked} if masked else {})}
    tell(as_json, shown, f"remembered {stored.id}")


def _tell_masked(kinds: list[str]) -> None:
    """Say on standard error which secrets were not stored."""
    if kinds:
        note(f"masked: {', '.join(kinds)}; --allow-secrets stores such values as they are")


def search(
    words: Annotated[list[str], argument("QUERY...", "A question, words, or a text.")],
    details: dict[str, Any],
    limit: Annotated[int, option("--limit -n N", "Maximum number of results.")] = 10,
    kind: Annotated[list[str] | None, option("--kind KIND", "Only these kinds.")] = None,
    tag: Annotated[list[str] | None, option("--tag TAG", "With all of these tags.")] = None,
    since: Annotated[str | None, option("--since WHEN", "Only memories from that time on.")] = None,
    until: Annotated[str | None, option("--until WHEN", "Only memories up to that time.")] = None,
    as_of: AsOf = None,
    why: Annotated[bool, option("--why", "Explain the score of each result.")] = False,
    text: Annotated[bool, option("--text", "Search for the query as an exact substring.")] = False,
    all_: Annotated[bool, option("--all", "Show improbable results too.")] = False,
    minimum: Annotated[
        float | None, option("--minimum P", "The least probability of a result, 0 to 1.")
    ] = None,
    by: Annotated[
        str, option("--by memory|session", "Find single memories, or sessions.")
    ] = "memory",
    everywhere: Annotated[bool, option("--everywhere", "In all projects.")] = False,
    project: ProjectOption = None,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
    embedding: Embedding = None,
) -> None:
    """Find memories by word and by meaning. With --json, one object per line.

    In a repository, memories of other projects are left out. Records that a dialect keeps for
    itself, such as a being's notes, are found with --kind.

    \b
      commonplace search "what did we decide about releases?" --why
      commonplace search who leads the vision team
      commonplace search "RFC-1149" --text
      commonplace search invoices --since 2026-01-01 --as-of "2026-03-01 12:00"
    """
    query = " ".join(words)
    if by not in ("memory", "session"):
        raise InvalidInput(f"There is no --by {by}.", hint="Use memory or session.", field="by")
    options.refuse_together({"--everywhere": everywhere, "--project": project})
    sessions = by == "session"
    for way in ({"--text": text, "--by session": sessions}, {"--all": all_}):
        options.refuse_together({**way, "--minimum": minimum})
    conditions = _without_none(
        kinds=kind, without_kinds=_kinds_left_out(kind), tags_all=tag,
        since=options.parse_time(since, "since"), until=options.parse_time(until, "until"),
        **details,
    )  # fmt: skip
    moment = options.parse_time(as_of, "as_of")
    here = None if everywhere else options.current_project(project)
    asked = {
        "query": query, "limit": limit, "as_of": moment, "conditions": conditions,
        "minimum": 0.0 if all_ else minimum,
    }  # fmt: skip
    by_meaning = not text and not sessions
    command = "search text" if text else "search" if by_meaning else "search sessions"
    answer = asking.answer(command, asked, data, space, "none" if text else embedding, here)
    found = answer["results"]
    if as_json:
        for each in found:
            emit_json(each)
    else:
        reasons = answer["reasons"] if why and by_meaning else [""] * len(found)
        for each, reason in zip(found, reasons, strict=True):
            _show_found(each, query, here, reason)
        _tell_omissions(answer)
    if not found:
        if not as_json:
            more = "" if not by_meaning or all_ else "; --all shows improbable results"
            note(_nothing_stored_yet(moment, data, space) or f"nothing found{more}")
        raise typer.Exit(NOTHING_FOUND)


def list_(
    details: dict[str, Any],
    limit: Annotated[int, option("--limit -n N", "Maximum number of results.")] = 20,
    offset: Annotated[int, option("--offset N", "How many to leave out first.")] = 0,
    order: Annotated[
        str,
        option("--order ORDER", "newest, oldest, updated, latest, importance or credit."),
    ] = "newest",
    kind: Annotated[list[str] | None, option("--kind KIND", "Only these kinds.")] = None,
    tag: Annotated[list[str] | None, option("--tag TAG", "With all of these tags.")] = None,
    state: Annotated[
        list[str] | None,
        option(
            "--state STATE",
            "Only these: active, dying, archived (forgotten), superseded, dead; else live.",
        ),
    ] = None,
    since: Annotated[str | None, option("--since WHEN", "Only memories from that time on.")] = None,
    until: Annotated[str | None, option("--until WHEN", "Only memories up to that time.")] = None,
    as_of: AsOf = None,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
) -> None:
    """List memories, the newest first. With --json, one object per line.

    \b
      commonplace list --kind decision --since 30d
      commonplace list --state archived
    """
    conditions = _without_none(
        kinds=kind, without_kinds=_kinds_left_out(kind), tags_all=tag, states=state,
        since=options.parse_time(since, "since"), until=options.parse_time(until, "until"),
        **details,
    )  # fmt: skip
    moment = options.parse_time(as_of, "as_of")
    asked = {
        "order": order, "limit": limit, "offset": offset, "as_of": moment,
        "conditions": conditions,
    }  # fmt: skip
    answer = asking.answer("list", asked, data, space)
    found = answer["results"]
    for each in found:
        emit_json(each) if as_json else _show_found({"memory": each}, "", None)
    if not found:
        if not as_json:
            note(_nothing_stored_yet(moment, data, space) or "nothing found")
        raise typer.Exit(NOTHING_FOUND)
    left = answer["total"] - offset - len(found)
    if left > 0 and not as_json:
        note(f"{left:,} more; see them with --limit, or --offset {offset + len(found)}.")


def _nothing_stored_yet(as_of: datetime | str | None, data: Path | None, space: str) -> str:
    """Return the message that nothing was stored yet at a time; empty if something was."""
    if as_of is None:
        return ""
    asked = {"order": "oldest", "limit": 1, "offset": 0, "as_of": as_of, "conditions": {}}
    if asking.answer("list", asked, data, space)["results"]:
        return ""
    shown = local_time(as_of) if isinstance(as_of, datetime) else as_of
    return f"nothing found: nothing was stored yet at that time ({shown})"


def _tell_omissions(answer: Mapping[str, Any]) -> None:
    """Say what a search did not show, and what it did not search."""
    shown = len(answer["results"])
    if left := answer.get("total", shown) - shown:
        note(f"{left} more; see them with --limit.")
    if degraded := answer.get("degraded"):
        note(f"searched by words only: {escape_hidden(degraded)}")
    elif waiting := answer.get("waiting"):
        have = "memory has" if waiting == 1 else "memories have"
        note(f"{waiting:,} {have} no embedding yet, found by words only")


def _kinds_left_out(kinds: list[str] | None) -> tuple[str, ...] | None:
    """Return the kinds that a search leaves out, the dialects' internal records; None if the user
    named kinds."""
    return None if kinds else registry.internal_kinds()


def show(
    id: Id,
    versions: Annotated[bool, option("--versions", "Show all versions.")] = False,
    as_of: AsOf = None,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
) -> None:
    """Show a memory, now or at an earlier time. With --versions --json, one object per line.

    \b
      commonplace show 3f2a --versions
      commonplace show 3f2a --as-of "2026-03-01 12:00"
    """
    options.refuse_together({"--versions": versions, "--as-of": as_of})
    with options.open_memory(data, space) as memory:
        if as_of is not None:
            then = options.parse_time(as_of, "as_of")
            found = memory.get(_memory_id(memory, id), as_of=then, count=False)
            links = memory.links.of(found.id, as_of=then)
        else:
            found = memory.get(_memory_id(memory, id))
            links = memory.links.of(found.id)
        former = memory.history.versions(found.id) if versions else []
    if versions:
        for version in former:
            emit_json(_version_as_dict(version)) if as_json else _show_version(version)
    elif as_json:
        emit_json({**found.as_dict(), "links": [_link_as_dict(link) for link in links]})
    else:
        _show_memory(found, links)


def revise(
    id: Id,
    details: dict[str, Any],
    words: Annotated[
        list[str] | None, argument("TEXT...|-", "The new text; - reads stdin.")
    ] = None,
    text: Annotated[str | None, option("--text TEXT|-", "The new text, too.")] = None,
    tag: Annotated[list[str] | None, option("--tag TAG", "Add a tag.")] = None,
    untag: Annotated[list[str] | None, option("--untag TAG", "Remove a tag.")] = None,
    allow_secrets: AllowSecrets = False,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
    embedding: Embedding = None,
) -> None:
    """Change a memory. Its former versions stay in its history.

    \b
      commonplace revise 3f2a "We ship on Tuesdays" --tag release
    """
    from commonplace.engine.content import write_policy

    if words and text is not None:
        raise InvalidInput("The text is given twice.", hint="Leave out --text.", field="text")
    new = " ".join(words) if words else text
    changes = _without_none(text=None if new is None else _text_or_stdin(new), **details)
    if not changes and not tag and not untag:
        raise InvalidInput(
            "There is nothing to change.", hint="Give the new text, or an option such as --tag."
        )
    masked: list[str] = []
    with (
        options.open_memory(data, space, embedding, allow_secrets=allow_secrets) as memory,
        write_policy.apply_policy(masked=masked),
    ):
        before = memory.get(_memory_id(memory, id), count=False)
        if tag or untag:
            changes["tags"] = [t for t in (*before.tags, *(tag or ())) if t not in (untag or ())]
        after = memory.revise(before.id, expected_version=before.version, **changes)
    _tell_masked(masked)
    if as_json:
        emit_json({**after.as_dict(), **({"masked": masked} if masked else {})})
    elif after.version == before.version:
        say(f"{after.id} is unchanged: it already has these values")
    else:
        say(
            f"revised {after.id}; see its versions with: commonplace show {after.id[:8]} --versions"
        )


def forget(ids: Ids, data: Data = None, space: Space = "default", as_json: AsJson = False) -> None:
    """Hide memories. `recover` shows them again."""
    with options.open_memory(data, space) as memory:
        _show_changed("forgotten", memory.forget(*_memory_ids(memory, ids)), as_json)


def recover(ids: Ids, data: Data = None, space: Space = "default", as_json: AsJson = False) -> None:
    """Show hidden memories again."""
    with options.open_memory(data, space) as memory:
        _show_changed("recovered", memory.restore(*_memory_ids(memory, ids)), as_json)


def _show_changed(what: str, changed: list[Memory], as_json: bool) -> None:
    for memory in changed:
        tell(as_json, memory.as_dict(), f"{what} {memory.id}")


def promote(
    ids: Ids,
    trust: Annotated[str, option("--trust stated|inferred|external", "The new trust.")] = "stated",
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
) -> None:
    """Raise the trust of memories, such as imported ones.

    `revise --trust` can only lower the trust. The log shows every promotion.

    \b
      commonplace promote 3f2a --trust stated
    """
    with options.open_memory(data, space) as memory:
        named = _memory_ids(memory, ids)
        with memory.unit("promote"):
            promoted = [memory.promote(identity, trust) for identity in named]
    _show_changed("promoted", promoted, as_json)


def purge(
    ids: Annotated[list[str] | None, argument("ID...", "IDs, or their first characters.")] = None,
    text: Annotated[
        str | None,
        option("--text TEXT", "All memories that hold or held this text, hidden ones too."),
    ] = None,
    yes: Annotated[bool, option("--yes", "Delete without asking.")] = False,
    data: Data = None,
    space: Space = "default",
    as_json: AsJson = False,
) -> None:
    """Delete memories permanently.

    Their history is deleted too, and a scan of the files verifies it. Copies in other files of the
    data directory are removed; what still holds a text is listed, such as facts and documents.
    Earlier backups and exports, and histories of agents, still contain it. What was imported from
    one is not imported again.

    \b
      commonplace purge 3f2a
      commonplace purge --text "0173 5550199"
    """
    from commonplace.engine.binding import lease

    if bool(ids) == (text is not None) or (
        text is not None and len(text.strip()) < LEAST_PURGE_CHARS
    ):
        raise InvalidInput(
            "Name the memories by their IDs, or a text that they hold.",
            hint=f"Give IDs, or --text with at least {LEAST_PURGE_CHARS} characters.",
        )
    with options.open_memory(data, space) as memory, lease(memory) as opened:
        named, other = _memory_ids(memory, ids or []), list[str]()
        if text is not None:
            named = _ids_of_holders(opened, text, announce=not yes)
        if not yes:
            if not sys.stdin.isatty():
                raise InvalidInput("A purge cannot be undone.", hint="Add --yes to continue.")
            for identity in named if text is None else ():
                shown = memory.get(identity, count=False).text
                note(f"{identity[:8]}  {one_line(shown, terminal.columns() - 10)}")
            typer.confirm("Delete permanently?", abort=True, err=True)
        texts = [memory.get(one, count=False).text for one in named] if text is None else [text]
        try:
            words = () if text is None else (text,)
            proof = memory.purge(*named, words=words)
            other = _names_of_holders(
                opened, [each for each in texts if text or len(each) >= LEAST_SEARCHED_CHARS]
            )
        except KeyboardInterrupt:
            note("\ninterrupted; either all of them are deleted or none, and the scan did not end:"
                 f" check with 'commonplace show {named[0][:8]}'")  # fmt: skip
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        emit_json({**asdict(proof), "also_in": other})
    else:
        found = (
            f"{proof.bytes_scanned:,} bytes of {', '.join(proof.files)} scanned:"
            f" {proof.traces or 'no'} traces{' of exactly this text' if text else ''}"
            if proof.traces is not None
            else "their bytes disappear with the database's vacuum, log, replicas and backups"
        )
        gone = count_with_noun(proof.memories, "memory", "memories")
        say(f"purged {gone}, {proof.rows} rows in all; {found}")
        if proof.copies:
            note("these copies of the file, made by a restore or an upgrade, may still contain it;"
                 f" delete them: {', '.join(proof.copies)}")  # fmt: skip
        _tell_copies(proof)
    if other and not as_json:
        note(f"this is not deleted, and holds the text too: {', '.join(map(escape_hidden, other))}")


def _tell_copies(proof: Proof) -> None:
    """Say which copies of purged memories were removed, and which are left."""
    if proof.removed:
        copies = count_with_noun(len(proof.removed), "file", "files")
        note(f"copies in {copies} of the data directory are removed too")
    if proof.held:
        note("this still holds it, or a piece of it; delete it yourself:"
             f" {', '.join(map(escape_hidden, proof.held))}")  # fmt: skip
        if any(name.startswith("audit.") for name in proof.held):
            note("audit entries form a chain, so only the oldest can be deleted: 'commonplace audit"
                 " cut'")  # fmt: skip
    if proof.sources:
        note(f"some came from {', '.join(map(escape_hidden, proof.sources))}, whose own files still"
             " hold them; delete them there too. They are not imported again")  # fmt: skip


def _ids_of_holders(space: OpenSpace, text: str, *, announce: bool) -> list[str]:
    """Return the IDs of the memories that hold a text in any version.

    Raise NotFound if there are none. With `announce`, write every place of the text to standard
    error.
    """
    from commonplace.engine.maintenance import secret_scan

    found = secret_scan.scan(space, secret_scan.finder_of_texts(text))
    for each in found if announce else ():
        where = each.id[:8] if each.what == "memory" else f"{each.what} {each.id}"
        former = "  (a former version)" if each.former else ""
        note(f"{escape_hidden(where)}{former}  {escape_hidden(each.excerpt)}")
    named = dict.fromkeys(each.id for each in found if each.what == "memory")
    if not named:
        other = dict.fromkeys(f"{each.what} {each.id}" for each in found)
        raise NotFound(
            f"No memory of the space {space.name} holds this text, nor did.",
            hint=f"It is in: {', '.join(other)}."
            if other
            else "Other spaces are searched by --space NAME. Other spellings are not found.",
        )
    return list(named)


def _names_of_holders(space: OpenSpace, texts: list[str]) -> list[str]:
    """Return the names of objects that still hold one of the texts after the purge."""
    from commonplace.engine.maintenance import secret_scan

    found = secret_scan.scan(space, secret_scan.finder_of_texts(*texts)) if texts else []
    return list(dict.fromkeys(f"{each.what} {each.id}" for each in found))


COMMANDS = (
    options.with_fields(remember), options.with_fields(search, filters_only=True),
    options.with_fields(list_, filters_only=True), show,
    options.with_fields(revise), promote, forget, recover, purge,
)  # fmt: skip


def _without_none(**details: Any) -> dict[str, Any]:
    return {name: value for name, value in details.items() if value is not None}


def _text_to_remember(text: list[str] | None) -> str:
    """Return the words joined by blanks; without any words, the text from standard input."""
    given = " ".join(text) if text else "-"
    words = "" if not text and sys.stdin.isatty() else _text_or_stdin(given)
    if not words.strip():
        raise InvalidInput(
            "There is nothing to remember.",
            hint='Say what: commonplace remember "We ship on Thursdays".',
            field="text",
        )
    return words


def _text_or_stdin(argument: str) -> str:
    """Return the argument; for a dash, the text on standard input."""
    if argument != "-":
        return argument
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8-sig").removesuffix("\n")  # without the line break at the end
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"stdin is not UTF-8 at byte {error.start}.", hint="Convert it first.", field="text"
        ) from None


def _memory_id(memory: Commonplace, name: str) -> str:
    from commonplace.engine.binding import lease
    from commonplace.engine.finding import listing

    with lease(memory) as opened:
        return listing.full_memory_id(opened, name)


def _memory_ids(memory: Commonplace, names: list[str]) -> list[str]:
    return list(dict.fromkeys(_memory_id(memory, name) for name in names))


def _show_found(
    result: Mapping[str, Any], query: str, here: Project | None, reason: str = ""
) -> None:
    """Show a result of a search, or a memory of a list."""
    from commonplace.text.snippets import snippet

    if "conversation" in result:
        say(bold(escape_hidden(f"{result['conversation']} / {result['session'] or 'no session'}")))
    memory = result["memory"]
    room = terminal.columns() - 10
    text = f"{memory['title']}: {memory['text']}" if memory["title"] else memory["text"]
    say(f"{bold(memory['id'][:8])}  {one_line(snippet(text, query, room), room)}")
    marks = _result_marks(result, here)
    happened = datetime.fromisoformat(memory["occurred_at"] or memory["created_at"])
    first = [memory["kind"], local_time(happened)]
    # Tags get the remaining width; the marks of a result are never cut.
    left = room - terminal.width(" · ".join([*first, *marks, ""]))
    tags = _other_tags(memory["tags"], here)
    shown = one_line(tags, left) if left >= LEAST_TAG_COLUMNS else ""
    tags = shown or (count_with_noun(tags.count(", ") + 1, "tag", "tags") if tags else "")
    for line in join_into_lines([*first, tags, *marks], room):
        say(dim(f"          {line}"))
    for line in join_into_lines(escape_hidden(reason).split("; "), room, "; "):
        say(dim(f"          {line}"))


def _result_marks(result: Mapping[str, Any], here: Project | None) -> list[str]:
    """Return the marks that qualify a result, such as its probability or a newer memory."""
    marks = []
    memory = result["memory"]
    if here is not None and (branch := here.other_branch(memory["tags"])):
        marks.append(f"stored on another branch: {branch}")
    if memory["trust"] != "stated":
        marks.append(memory["trust"])
    if "probability" in result:
        marks.append(f"{result['probability']:.0%} probable")
        if companion := result.get("companion"):
            marks.append(f"{companion} {'with ' if companion == 'linked' else ''}a result")
        if newer := result.get("replaced_by") or result.get("newer"):
            surely = "replaced" if "replaced_by" in result else "perhaps replaced"
            marks.append(f"{surely} by {newer[:8]}")
    return marks


def _other_tags(tags: Sequence[str], here: Project | None) -> str:
    """Return the tags of a result without the labels of the current project and its branches."""
    if here is None:
        return ", ".join(tags)
    known = {*here.labels, f"branch:{here.other_branch(tags)}"}
    return ", ".join(tag for tag in tags if tag not in known)


def _show_memory(memory: Memory, links: list[Link]) -> None:
    say(bold(f"{memory.id}") + f"  {memory.kind}" + ("  pinned" if memory.pinned else ""))
    if memory.title:
        say(escape_hidden(memory.title).replace("\n", " "))
    say()
    say("\n".join(f"  {line}" for line in escape_hidden(memory.text).split("\n")))
    say()
    origin = ", ".join(f"{part} {value}" for part, value in memory.origin.as_dict().items())
    rows = {
        "tags": ", ".join(memory.tags),
        "state": "" if memory.state == "active" else memory.state,
        "happened": local_time(memory.occurred_at),
        "stored": local_time(memory.created_at),
        "changed": local_time(memory.updated_at) if memory.updated_at != memory.created_at else "",
        "importance": f"{memory.importance:g}",
        "trust": memory.trust,
        "ref": memory.ref or "",
        "source": memory.source,
        "origin": origin,
    }
    for name, value in rows.items():
        if value:
            say(dim(f"  {name:<11}") + escape_hidden(value))
    for link in links:
        outward = link.source == memory.id
        arrow = (
            f"{link.kind} → {link.target[:8]}" if outward else f"{link.source[:8]} {link.kind} →"
        )
        say(dim(f"  {'link':<11}") + escape_hidden(f"{arrow}  {link.reason}".rstrip()))


def _show_version(version: Version) -> None:
    until = local_time(version.until, seconds=True) if version.until else "now"
    span = f"{local_time(version.since, seconds=True)} to {until}"
    state = "" if version.memory.state == "active" else f"  {version.memory.state}"
    say(f"{bold(span)}  {dim('operation ' + version.operation[:8])}{state}")
    say("\n".join(f"  {line}" for line in escape_hidden(version.memory.text).split("\n")))


def _version_as_dict(version: Version) -> dict[str, Any]:
    plain = _attributes_as_dict(version, "since", "until", "operation")
    return {**plain, "memory": version.memory.as_dict()}


def _link_as_dict(link: Link) -> dict[str, Any]:
    return _attributes_as_dict(
        link, "id", "source", "target", "kind", "weight", "reason", "created_at"
    )


def _attributes_as_dict(value: Any, *names: str) -> dict[str, Any]:
    """Return these attributes of a value as plain values for JSON."""
    from commonplace.engine.model import iso

    found = {name: getattr(value, name) for name in names}
    return {name: iso(each) if isinstance(each, datetime) else each for name, each in found.items()}
