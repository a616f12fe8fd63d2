"""Databases of other programs, read from a copy: the file itself is never touched.

Its write-ahead log or journal is copied with it. A copy that was torn by a writer shows as changed
or as damaged, and is made again.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from commonplace.errors import StorageUnavailable

TRIES = 20
PAUSE_SECONDS = 0.05
BESIDE = ("", "-wal", "-journal")

Row = dict[str, Any]


def fingerprint(path: Path) -> str:
    """Changes when the file or what lies beside it does."""
    parts = []
    for suffix in BESIDE:
        with contextlib.suppress(OSError):
            state = path.with_name(path.name + suffix).stat()
            parts.append(f"{suffix}:{state.st_size}:{state.st_mtime_ns}:{state.st_ino}")
    return " ".join(parts)


class Copy:
    """A whole copy of somebody else's database, to read from as much as is needed at a time."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def rows(self, table: str, columns: Sequence[str], order: str = "rowid") -> Iterator[Row]:
        """A table's rows one after the other, in whichever of the columns it has.

        None for a table that is not there. By an `order` that the table has an index for, no more
        than one of them is held at a time.
        """
        try:
            yield from _rows(self._connection, table, columns, order)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise _unreadable(self._path, str(error)) from error


@contextlib.contextmanager
def opened(path: Path, tables: Iterable[str]) -> Iterator[Copy]:
    """A copy of a database as of one moment, in which these tables are sound."""
    with _copied(path, tables) as copy:
        connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            yield Copy(connection, path)
        finally:
            connection.close(True)


def read(path: Path, tables: Mapping[str, Sequence[str]]) -> dict[str, list[Row]]:
    """The rows of tables as of one moment, in the order they were inserted.

    Each in whichever of the wanted columns it has; none for a table that is not there.
    """
    with opened(path, tables) as copy:
        return {name: list(copy.rows(name, columns)) for name, columns in tables.items()}


@contextlib.contextmanager
def _copied(path: Path, tables: Iterable[str]) -> Iterator[Path]:
    why = "it is no whole SQLite database, or keeps changing"
    with tempfile.TemporaryDirectory(prefix="commonplace-foreign-") as folder:
        copy = Path(folder) / "copy.db"
        for _ in range(TRIES):
            try:
                before = fingerprint(path)
                for suffix in (*BESIDE, "-shm"):
                    Path(f"{copy}{suffix}").unlink(missing_ok=True)
                for suffix in BESIDE:
                    with contextlib.suppress(FileNotFoundError):
                        shutil.copyfile(path.with_name(path.name + suffix), f"{copy}{suffix}")
                if fingerprint(path) == before and _whole(copy, tables):
                    break
            except OSError as error:
                why = str(error)
            time.sleep(PAUSE_SECONDS)
        else:
            raise _unreadable(path, why)
        yield copy


def _whole(copy: Path, tables: Iterable[str]) -> bool:
    """Whether the copy is sound; what its log holds becomes part of it here.

    Table by table: other tables may need extensions that are not here.
    """
    try:
        connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.pragma("journal_mode", "delete")
            found = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
            return all(
                connection.execute(f"PRAGMA quick_check({table})").fetchall() == [("ok",)]
                for table in tables
                if table in found
            )
        finally:
            connection.close(True)
    except apsw.Error:
        return False


def is_sound(path: Path) -> bool:
    """Whether a file that nobody has open is a whole SQLite database."""
    try:
        with contextlib.closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as opened:
            return opened.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]
    except apsw.Error:
        return False


def _unreadable(path: Path, why: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"The database {path} cannot be read: {why}.", hint="Check its path and its rights."
    )


def _rows(
    connection: apsw.Connection, table: str, columns: Sequence[str], order: str
) -> Iterator[Row]:
    there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
    names = [name for name in columns if name in there]
    if not names:
        return
    by = order if order in there else "rowid"
    found = connection.execute(
        f"SELECT {', '.join(names)} FROM {table} ORDER BY {by}"  # noqa: S608  constant names
    )
    for row in found:
        yield dict(zip(names, row, strict=True))
