"""All rows of a table as one number, to see whether two databases hold the same.

Both engines have tables with the same columns, and give the same values for the same row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from commonplace.storage.database import Connection

ASSIGNED = frozenset({("outbox", "num")})
"""Columns whose values each database assigns itself."""


Total = tuple[int, int]
"""How many rows there are, and the sum of their hashes, in whatever order."""


def columns_of(file: Connection) -> dict[str, list[str]]:
    """The columns of every table of a file, without the index of substrings."""
    names = file.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        " AND name NOT LIKE 'grams%' ORDER BY name"
    ).fetchall()
    return {
        str(name): [str(row[1]) for row in file.execute(f"PRAGMA table_info({name})")]
        for (name,) in names
    }


def compared(table: str, columns: Iterable[str]) -> list[str]:
    """The columns by which rows of two databases are compared, in an order of their own."""
    return sorted(name for name in columns if (table, name) not in ASSIGNED)


def total(rows: Iterable[Sequence[Any]]) -> Total:
    """The total of rows."""
    count = hashes = 0
    for row in rows:
        digest = hashlib.sha256(ascii(tuple(row)).encode()).digest()
        hashes = (hashes + int.from_bytes(digest)) % (1 << 256)
        count += 1
    return count, hashes


def totals(file: Connection) -> dict[str, Total]:
    """The total of each table of a file."""
    found = {table: compared(table, names) for table, names in columns_of(file).items()}
    return {
        table: total(file.execute(f"SELECT {', '.join(names)} FROM {table}"))  # noqa: S608
        for table, names in found.items()
    }
