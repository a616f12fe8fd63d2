"""Units of work of one space: one writer, group commit, and the open unit of each thread."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import apsw

from commonplace.errors import CommonplaceError, StorageCorrupt, StorageUnavailable
from commonplace.storage.database import new_id, now, typed_error
from commonplace.storage.ports import Rows
from commonplace.storage.tables import HEAD, OPERATIONS

BATCH_UNITS = 512
BATCH_SECONDS = 0.05


class Head(NamedTuple):
    """The counters of a space."""

    seq: int = 0
    """The number of the newest operation."""
    next_num: int = 1
    """The next free row number."""
    operation: str = ""
    """The id of the newest operation; empty if an older release wrote the head."""
    derived: int = 0
    """The number of the newest change of vectors; such changes belong to no operation."""


@dataclass(eq=False)
class _Batch:
    """Units of work that are committed together."""

    begun: float
    durable: bool = True
    """Whether the commit is synced; a power cut can undo an unsynced commit as a whole."""
    units: int = 0
    head: Head | None = None
    """The counters of the space after these units, written once with the commit."""
    finished: threading.Event = field(default_factory=threading.Event)
    error: CommonplaceError | None = None

    def finish(self, error: CommonplaceError | None) -> None:
        self.error = error
        self.finished.set()


C = TypeVar("C", bound=Rows)
T = TypeVar("T")
Made = TypeVar("Made", bound=Rows, covariant=True)


class Session(Protocol[Made]):
    """The writer's connection, which begins and ends transactions of its engine."""

    def begin(self, durable: bool) -> Made:
        """Begin a transaction that excludes other writers; its commit is synced if `durable`."""

    def commit(self, head: Head | None) -> None:
        """Commit; `head` holds the counters, or None if the units did not change them."""

    def reset(self) -> None:
        """Roll back and drop the connection, which may be in a bad state after a failure."""


class Writer(Generic[C]):
    """Runs units of work one at a time on one connection; the last waiting unit commits all."""

    def __init__(self, space: str, session: Session[C]) -> None:
        self._space = space
        self._session = session
        self._connection: C | None = None
        """The connection while a transaction is open."""
        self._lock = threading.Lock()
        self._count = threading.Lock()
        self._waiting = 0
        self._batch: _Batch | None = None
        self._shut = False

    @contextlib.contextmanager
    def unit(self, durable: bool = True) -> Iterator[C]:
        """Run one unit of work, which is committed when the block ends without an error."""
        with self._count:
            self._waiting += 1
        try:
            self._lock.acquire()
        finally:
            with self._count:
                self._waiting -= 1
        try:
            batch = self._begin(durable)
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
                    raise typed_error(error) from error
                raise
        except apsw.Error as error:
            raise typed_error(error) from error
        finally:
            try:
                self._commit_or_leave()
            finally:  # Release the lock even if the commit is interrupted.
                self._lock.release()
        self._await(batch)

    def head(self) -> Head:
        """Return the counters, including those of units that are not committed yet."""
        batch, connection = self._batch, self._connection
        assert batch is not None and connection is not None
        return batch.head or read_head(connection, self._space)

    def set_head(self, head: Head) -> None:
        """Set the counters after a unit."""
        assert self._batch is not None
        self._batch.head = head

    def next_change(self) -> int:
        """Count a change of derived rows; return its number."""
        head = self.head()
        self.set_head(head._replace(derived=head.derived + 1))
        return head.derived + 1

    def _begin(self, durable: bool) -> _Batch:
        if durable and self._batch is not None and not self._batch.durable:
            self._commit(self._batch)
        if self._batch is None:
            self._check_open()
            self._connection = self._session.begin(durable)
            self._batch = _Batch(time.monotonic(), durable)
        return self._batch

    def _check_open(self) -> None:
        if self._shut:  # The store was closed while this unit was waiting.
            raise StorageUnavailable("The store is closed.", hint="Open it again.")

    def _abandon(self, connection: Rows, batch: _Batch, error: BaseException) -> None:
        """Roll back one unit; if the engine ended the transaction, the other units fail too."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK TO unit")
                connection.execute("RELEASE unit")
                return
        except (apsw.Error, CommonplaceError) as worse:
            error = worse
        batch.finish(
            _typed_error_or_none(error)
            or StorageUnavailable(
                "The transaction that this call shared with others has failed; nothing was stored."
            )
        )
        self._batch = None
        self._session.reset()

    def _commit_or_leave(self) -> None:
        """Commit, unless a waiting unit will commit this one too."""
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
            self._session.commit(batch.head)
        except (apsw.Error, CommonplaceError) as error:
            self._session.reset()
            batch.finish(_typed_error_or_none(error))
        except BaseException:
            self._session.reset()
            batch.finish(StorageUnavailable("The commit was interrupted."))
            raise
        else:
            batch.finish(None)

    def _await(self, batch: _Batch) -> None:
        """Wait until the batch is committed; raise the error of a failed commit."""
        while not (batch.finished.is_set() or batch.finished.wait(BATCH_SECONDS)):
            # The thread that should have committed was interrupted: commit here.
            if self._lock.acquire(blocking=False):
                try:
                    if self._batch is batch:
                        self._commit(batch)
                finally:
                    self._lock.release()
        if batch.error is not None:
            raise type(batch.error)(batch.error.message, hint=batch.error.hint)

    @contextlib.contextmanager
    def between_units(self) -> Iterator[None]:
        """Commit what is pending, and keep out all units during the block."""
        self._lock.acquire()
        try:
            if self._batch is not None:
                self._commit(self._batch)
            self._check_open()
            yield
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection after the running unit; waiting units fail."""
        self._lock.acquire()
        try:
            self._shut = True
            if self._batch is not None:
                self._commit(self._batch)
            self._session.reset()
        finally:
            self._lock.release()


def _typed_error_or_none(error: BaseException) -> CommonplaceError | None:
    """Return the error of this package for an error of the engine."""
    if isinstance(error, CommonplaceError):
        return error
    return typed_error(error) if isinstance(error, apsw.Error) else None


class Unit:
    """An open unit of work. Its operation is recorded with its first change."""

    def __init__(
        self,
        writer: Writer[Any],
        connection: Rows,
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
        self._at = 0
        self._seq = 0
        self._num = 0
        self._derived = 0

    @property
    def seq(self) -> int:
        """The number of the operation, in the order of all changes."""
        if not self._seq:
            self._record()
        return self._seq

    @property
    def at(self) -> int:
        """When the operation was recorded, in UTC microseconds."""
        if not self._seq:
            self._record()
        return self._at

    @property
    def changed(self) -> bool:
        """Whether the unit has recorded its operation, because it changed content."""
        return bool(self._seq)

    def next_num(self) -> int:
        """Return the next row number, which is never reused in the space."""
        if not self._seq:
            self._record()
        self._num += 1
        return self._num - 1

    def next_change(self) -> int:
        """Count a change of derived rows in this unit; return its number."""
        if not self._seq:
            return self._writer.next_change()
        self._derived += 1
        return self._derived

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Open a savepoint: if the block fails, only its changes are rolled back."""
        if not self.connection.in_transaction:
            raise StorageUnavailable("The unit of work has failed.", hint="Start a new one.")
        before = (self.id, self._at, self._seq, self._num)
        self.connection.execute("SAVEPOINT part")
        try:
            yield
            # This also raises errors of postponed statements.
            self.connection.execute("RELEASE part")
        except BaseException as error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK TO part")
                self.connection.execute("RELEASE part")
                self.id, self._at, self._seq, self._num = before
            if isinstance(error, apsw.Error | UnicodeDecodeError):
                raise typed_error(error) from error
            raise

    def _record(self) -> None:
        """Take the next operation number, and insert the row of the operation."""
        seq, self._num, _, self._derived = self._writer.head()
        self._seq = seq + 1
        self.id, self._at = new_id(), now()
        origin = "{}"
        if self.origin:
            origin = json.dumps(dict(self.origin), ensure_ascii=False, separators=(",", ":"))
        values = (self._seq, self.space, self.id, self._at, self.name, origin, self.undoes)
        self.connection.execute(OPERATIONS.insert_sql, OPERATIONS.row(values))

    def close(self) -> None:
        """Update the space's counters."""
        if self._seq:
            self._writer.set_head(Head(self._seq, self._num, self.id, self._derived))

    def write_head(self) -> None:
        """Write the counters now, so that reads inside this unit see them."""
        own = Head(self._seq, self._num, self.id, self._derived)
        write_head(self.connection, self.space, own if self._seq else self._writer.head())


class _Scope(threading.local):
    """The open unit of work of a thread."""

    def __init__(self) -> None:
        self.stack: contextlib.ExitStack | None = None
        self.name = ""
        self.origin: Mapping[str, Any] = {}
        self.unit: Unit | None = None
        self.afterwards: list[Callable[[], None]] = []
        """Functions to call after the unit is committed."""
        self.on_reserve = False
        """Whether this thread may use the disk space reserved for a full disk."""


class Units(Generic[C]):
    """The part of a store that writes, for any engine; see `ports.Store`."""

    def __init__(self, space: str, session: Session[C]) -> None:
        self.space = space
        self._scope = _Scope()
        self._closed = False
        self._writer = Writer(space, session)

    @property
    def open_unit(self) -> Unit | None:
        """The unit in which this thread has begun to write; None if no unit is open."""
        return self._scope.unit

    @property
    def in_unit(self) -> bool:
        """Whether this thread is in a unit of work, also before its first write."""
        return self._scope.stack is not None or self._scope.unit is not None

    @contextlib.contextmanager
    def unit(self, name: str, origin: Mapping[str, Any]) -> Iterator[None]:
        """Make all writes of the block one unit of work; nested blocks join it."""
        scope = self._scope
        if scope.stack is not None:
            with self.write(name, origin):  # An inner unit is a savepoint.
                yield
            return
        scope.afterwards = []
        with contextlib.ExitStack() as stack:
            scope.stack, scope.name, scope.origin = stack, name, origin
            try:
                yield
            finally:
                scope.stack = None
        for act in scope.afterwards:
            act()

    def after_commit(self, act: Callable[[], None]) -> None:
        """Call a function after the commit of this thread's `unit` block, or now without one."""
        if self._scope.stack is None:
            act()
        else:
            self._scope.afterwards.append(act)

    @contextlib.contextmanager
    def write(
        self, name: str, origin: Mapping[str, Any], undoes: int | None = None
    ) -> Iterator[Unit]:
        """Open a unit of work to write with: a new one, or a savepoint in the open one."""
        scope = self._scope
        if scope.unit is None:
            if scope.stack is None:
                with self._begin(name, origin, undoes) as unit:
                    yield unit
                return
            begun = self._begin(scope.name or name, {**origin, **scope.origin}, undoes)
            scope.stack.enter_context(begun)
        unit_in_scope = scope.unit
        assert unit_in_scope is not None
        with unit_in_scope.savepoint():
            yield unit_in_scope

    @contextlib.contextmanager
    def _begin(self, name: str, origin: Mapping[str, Any], undoes: int | None) -> Iterator[Unit]:
        self._check_writable()
        with self._writer.unit() as connection:
            self._check_unit(connection)
            unit = Unit(self._writer, connection, self.space, name, origin, undoes)
            self._scope.unit = unit
            try:
                yield unit
                unit.close()
            finally:
                self._scope.unit = None

    @contextlib.contextmanager
    def maintain(self, *, durable: bool = True) -> Iterator[C]:
        """Open a write that is not part of the history: read counts, the outbox, indexes."""
        if self._scope.unit is not None:
            with self._scope.unit.savepoint():
                yield self._unit_connection()
            return
        self._check_writable()
        with self._writer.unit(durable) as connection:
            self._check_unit(connection)
            yield connection

    def next_change(self) -> int:
        """Count a change of vectors, inside `maintain`; return its number."""
        return (self._scope.unit or self._writer).next_change()

    def with_reserve(self, work: Callable[[], T]) -> T:
        """Call `work` once. A store with reserved disk space overrides this."""
        return work()

    def _check_writable(self) -> None:
        """Raise if writing is impossible; called before each transaction."""
        self._refuse_if_closed()

    def _check_unit(self, connection: C) -> None:
        """Raise if this thread may not write; called inside each transaction."""

    def _unit_connection(self) -> C:
        """Return the connection of this thread's open unit."""
        assert self._scope.unit is not None
        return cast(C, self._scope.unit.connection)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StorageUnavailable("The store is closed.", hint="Open it again.")


_WRITE_HEAD = HEAD.upsert()


def write_head(connection: Rows, space: str, head: Head) -> None:
    """Set the space's counters."""
    connection.execute(_WRITE_HEAD, HEAD.row((space, *head)))


def read_head(connection: Rows, space: str) -> Head:
    """Return the space's counters."""
    row = connection.execute(HEAD.select_sql, (space,)).fetchone()
    if row is None:
        return Head()
    if not HEAD.matches_hash(row):
        raise StorageCorrupt(
            "The space's change counter is damaged.",
            hint="Run 'commonplace doctor' and restore from a backup.",
        )
    return Head(*row[1:5])


def newest_operation(connection: Rows, space: str) -> tuple[int, str]:
    """Return the number and id of the space's newest operation; (0, "") if there is none.

    A number can be used again after a file was replaced by an older one; an id cannot.
    """
    return newest_change(connection, space)[:2]


def newest_change(connection: Rows, space: str) -> tuple[int, str, int]:
    """Return the newest operation's number and id, and the number of the newest vector change."""
    seq, _, identity, derived = read_head(connection, space)
    return seq, identity or operation_id(connection, space, seq), derived


def operation_id(connection: Rows, space: str, seq: int) -> str:
    """Return the id of the operation with a number, or an empty string."""
    row = connection.execute(
        "SELECT id FROM operations WHERE space = ? AND num = ?", (space, seq)
    ).fetchone()
    return "" if row is None else str(row[0])
