"""SQLite files: open, create, migrate and copy them, and translate their errors; ids and times."""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from commonplace.errors import (
    DISK_FULL_ERRNOS,
    CommonplaceError,
    Conflict,
    StorageCorrupt,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
    UnsupportedVersion,
)
from commonplace.storage.schema import APPLICATION_ID, MIGRATIONS, Step, steps_for_new_file

BUSY_SECONDS = 30.0
WAL_BYTES = 64 * 1024 * 1024
WAL_PAGES = (
    # 16 MB: with SQLite's default of 1,000 pages, every fourth commit of 32 writers would make a
    # checkpoint.
    4_000
)
OLDEST_SQLITE = (3, 51, 3)  # In older versions, two writers can corrupt a WAL file.
_FIELD = re.compile(r"[a-z][a-z0-9_.-]*")
NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs"}


def now() -> int:
    """Return the current time in UTC microseconds."""
    return time.time_ns() // 1000


def json_field(column: str, name: str) -> str:
    """Return SQL for a field of a JSON column; each engine has its own syntax for it."""
    if not _FIELD.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of a JSON field")
    return f"json_extract({column}, '$.{name}')"


def sqlite_version() -> str:
    """Return the version of SQLite."""
    return apsw.sqlite_lib_version()


def check_runtime(directory: Path, version: str = "", mounts: str = "/proc/self/mounts") -> None:
    """Refuse versions of SQLite and file systems on which writes are not safe."""
    version = version or sqlite_version()
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST_SQLITE:
        raise StorageUnavailable(
            f"SQLite {version} can corrupt files that several processes write.",
            hint="Install apsw 3.51.3 or newer.",
        )
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return  # The system is not Linux.
    place, best, kind = directory.resolve(), "", ""
    for line in lines:
        _, point, filesystem, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if len(point) >= len(best) and place.is_relative_to(point):
            best, kind = point, filesystem
    if kind in NETWORK_FILESYSTEMS:
        raise StorageUnavailable(
            f"{directory} is on a network file system ({kind}), whose file locks are not safe.",
            hint="Choose a directory on a local disk with --data or COMMONPLACE_DATA.",
        )


def disk_full_error() -> StorageFull:
    """Return the error for a write on a full disk."""
    return StorageFull(
        "The disk is full; nothing of this call was stored.",
        hint="Free disk space and try again.",
    )


def typed_error(error: apsw.Error | UnicodeDecodeError) -> CommonplaceError:
    """Return the error of this package for an SQLite error."""
    extended = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.FullError) or extended in (
        apsw.SQLITE_IOERR_WRITE,
        apsw.SQLITE_IOERR_SHMSIZE,
    ):
        return disk_full_error()
    if isinstance(error, apsw.ReadOnlyError):
        return StorageReadOnly(
            "The file is read-only; nothing of this call was stored.",
            hint="Check the permissions of the data directory, and how its disk is mounted.",
        )
    damaged = apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError
    if isinstance(error, damaged):
        return StorageCorrupt(
            "The file is damaged.", hint="Run 'commonplace doctor' and restore from a backup."
        )
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StorageUnavailable(
            f"Another process has been writing for over {BUSY_SECONDS:.0f} seconds.",
            hint="Try again. If the error persists, look for a suspended process and end it.",
        )
    if isinstance(error, apsw.ConstraintError):
        return Conflict("An object with the same id already exists.")
    return StorageUnavailable(
        f"The database failed ({type(error).__name__}, code {extended}).",
        hint="This call was not acknowledged; check the disk and try again.",
    )


def _busy_handler() -> Callable[[int], bool]:
    """Return a busy handler that polls with jitter until a deadline."""

    def handler(tries: int) -> bool:
        if tries == 0:
            handler.until = time.monotonic() + BUSY_SECONDS  # type: ignore[attr-defined]
        if time.monotonic() > handler.until:  # type: ignore[attr-defined]
            return False
        time.sleep(random.uniform(0.0002, 0.001 if tries < 50 else 0.004))  # noqa: S311
        return True

    return handler


class Connection(apsw.Connection):
    """A connection to a file. It implements `ports.Rows` for SQLite."""

    def select_each(
        self, statement: str, column: str, space: str, values: Sequence[int]
    ) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a space whose column has one of these numbers, in their order."""
        # Use one query for each value: for a list, SQLite would scan an index of the whole space.
        text = f"{statement} AND {column} = ?"
        return (row for value in values for row in self.execute(text, (space, value)))

    def stream(self, statement: str, bindings: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a query one by one."""
        return self.execute(statement, bindings)

    def columns(self, table: str) -> set[str]:
        """Return the names of a table's columns."""
        return {row[1] for row in self.execute(f"PRAGMA table_info({table})")}

    @property
    def grams_indexed(self) -> bool:
        """Whether an index finds memories by trigrams, without reading all texts."""
        return True

    def add_grams(self, space: str, texts: Iterable[tuple[int, str]]) -> None:  # noqa: ARG002
        """Store the folded texts of memories, by number, for substring search.

        A file holds one space, so its index has no column for the space.
        """
        self.executemany("INSERT INTO grams (rowid, body) VALUES (?, ?)", texts)

    def drop_grams(self, space: str, memory: int) -> None:  # noqa: ARG002
        """Remove a memory's text from substring search."""
        self.execute("DELETE FROM grams WHERE rowid = ?", (memory,))

    def memories_with_grams(self, space: str, grams: Sequence[str], most: int | None) -> list[int]:  # noqa: ARG002
        """Return the numbers of at most `most` memories that contain all these trigrams."""
        query = " AND ".join('"' + gram.replace('"', '""') + '"' for gram in grams)
        limit = "" if most is None else f" LIMIT {most:d}"
        rows = self.execute(f"SELECT rowid FROM grams WHERE grams MATCH ?{limit}", (query,))  # noqa: S608
        return [row[0] for row in rows]


def connect(path: Path, *, create: bool = False) -> Connection:
    """Open a connection with the settings that durability requires."""
    if create and not path.exists():
        # SQLite creates the WAL file with the mode of the main file.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_handler(_busy_handler())
    connection.execute(
        "PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY;"
        f"PRAGMA journal_size_limit = {WAL_BYTES}; PRAGMA wal_autocheckpoint = {WAL_PAGES}"
    )
    return connection


def file_identity(path: str | Path) -> tuple[int, int] | None:
    """Return the device and inode of a file or directory; None if it does not exist."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino


def create(path: Path, steps: Sequence[Step]) -> None:
    """Create a file with all tables under a temporary name, then link it to its final name.

    So a file without tables is always a damaged one. If several processes create the same file, one
    succeeds and the others use its file.
    """
    for suffix in ("-wal", "-journal"):
        left = path.with_name(path.name + suffix)
        # Check in this order, because another process may be creating the file, and then its log.
        if left.exists() and left.stat().st_size and not path.exists():
            raise damaged_error(f"{path.name} is missing, but its log {left.name} exists.")
    aside = path.with_name(f"{path.name}.{new_id()}.new")
    try:
        try:
            connection = connect(aside, create=True)
            try:
                # No other process sees the file yet, so it needs no journal, only syncs.
                connection.pragma("journal_mode", "memory")
                _create_tables(connection, steps)
                connection.pragma("journal_mode", "wal")
            finally:
                connection.close(True)
            try:
                os.link(aside, path)  # Unlike a rename, a link never replaces a file.
            except FileExistsError:
                return
            except OSError:
                if not path.exists():
                    aside.rename(path)  # The file system does not support links.
            sync_directory(path.parent)
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                aside.with_name(aside.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            raise StorageFull(
                f"There is not enough disk space to create {path.name}.",
                hint="Free disk space and try again.",
            ) from error
        raise StorageUnavailable(
            f"{path} cannot be created: {error.strerror or error}.",
            hint="Check the directory and its permissions.",
        ) from error


def damaged_error(what: str) -> StorageCorrupt:
    return StorageCorrupt(
        what,
        hint="Restore it with 'commonplace restore', or check it with 'commonplace doctor'. If it"
        " was never used, delete it.",
    )


def new_id() -> str:
    """Return a random UUID (version 4)."""
    return new_ids(1)[0]


def new_ids(count: int) -> list[str]:
    """Return random UUIDs (version 4), with one call for random bytes."""
    digits = os.urandom(16 * count).hex()
    found = []
    for at in range(0, len(digits), 32):
        a, b, c, d = at + 8, at + 12, at + 16, at + 20
        found.append(
            f"{digits[at:a]}-{digits[a:b]}-4{digits[b + 1 : c]}"
            f"-{_VARIANT[digits[c]]}{digits[c + 1 : d]}-{digits[d : at + 32]}"
        )
    return found


_VARIANT = {f"{digit:x}": "89ab"[digit % 4] for digit in range(16)}


def recognised_version(connection: apsw.Connection) -> int:
    """Return the schema version of a file, 0 if it is empty.

    Raise StorageCorrupt for a file of another program.
    """
    connection.execute("BEGIN")  # Run all queries in one snapshot.
    try:
        version = version_of(connection)
        marked = connection.pragma("application_id") == APPLICATION_ID
        used = version or connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if used and not marked:
        raise StorageCorrupt(
            "The file is a SQLite database of another program.", hint="Choose another path."
        )
    return version


def version_of(connection: apsw.Connection) -> int:
    """Return the schema version of the open file; 0 if it is empty."""
    if connection.pragma("application_id") not in (0, APPLICATION_ID):
        raise StorageCorrupt(
            "The file is a SQLite database of another program.", hint="Choose another path."
        )
    return _user_version(connection)


def _user_version(connection: apsw.Connection) -> int:
    # This takes half the time of `Connection.pragma`, and every write transaction calls it.
    return int(connection.execute("PRAGMA user_version").get)


def refuse_newer(connection: apsw.Connection, steps: Sequence[Step] = MIGRATIONS) -> None:
    """Raise UnsupportedVersion if a newer release has migrated the file, even while it is open."""
    version = _user_version(connection)
    if version > len(steps):
        raise UnsupportedVersion(
            f"The file has schema version {version}; this release supports up to {len(steps)}.",
            hint="Use the newer release that wrote it, or restore a backup.",
        )


def migrate(connection: apsw.Connection, steps: Sequence[Step] = MIGRATIONS) -> None:
    """Migrate the file to the newest version. Each step is one transaction and can be resumed."""
    version = version_of(connection)
    refuse_newer(connection, steps)
    while version < len(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have migrated the file meanwhile.
            version = version_of(connection)
            if version < len(steps):
                step = steps[version]
                connection.execute(step) if isinstance(step, str) else step(connection)
                connection.pragma("application_id", APPLICATION_ID)
                connection.pragma("user_version", version + 1)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        version = version_of(connection)


def _create_tables(connection: apsw.Connection, steps: Sequence[Step]) -> None:
    """Create the tables of a new file, as `migrate` does, but in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for step in steps_for_new_file(steps):
        connection.execute(step) if isinstance(step, str) else step(connection)
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", len(steps))
    connection.execute("COMMIT")


def copy_database(
    source: apsw.Connection, target: Path, progress: Callable[[int, int], None] | None = None
) -> None:
    """Make a consistent copy of an open database while others write to it."""
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    copy = apsw.Connection(str(part))
    try:
        # An open read transaction pins the snapshot. Without it, a backup in steps starts over
        # whenever another connection writes, and might never end under load.
        if not source.in_transaction:
            raise StorageUnavailable("A copy needs an open read snapshot.")
        source.execute("SELECT 1 FROM sqlite_schema").fetchone()
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(4096)
                if progress is not None:
                    progress(backup.page_count - backup.remaining, backup.page_count)
        copy.pragma("journal_mode", "delete")
    finally:
        copy.close(True)
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(target)
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory, so that new and renamed files in it are durable (POSIX only)."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
