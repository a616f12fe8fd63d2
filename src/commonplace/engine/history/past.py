"""Memories as they were at a moment: listed, counted, found by a part of their text.

A memory that has not changed since stands in the index and is asked for there; the others are
among the former versions, each of which was kept with the operation that replaced it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commonplace.engine import checks
from commonplace.engine.content import memories
from commonplace.engine.finding.filters import Filters
from commonplace.engine.history import timeline
from commonplace.engine.model import LIVE_STATES, Memory, When
from commonplace.engine.space import OpenSpace
from commonplace.storage.index import NEVER, Snapshot
from commonplace.storage.ports import Rows
from commonplace.storage.tables import MEMORIES, Row
from commonplace.text.analysis import fold

# The columns of the index that a listing goes by, as a row calls them.
_COLUMNS = {"created": "created_at", "row_seq": "seq", "num": "num", "credit": "credit",
            "importance": "importance", "occurred": "occurred_at"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Then:
    """What stood at a moment and passes some filters."""

    seq: int
    at: NDArray[np.intp]
    """Positions of the index that have not changed since."""
    former: list[tuple[Row, bytes | None]]
    """What has changed since, as it was, with its vectors."""

    def column(self, snapshot: Snapshot, name: str) -> NDArray[Any]:
        """A column of the index, with the values of former rows at its end."""
        stands = getattr(snapshot, name)[self.at]
        was = [row[_COLUMNS.get(name, name)] for row, _ in self.former]
        if name == "occurred":
            was = [NEVER if at is None else at for at in was]
        return np.concatenate([stands, np.array(was, stands.dtype)])


def look(
    space: OpenSpace,
    connection: Rows,
    snapshot: Snapshot,
    filters: Filters,
    as_of: When,
) -> Then:
    """What stood at a moment and passes the filters, which are applied to how it was."""
    seq = timeline.seq_at(connection, space.name, as_of)
    mask = filters.mask(snapshot, connection, space.name) & (snapshot.row_seq <= seq)
    former = timeline.replaced_since(connection, space.name, seq)
    said: dict[int, str] = {}
    if filters.speakers is not None:
        nums = [row["num"] for row, _ in former]
        said = timeline.speakers_as_of(connection, space.name, nums, seq)
    admitted = [
        (row, vectors)
        for row, vectors in former
        if filters.admits(Memory.of(row), said.get(row["num"], ""))
    ]
    return Then(seq, np.flatnonzero(mask), admitted)


def browse(
    space: OpenSpace, filters: Filters, *, order: str, limit: int, offset: int, as_of: When
) -> tuple[list[Memory], int]:
    """Memories that passed the filters in a plain order, and how many there were in all."""
    column = memories.ORDERS[checks.one_of(order, "order", tuple(memories.ORDERS))]
    sign = 1 if order == "oldest" else -1
    with space.view() as (connection, snapshot):
        then = look(space, connection, snapshot, filters, as_of)
        num = then.column(snapshot, "num")
        values = then.column(snapshot, column)
        if order == "latest":
            values = memories.happened(values, then.column(snapshot, "created"))
        keys = (sign * num, sign * values)
        chosen = num[np.lexsort(keys)][offset : offset + limit].tolist()
        rows = _rows(space, connection, then, chosen)
        return [Memory.of(rows[each]) for each in chosen], len(num)


def _rows(space: OpenSpace, connection: Rows, then: Then, nums: Sequence[int]) -> dict[int, Row]:
    former = {row["num"]: row for row, _ in then.former}
    return former | MEMORIES.by_nums(
        connection, space.name, [num for num in nums if num not in former]
    )


def find_text(
    space: OpenSpace,
    needle: str,
    filters: Filters,
    *,
    limit: int,
    order: str,
    in_text: bool,
    as_of: When,
) -> tuple[list[Memory], int]:
    """Memories that contained the needle as it stands, and how many there were."""
    folded = fold(checks.text(needle, "needle", max_chars=1_000))
    with space.store.read() as connection:
        seq = timeline.seq_at(connection, space.name, as_of)
        rows = [row for row, _ in timeline.replaced_since(connection, space.name, seq)]
        for num in memories.candidates(connection, space.name, folded):
            rows += MEMORIES.where(connection, space.name, upto=seq, num=num)
        every = map(Memory.of, rows)
        holding = [each for each in every if memories.holds(each, folded, in_text=in_text)]
        said: dict[int, str] = {}
        if filters.speakers is not None:
            nums = [each.num for each in holding]
            said = timeline.speakers_as_of(connection, space.name, nums, seq)
    found = [each for each in holding if filters.admits(each, said.get(each.num, ""))]
    return memories.in_order(found, order)[:limit], len(found)


def tags(space: OpenSpace, *, as_of: When) -> list[tuple[str, int, int]]:
    """(tag, how many live memories had it, when the first of them was made), most used first."""
    made: dict[str, list[int]] = {}
    with space.store.read() as connection:
        seq = timeline.seq_at(connection, space.name, as_of)
        for row in timeline.rows_as_of(connection, space.name, MEMORIES, seq):
            if row["state"] in LIVE_STATES:
                for tag in json.loads(row["tags"]):
                    made.setdefault(tag, []).append(row["created_at"])
    counted = [(tag, len(times), min(times)) for tag, times in made.items()]
    return sorted(counted, key=lambda each: (-each[1], each[0]))
