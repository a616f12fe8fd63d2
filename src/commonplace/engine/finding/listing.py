"""List memories, and find them by an exact text or by a prefix of their id."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Unpack

from commonplace.engine import checks
from commonplace.engine.binding import keyword_fields
from commonplace.engine.finding.filters import Conditions, Filters, filters_of, visible_memories
from commonplace.engine.history.timeline import (
    messages_at,
    read_as_of,
    replaced_since,
    rows_at,
)
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import LIVE_STATES, Memory, When, moment
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.storage import derived, labels
from commonplace.storage import memories as stored
from commonplace.storage.fields import STATES
from commonplace.storage.ports import Rows
from commonplace.storage.tables import MEMORIES, Row
from commonplace.text.analysis import fold, trigrams

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# The index column that orders a listing: highest values first, except for `oldest`.
ORDERS = {"newest": "created", "oldest": "created", "importance": "importance",
          "credit": "credit", "updated": "row_seq", "latest": "occurred"}  # fmt: skip
TEXT_ORDERS = ("newest", "latest")
NEEDLE_CHARS = 1_000
SHORTEST_PREFIX = 4
_MATCHES_SHOWN = 5
_ADVICE = {
    "memory": "Find its id with 'commonplace search'.",
    "operation": "'commonplace log' lists the newest operations.",
}
_ARTICLE = {"memory": "a", "operation": "an"}
_PREFIX = re.compile(r"[0-9a-f-]{4,36}")


@keyword_fields(Conditions, Filters)
def browse(
    space: OpenSpace,
    *,
    order: str = "newest",
    limit: int = 50,
    offset: int = 0,
    filters: Filters | None = None,
    as_of: When | None = None,
    **conditions: Unpack[Conditions],
) -> tuple[list[Memory], int]:
    """Return memories by `order`, and the number of all that pass the filters.

    `order` is `newest`, `oldest`, `importance`, `credit`, `updated`, or `latest`, which sorts by
    the time at which the memories happened.
    """
    import numpy as np

    checks.limit(limit)
    checks.integer(offset, "offset")
    chosen = filters_of(filters, conditions)
    with space.view() as (connection, snapshot):
        seen = visible_memories(space, connection, snapshot, chosen, as_of)
        column = ORDERS[checks.one_of(order, "order", tuple(ORDERS))]
        at = np.flatnonzero(seen.mask)
        nums, values = seen.snapshot.num[at], getattr(seen.snapshot, column)[at]
        if order == "latest":
            values = times_of_memories(values, seen.snapshot.created[at])
        sign = 1 if order == "oldest" else -1
        page = at[np.lexsort((sign * nums, sign * values))][offset : offset + limit].tolist()
        wanted = {each: int(seen.snapshot.num[each]) for each in page if each not in seen.former}
        rows = MEMORIES.by_nums(connection, space.name, list(wanted.values()))
        found = [seen.former.get(each) or rows.get(wanted[each]) for each in page]
        return [Memory.of(row) for row in found if row is not None], len(at)


@dataclass(frozen=True, slots=True)
class MemoryColumns:
    """Columns of memories: arrays with one entry for each memory, by its number."""

    num: NDArray[np.int64]
    importance: NDArray[np.float32]
    pinned: NDArray[np.bool_]
    state: tuple[str, ...]
    created: NDArray[np.int64]


def memory_columns(space: OpenSpace, filters: Filters) -> MemoryColumns:
    """Return columns of every memory that passes the filters, without reading rows."""
    import numpy as np

    with space.view() as (connection, snapshot):
        at = np.flatnonzero(filters.mask(snapshot, connection, space.name))
        at = at[np.argsort(snapshot.num[at])]
        return MemoryColumns(
            snapshot.num[at],
            snapshot.importance[at],
            snapshot.pinned[at],
            tuple(STATES[code] for code in snapshot.state[at].tolist()),
            snapshot.created[at],
        )


def times_of_memories(occurred: NDArray[Any], created: NDArray[Any]) -> NDArray[Any]:
    """Return the times at which memories happened, or their storage times where unknown."""
    import numpy as np

    from commonplace.storage.index import NEVER

    return np.where(occurred == NEVER, created, occurred)


@keyword_fields(Conditions, Filters)
def find_text(
    space: OpenSpace,
    needle: str,
    *,
    limit: int = 50,
    order: str = "newest",
    in_text: bool = False,
    filters: Filters | None = None,
    as_of: When | None = None,
    **conditions: Unpack[Conditions],
) -> tuple[list[Memory], int]:
    """Return memories that contain exactly this text, ignoring case, and their number.

    The search covers title, text and tags, or with `in_text` the text alone. `order` is `newest`,
    or `latest`, which sorts by the time at which the memories happened.
    """
    checks.limit(limit)
    checks.flag(in_text, "in_text")
    chosen = filters_of(filters, conditions)
    folded = fold(checks.text(needle, "needle", max_chars=NEEDLE_CHARS))
    with read_as_of(space, as_of) as (connection, seq):
        former = [] if seq is None else replaced_since(connection, space.name, seq)
        current = (
            row
            for num in numbers_possibly_containing(connection, space.name, folded)
            for row in MEMORIES.where(connection, space.name, upto=seq, num=num)
        )
        every = map(Memory.of, chain((row for row, _ in former), current))
        found = [memory for memory in every if _contains(memory, folded, in_text)]
        said: dict[int, Row] = {}
        if chosen.speakers is not None:
            nums = [memory.num for memory in found]
            said = messages_at(connection, space.name, nums, seq)
    found = [
        each
        for each in found
        if chosen.admits(each, said[each.num]["speaker"] if each.num in said else "")
    ]
    if checks.one_of(order, "order", TEXT_ORDERS) == "latest":
        found.sort(key=lambda each: (each.occurred_at or each.created_at, each.num), reverse=True)
    else:
        found.sort(key=lambda each: -each.num)
    return found[:limit], len(found)


def _contains(memory: Memory, folded: str, in_text: bool) -> bool:
    parts: Sequence[str] = (memory.text,) if in_text else (memory.title, memory.text, *memory.tags)
    return folded in fold("\n".join(part for part in parts if part))


def numbers_possibly_containing(connection: Rows, space: str, folded: str) -> list[int]:
    """Return the numbers of the memories that may contain a case-folded text, newest first."""
    grams = trigrams(folded)
    if grams:
        return sorted(derived.memories_with_grams(connection, space, grams), reverse=True)
    return stored.all_numbers(connection, space)  # The text is too short for the trigram index.


def tags(space: OpenSpace, *, as_of: When | None = None) -> list[tuple[str, int, datetime]]:
    """Return (tag, number of live memories with it, time of first use), the most used first."""
    with read_as_of(space, as_of) as (connection, seq):
        if seq is None:
            found = labels.tags(connection, space.name, LIVE_STATES)
            return [(tag, count, moment(at)) for tag, count, at in found]
        made: dict[str, list[int]] = {}
        for row in rows_at(connection, space.name, MEMORIES, seq):
            if row["state"] in LIVE_STATES:
                for tag in json.loads(row["tags"]):
                    made.setdefault(tag, []).append(row["created_at"])
    counted = [(tag, len(times), moment(min(times))) for tag, times in made.items()]
    return sorted(counted, key=lambda each: (-each[1], each[0]))


def full_memory_id(space: OpenSpace, name: str) -> str:
    """Return the full id of a memory, in any state, from its id, its ref or a prefix of its id."""
    with space.store.read() as connection:
        exact = stored.find_by_id_or_ref(connection, space.name, name.lower(), name)
    return exact or _only_match(space, "memories", "memory", name)


def full_operation_id(space: OpenSpace, name: str) -> str:
    """Return the full id of an operation, from its id or a prefix of it."""
    return _only_match(space, "operations", "operation", name)


def _only_match(
    space: OpenSpace, table: Literal["memories", "operations"], kind: str, name: str
) -> str:
    prefix = name.lower()
    if not _PREFIX.fullmatch(prefix):
        if len(name) < SHORTEST_PREFIX:
            raise InvalidInput(
                f"{name!a} is too short to name {_ARTICLE[kind]} {kind}.",
                hint=f"Use at least {SHORTEST_PREFIX} characters of its id.",
                field="id",
            )
        raise NotFound(f"There is no {kind} {name[:60]!a}.", hint=_ADVICE[kind], field="id")
    with space.store.read() as connection:
        found = stored.ids_with_prefix(connection, space.name, table, prefix, _MATCHES_SHOWN + 1)
    if not found:
        raise NotFound(f"There is no {kind} {name[:60]!a}.", hint=_ADVICE[kind], field="id")
    if len(found) > 1:
        more = ", …" if len(found) > _MATCHES_SHOWN else ""
        raise Conflict(
            f"{name!a} could be {', '.join(found[:_MATCHES_SHOWN])}{more}.",
            hint="Use more characters of the id.",
            field="id",
        )
    return found[0]
