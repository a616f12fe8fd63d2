"""Units of work of one space's file: one writer, and group commit."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import apsw

from commonplace.errors import CommonplaceError, StorageCorrupt, StorageUnavailable
from commonplace.storage.database import new_id, now, typed
from commonplace.storage.ports import Rows
from commonplace.storage.tables import HEAD, OPERATIONS

BATCH_UNITS = 512
BATCH_SECONDS = 0.05
HELD_SECONDS = 0.05  # how long one process may write without letting another in


class Head(NamedTuple):
    """A space's counters."""

    seq: int = 0
    """The number of the newest operation."""
    next_num: int = 1
    """The next free row number."""
    operation: str = ""
    """The id of the newest operation; empty in a head that an older release wrote."""


@dataclass(eq=False)
class _Batch:
    """Units that will be committed together."""

    begun: float
    units: int = 0
    head: Head | None = None
    """The space's counters after the units so far; written once, with the commit."""
    settled: threading.Event = field(default_factory=threading.Event)
    error: CommonplaceError | None = None

    def settle(self, error: CommonplaceError | None) -> None:
        self.error = error
        self.settled.set()


class Writer:
    """Runs units one at a time on one connection; the last of those that wait commits for all."""

    def __init__(
        self,
        space: str,
        open_connection: Callable[[], apsw.Connection],
        check: Callable[[apsw.Connection], None],
    ) -> None:
        self._space = space
        self._open = open_connection
        self._check = check
        """Raises if this release must not write to the file; called in each transaction."""
        self._connection: apsw.Connection | None = None
        self._lock = threading.Lock()
        self._count = threading.Lock()
        self._waiting = 0
        self._batch: _Batch | None = None
        self._shut = False
        self._held_since = 0.0
        self._released_at = 0.0

    @contextlib.contextmanager
    def unit(self) -> Iterator[apsw.Connection]:
        """One unit; the block's effects are durable when it is left without an error."""
        with self._count:
            self._waiting += 1
        try:
            self._lock.acquire()
        finally:
            with self._count:
                self._waiting -= 1
        try:
            batch = self._begin()
            connection = self._connection
            assert connection is not None
            connection.execute("SAVEPOINT unit")
            try:
                yield connection
                connection.execute("RELEASE unit")
                batch.units += 1
            except BaseException as error:
                self._abandon(connection, batch, error)
                if isinstance(error, apsw.Error | UnicodeDecodeError):
                    raise typed(error) from error
                raise
        except apsw.Error as error:
            raise typed(error) from error
        finally:
            try:
                self._commit_or_leave()
            finally:  # an interrupt during the commit must not keep the lock for ever
                self._lock.release()
        self._await(batch)

    def head(self) -> Head:
        """The counters, with what units that are not yet committed made of them."""
        batch, connection = self._batch, self._connection
        assert batch is not None and connection is not None
        return batch.head or read_head(connection, self._space)

    def move_head(self, head: Head) -> None:
        """Note where a unit left the counters."""
        assert self._batch is not None
        self._batch.head = head

    def _connected(self) -> apsw.Connection:
        if self._shut:  # one who came before the closing, and has waited for it
            raise StorageUnavailable("The store is closed.", hint="Open it again.")
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _begin(self) -> _Batch:
        if self._batch is None:
            connection = self._connected()
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
                self._reset()
                raise
            self._batch = _Batch(time.monotonic())
        return self._batch

    def _abandon(self, connection: apsw.Connection, batch: _Batch, error: BaseException) -> None:
        """Undo one unit; if SQLite ended the whole transaction, its companions fail too."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK TO unit; RELEASE unit")
                return
        except apsw.Error as worse:
            error = worse
        cause = typed(error) if isinstance(error, apsw.Error) else None
        batch.settle(cause or StorageUnavailable("The shared commit was abandoned."))
        self._batch = None
        self._reset()

    def _commit_or_leave(self) -> None:
        """Commit, unless another unit waits that will do it for this one too."""
        batch = self._batch
        if batch is None:
            return
        young = time.monotonic() - batch.begun < BATCH_SECONDS
        if not (self._waiting and young and batch.units < BATCH_UNITS):
            self._commit(batch)

    def _commit(self, batch: _Batch) -> None:
        self._batch = None
        assert self._connection is not None
        try:
            if batch.head is not None:
                write_head(self._connection, self._space, batch.head)
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            self._reset()
            batch.settle(typed(error))
        except BaseException:
            self._reset()
            batch.settle(StorageUnavailable("The commit was interrupted."))
            raise
        else:
            batch.settle(None)
        self._released_at = time.monotonic()

    def _await(self, batch: _Batch) -> None:
        """Wait until the batch is committed; raise what its commit failed with."""
        while not (batch.settled.is_set() or batch.settled.wait(BATCH_SECONDS)):
            # The one who was to commit was interrupted: do it here.
            if self._lock.acquire(blocking=False):
                try:
                    if self._batch is batch:
                        self._commit(batch)
                finally:
                    self._lock.release()
        if batch.error is not None:
            raise type(batch.error)(batch.error.message, hint=batch.error.hint)

    def _reset(self) -> None:
        """Start over with a new connection: after a failed write the old one is not trusted."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            connection.close(True)

    @contextlib.contextmanager
    def idle(self) -> Iterator[apsw.Connection]:
        """The connection outside any transaction, while no unit runs."""
        self._lock.acquire()
        try:
            if self._batch is not None:
                self._commit(self._batch)
            yield self._connected()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection when no unit is running; who still waits is refused."""
        self._lock.acquire()
        try:
            self._shut = True
            if self._batch is not None:
                self._commit(self._batch)
            self._reset()
        finally:
            self._lock.release()


class Unit:
    """An open unit of work: its operation is recorded with the first change it makes."""

    def __init__(
        self,
        writer: Writer,
        connection: apsw.Connection,
        space: str,
        name: str,
        origin: Mapping[str, Any],
        undoes: int | None = None,
    ) -> None:
        self._writer = writer
        self.connection = connection
        self.space = space
        self.name = name
        self.origin = origin
        self.undoes = undoes
        self.id = ""
        self.at = 0
        self._seq = 0
        self._num = 0

    @property
    def seq(self) -> int:
        """The operation's place in the order of all changes."""
        if not self._seq:
            self._record()
        return self._seq

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return bool(self._seq)

    def next_num(self) -> int:
        """A number that no other row of the space has had."""
        if not self._seq:
            self._record()
        self._num += 1
        return self._num - 1

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """A part that can fail alone: the unit is then as it was before it."""
        if not self.connection.in_transaction:
            raise StorageUnavailable("The unit of work has failed.", hint="Start a new one.")
        before = (self.id, self.at, self._seq, self._num)
        self.connection.execute("SAVEPOINT part")
        try:
            yield
        except BaseException as error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK TO part; RELEASE part")
                self.id, self.at, self._seq, self._num = before
            if isinstance(error, apsw.Error | UnicodeDecodeError):
                raise typed(error) from error
            raise
        self.connection.execute("RELEASE part")

    def _record(self) -> None:
        """Take the next place in the order, and write the operation's row."""
        seq, self._num, _ = self._writer.head()
        self._seq = seq + 1
        self.id, self.at = new_id(), now()
        origin = "{}"
        if self.origin:
            origin = json.dumps(dict(self.origin), ensure_ascii=False, separators=(",", ":"))
        values = (self._seq, self.space, self.id, self.at, self.name, origin, self.undoes)
        self.connection.execute(OPERATIONS.insert_sql, OPERATIONS.row(values))

    def close(self) -> None:
        """Move the space's counters on."""
        if self._seq:
            self._writer.move_head(Head(self._seq, self._num, self.id))

    def show_head(self) -> None:
        """Write the counters now, for a reader inside this unit that goes by them."""
        own = Head(self._seq, self._num, self.id)
        write_head(self.connection, self.space, own if self._seq else self._writer.head())


_WRITE_HEAD = HEAD.upsert()


def write_head(connection: Rows, space: str, head: Head) -> None:
    """Set the space's counters."""
    connection.execute(_WRITE_HEAD, HEAD.row((space, *head)))


def read_head(connection: Rows, space: str) -> Head:
    """The space's counters."""
    row = connection.execute(HEAD.select_sql, (space,)).fetchone()
    if row is None:
        return Head()
    if not HEAD.sound(row):
        raise StorageCorrupt(
            "The space's change counter is damaged.",
            hint="Run 'commonplace doctor' and restore from a backup.",
        )
    return Head(*row[1:4])


def newest_operation(connection: Rows, space: str) -> tuple[int, str]:
    """(number, id) of the space's newest operation; (0, "") if there is none.

    Numbers are given out again where a file was replaced by an older one; ids never are.
    """
    seq, _, identity = read_head(connection, space)
    return seq, identity or operation_id(connection, space, seq)


def operation_id(connection: Rows, space: str, seq: int) -> str:
    """The id of an operation; empty if there is none of that number."""
    row = connection.execute(
        "SELECT id FROM operations WHERE space = ? AND num = ?", (space, seq)
    ).fetchone()
    return "" if row is None else str(row[0])
