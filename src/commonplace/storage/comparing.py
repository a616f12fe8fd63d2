"""Checksums of tables, to check whether two databases have the same rows.

Both engines have tables with the same columns, and return the same values for the same row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from commonplace.storage.database import Connection

ASSIGNED_COLUMNS = frozenset({("outbox", "num")})
"""Columns whose values each database assigns itself; they are not compared."""

NEVER_EMPTY_TABLES = ("head", "audit_head")
"""Tables that have a row even in an empty space."""

Total = tuple[int, int]
"""The number of rows, and the sum of their hashes, which does not depend on the order."""


def columns_of(file: Connection) -> dict[str, list[str]]:
    """Return the columns of every table of a file, except the substring index."""
    names = file.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        " AND name NOT LIKE 'grams%' ORDER BY name"
    ).fetchall()
    return {
        str(name): [str(row[1]) for row in file.execute(f"PRAGMA table_info({name})")]
        for (name,) in names
    }


def compared_columns(table: str, columns: Iterable[str]) -> list[str]:
    """Return the columns by which the rows of two databases are compared, in a fixed order."""
    return sorted(name for name in columns if (table, name) not in ASSIGNED_COLUMNS)


def count_and_hash(rows: Iterable[Sequence[Any]]) -> Total:
    """Return the number of rows and the sum of their hashes."""
    count = hashes = 0
    for row in rows:
        digest = hashlib.sha256(ascii(tuple(row)).encode()).digest()
        hashes = (hashes + int.from_bytes(digest)) % (1 << 256)
        count += 1
    return count, hashes


def totals_of_tables(file: Connection) -> dict[str, Total]:
    """Return the total of each table of a file: row count and sum of hashes."""
    found = {table: compared_columns(table, names) for table, names in columns_of(file).items()}
    return {
        table: count_and_hash(file.execute(f"SELECT {', '.join(names)} FROM {table}"))  # noqa: S608
        for table, names in found.items()
    }
