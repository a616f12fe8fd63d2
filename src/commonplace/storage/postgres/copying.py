"""Copy a space from a database to an SQLite file and back, for backups, checks and moves.

Tables have the same columns on both engines, so a copy consists of their rows, with unchanged row
hashes. Only the folded texts for substring search differ: SQLite indexes them, and cannot return
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import apsw

from commonplace.errors import StorageCorrupt
from commonplace.storage import schema
from commonplace.storage.comparing import (
    NEVER_EMPTY_TABLES,
    columns_of,
    compared_columns,
    count_and_hash,
)
from commonplace.storage.database import Connection, connect, create, typed_error
from commonplace.storage.derived import DerivedData
from commonplace.storage.postgres.rows import PostgresRows
from commonplace.storage.system import SYSTEM_MIGRATIONS
from commonplace.storage.tables import MEMORIES, Row
from commonplace.storage.writing import Head, write_head

BATCH = 500
_IN_OWN_SPACE = " WHERE space = current_setting('commonplace.space')"
Derive = Callable[[Row, str], DerivedData]


@contextlib.contextmanager
def _file(path: Path, steps: Sequence[schema.Step]) -> Iterator[Connection]:
    """Create a file with all tables, to be written in one transaction."""
    try:
        create(path, steps)
        connection = connect(path)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
            connection.pragma("journal_mode", "delete")
        finally:
            connection.close(True)
    except apsw.Error as error:
        raise typed_error(error) from error


def _batches(rows: PostgresRows, statement: str) -> Iterator[list[tuple[Any, ...]]]:
    """Yield all rows of a statement in batches, so that they need not fit into memory."""
    rows.execute(f"DECLARE copied NO SCROLL CURSOR FOR {statement}")
    while some := rows.execute(f"FETCH {BATCH} FROM copied").fetchall():
        yield some
    rows.execute("CLOSE copied")


def _compare(rows: PostgresRows, file: Connection, clause: str) -> None:
    """Raise StorageCorrupt if a table does not have the same rows on both sides."""
    for table, columns in columns_of(file).items():
        statement = f"SELECT {', '.join(compared_columns(table, columns))} FROM {table}"
        there = chain.from_iterable(_batches(rows, statement + clause))
        if count_and_hash(there) != count_and_hash(file.execute(statement)):
            raise StorageCorrupt(
                f"The copied rows of the table {table} differ from the original rows.",
                hint="Nothing was changed. Please report this.",
            )


def _copy_out(rows: PostgresRows, file: Connection, clause: str) -> None:
    for table, columns in columns_of(file).items():
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        for some in _batches(rows, f"SELECT {names} FROM {table}{clause}"):
            file.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", some)
    _compare(rows, file, clause)


def write_space(rows: PostgresRows, space: str, path: Path) -> None:
    """Write the rows of the snapshot's space into a new file."""
    with _file(path, schema.MIGRATIONS) as file:
        _copy_out(rows, file, _IN_OWN_SPACE)
        for some in _batches(rows, f"SELECT memory, body FROM grams{_IN_OWN_SPACE}"):
            file.add_grams(space, some)


def write_system(rows: PostgresRows, path: Path) -> None:
    """Write the system tables, which belong to no space, into a new file."""
    with _file(path, SYSTEM_MIGRATIONS) as file:
        _copy_out(rows, file, "")


def _copy_in(rows: PostgresRows, file: Connection, clause: str) -> None:
    for table, columns in columns_of(file).items():
        kept = compared_columns(table, columns)  # The database assigns the numbers of the outbox.
        names, marks = ", ".join(kept), ", ".join("?" * len(kept))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        rows.execute(f"DELETE FROM {table}{clause}")
        found = file.execute(f"SELECT {names} FROM {table}")
        while some := list(islice(found, BATCH)):
            rows.executemany(statement, some)
    _compare(rows, file, clause)


def read_space(rows: PostgresRows, space: str, file: Connection, derive: Derive) -> None:
    """Replace the rows of a space by those of a file, in the open transaction."""
    _copy_in(rows, file, _IN_OWN_SPACE)
    rows.execute("DELETE FROM grams WHERE space = ?", (space,))
    named = ", ".join(MEMORIES.fields)
    found = file.execute(f"SELECT {named} FROM memories WHERE space = ?", (space,))
    while some := list(islice(found, BATCH)):
        each = (dict(zip(MEMORIES.fields, values, strict=True)) for values in some)
        rows.add_grams(space, [(row["num"], derive(row, "").folded) for row in each])
    if file.execute("SELECT 1 FROM head WHERE space = ?", (space,)).fetchone() is None:
        write_head(rows, space, Head())  # Writers lock this row.


def read_system(rows: PostgresRows, file: Connection) -> None:
    """Replace the rows of the system tables by those of a file."""
    _copy_in(rows, file, "")


def has_space(rows: PostgresRows, space: str, file: Connection) -> bool:
    """Return whether a space has rows that those of a file would replace."""
    return any(
        rows.execute(f"SELECT 1 FROM {table} WHERE space = ? LIMIT 1", (space,)).fetchone()
        for table in columns_of(file)
        if table not in NEVER_EMPTY_TABLES
    )


def has_system(rows: PostgresRows, file: Connection) -> bool:
    """Return whether the system tables have rows that those of a file would replace."""
    tables = columns_of(file)
    return any(rows.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in tables)
