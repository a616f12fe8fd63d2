"""One space's SQLite file: readers in parallel, one writer, commits shared by those who wait.

`Store.read()` gives a snapshot. `Store.write(...)` gives a unit of work: everything in it is
committed together or not at all, and leaving the block without an error means that it is on disk.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import TypeVar

import apsw

from commonplace.errors import (
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
    damaged,
    migrate,
    no_room,
    recognised,
    refuse_newer,
    typed,
)
from commonplace.storage.ports import Swept
from commonplace.storage.sqlite import readonly
from commonplace.storage.sqlite.ballast import Ballast
from commonplace.storage.sqlite.watching import Watch
from commonplace.storage.writing import Head, Units

T = TypeVar("T")

COPY_SECONDS = 600.0  # how long to wait for another process that copies the file to migrate it
_READ_ONLY = "PRAGMA query_only = ON"


HELD_SECONDS = 0.05  # how long one process may write without letting another in


class _Session:
    """The connection that a file is written with, kept between transactions."""

    def __init__(
        self, connect: Callable[[], Connection], check: Callable[[Connection], None]
    ) -> None:
        self._connect = connect
        self._check = check
        """Raises if this release must not write to the file; called in each transaction."""
        self._connection: Connection | None = None
        self._held_since = 0.0
        self._released_at = 0.0

    @property
    def connection(self) -> Connection:
        """The connection, opened if need be."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def begin(self) -> Connection:
        """See `writing.Session`."""
        connection = self.connection
        began = time.monotonic()
        if began - self._released_at > 0.001:
            self._held_since = began
        elif began - self._held_since > HELD_SECONDS:
            time.sleep(0.002)  # processes that poll for the lock must find it free sometimes
            self._held_since = time.monotonic()
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._check(connection)
        except BaseException:
            self.reset()
            raise
        return connection

    def commit(self, head: Head | None) -> None:  # noqa: ARG002
        """See `writing.Session`."""
        self.connection.execute("COMMIT")
        self._released_at = time.monotonic()

    def reset(self) -> None:
        """Start over with a new connection: after a failed write the old one is not trusted."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            connection.close(True)


class Store(Units[Connection]):
    """One space's file. Threads may share it; so may processes, each with its own Store."""

    def __init__(self, path: Path, space: str, steps: Sequence[schema.Step] | None = None) -> None:
        self._session = _Session(self._writable, self._refuse_newer)
        super().__init__(space, self._session)
        self.path = path
        self._steps = schema.MIGRATIONS if steps is None else steps
        self._idle: list[Connection] = []
        self._ballast = Ballast(path)
        self._sealed: readonly.Sealed | None = None
        while True:
            try:
                self._idle.append(self._first_connection())
                return
            except StorageFull:  # even reading needs a log and its index beside the file
                if not self._ballast.give_up_step():
                    raise

    def _first_connection(self) -> Connection:
        """Find or make the file, with today's tables; a connection that reads it."""
        try:
            self._find()
            self._sealed = readonly.Sealed(self.path) if readonly.is_read_only(self.path) else None
            connection = self._connect()
            try:
                version = recognised(connection)
                if version == 0:
                    raise damaged(f"{self.path.name} has no tables.")
                if self._sealed is not None and version < len(self._steps):
                    raise readonly.old(self.path, version)
                # A restored copy has today's tables, but no write-ahead log yet.
                ready = connection.pragma("journal_mode") == "wal"
                if version != len(self._steps) or not (ready or self._sealed):
                    self._prepare(connection, version)
                connection.execute(_READ_ONLY)
            except BaseException:
                connection.close(True)
                raise
        except BaseException as error:
            if self._sealed is not None:
                self._sealed.close()
            if isinstance(error, apsw.Error):
                raise typed(error) from error
            raise
        return connection

    @property
    def read_only(self) -> bool:
        """Whether the file can only be read."""
        return self._sealed is not None

    def _connect(self) -> Connection:
        return connect(self.path) if self._sealed is None else self._sealed.connect()

    def _writable(self) -> Connection:
        if self._sealed is not None:
            raise readonly.refused(self.path)
        return connect(self.path)

    def _find(self) -> None:
        """See that the file is there, or make it; SQLite would take an empty one for a new one."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            if readonly.is_read_only(self.path):
                raise readonly.refused(self.path) from None
            create(self.path, self._steps)
        else:
            if size == 0:
                raise damaged(f"{self.path.name} is empty.")

    def _prepare(self, connection: Connection, version: int) -> None:
        self._refuse_newer(connection)  # before the journal mode is changed
        if 0 < version < len(self._steps):
            self._copy_before_migration(connection)
        if connection.pragma("journal_mode", "wal") != "wal":
            raise StorageUnavailable(
                "This file system does not allow a write-ahead log.",
                hint="Choose a directory on a local disk.",
            )
        migrate(connection, self._steps)

    def _copy_before_migration(self, connection: Connection) -> None:
        """Keep a copy of the file as it was. Of several processes that migrate, one makes it."""
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
            with contextlib.suppress(OSError):  # Windows deletes no open file
                lock.unlink()  # whoever locks it anew finds the copy

    def _refuse_newer(self, connection: Connection) -> None:
        refuse_newer(connection, self._steps)

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent snapshot; inside an open unit, that unit's own view."""
        if self._scope.unit is not None:
            try:
                yield self._own()
            except (apsw.Error, UnicodeDecodeError) as error:
                raise typed(error) from error
            return
        self._refuse_if_closed()
        try:
            connection = self._reader()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise typed(error) from error
        healthy = False
        try:
            connection.execute("BEGIN")
            yield connection
            healthy = True
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._explained(connection, typed(error)) from error
        except CommonplaceError as error:
            healthy = True
            explained = self._explained(connection, error)
            if explained is not error:
                raise explained from error
            raise
        finally:
            self._give_back(connection, healthy)

    def _explained(self, connection: Connection, error: CommonplaceError) -> CommonplaceError:
        """The error; or that the file is newer, if that is why it cannot be read."""
        if isinstance(error, StorageCorrupt | StorageUnavailable):
            try:
                self._refuse_newer(connection)
            except UnsupportedVersion as newer:
                return newer
            except (apsw.Error, CommonplaceError):
                pass
        return error

    def _reader(self) -> Connection:
        """A connection on which a write is refused, and not silently rolled back."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
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
            raise no_room()  # all that there is was given up for those who may use the reserve

    def with_reserve(self, work: Callable[[], T]) -> T:
        """See `ports.Store`. Inside an open unit it is the unit that is done again, if at all."""
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
        """Move the log into the file, so that the next write begins it anew and needs no room."""
        with contextlib.suppress(apsw.Error, CommonplaceError), self._writer.idle():
            self._session.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file and empty it, so that nothing old stays in it."""
        if self._scope.unit is not None:
            raise StorageUnavailable("A unit of work is open.", hint="Finish it first.")
        with self._writer.idle():
            try:
                self._session.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.Error as error:
                raise typed(error) from error

    def watch(self) -> Watch:
        """What tells whether anything in the file changed."""
        return Watch(self.path)

    def sweep(self, windows: Set[bytes]) -> Swept:
        """As `sweeping.sweep`."""
        from commonplace.storage.sqlite import sweeping

        return sweeping.sweep(self, windows)

    def rewrite(self) -> None:
        """Write the whole file anew, so that no byte of what was deleted stays between rows."""
        with self._writer.idle():
            try:
                self._session.connection.execute("VACUUM")
            except apsw.Error as error:
                raise typed(error) from error
        self.checkpoint()

    def close(self) -> None:
        """Finish what runs and close every connection."""
        self._closed = True
        self._writer.close()
        while self._idle:
            self._idle.pop().close(True)
        if self._sealed is not None:
            self._sealed.close()
