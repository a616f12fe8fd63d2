"""Listing memories, finding them by an exact text, and counting tags; now or as of a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Unpack

from commonplace.engine import checks
from commonplace.engine.binding import named
from commonplace.engine.finding.filters import Conditions, Filters, Visible, filters_of, visible
from commonplace.engine.history.timeline import (
    reading,
    replaced_since,
    rows_at,
    speakers_at,
)
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import LIVE_STATES, Memory, When, moment
from commonplace.storage import derived, labels
from commonplace.storage import memories as stored
from commonplace.storage.ports import Rows
from commonplace.storage.tables import MEMORIES, Row
from commonplace.text.analysis import fold, trigrams

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from commonplace.storage.index import Snapshot

# (column of the index, column of the table) by which a listing is ordered.
ORDERS = {"newest": ("created", "created_at"), "oldest": ("created", "created_at"),
          "importance": ("importance", "importance"), "credit": ("credit", "credit"),
          "updated": ("row_seq", "seq"), "latest": ("occurred", "occurred_at")}  # fmt: skip
TEXT_ORDERS = ("newest", "latest")
NEEDLE_CHARS = 1_000


@named(Conditions, Filters)
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
    """Return memories by `order`, and the count of all that pass.

    `newest`, `oldest`, `importance`, `credit`, `updated`, or `latest`: by when they happened.
    """
    import numpy as np

    checks.limit(limit)
    checks.whole(offset, "offset")
    chosen = filters_of(filters, conditions)
    with space.view() as (connection, snapshot):
        seen = visible(connection, space.name, snapshot, chosen, as_of)
        columns = ORDERS[checks.one_of(order, "order", tuple(ORDERS))]
        nums, values = _column(snapshot, seen, "num", "num"), _column(snapshot, seen, *columns)
        if order == "latest":
            values = happened(values, _column(snapshot, seen, "created", "created_at"))
        sign = 1 if order == "oldest" else -1
        page = nums[np.lexsort((sign * nums, sign * values))][offset : offset + limit].tolist()
        rows: dict[int, Row] = {row["num"]: row for row, _ in seen.former}
        rows |= MEMORIES.by_nums(connection, space.name, [num for num in page if num not in rows])
        return [Memory.of(rows[num]) for num in page if num in rows], len(nums)


def _column(snapshot: Snapshot, seen: Visible, name: str, column: str) -> NDArray[Any]:
    """Return a column of the index where memories are visible, followed by former rows."""
    import numpy as np

    from commonplace.storage.index import NEVER

    current: NDArray[Any] = getattr(snapshot, name)[seen.mask]
    if not seen.former:
        return current
    former = [NEVER if row[column] is None else row[column] for row, _ in seen.former]
    return np.concatenate([current, np.array(former, current.dtype)])


@dataclass(frozen=True, slots=True)
class Census:
    """Columns of memories, one entry for each memory, by their numbers."""

    num: NDArray[np.int64]
    importance: NDArray[np.float32]
    pinned: NDArray[np.bool_]
    state: tuple[str, ...]


def census(space: OpenSpace, filters: Filters) -> Census:
    """Return columns of every memory that passes the filters, without reading its row."""
    import numpy as np

    from commonplace.storage.index import STATES

    with space.view() as (connection, snapshot):
        at = np.flatnonzero(filters.mask(snapshot, connection, space.name))
        at = at[np.argsort(snapshot.num[at])]
        return Census(
            snapshot.num[at],
            snapshot.importance[at],
            snapshot.pinned[at],
            tuple(STATES[code] for code in snapshot.state[at].tolist()),
        )


def happened(occurred: NDArray[Any], created: NDArray[Any]) -> NDArray[Any]:
    """Return when memories happened, or were stored where that is not known."""
    import numpy as np

    from commonplace.storage.index import NEVER

    return np.where(occurred == NEVER, created, occurred)


@named(Conditions, Filters)
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
    """Return memories that contain exactly this text, ignoring case, and their count.

    Title, text and tags are searched, or the text alone (`in_text`). `order` is `newest`, or
    `latest`: by when they happened.
    """
    checks.limit(limit)
    checks.flag(in_text, "in_text")
    chosen = filters_of(filters, conditions)
    folded = fold(checks.text(needle, "needle", max_chars=NEEDLE_CHARS))
    with reading(space, as_of) as (connection, seq):
        former = [] if seq is None else replaced_since(connection, space.name, seq)
        current = (
            row
            for num in candidates(connection, space.name, folded)
            for row in MEMORIES.where(connection, space.name, upto=seq, num=num)
        )
        every = map(Memory.of, chain((row for row, _ in former), current))
        found = [memory for memory in every if _contains(memory, folded, in_text)]
        speakers: dict[int, str] = {}
        if chosen.speakers is not None:
            nums = [memory.num for memory in found]
            speakers = speakers_at(connection, space.name, nums, seq)
    found = [each for each in found if chosen.admits(each, speakers.get(each.num, ""))]
    if checks.one_of(order, "order", TEXT_ORDERS) == "latest":
        found.sort(key=lambda each: (each.occurred_at or each.created_at, each.num), reverse=True)
    else:
        found.sort(key=lambda each: -each.num)
    return found[:limit], len(found)


def _contains(memory: Memory, folded: str, in_text: bool) -> bool:
    parts: Sequence[str] = (memory.text,) if in_text else (memory.title, memory.text, *memory.tags)
    return folded in fold("\n".join(part for part in parts if part))


def candidates(connection: Rows, space: str, folded: str) -> list[int]:
    """Return the numbers of the memories that may contain a folded text, newest first."""
    grams = trigrams(folded)
    if grams:
        return sorted(derived.holding(connection, space, grams), reverse=True)
    return stored.all_numbers(connection, space)  # too short for the index of trigrams


def tags(space: OpenSpace, *, as_of: When | None = None) -> list[tuple[str, int, datetime]]:
    """Return (tag, how many live memories have it, since when), the most used first."""
    with reading(space, as_of) as (connection, seq):
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
