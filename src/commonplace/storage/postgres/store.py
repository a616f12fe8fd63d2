"""The rows of one space, or of the system above the spaces, in PostgreSQL."""

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
from commonplace.storage.ports import Swept
from commonplace.storage.postgres.connections import Pool
from commonplace.storage.postgres.rows import PostgresRows, Statement
from commonplace.storage.tables import HEAD
from commonplace.storage.writing import Head, Units, operation_id, read_head

LOCK_SECONDS = 30
_HELD = "SELECT fence FROM locks WHERE name = ? AND fence = ? FOR SHARE"
UNKNOWN_SECONDS = 30.0


class Part(NamedTuple):
    """One of the two sets of tables, and the settings that a transaction needs for it."""

    schema: str
    version: int
    """The version of its tables that this release knows."""
    lock: str
    """The statement that takes the write lock. It gives the version that the tables have, the id of
    the transaction, and the head's row if there is one."""
    own_role: bool = False
    """Whether the app's role must switch to the role that owns these tables."""


class Fence(NamedTuple):
    """A lock between servers, as its holder took it; the number grows with each holder."""

    pool: Pool
    name: str
    number: int


guarding: ContextVar[tuple[Fence, ...]] = ContextVar("guarding", default=())
"""The locks that must still be held for what this thread writes."""


class _Session:
    """The connection that a space is written with, taken from the pool for each transaction."""

    def __init__(self, pool: Pool, part: Part, space: str) -> None:
        self._pool = pool
        self._part = part
        self._space = space
        self._rows: PostgresRows | None = None
        self._transaction = ""
        """The id that PostgreSQL gave the open transaction."""

    def begin(self, durable: bool) -> PostgresRows:
        """See `writing.Session`. The head's row is locked, so numbers follow commits."""
        rows = self._rows = begun(self._pool, self._part, self._space, writes=True, durable=durable)
        try:
            version, self._transaction = rows.lock(self._part.lock, self._space)
            if not self._transaction and not self._part.own_role:
                # A failover has lost the space, which is open here.
                create_space(rows, self._space)
                version, self._transaction = rows.lock(self._part.lock, self._space)
            if version != self._part.version:
                raise version_mismatch(version, self._part.version)
        except BaseException:
            self.reset()
            raise
        return rows

    def commit(self, head: Head | None) -> None:
        """See `writing.Session`. If the connection breaks, the outcome is looked up."""
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
        """Whether a transaction whose COMMIT had no answer is in the database."""
        until = time.monotonic() + UNKNOWN_SECONDS
        while True:
            try:
                # This transaction is never committed, since it only reads.
                rows = begun(self._pool, self._part, self._space, writes=True)
                try:
                    return self._look_up(rows, head)
                finally:
                    rows.give_back()
            except CommonplaceError as error:
                if time.monotonic() > until:
                    raise StorageUnavailable(
                        "The connection to the database was lost during the commit, and it does"
                        " not say whether this call was stored.",
                        hint="Check whether its data was stored before you try again.",
                    ) from error
                time.sleep(0.2)

    def _look_up(self, rows: PostgresRows, head: Head | None) -> bool:
        # Waits until the lost transaction is over, since it holds this lock.
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
        """See `writing.Session`."""
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.give_back(sound=False)


def create_space(rows: PostgresRows, name: str) -> None:
    """Insert a space's row, and its head's row, which writers lock."""
    rows.execute(
        "INSERT INTO spaces (name, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, now())
    )
    rows.execute(f"{HEAD.insert_sql} ON CONFLICT DO NOTHING", HEAD.row((name, 0, 1, "")))


def begun(
    pool: Pool, part: Part, space: str, *, writes: bool = False, durable: bool = True
) -> PostgresRows:
    """A connection whose next statement begins a transaction that sees the rows of one space."""
    how = "BEGIN" if writes else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    rows = PostgresRows(pool, writes=writes)
    rows.open_with([(how, None), _settings(rows, part, space, writes, durable)])
    return rows


def switch_space(rows: PostgresRows, part: Part, space: str) -> None:
    """Let a transaction that writes go on with another space, and lock it."""
    rows.execute(*_settings(rows, part, space, True))
    rows.lock(part.lock, space)


def _settings(
    rows: PostgresRows, part: Part, space: str, writes: bool, durable: bool = True
) -> Statement:
    """The statement that sets the space and the role of a transaction."""
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
    pool: Pool, part: Part, space: str, *, writes: bool = False
) -> Iterator[PostgresRows]:
    """A separate transaction; committed if `writes` and the block ends without an error."""
    rows = begun(pool, part, space, writes=writes)
    try:
        yield rows
        if writes:
            rows.execute("COMMIT")
    finally:
        rows.give_back()


def version_mismatch(version: int, known: int) -> CommonplaceError:
    """The error for tables of another version than this release knows."""
    if version > known:
        return UnsupportedVersion(
            f"The database has schema version {version}, this release knows up to {known}.",
            hint="Use the newer release that migrated it.",
        )
    return StorageUnavailable(
        f"The database has schema version {version}, this release needs {known}.",
        hint="An administrator runs 'commonplace database init ADMIN_URL' once; no data is lost.",
    )


class Watch:
    """`ports.Watch`: a number that grows with what is written."""

    def __init__(self, pool: Pool, part: Part, space: str, statement: str) -> None:
        self._pool = pool
        self._part = part
        self._space = space
        self._statement = statement

    def version(self) -> tuple[int, int]:
        """A value that changes with every commit that adds an operation."""
        with transaction(self._pool, self._part, self._space) as rows:
            found = rows.execute(self._statement, (self._space,)).fetchone()
        return (0, 0) if found is None else (int(found[0]), int(found[1]))

    def close(self) -> None:
        """Do nothing: no connection is held."""


class PostgresStore(Units[PostgresRows]):
    """`ports.Store` in PostgreSQL. Threads may share it; so may servers, each with its own."""

    read_only = False

    def __init__(self, pool: Pool, part: Part, space: str, path: Path) -> None:
        super().__init__(space, _Session(pool, part, space))
        self.path = path
        """The directory for files of this machine that are not rows."""
        self._pool = pool
        self._part = part

    def _check_unit(self, connection: PostgresRows) -> None:
        """Refuse the unit if this thread works under a lock that another server has taken.

        The lock's row stays locked until the unit is committed, so nobody takes it meanwhile.
        """
        for fence in guarding.get():
            if fence.pool is self._pool and not self._part.own_role:
                held = connection.execute(_HELD, (fence.name, fence.number)).fetchone()
                if held is None:
                    raise LockLost(
                        "Another server has taken over this work; nothing of this call was stored.",
                        hint="Look at what the other one stored.",
                    )

    @contextlib.contextmanager
    def read(self) -> Iterator[PostgresRows]:
        """A consistent snapshot; inside an open unit, that unit's own view."""
        if self._scope.unit is not None:
            yield self._own()
            return
        self._refuse_if_closed()
        rows = begun(self._pool, self._part, self.space)
        try:
            yield rows
        finally:
            rows.give_back()

    def sweep(self, windows: Set[bytes]) -> Swept:  # noqa: ARG002
        """Report nothing: deleted bytes may remain in the server's files, replicas and backups."""
        return Swept(files=(), scanned=0, traces=None, copies=())

    def watch(self) -> Watch:
        """A watch that notices new operations in the space."""
        statement = "SELECT seq, hashtext(operation) FROM head WHERE space = ?"
        return Watch(self._pool, self._part, self.space, statement)

    def close(self) -> None:
        """Wait for running work."""
        self._closed = True
        self._writer.close()
