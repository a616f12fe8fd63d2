"""The rows of one space, or of the system above the spaces, in PostgreSQL."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Set
from pathlib import Path
from typing import NamedTuple

from commonplace.errors import CommonplaceError, StorageUnavailable, UnsupportedVersion
from commonplace.storage.ports import Swept
from commonplace.storage.postgres.connections import Connection, Pool
from commonplace.storage.postgres.rows import PostgresRows
from commonplace.storage.writing import Head, Units, operation_id

LOCK_SECONDS = 30
UNKNOWN_SECONDS = 30.0


class Part(NamedTuple):
    """One of the two sets of tables, as a transaction is told of it."""

    schema: str
    version: int
    """The version of its tables that this release knows."""
    lock: str
    """The statement that lets one writer in; it gives the version that the tables have."""
    own_role: bool = False
    """Whether the tables are those of a role that the app's role must take on."""


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


class _Session:
    """The connection that a space is written with, taken from the pool for each transaction."""

    def __init__(self, pool: Pool, part: Part, space: str) -> None:
        self._pool = pool
        self._part = part
        self._space = space
        self._rows: PostgresRows | None = None
        self._transaction = ""
        """The id that PostgreSQL gave the open transaction."""

    def begin(self) -> PostgresRows:
        """See `writing.Session`. The head's row is locked, so numbers follow commits."""
        rows = self._rows = begun(self._pool, self._part, self._space, writes=True)
        try:
            found = rows.execute(self._part.lock, (self._space,)).fetchone()
            version, self._transaction = (0, "") if found is None else (found[0], str(found[1]))
            if version != self._part.version:
                raise other_version(version, self._part.version)
        except BaseException:
            self.reset()
            raise
        return rows

    def commit(self, head: Head | None) -> None:
        """See `writing.Session`. Where no answer came, what became of it is looked up."""
        rows = self._rows
        assert rows is not None
        try:
            rows.command("COMMIT")
        except StorageUnavailable:
            if not rows.connection.broken:
                raise
            self.reset()
            if not self._was_stored(head):
                raise
            return
        self._rows = None
        self._pool.give_back(rows.connection)

    def _was_stored(self, head: Head | None) -> bool:
        """Whether a transaction whose COMMIT had no answer is in the database."""
        until = time.monotonic() + UNKNOWN_SECONDS
        while True:
            try:
                with transaction(self._pool, self._part, self._space, writes=True) as rows:
                    # Waits until the lost transaction is over, since it holds this lock.
                    rows.execute(self._part.lock, (self._space,))
                    if head is not None:
                        found = operation_id(rows, self._space, head.seq)
                        return found == head.operation
                    status = rows.execute(
                        "SELECT pg_xact_status(CAST(CAST(? AS TEXT) AS xid8))", (self._transaction,)
                    ).fetchone()
                    return status is not None and status[0] == "committed"
            except CommonplaceError as error:
                if time.monotonic() > until:
                    raise StorageUnavailable(
                        "The connection to the database was lost during the commit, and it does"
                        " not say whether this call was stored.",
                        hint="Look for what it was to store before you try again.",
                    ) from error
                time.sleep(0.2)

    def reset(self) -> None:
        """See `writing.Session`."""
        rows, self._rows = self._rows, None
        if rows is not None:
            self._pool.give_back(rows.connection, sound=False)


def begun(pool: Pool, part: Part, space: str, *, writes: bool = False) -> PostgresRows:
    """A connection in a new transaction that sees the rows of one space.

    None of these commands takes a snapshot: a reader's begins with its first look. A connection
    that the server has closed meanwhile is replaced, once.
    """
    connection = pool.take()
    how = "" if writes else " ISOLATION LEVEL REPEATABLE READ READ ONLY"
    text = f"BEGIN{how}; SET LOCAL search_path = {part.schema}, pg_temp;"
    if part.own_role:
        text += f"SET LOCAL ROLE {_name(connection.info.user + '_system')}"
    else:
        text += f"SET LOCAL commonplace.space = {_literal(space)}"
    if writes:
        text += f"; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"
    try:
        rows = PostgresRows(connection)
        try:
            rows.command(text)
        except CommonplaceError:
            if not connection.broken:
                raise
            connection = pool.replace(connection)
            rows = PostgresRows(connection)
            rows.command(text)
    except BaseException:
        pool.give_back(connection, sound=False)
        raise
    return rows


@contextlib.contextmanager
def transaction(
    pool: Pool, part: Part, space: str, *, writes: bool = False
) -> Iterator[PostgresRows]:
    """A transaction of its own; committed if it may write, and ended without an error."""
    rows = begun(pool, part, space, writes=writes)
    sound = False
    try:
        yield rows
        rows.command("COMMIT")
        sound = True
    finally:
        give_back(pool, rows.connection, sound)


def give_back(pool: Pool, connection: Connection, sound: bool = True) -> None:
    """Roll back what is open and let others use the connection."""
    rows = PostgresRows(connection)
    if rows.in_transaction:
        try:
            rows.command("ROLLBACK")
            sound = True
        except CommonplaceError:
            sound = False
    pool.give_back(connection, sound=sound)


def other_version(version: int, known: int) -> CommonplaceError:
    """The error for tables of another version than this release knows."""
    if version > known:
        return UnsupportedVersion(
            f"The database has schema version {version}, this release knows up to {known}.",
            hint="Use the newer release that migrated it.",
        )
    return StorageUnavailable(
        f"The database has schema version {version}, this release needs {known}.",
        hint="An administrator runs 'commonplace database init ADMIN_URL' once; it loses nothing.",
    )


class Watch:
    """`ports.Watch`: a number that grows with what is written."""

    def __init__(self, pool: Pool, part: Part, space: str, statement: str) -> None:
        self._pool = pool
        self._part = part
        self._space = space
        self._statement = statement

    def version(self) -> tuple[int, int]:
        """Another value after every commit that moved it."""
        with transaction(self._pool, self._part, self._space) as rows:
            found = rows.execute(self._statement, (self._space,)).fetchone()
        return (0, 0) if found is None else (int(found[0]), int(found[1]))

    def close(self) -> None:
        """Nothing is held."""


class PostgresStore(Units[PostgresRows]):
    """`ports.Store` in PostgreSQL. Threads may share it; so may servers, each with its own."""

    read_only = False

    def __init__(self, pool: Pool, part: Part, space: str, path: Path) -> None:
        super().__init__(space, _Session(pool, part, space))
        self.path = path
        """Where what belongs to the machine, and is no row, lies."""
        self._pool = pool
        self._part = part

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
            give_back(self._pool, rows.connection)

    def sweep(self, windows: Set[bytes]) -> Swept:  # noqa: ARG002
        """Nothing is known: deleted bytes are in files of the server, its replicas and backups."""
        return Swept(files=(), scanned=0, traces=None, copies=())

    def watch(self) -> Watch:
        """What tells whether the space's head moved."""
        statement = "SELECT seq, hashtext(operation) FROM head WHERE space = ?"
        return Watch(self._pool, self._part, self.space, statement)

    def close(self) -> None:
        """Finish what runs."""
        self._closed = True
        self._writer.close()
