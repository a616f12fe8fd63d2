"""The SQLite file of one space: parallel readers, one writer, group commit.

`Store.read()` opens a snapshot. `Store.write(...)` opens a unit of work: all its writes are
committed together or not at all, and when the block ends without an error, they are on disk.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import TypeVar

import apsw

from commonplace.errors import (
    DISK_FULL_ERRNOS,
    CommonplaceError,
    StorageCorrupt,
    StorageFull,
    StorageUnavailable,
    UnsupportedVersion,
)
from commonplace.storage import locking, schema
from commonplace.storage.database import (
    Connection,
    connect,
    copy_database,
    create,
    damaged_error,
    disk_full_error,
    file_identity,
    migrate,
    recognised_version,
    refuse_newer,
    typed_error,
)
from commonplace.storage.ports import SweepResult
from commonplace.storage.sqlite import readonly
from commonplace.storage.sqlite.watching import Watch
from commonplace.storage.writing import Head, Units

T = TypeVar("T")

COPY_SECONDS = 600.0  # seconds to wait for another process that copies the file before a migration
_READ_ONLY = "PRAGMA query_only = ON"
BALLAST_BYTES = 4 * 1024 * 1024
BALLAST_STEP = 512 * 1024  # A step has space for several audit entries with their pages in the log.
_BALLAST = "-ballast"


HELD_SECONDS = 0.05  # how long a process may hold the write lock while others wait


class _Session:
    """The connection for writes, kept between transactions."""

    def __init__(
        self, connect: Callable[[], Connection], check: Callable[[Connection], None]
    ) -> None:
        self._connect = connect
        self._check = check
        """Called in each transaction; it raises if this release must not write to the file."""
        self._connection: Connection | None = None
        self._durable = True
        self._held_since = 0.0
        self._released_at = 0.0

    @property
    def connection(self) -> Connection:
        """The connection, which is opened on first use."""
        if self._connection is None:
            self._connection, self._durable = self._connect(), True
        return self._connection

    def begin(self, durable: bool) -> Connection:
        """Begin a transaction that excludes other writers; its commit is synced if `durable`."""
        connection = self.connection
        if durable != self._durable:
            # In WAL mode, a commit with NORMAL is synced by the next commit with FULL.
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        began = time.monotonic()
        if began - self._released_at > 0.001:
            self._held_since = began
        elif began - self._held_since > HELD_SECONDS:
            time.sleep(0.002)  # Other processes poll for the lock and must find it free.
            self._held_since = time.monotonic()
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._check(connection)
        except BaseException:
            self.reset()
            raise
        return connection

    def commit(self, head: Head | None) -> None:  # noqa: ARG002
        """Commit the transaction."""
        self.connection.execute("COMMIT")
        self._released_at = time.monotonic()

    def reset(self) -> None:
        """Drop the connection, which may be in a bad state after a failed write."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            connection.close(True)


class Store(Units[Connection]):
    """The file of one space. Thread-safe; several processes may each open a Store of the file."""

    def __init__(self, path: Path, space: str, steps: Sequence[schema.Step] | None = None) -> None:
        self._session = _Session(self._connect_to_write, self._check_file)
        super().__init__(space, self._session)
        self.path = path
        self._steps = schema.MIGRATIONS if steps is None else steps
        self._idle: list[Connection] = []
        self._ballast = Ballast(path)
        self._sealed: readonly.ReadOnlyFile | None = None
        self._identity: tuple[int, int] | None = None
        while True:
            try:
                self._idle.append(self._open_first_connection())
                return
            except StorageFull:  # Even a read creates the log file and its shared-memory index.
                if not self._ballast.give_up_step():
                    raise

    def _open_first_connection(self) -> Connection:
        """Create or migrate the file if needed; return a connection for reading."""
        try:
            self._create_if_missing()
            self._sealed = (
                readonly.ReadOnlyFile(self.path) if readonly.is_read_only(self.path) else None
            )
            connection = self._connect()
            self._identity = file_identity(self.path)
            try:
                version = recognised_version(connection)
                if version == 0:
                    raise damaged_error(f"{self.path.name} has no tables.")
                if self._sealed is not None and version < len(self._steps):
                    raise readonly.migration_refused_error(self.path, version)
                # A restored file has all tables, but is not in WAL mode yet.
                ready = connection.pragma("journal_mode") == "wal"
                if version != len(self._steps) or not (ready or self._sealed):
                    self._migrate(connection, version)
                connection.execute(_READ_ONLY)
            except BaseException:
                connection.close(True)
                raise
        except BaseException as error:
            if self._sealed is not None:
                self._sealed.close()
            if isinstance(error, apsw.Error):
                raise typed_error(error) from error
            raise
        return connection

    @property
    def read_only(self) -> bool:
        """Whether the file is read-only."""
        return self._sealed is not None

    def _connect(self) -> Connection:
        if self._sealed is not None:
            return self._sealed.connect()
        # With the log of the former file, SQLite would mix the two files.
        self._refuse_other_file()
        return connect(self.path)

    def _connect_to_write(self) -> Connection:
        if self._sealed is not None:
            raise readonly.write_refused_error(self.path)
        return self._connect()

    def _create_if_missing(self) -> None:
        """Create the file if it is missing; refuse an empty one, which looks new to SQLite."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            if readonly.is_read_only(self.path):
                raise readonly.write_refused_error(self.path) from None
            create(self.path, self._steps)
        else:
            if size == 0:
                raise damaged_error(f"{self.path.name} is empty.")

    def _migrate(self, connection: Connection, version: int) -> None:
        self._refuse_newer(connection)  # Check the version before changing the journal mode.
        if 0 < version < len(self._steps):
            self._copy_before_migration(connection)
        if connection.pragma("journal_mode", "wal") != "wal":
            raise StorageUnavailable(
                "This file system does not allow a write-ahead log.",
                hint="Choose a directory on a local disk.",
            )
        migrate(connection, self._steps)

    def _copy_before_migration(self, connection: Connection) -> None:
        """Copy the file before a migration; only one of several processes makes the copy."""
        copy = self.path.with_name(f"{self.path.stem}.before-v{len(self._steps)}.db")
        lock = copy.with_name(f"{copy.name}.lock")
        if copy.exists():
            return
        with locking.file_lock(lock, COPY_SECONDS):
            if not copy.exists():
                connection.execute("BEGIN")
                try:
                    copy_database(connection, copy)
                finally:
                    connection.execute("ROLLBACK")
            with contextlib.suppress(OSError):  # Windows cannot delete open files.
                lock.unlink()  # A process that takes the lock again finds the copy.

    def _refuse_newer(self, connection: Connection) -> None:
        refuse_newer(connection, self._steps)

    def _check_file(self, connection: Connection) -> None:
        """Refuse writes to a file of a newer release, or to a file that was renamed or replaced."""
        self._refuse_newer(connection)
        self._refuse_other_file()

    def _refuse_other_file(self) -> None:
        """Raise if the file was deleted or replaced; SQLite would write to the old file."""
        if self._identity is not None and file_identity(self.path) != self._identity:
            raise StorageUnavailable(
                f"{self.path.name} was deleted or replaced while it was open.",
                hint="Nothing was stored. Open the memory again, or restart the server.",
            )

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a consistent snapshot; inside an open unit, return that unit's own view."""
        if self._scope.unit is not None:
            try:
                yield self._unit_connection()
            except (apsw.Error, UnicodeDecodeError) as error:
                raise typed_error(error) from error
            return
        self._refuse_if_closed()
        try:
            connection = self._reader()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise typed_error(error) from error
        healthy = False
        try:
            connection.execute("BEGIN")
            yield connection
            healthy = True
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._explain_error(connection, typed_error(error)) from error
        except CommonplaceError as error:
            healthy = True
            explained = self._explain_error(connection, error)
            if explained is not error:
                raise explained from error
            raise
        finally:
            self._give_back(connection, healthy)

    def _explain_error(self, connection: Connection, error: CommonplaceError) -> CommonplaceError:
        """Return the error, or UnsupportedVersion if a newer file is the cause."""
        if isinstance(error, StorageCorrupt | StorageUnavailable):
            try:
                self._refuse_newer(connection)
            except UnsupportedVersion as newer:
                return newer
            except (apsw.Error, CommonplaceError):
                pass
        return error

    def _reader(self) -> Connection:
        """Return a connection for reading, on which any write raises an error."""
        try:
            return self._idle.pop()
        except IndexError:
            connection = self._connect()
            connection.execute(_READ_ONLY)
            return connection

    def _give_back(self, connection: Connection, healthy: bool) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            healthy = False
        if healthy and not self._closed and len(self._idle) < 16:
            self._idle.append(connection)
        else:
            connection.close(True)

    def _check_writable(self) -> None:
        super()._check_writable()
        if not (self._scope.on_reserve or self._ballast.is_whole()):
            raise disk_full_error()  # The free space is reserved for `with_reserve`.

    def with_reserve(self, work: Callable[[], T]) -> T:
        """Call `work`, which must succeed even on a full disk, with reserved disk space.

        Inside an open unit, `work` is called once; the caller can retry the unit.
        """
        scope = self._scope
        if scope.on_reserve or scope.unit is not None or self._sealed is not None:
            return work()
        self._ballast.fill()
        scope.on_reserve = True
        try:
            while True:
                try:
                    return work()
                except StorageFull:
                    if not self._ballast.give_up_step():
                        raise
                    self._reuse_log()
        finally:
            scope.on_reserve = False

    def _reuse_log(self) -> None:
        """Checkpoint the log, so that the next write reuses its space."""
        with contextlib.suppress(apsw.Error, CommonplaceError), self._writer.between_units():
            self._session.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def checkpoint(self) -> None:
        """Checkpoint and truncate the write-ahead log, so that it contains no old data."""
        if self._scope.unit is not None:
            raise StorageUnavailable("A unit of work is open.", hint="Finish it first.")
        with self._writer.between_units():
            try:
                self._session.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.Error as error:
                raise typed_error(error) from error

    def watch(self) -> Watch:
        """Return an object that reports changes of the file."""
        return Watch(self.path)

    def sweep(self, windows: Set[bytes]) -> SweepResult:
        """Search the files for bytes that must have been deleted."""
        from commonplace.storage.sqlite import sweeping

        return sweeping.sweep(self, windows)

    def rewrite(self) -> None:
        """Rewrite the whole file, so that no deleted bytes remain between rows."""
        with self._writer.between_units():
            try:
                self._session.connection.execute("VACUUM")
            except apsw.Error as error:
                raise typed_error(error) from error
        self.checkpoint()

    def close(self) -> None:
        """Wait for running units of work, and close all connections."""
        self._closed = True
        self._writer.close()
        while self._idle:
            self._idle.pop().close(True)
        if self._sealed is not None:
            self._sealed.close()


class Ballast:
    """A file of 4 MB next to a database, which is shrunk step by step when the disk is full.

    The server writes an audit entry for every call, so a full disk would prevent reads too. Work
    that must succeed (`Store.with_reserve`, which creates the file) shrinks the ballast and tries
    again. All other writes need the whole ballast: it is filled up first, and if the disk has no
    space for that, they are refused. The size of the file is the only state, so that all processes
    agree on it. A directory that only the library or the command line uses has no ballast. A backup
    does not copy it.
    """

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + _BALLAST)

    def size(self) -> int | None:
        """Return the size of the ballast in bytes; None if there is no file."""
        try:
            return self._path.stat().st_size
        except OSError:
            return None

    def is_whole(self) -> bool:
        """Return whether the ballast has its full size, or no file; fill it up first if needed."""
        size = self.size()
        return size is None or size >= BALLAST_BYTES or self.fill()

    def fill(self) -> bool:
        """Create the ballast or fill it up; return False if the disk is too full for that.

        If the file cannot be created for another reason, it is removed.
        """
        try:
            found = self.size()
            size = found or 0
            if size >= BALLAST_BYTES:
                return True
            # A new ballast must not fill the disk itself.
            if self._free_bytes() < (
                2 * BALLAST_BYTES if found is None else min(BALLAST_STEP, BALLAST_BYTES - size)
            ):
                return False
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                while size < BALLAST_BYTES:
                    _extend(descriptor, size, min(BALLAST_STEP, BALLAST_BYTES - size))
                    size = min(size + BALLAST_STEP, BALLAST_BYTES)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                return False
            with contextlib.suppress(OSError):
                self._path.unlink()
        return True

    def give_up_step(self) -> bool:
        """Shrink the ballast by one step; return False if it was empty."""
        size = self.size()
        if not size:
            return False
        try:
            os.truncate(self._path, max(0, size - BALLAST_STEP))
        except OSError:  # Some file systems need free space to truncate a file; delete it instead.
            with contextlib.suppress(OSError):
                self._path.unlink()
        return True

    def _free_bytes(self) -> int:
        """Return the free bytes of the file system."""
        if not hasattr(os, "statvfs"):
            return 2 * BALLAST_BYTES  # On Windows, writing fails if there is no space.
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize


def _extend(descriptor: int, size: int, more: int) -> None:
    """Allocate bytes on disk; on failure the file keeps its size."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, size, more)
            if os.fstat(descriptor).st_blocks * 512 >= size + more:
                return
        # On compressing file systems, the space is not allocated: write incompressible bytes.
        os.lseek(descriptor, size, os.SEEK_SET)
        written = 0
        data = os.urandom(more)
        while written < more:
            written += os.write(descriptor, data[written:])
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
