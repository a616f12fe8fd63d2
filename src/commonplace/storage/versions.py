"""Statements on `versions`, the former states of rows, and on permanent deletion of rows."""

from __future__ import annotations

from collections.abc import Iterator

from commonplace.storage import derived
from commonplace.storage.ports import Rows
from commonplace.storage.tables import VERSIONED, Table


def count(rows: Rows, space: str) -> int:
    """Return the number of current rows, versions, events and operations of a space."""
    total = 0
    for name in (*(table.name for table in VERSIONED), "events", "versions", "operations"):
        statement = f"SELECT count(*) FROM {name} WHERE space = ?"  # noqa: S608
        total += int(rows.execute(statement, (space,)).fetchone()[0])
    return total


def current_numbers(rows: Rows, space: str, table: Table) -> Iterator[int]:
    """Return the numbers of a table's rows in the order of the operations that wrote them."""
    statement = f"SELECT num FROM {table.name} WHERE space = ? ORDER BY seq, num"  # noqa: S608
    return (row[0] for row in rows.execute(statement, (space,)))


def former_spans(rows: Rows, space: str, table: Table) -> Iterator[tuple[int, int, int]]:
    """Return (since, number, until) of a table's versions, in that order."""
    found: Iterator[tuple[int, int, int]] = rows.execute(
        "SELECT since, num, until FROM versions WHERE space = ? AND entity = ? ORDER BY since, num",
        (space, table.name),
    )
    return found


def removals(rows: Rows, space: str, table: Table) -> Iterator[tuple[int, int]]:
    """Return the row number and the operation of every removal, in the order of the operations."""
    found: Iterator[tuple[int, int]] = rows.execute(
        "SELECT num, until FROM versions v WHERE space = ?1 AND entity = ?2 AND NOT"  # noqa: S608
        f" EXISTS (SELECT 1 FROM {table.name} t WHERE t.space = ?1 AND t.num = v.num"
        "  AND t.seq = v.until) AND NOT EXISTS (SELECT 1 FROM versions w WHERE w.space = ?1"
        " AND w.entity = ?2 AND w.num = v.num AND w.since = v.until) ORDER BY until, num",
        (space, table.name),
    )
    return found


def removed_numbers(rows: Rows, space: str, table: Table) -> list[int]:
    """Return the numbers of rows that have versions but no current state."""
    found = rows.execute(
        "SELECT DISTINCT num FROM versions v WHERE space = ?1 AND entity = ?2 AND NOT"  # noqa: S608
        f" EXISTS (SELECT 1 FROM {table.name} t WHERE t.space = ?1 AND t.num = v.num)",
        (space, table.name),
    )
    return [row[0] for row in found]


def has_versions(rows: Rows, space: str, table: Table, num: int) -> bool:
    """Return whether a row has any version."""
    found = rows.execute(
        "SELECT 1 FROM versions WHERE space = ? AND entity = ? AND num = ? LIMIT 1",
        (space, table.name, num),
    ).fetchone()
    return found is not None


def last_replaced_by(rows: Rows, space: str, table: Table, num: int) -> int:
    """Return the operation that replaced or removed a row's newest version, or 0."""
    found = rows.execute(
        "SELECT max(until) FROM versions WHERE space = ? AND entity = ? AND num = ?",
        (space, table.name, num),
    ).fetchone()
    return int((found and found[0]) or 0)


def last_change_before(rows: Rows, space: str, table: Table, num: int, seq: int) -> int:
    """Return the last operation that changed a row before operation `seq`; 0 if there is none."""
    found = rows.execute(
        "SELECT CASE until WHEN ?4 THEN since ELSE until END FROM versions"
        " WHERE space = ?1 AND entity = ?2 AND num = ?3 AND until <= ?4"
        " ORDER BY until DESC LIMIT 1",
        (space, table.name, num, seq),
    ).fetchone()
    return int(found[0]) if found else 0


def operation_spans(rows: Rows, space: str, table: Table, num: int) -> list[tuple[int, int]]:
    """Return the operations that wrote and replaced each version of a row."""
    found: list[tuple[int, int]] = rows.execute(
        "SELECT since, until FROM versions WHERE space = ? AND entity = ? AND num = ?",
        (space, table.name, num),
    ).fetchall()
    return found


def _delete_rows(rows: Rows, table: str, space: str, where: str, *params: object) -> int:
    """Delete rows of a space; return their number."""
    statement = f"DELETE FROM {table} WHERE space = ? AND {where} RETURNING 1"  # noqa: S608
    return len(rows.execute(statement, (space, *params)).fetchall())


def erase_row(rows: Rows, space: str, table: Table, num: int) -> int:
    """Delete a row and all its versions; return the number of rows."""
    count = _delete_rows(rows, table.name, space, "num = ?", num)
    return count + _delete_rows(rows, "versions", space, "entity = ? AND num = ?", table.name, num)


def erase_derived(rows: Rows, space: str, memory: int) -> int:
    """Delete a memory's derived rows, counter and outbox request; return the number of rows."""
    count = sum(
        _delete_rows(rows, table, space, "memory = ?", memory)
        for table in ("lexemes", "passages", "labels", "counters")
    )
    derived.drop_entries(rows, space, memory)
    return count + _delete_rows(
        rows, "outbox", space, "kind = 'embed' AND subject = ?", str(memory)
    )
