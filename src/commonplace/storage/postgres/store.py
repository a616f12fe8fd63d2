"""The rows of one space, or the system tables, in PostgreSQL."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Set
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from commonplace.errors import CommonplaceError, StorageUnavailable, UnsupportedVersion
from commonplace.storage.database import now
from commonplace.storage.locking import LockLost
from commonplace.storage.ports import SweepResult
from commonplace.storage.postgres.connections import Pool
from commonplace.storage.postgres.rows import PostgresRows, Statement
from commonplace.storage.tables import HEAD
from commonplace.storage.writing import Head, Units, operation_id, read_head

LOCK_SECONDS = 30
_HELD = "SELECT fence FROM locks WHERE name = ? AND fence = ? FOR SHARE"
UNKNOWN_SECONDS = 30.0


class SchemaPart(NamedTuple):
    """One of the two schemas, and the settings of its transactions."""

    schema: str
    version: int
    """The newest schema version that this release supports."""
    lock: str
    """The statement that takes the write lock. It returns the schema version, the id of
    the transaction, and the head's row if there is one."""
    own_role: bool = False
    """Whether the application's role must switch to the role that owns these tables."""


class Fence(NamedTuple):
    """A lock between servers, with a number that is higher for each new holder."""

    pool: Pool
    name: str
    number: int


held_fences: ContextVar[tuple[Fence, ...]] = ContextVar("held_fences", default=())
"""The locks that this thread must still hold when it writes."""


class _Session:
    """The connection for writes to a space, taken from the pool for each transaction."""

    def __init__(self, pool: Pool, part: SchemaPart, space: str) -> None:
        self._pool = pool
        self._part = part
        self._space = space
        self._rows: PostgresRows | None = None
        self._transaction = ""
        """The id that PostgreSQL gave the open transaction."""

    def begin(self, durable: bool) -> PostgresRows:
        """Begin a transaction that excludes other writers; its commit is synced if `durable`.

        The row of the head is locked, so operation numbers follow the order of commits.
        """
        rows = self._rows = begin_transaction(
            self._pool, self._part, self._space, writes=True, durable=durable
        )
        try:
            version, self._transaction = rows.lock(self._part.lock, self._space)
            if not self._transaction and not self._part.own_role:
                # The space is open here, but a failover has lost it.
                create_space(rows, self._space)
                version, self._transaction = rows.lock(self._part.lock, self._space)
            if version != self._part.version:
                raise version_error(version, self._part.version)
        except BaseException:
            self.reset()
            raise
        return rows

    def commit(self, head: Head | None) -> None:
        """Commit the transaction; if the connection breaks, look up whether it was committed."""
        rows = self._rows
        assert rows is not None
        try:
            rows.execute("COMMIT")
        except StorageUnavailable:
            if not rows.connection.broken:
                raise
            self.reset()
            if not self._was_stored(head):
                raise
            return
        self._rows = None
        rows.give_back()

    def _was_stored(self, head: Head | None) -> bool:
        """Return whether a transaction whose COMMIT had no answer is in the database."""
        until = time.monotonic() + UNKNOWN_SECONDS
        while True:
            try:
                # This transaction only reads, so it is never committed.
                rows = begin_transaction(self._pool, self._part, self._space, writes=True)
                try:
                    return self._find_transaction(rows, head)
                finally:
                    rows.give_back()
            except CommonplaceError as error:
                if time.monotonic() > until:
                    raise StorageUnavailable(
                        "The connection to the database was lost during the commit. It is unknown"
                        " whether this call was stored.",
                        hint="Check whether its data was stored before you try again.",
                    ) from error
                time.sleep(0.2)

    def _find_transaction(self, rows: PostgresRows, head: Head | None) -> bool:
        # This waits until the lost transaction has ended, because it holds this lock.
        rows.lock(self._part.lock, self._space)
        if head is not None:
            found = operation_id(rows, self._space, head.seq)
            change = read_head(rows, self._space).derived
            return found == head.operation and change >= head.derived
        status = rows.execute(
            "SELECT pg_xact_status(CAST(CAST(? AS TEXT) AS xid8))", (self._transaction,)
        ).fetchone()
        return status is not None and status[0] == "committed"

    def reset(self) -> None:
        """Drop the connection, which may be in a bad state after a failed write."""
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.give_back(sound=False)


def create_space(rows: PostgresRows, name: str) -> None:
    """Insert the row of a space, and the row of its head, which writers lock."""
    rows.execute(
        "INSERT INTO spaces (name, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, now())
    )
    rows.execute(f"{HEAD.insert_sql} ON CONFLICT DO NOTHING", HEAD.row((name, 0, 1, "")))


def begin_transaction(
    pool: Pool, part: SchemaPart, space: str, *, writes: bool = False, durable: bool = True
) -> PostgresRows:
    """Return a connection whose next statement begins a transaction on one space."""
    how = "BEGIN" if writes else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    rows = PostgresRows(pool, writes=writes)
    rows.open_with([(how, None), _settings(rows, part, space, writes, durable)])
    return rows


def switch_space(rows: PostgresRows, part: SchemaPart, space: str) -> None:
    """Switch a write transaction to another space, and lock that space."""
    rows.execute(*_settings(rows, part, space, True))
    rows.lock(part.lock, space)


def _settings(
    rows: PostgresRows, part: SchemaPart, space: str, writes: bool, durable: bool = True
) -> Statement:
    """Return the statement that sets the space and the role of a transaction."""
    settings = {"search_path": f"{part.schema}, pg_temp", "commonplace.space": space}
    if writes:
        synced = "on" if durable else "off"
        settings |= {"synchronous_commit": synced, "lock_timeout": f"{LOCK_SECONDS}s"}
    if part.own_role:
        settings["role"] = rows.connection.info.user + "_system"
    calls = ", ".join(f"set_config('{name}', ${at}, true)" for at, name in enumerate(settings, 1))
    return f"SELECT {calls}", tuple(settings.values())


@contextlib.contextmanager
def transaction(
    pool: Pool, part: SchemaPart, space: str, *, writes: bool = False
) -> Iterator[PostgresRows]:
    """Run a separate transaction; commit it if `writes` is true and the block raises no error."""
    rows = begin_transaction(pool, part, space, writes=writes)
    try:
        yield rows
        if writes:
            rows.execute("COMMIT")
    finally:
        rows.give_back()


def version_error(version: int, known: int) -> CommonplaceError:
    """Return the error for a schema version that this release does not support."""
    if version > known:
        return UnsupportedVersion(
            f"The database has schema version {version}; this release supports up to {known}.",
            hint="Use the newer release that migrated it.",
        )
    return StorageUnavailable(
        f"The database has schema version {version}; this release needs {known}.",
        hint="Let an administrator run 'commonplace database init ADMIN_URL'; no data is lost.",
    )


class Watch:
    """`ports.Watch` for PostgreSQL: a number that grows with each operation."""

    def __init__(self, pool: Pool, part: SchemaPart, space: str, statement: str) -> None:
        self._pool = pool
        self._part = part
        self._space = space
        self._statement = statement

    def version(self) -> tuple[int, int]:
        """Return a value that changes with every commit that adds an operation."""
        with transaction(self._pool, self._part, self._space) as rows:
            found = rows.execute(self._statement, (self._space,)).fetchone()
        return (0, 0) if found is None else (int(found[0]), int(found[1]))

    def close(self) -> None:
        """Do nothing: no connection is held."""


class PostgresStore(Units[PostgresRows]):
    """`ports.Store` in PostgreSQL. Threads may share it. Each server has its own."""

    read_only = False

    def __init__(self, pool: Pool, part: SchemaPart, space: str, path: Path) -> None:
        super().__init__(space, _Session(pool, part, space))
        self.path = path
        """The path that a file of the space would have; local files are stored beside it."""
        self._pool = pool
        self._part = part

    def _check_unit(self, connection: PostgresRows) -> None:
        """Refuse the unit if another server has taken the lock that this thread works under.

        The row of the lock stays locked until the unit is committed, so no other server can take
        the lock meanwhile.
        """
        for fence in held_fences.get():
            if fence.pool is self._pool and not self._part.own_role:
                held = connection.execute(_HELD, (fence.name, fence.number)).fetchone()
                if held is None:
                    raise LockLost(
                        "Another server has taken over this work; nothing of this call was stored.",
                        hint="Check what the other server has stored.",
                    )

    @contextlib.contextmanager
    def read(self) -> Iterator[PostgresRows]:
        """Open a consistent snapshot; inside an open unit, return that unit's own view."""
        if self._scope.unit is not None:
            yield self._unit_connection()
            return
        self._refuse_if_closed()
        rows = begin_transaction(self._pool, self._part, self.space)
        try:
            yield rows
        finally:
            rows.give_back()

    def sweep(self, windows: Set[bytes]) -> SweepResult:  # noqa: ARG002
        """Search nothing: deleted bytes may remain in the server's files, replicas and backups."""
        return SweepResult(files=(), scanned=0, traces=None, copies=())

    def watch(self) -> Watch:
        """Return an object that reports new operations in the space."""
        statement = "SELECT seq, hashtext(operation) FROM head WHERE space = ?"
        return Watch(self._pool, self._part, self.space, statement)

    def close(self) -> None:
        """Wait for running units of work."""
        self._closed = True
        self._writer.close()
