"""Read every row of `TABLES`, even a damaged one, and report whether it matches its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from commonplace.storage.database import Connection
from commonplace.storage.tables import (
    COUNTERS,
    EVENTS,
    HEAD,
    OPERATIONS,
    VERSIONED,
    VERSIONS,
    Hashed,
    Row,
    digest,
)

TABLES: dict[str, Hashed] = {
    table.name: table for table in (HEAD, OPERATIONS, *VERSIONED, EVENTS, VERSIONS, COUNTERS)
}
_KEYS = {"head": ("seq",), "versions": ("entity", "num", "until"), "counters": ("memory",)}


def key_of(table: Hashed) -> tuple[str, ...]:
    """Return the columns that identify a row within its space."""
    return _KEYS.get(table.name, ("num",))


def row_name(table: Hashed, row: Row) -> str:
    """Return the name of a row in reports: its table and its key."""
    return f"{table.name} {', '.join(f'{part} {row[part]}' for part in key_of(table))}"


def is_intact_row(table: Hashed, row: Row) -> bool:
    """Return whether a row matches its hash; an event's payload must match the hash in its row."""
    payload = row.get("payload")
    if payload is not None and digest(payload) != row["payload_hash"]:
        return False
    return table.matches_hash(tuple(row.values()))


def read_rows(connection: Connection, table: Hashed) -> Iterator[tuple[Row, bool]]:
    """Yield each row with all stored columns and whether it matches its hash, ordered by key."""
    last: Row | None = None
    try:
        for values in connection.execute(_select(table, table.stored)):
            row = dict(zip(table.stored, values, strict=True))
            yield row, is_intact_row(table, row)
            last = row
        return
    except UnicodeDecodeError:
        pass  # A cursor ends at invalid UTF-8; the remaining rows are read as bytes.
    skipping = last is not None
    for raw in connection.execute(
        _select(table, [f"CAST({name} AS BLOB)" for name in table.stored])
    ):
        row, sound = _read_one(connection, table, raw)
        if skipping:
            skipping = row != last
            continue
        yield row, sound


def _select(table: Hashed, columns: Sequence[str]) -> str:
    order = ", ".join(key_of(table))
    return f"SELECT {', '.join(columns)} FROM {table.name} ORDER BY {order}"  # noqa: S608


def _read_one(connection: Connection, table: Hashed, raw: Sequence[Any]) -> tuple[Row, bool]:
    """Read a row by its key, given as bytes; invalid text is replaced by U+FFFD."""
    stored = dict(zip(table.stored, raw, strict=True))
    where = " AND ".join(f"CAST({part} AS BLOB) = ?" for part in key_of(table))
    try:
        values = connection.execute(
            f"SELECT {', '.join(table.stored)} FROM {table.name} WHERE {where}",  # noqa: S608
            [stored[part] for part in key_of(table)],
        ).fetchone()
    except UnicodeDecodeError:
        values = None
    if values is None:
        shown = (v.decode(errors="replace") if isinstance(v, bytes) else v for v in raw)
        return dict(zip(table.stored, shown, strict=True)), False
    row = dict(zip(table.stored, values, strict=True))
    return row, is_intact_row(table, row)


@dataclass(slots=True)
class RowCensus:
    """The number of rows of a file, a digest of their content, and the number of damaged rows."""

    rows: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    damaged: int = 0
    first_damaged: str = ""


def take_census(
    connection: Connection, space: str, progress: Callable[[int], None] | None = None
) -> RowCensus:
    """Read all rows of `TABLES`. The digest does not depend on the name of the space."""
    census, content, seen = RowCensus(), hashlib.sha256(), 0
    for table in TABLES.values():
        first_seen = seen
        left_out = {"space", "format", table.hash_column, *table.added}
        names = [name for name in table.stored if name not in left_out]
        for row, sound in read_rows(connection, table):
            seen += 1
            if not sound or row["space"] != space:
                census.damaged += 1
                census.first_damaged = census.first_damaged or row_name(table, row)
            # As in the row's hash, added columns count only if they differ from their default.
            newer = table.changed_additions([row[name] for name in table.added])
            values = (*(row[name] for name in names), *newer.items())
            content.update(ascii((table.name, *values)).encode())
            if progress is not None and seen % 1_000 == 0:
                progress(seen)
        census.rows[table.name] = seen - first_seen
    census.digest = content.hexdigest()
    return census
