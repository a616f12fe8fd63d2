"""Memories that follow one another: each supersedes the one before, or carries the next number.

Which one is the last is looked up in the unit that adds to it, so that two callers never add
behind the same one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonplace.engine import checks
from commonplace.engine.graph import put_link
from commonplace.engine.memories import Draft, change_row, embed_now, prepare, put
from commonplace.engine.model import LIVE_STATES, Memory, Origin
from commonplace.engine.opened import OpenSpace
from commonplace.storage.tables import MEMORIES

if TYPE_CHECKING:
    import apsw

    from commonplace.storage.tables import Row

SUPERSEDES = "supersedes"
PREFIX_CHARS = 100
NUMBER_DIGITS = 18  # what is longer is no number that was given here


def extend(
    space: OpenSpace, draft: Draft, tag: str, origin: Origin, reason: str
) -> tuple[Memory, Memory | None]:
    """Store a memory at the end of the chain of its kind and tag; it, and what it supersedes."""
    checks.text(tag, "tag", max_chars=checks.TAG_CHARS)
    checks.optional(reason, "reason", max_chars=checks.REASON_CHARS)
    prepared = prepare(draft, origin)
    embed_now(space, [prepared])
    with space.write("extend", origin) as unit:
        last = _end(unit.connection, space.name, draft.kind, tag)
        (new,) = put(space, unit, [prepared])
        if last is None:
            return Memory.of(new), None
        old = change_row(space, unit, last, {"state": "superseded"}, None)
        put_link(unit, new["id"], old["id"], SUPERSEDES, 1.0, reason, "{}", origin)
        return Memory.of(new), Memory.of(old)


def _end(connection: apsw.Connection, space: str, kind: str, tag: str) -> Row | None:
    """The newest live memory of the kind and tag that nothing supersedes yet."""
    found = connection.execute(
        "SELECT m.num FROM labels l JOIN memories m ON m.space = l.space AND m.num = l.memory"
        " WHERE l.space = ?1 AND l.label = ?2 AND m.kind = ?3 AND m.state IN (?4, ?5)"
        " AND NOT EXISTS (SELECT 1 FROM links s"
        " WHERE s.space = m.space AND s.target = m.id AND s.kind = ?6)"
        " ORDER BY m.created_at DESC, m.num DESC LIMIT 1",
        (space, f"tag:{tag}", kind, *LIVE_STATES, SUPERSEDES),
    ).fetchone()
    return MEMORIES.by_nums(connection, space, [found[0]])[found[0]] if found else None


def number(space: OpenSpace, draft: Draft, prefix: str, origin: Origin) -> Memory:
    """Store a memory under the prefix and the number after the highest there is, as its ref."""
    checks.text(prefix, "prefix", max_chars=PREFIX_CHARS)
    prepared = prepare(draft, origin)
    embed_now(space, [prepared])
    with space.write("number", origin) as unit:
        refs = unit.connection.execute(
            "SELECT ref FROM memories WHERE space = ? AND ref >= ? AND ref < ?",
            (space.name, prefix + "0", prefix + ":"),  # the sign after 9
        )
        numbers = [ref[len(prefix) :] for (ref,) in refs]
        taken = (
            int(each)
            for each in numbers
            if len(each) <= NUMBER_DIGITS and each.isascii() and each.isdigit()
        )
        prepared.values["ref"] = f"{prefix}{max(taken, default=0) + 1}"
        (row,) = put(space, unit, [prepared])
        return Memory.of(row)
