"""The table `counters`: how often each memory was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commonplace.errors import StorageCorrupt
from commonplace.storage.ports import Rows
from commonplace.storage.tables import COUNTERS

_WRITE = COUNTERS.upsert("memory")
_EXISTING = "SELECT num FROM memories WHERE space = ?"


def read(rows: Rows, space: str, num: int) -> tuple[int, int]:
    """Return how often a memory was read, and the time of the last read."""
    return read_many(rows, space, [num]).get(num, (0, 0))


def add(rows: Rows, space: str, reads: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Add reads, given as (count, time of the last), to the counters; return the new counts.

    Memories that no longer exist get no counter.
    """
    known = read_many(rows, space, list(reads))
    values = {}
    for num, (count, at) in reads.items():
        accesses, last = known.get(num, (0, 0))
        values[num] = accesses + count, max(last, at)
    existing = [num for (num,) in rows.select_each(_EXISTING, "num", space, list(reads))]
    rows.executemany(_WRITE, [COUNTERS.row((space, num, *values[num])) for num in existing])
    return {num: accesses for num, (accesses, _) in values.items()}


def read_many(rows: Rows, space: str, nums: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return `read` for each of some memories that has a counter."""
    found = {}
    for row in rows.select_each(COUNTERS.select_sql, "memory", space, nums):
        if not COUNTERS.matches_hash(row):
            raise StorageCorrupt(
                f"The access counter of row {row[1]} is damaged.",
                hint="Run 'commonplace doctor --repair' to reset it.",
            )
        found[row[1]] = row[2], row[3]
    return found


def memories_read_since(rows: Rows, space: str, at: int) -> list[int]:
    """Return the numbers of the memories that were read since a time."""
    found = rows.execute(
        "SELECT memory FROM counters WHERE space = ? AND last_access >= ? ORDER BY memory",
        (space, at),
    )
    return [row[0] for row in found]
