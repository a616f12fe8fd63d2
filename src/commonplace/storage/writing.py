"""Units of work of one space's file: one writer, and commits shared by those who wait."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import apsw

from commonplace.errors import CommonplaceError, StorageCorrupt, StorageUnavailable
from commonplace.storage.database import new_id, new_ids, now, typed
from commonplace.storage.tables import digest

BATCH_UNITS = 512
BATCH_SECONDS = 0.05
COMING_SECONDS = 0.003  # how long a commit waits for writers that are about to come
LONGEST_SECONDS = 0.01  # how long it does while they keep coming
BACK_SECONDS = 0.0002  # how soon a thread that has left may be back with another write
HELD_SECONDS = 0.05  # how long one process may write without letting another in


@dataclass(eq=False)
class _Batch:
    """Units that will be committed together."""

    begun: float
    units: int = 0
    head: tuple[int, int] | None = None
    """The space's counters after the units so far; written once, with the commit."""
    keeper: object = None
    """The unit that must commit if nobody else comes."""
    settled: threading.Event = field(default_factory=threading.Event)
    error: CommonplaceError | None = None
    jobs: deque[Job] = field(default_factory=deque)
    """Those whose threads sleep until it is settled."""

    def settle(self, error: CommonplaceError | None) -> None:
        self.error = error
        self.settled.set()
        self.rouse_next()

    def rouse_next(self) -> None:
        """Wake one of those who sleep, if it is settled; who leaves wakes the next.

        All at once they would fall over one another: only one can have the interpreter, and on
        several cores each of the others goes to sleep a second time waiting for it.
        """
        if not self.settled.is_set():
            return
        with contextlib.suppress(IndexError):
            while (job := self.jobs.popleft()).left:
                pass
            job.rouse()


def _silent() -> threading.Lock:
    bell = threading.Lock()
    bell.acquire()
    return bell


@dataclass(eq=False)
class Job:
    """A write that another thread may carry out together with its own."""

    name: str
    origin: Mapping[str, Any]
    write: Callable[[Sequence[tuple[Unit, Any]]], list[Any]]
    item: Any
    prepare: Callable[[Any], Any] | None = None
    """Makes of the item what is written; called by whoever carries it out, without the file."""
    bell: threading.Lock = field(default_factory=_silent)
    """Held until its thread is to look around; an Event would cost several times as much."""
    returning: bool = False
    """Its thread was woken with what it wanted, and may soon come with another."""
    left: bool = False
    batch: _Batch | None = None
    result: Any = None
    error: BaseException | None = None

    @property
    def ran(self) -> bool:
        return self.batch is not None or self.error is not None

    def make_ready(self) -> None:
        """Prepare the item; what is wrong with it is the job's own failure."""
        if self.prepare is not None:
            try:
                self.item = self.prepare(self.item)
            except Exception as error:
                self.error = error
            self.prepare = None

    def rouse(self) -> None:
        """Wake the thread that waits for it."""
        with contextlib.suppress(RuntimeError):  # it has been woken already
            self.bell.release()


def _of_a_job(error: BaseException) -> Exception:
    """What the owner of a job is told; an interrupt is for the thread that it was sent to."""
    if isinstance(error, apsw.Error | UnicodeDecodeError):
        return typed(error)
    if isinstance(error, Exception):
        return error
    return StorageUnavailable("The shared write was interrupted.", hint="Try again.")


class Announcement:
    """Around the preparation of a write: commits may wait for it a moment."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._coming = False

    def __enter__(self) -> Self:
        self._coming = True
        self._writer.expect()
        return self

    def __exit__(self, *_: object) -> None:
        self.arrive()

    def arrive(self) -> None:
        """The write is there, or will not come."""
        if self._coming:
            self._coming = False
            self._writer.expect_less()


class Writer:
    """Runs units one at a time on one connection; whoever finds nobody waiting commits for all."""

    def __init__(self, space: str, open_connection: Callable[[], apsw.Connection]) -> None:
        self._space = space
        self._open = open_connection
        self._connection: apsw.Connection | None = None
        self._turn = threading.Lock()
        self._count = threading.Lock()
        self._waiting = 0
        self._coming = 0
        self._returning = 0
        self._shared = 0
        self._batch: _Batch | None = None
        self._jobs: deque[Job] = deque()
        self._patient: Job | None = None
        self._shut = False
        self._held_since = 0.0
        self._released_at = 0.0

    def expect(self) -> None:
        """A write is being prepared: it may be worth waiting for."""
        with self._count:
            self._coming += 1

    def expect_less(self) -> None:
        """One that was expected is there; the last tells whoever waits for them."""
        with self._count:
            self._coming -= 1
            last = self._nobody_to_wait_for()
        if last and (patient := self._patient) is not None:
            patient.rouse()

    def _nobody_to_wait_for(self) -> bool:
        return not (self._coming or self._returning)

    @contextlib.contextmanager
    def unit(self) -> Iterator[apsw.Connection]:
        """One unit; the block's effects are durable when it is left without an error."""
        with self._count:
            self._waiting += 1
        try:
            self._turn.acquire()
        finally:
            with self._count:
                self._waiting -= 1
        batch: _Batch | None = None
        me: object | None = None
        try:
            batch = self._begin()
            connection = self._connection
            assert connection is not None
            connection.execute("SAVEPOINT unit")
            try:
                yield connection
                connection.execute("RELEASE unit")
                batch.units += 1
                me = object()
            except BaseException as error:
                self._abandon(connection, batch, error)
                if isinstance(error, apsw.Error | UnicodeDecodeError):
                    raise typed(error) from error
                raise
        except apsw.Error as error:
            raise typed(error) from error
        finally:
            try:
                self._pass_on(me)
            finally:  # an interrupt during the commit must not keep the turn for ever
                self._release()
        self._await(batch, me)

    def together(self, job: Job, coming: Announcement | None = None) -> Any:
        """Carry out a job, with those of other threads if they wait; durable on return."""
        self._jobs.append(job)
        if coming is not None:
            coming.arrive()
        elif self._nobody_to_wait_for() and (patient := self._patient) is not None:
            patient.rouse()
        try:
            return self._carried_out(job)
        finally:
            self._leave(job)

    def _leave(self, job: Job) -> None:
        if not job.ran:  # interrupted: nobody need carry it out any more
            with contextlib.suppress(ValueError):
                self._jobs.remove(job)
        with self._count:
            job.left = True
            self._returning -= job.returning
            last = job.returning and self._nobody_to_wait_for()
        if job.batch is not None:
            job.batch.rouse_next()
        if last and (patient := self._patient) is not None:
            patient.rouse()

    def _expect_back(self, jobs: Collection[Job]) -> None:
        """Threads that are about to be woken may come with another write at once.

        Whoever begins while they do would have to fight them for the interpreter at every row.
        """
        with self._count:
            for job in jobs:
                job.returning = not job.left
                self._returning += job.returning
        self._shared = len(jobs)

    def _carried_out(self, job: Job) -> Any:
        while not job.ran:
            if self._turn.acquire(blocking=False):
                try:
                    if not job.ran:
                        self._run_jobs(job)
                finally:
                    self._release()
            else:
                # Looks again by itself: the one who was to wake it may have been interrupted.
                job.bell.acquire(timeout=BATCH_SECONDS)
        if job.error is not None:
            raise job.error
        assert job.batch is not None
        self._await(job.batch, job)
        return job.result

    def _release(self) -> None:
        """Give the turn back, and wake one whose job nobody has carried out yet."""
        self._turn.release()
        with contextlib.suppress(IndexError):
            self._jobs[0].rouse()

    def _run_jobs(self, me: Job) -> None:
        """Carry out every job that waits or is about to, in one go where they are of one sort."""
        self._wait_for_coming(me)
        for job in tuple(self._jobs):
            job.make_ready()
        try:
            self._begin()
        except (apsw.Error, CommonplaceError) as error:
            self._jobs.remove(me)
            me.error = me.error or (typed(error) if isinstance(error, apsw.Error) else error)
            return
        while self._batch is not None and self._jobs:
            jobs = [self._jobs.popleft()]
            while self._jobs and self._jobs[0].write == jobs[0].write and len(jobs) < BATCH_UNITS:
                jobs.append(self._jobs.popleft())
            try:
                for job in jobs:
                    job.make_ready()
                self._run(self._batch, [job for job in jobs if job.error is None])
            except BaseException as error:
                for job in jobs:
                    if not job.ran:
                        job.error = _of_a_job(error)
                raise
            finally:
                for job in jobs:
                    if job.error is not None:  # the others sleep on until the commit
                        job.rouse()
        self._pass_on(None)

    def _wait_for_coming(self, me: Job) -> None:
        """Give those who are about to come a moment, and more while they keep coming."""
        if self._nobody_to_wait_for():
            return
        until = time.monotonic() + LONGEST_SECONDS
        self._patient = me
        while not self._nobody_to_wait_for() and time.monotonic() < until:
            before = self._coming, self._returning, len(self._jobs)
            woken = me.bell.acquire(timeout=COMING_SECONDS)
            if not woken and before == (self._coming, self._returning, len(self._jobs)):
                break
        if self._nobody_to_wait_for() and len(self._jobs) < self._shared:
            me.bell.acquire(timeout=BACK_SECONDS)
        self._patient = None

    def _run(self, batch: _Batch, jobs: Sequence[Job]) -> None:
        """Carry out jobs of one sort together; if that fails, each alone."""
        if not jobs:
            return
        connection = self._connection
        assert connection is not None
        before = batch.head
        try:
            connection.execute("SAVEPOINT unit")
            units = [Unit(self, connection, self._space, job.name, job.origin) for job in jobs]
            pairs = [(unit, job.item) for unit, job in zip(units, jobs, strict=True)]
            results = jobs[0].write(pairs)
            for unit in units:
                unit.close()
            connection.execute("RELEASE unit")
        except BaseException as error:
            batch.head = before
            self._abandon(connection, batch, error)
            if isinstance(error, Exception) and self._batch is not None and len(jobs) > 1:
                for job in jobs:
                    if self._batch is not None:
                        self._run(batch, [job])
            for job in jobs:
                if not job.ran:
                    job.error = _of_a_job(error)
            if not isinstance(error, Exception):
                raise
        else:
            for job, result in zip(jobs, results, strict=True):
                job.result = result
                job.batch = batch
            batch.jobs += jobs
            batch.units += len(jobs)

    def head(self) -> tuple[int, int]:
        """(newest operation, next free row number), those of units not yet committed included."""
        batch, connection = self._batch, self._connection
        assert batch is not None and connection is not None
        return batch.head or read_head(connection, self._space)

    def move_head(self, seq: int, num: int) -> None:
        """Note where a unit left the counters."""
        assert self._batch is not None
        self._batch.head = (seq, num)

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

    def _pass_on(self, me: object | None) -> None:
        """Commit, unless somebody who will do it for us is already waiting, or about to come.

        A unit that failed is nobody: it does not come back to see whether the other came.
        """
        batch = self._batch
        if batch is None:
            return
        young = time.monotonic() - batch.begun < BATCH_SECONDS
        if young and batch.units < BATCH_UNITS:
            if self._waiting > 0:
                return
            if self._coming > 0 and me is not None:
                batch.keeper = me
                return
        self._commit(batch)

    def _commit(self, batch: _Batch) -> None:
        self._batch = None
        assert self._connection is not None
        try:
            if batch.head is not None:
                write_head(self._connection, self._space, *batch.head)
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            self._reset()
            batch.settle(typed(error))
        except BaseException:
            self._reset()
            batch.settle(StorageUnavailable("The commit was interrupted."))
            raise
        else:
            if len(batch.jobs) > 1:
                self._expect_back(batch.jobs)
            batch.settle(None)
        self._released_at = time.monotonic()

    def _await(self, batch: _Batch, me: object | None) -> None:
        patience = COMING_SECONDS if batch.keeper is me else BATCH_SECONDS
        while not (batch.settled.is_set() or batch.settled.wait(patience)):
            patience = BATCH_SECONDS
            # Nobody came, or the one who was to commit was interrupted: do it ourselves.
            if self._turn.acquire(blocking=False):
                try:
                    if self._batch is batch:
                        self._commit(batch)
                finally:
                    self._release()
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
        self._turn.acquire()
        try:
            if self._batch is not None:
                self._commit(self._batch)
            yield self._connected()
        finally:
            self._release()

    def close(self) -> None:
        """Close the connection when no unit is running; who still waits is refused."""
        self._turn.acquire()
        try:
            self._shut = True
            if self._batch is not None:
                self._commit(self._batch)
            self._reset()
        finally:
            self._release()


_INSERT_OPERATION = (
    "INSERT INTO operations (num, space, id, at, name, origin, undoes, hash)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


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
        self.connection.execute(_INSERT_OPERATION, self.begin(new_id()))

    def begin(self, identity: str) -> tuple[Any, ...]:
        """Take the next place in the order; the operation's row, for whoever writes it."""
        seq, self._num = self._writer.head()
        self._seq = seq + 1
        self.id, self.at = identity, now()
        origin = "{}"
        if self.origin:
            origin = json.dumps(dict(self.origin), ensure_ascii=False, separators=(",", ":"))
        values = (self._seq, self.space, self.id, self.at, self.name, origin, self.undoes)
        return (*values, digest(*values))

    def reserve(self, count: int) -> None:
        """Let the units after this one begin behind the row numbers that it will use."""
        self._writer.move_head(self._seq, self._num + count)

    def close(self) -> None:
        """Move the space's counters on."""
        if self._seq:
            self._writer.move_head(self._seq, self._num)

    def show_head(self) -> None:
        """Write the counters now, for a reader inside this unit that goes by them."""
        seq, num = (self._seq, self._num) if self._seq else self._writer.head()
        write_head(self.connection, self.space, seq, num)


def begin_all(units: Sequence[Unit], nums: Sequence[int]) -> None:
    """Record the operations of units in one statement, each with room for so many rows."""
    rows = []
    for unit, count, identity in zip(units, nums, new_ids(len(units)), strict=True):
        rows.append(unit.begin(identity))
        unit.reserve(count)
    units[0].connection.executemany(_INSERT_OPERATION, rows)


def write_head(connection: apsw.Connection, space: str, seq: int, num: int) -> None:
    """Set the space's counters."""
    connection.execute(
        "INSERT INTO head (space, seq, next_num, hash) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (space) DO UPDATE SET seq = excluded.seq,"
        " next_num = excluded.next_num, hash = excluded.hash",
        (space, seq, num, digest(space, seq, num)),
    )


def read_head(connection: apsw.Connection, space: str) -> tuple[int, int]:
    """(newest operation, next free row number) of the space."""
    row = connection.execute(
        "SELECT seq, next_num, hash FROM head WHERE space = ?", (space,)
    ).fetchone()
    if row is None:
        return 0, 1
    if digest(space, row[0], row[1]) != row[2]:
        raise StorageCorrupt(
            "The space's change counter is damaged.",
            hint="Run 'commonplace doctor' and restore from a backup.",
        )
    return row[0], row[1]
