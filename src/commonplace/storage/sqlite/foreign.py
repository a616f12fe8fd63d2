"""Read databases of other programs from a copy; the file itself is never opened.

Its write-ahead log or journal is copied with it. If the file changed meanwhile, or the copy is
damaged, it is copied again.
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
_FILES = ("", "-wal", "-journal")

Row = dict[str, Any]


def fingerprint(path: Path) -> str:
    """Return a text that changes when the file or its log changes."""
    parts = []
    for suffix in _FILES:
        with contextlib.suppress(OSError):
            state = path.with_name(path.name + suffix).stat()
            parts.append(f"{suffix}:{state.st_size}:{state.st_mtime_ns}:{state.st_ino}")
    return " ".join(parts)


class Copy:
    """An open copy of another program's database."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def rows(self, table: str, columns: Sequence[str], order: str = "rowid") -> Iterator[Row]:
        """Yield a table's rows one by one, with those of the columns that exist.

        Yield no rows if the table does not exist. If the table has an index on `order`, only one
        row is in memory at a time.
        """
        try:
            found = self._connection.execute(f"PRAGMA table_info({table})")
            existing = {row[1] for row in found}
            names = [name for name in columns if name in existing]
            if names:
                by = order if order in existing else "rowid"
                for row in self._connection.execute(
                    f"SELECT {', '.join(names)} FROM {table} ORDER BY {by}"  # noqa: S608  constants
                ):
                    yield dict(zip(names, row, strict=True))
        except (apsw.Error, UnicodeDecodeError) as error:
            raise _unreadable_error(self._path, str(error)) from error


@contextlib.contextmanager
def open_copy(path: Path, tables: Iterable[str]) -> Iterator[Copy]:
    """Open a consistent copy of a database in which these tables are intact."""
    why = "the file is not a complete SQLite database, or it keeps changing"
    with tempfile.TemporaryDirectory(prefix="commonplace-foreign-") as folder:
        copy = Path(folder) / "copy.db"
        for _ in range(TRIES):
            try:
                before = fingerprint(path)
                for suffix in (*_FILES, "-shm"):
                    Path(f"{copy}{suffix}").unlink(missing_ok=True)
                for suffix in _FILES:
                    with contextlib.suppress(FileNotFoundError):
                        shutil.copyfile(path.with_name(path.name + suffix), f"{copy}{suffix}")
                if fingerprint(path) == before and _is_intact(copy, tables):
                    break
            except OSError as error:
                why = str(error)
            time.sleep(PAUSE_SECONDS)
        else:
            raise _unreadable_error(path, why)
        connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            yield Copy(connection, path)
        finally:
            connection.close(True)


def read_tables(path: Path, tables: Mapping[str, Sequence[str]]) -> dict[str, list[Row]]:
    """Return the rows of tables from one snapshot, in insertion order; see `Copy.rows`."""
    with open_copy(path, tables) as copy:
        return {name: list(copy.rows(name, columns)) for name, columns in tables.items()}


def table_names(path: Path) -> frozenset[str]:
    """Return the names of a database's tables."""
    with open_copy(path, ()) as copy:
        return frozenset(row["name"] for row in copy.rows("sqlite_schema", ("name",)))


def _is_intact(copy: Path, tables: Iterable[str]) -> bool:
    """Return whether these tables of a copy are intact; the log is merged into the copy.

    Other tables are not checked, since they may need extensions that are not installed.
    """
    try:
        with contextlib.closing(apsw.Connection(str(copy), apsw.SQLITE_OPEN_READWRITE)) as opened:
            opened.pragma("journal_mode", "delete")
            found = {row[0] for row in opened.execute("SELECT name FROM sqlite_schema")}
            checks = [f"PRAGMA quick_check({table})" for table in tables if table in found]
            return all(opened.execute(check).fetchall() == [("ok",)] for check in checks)
    except apsw.Error:
        return False


def is_intact_database(path: Path) -> bool:
    """Return whether a file is an intact SQLite database. No process may have it open."""
    try:
        with contextlib.closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as opened:
            return opened.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]
    except apsw.Error:
        return False


def _unreadable_error(path: Path, why: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"The database {path} cannot be read: {why}.", hint="Check its path and its permissions."
    )
