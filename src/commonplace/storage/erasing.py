"""Deleting rows for good, with their versions and with all that is derived from them."""

from __future__ import annotations

from commonplace.storage import derived
from commonplace.storage.ports import Rows
from commonplace.storage.tables import Table


def _deleted(rows: Rows, table: str, space: str, where: str, *params: object) -> int:
    """Delete rows of a space; how many that were."""
    statement = f"DELETE FROM {table} WHERE space = ? AND {where} RETURNING 1"  # noqa: S608
    return len(rows.execute(statement, (space, *params)).fetchall())


def erase_row(rows: Rows, space: str, table: Table, num: int) -> int:
    """Delete a row with all its versions; how many rows that were."""
    count = _deleted(rows, table.name, space, "num = ?", num)
    return count + _deleted(rows, "versions", space, "entity = ? AND num = ?", table.name, num)


def erase_derived(rows: Rows, space: str, memory: int) -> int:
    """Delete what finds a memory, its counter and its place in the outbox; how many rows."""
    count = sum(
        _deleted(rows, table, space, "memory = ?", memory)
        for table in ("lexemes", "passages", "labels", "counters")
    )
    derived.drop(rows, space, memory)
    return count + _deleted(rows, "outbox", space, "kind = 'embed' AND subject = ?", str(memory))
