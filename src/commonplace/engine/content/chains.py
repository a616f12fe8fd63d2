"""Chains of memories: each new memory supersedes the last one, or gets the next number.

The unit of work that extends a chain also looks up its last memory, so that two callers never
extend the same memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonplace.engine import checks
from commonplace.engine.content.links import SUPERSEDES, put_supersedes
from commonplace.engine.content.memories import (
    Draft,
    change_row,
    embed_now,
    insert_prepared,
    prepare,
)
from commonplace.engine.content.write_policy import mask_text
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import LIVE_STATES, Memory, Origin
from commonplace.storage import memories as stored
from commonplace.storage.ports import Rows
from commonplace.storage.tables import MEMORIES

if TYPE_CHECKING:
    from commonplace.storage.tables import Row

PREFIX_CHARS = 100
NUMBER_DIGITS = 18  # Refs with longer numbers were not assigned by this module.


def extend(
    space: OpenSpace, draft: Draft, tag: str, origin: Origin, reason: str
) -> tuple[Memory, Memory | None]:
    """Add a memory to the chain of its kind and tag; return it and the memory it supersedes."""
    checks.text(tag, "tag", max_chars=checks.TAG_CHARS)
    checks.optional_text(reason, "reason", max_chars=checks.REASON_CHARS)
    reason = mask_text(space, reason)
    prepared = prepare(space, draft, origin)
    embed_now(space, [prepared])
    with space.write("extend", origin) as unit:
        last = _newest_in_chain(unit.connection, space.name, draft.kind, tag)
        (new,) = insert_prepared(space, unit, [prepared])
        if last is None:
            return Memory.of(new), None
        old = change_row(space, unit, last, {"state": "superseded"}, None)
        put_supersedes(unit, new["id"], old["id"], origin, reason)
        return Memory.of(new), Memory.of(old)


def _newest_in_chain(connection: Rows, space: str, kind: str, tag: str) -> Row | None:
    """Return the newest live memory of the kind and tag that nothing supersedes."""
    num = stored.newest_unlinked(connection, space, kind, f"tag:{tag}", LIVE_STATES, SUPERSEDES)
    return None if num is None else MEMORIES.by_nums(connection, space, [num])[num]


def remember_numbered(space: OpenSpace, draft: Draft, prefix: str, origin: Origin) -> Memory:
    """Store a memory whose ref is the prefix and the next free number."""
    checks.text(prefix, "prefix", max_chars=PREFIX_CHARS)
    prepared = prepare(space, draft, origin)
    embed_now(space, [prepared])
    with space.write("number", origin) as unit:
        refs = stored.numbered_refs(unit.connection, space.name, prefix)
        numbers = [ref[len(prefix) :] for ref in refs]
        taken = (
            int(each)
            for each in numbers
            if len(each) <= NUMBER_DIGITS and each.isascii() and each.isdigit()
        )
        prepared.values["ref"] = f"{prefix}{max(taken, default=0) + 1}"
        (row,) = insert_prepared(space, unit, [prepared])
        return Memory.of(row)
