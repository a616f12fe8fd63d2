"""The table `counters`: how often each memory was read."""

from __future__ import annotations

from commonplace.errors import StorageCorrupt
from commonplace.storage.ports import Rows
from commonplace.storage.tables import COUNTERS

_READ = COUNTERS.select_sql + " AND memory = ?"
_WRITE = COUNTERS.upsert("memory")


def read(rows: Rows, space: str, num: int) -> tuple[int, int]:
    """Return how often a memory was read, and the time of the last read."""
    row = rows.execute(_READ, (space, num)).fetchone()
    if row is None:
        return 0, 0
    if not COUNTERS.sound(row):
        raise StorageCorrupt(
            f"The access counter of row {num} is damaged.",
            hint="Run 'commonplace doctor --repair' to reset it.",
        )
    return row[2], row[3]


def write(rows: Rows, space: str, num: int, accesses: int, last: int) -> None:
    """Set a memory's counter, if the memory still exists."""
    known = rows.execute(
        "SELECT 1 FROM memories WHERE space = ? AND num = ?", (space, num)
    ).fetchone()
    if known is not None:
        rows.execute(_WRITE, COUNTERS.row((space, num, accesses, last)))


def used_since(rows: Rows, space: str, at: int) -> list[int]:
    """Return the numbers of the memories that were read since a time."""
    found = rows.execute(
        "SELECT memory FROM counters WHERE space = ? AND last_access >= ? ORDER BY memory",
        (space, at),
    )
    return [row[0] for row in found]
