"""One space's SQLite file: readers in parallel, one writer, commits shared by those who wait.

`Store.read()` gives a snapshot. `Store.write(...)` gives a unit of work: everything in it is
committed together or not at all, and leaving the block without an error means that it is on disk.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import apsw

from commonplace.errors import (
    CommonplaceError,
    Conflict,
    StorageCorrupt,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)
from commonplace.storage import readonly, schema
from commonplace.storage.tables import digest

BUSY_SECONDS = 30.0
BATCH_UNITS = 512
BATCH_SECONDS = 0.05
COMING_SECONDS = 0.003  # how long a commit waits for writers that have announced themselves
HELD_SECONDS = 0.05  # how long one process may write without letting another in
WAL_BYTES = 64 * 1024 * 1024
WAL_PAGES = 4_000  # 16 MB: at the usual 1,000, every fourth commit of 32 writers pays for it
OLDEST_SQLITE = (3, 51, 3)  # before it, two writers could corrupt a WAL file
_READ_ONLY = "PRAGMA query_only = ON"
NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs"}


T = TypeVar("T")
R = TypeVar("R")


def now() -> int:
    """The wall clock as UTC microseconds."""
    return time.time_ns() // 1000


def check_runtime(directory: Path, version: str = "", mounts: str = "/proc/self/mounts") -> None:
    """Refuse a SQLite or a file system on which a promise of durability would be empty."""
    version = version or apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST_SQLITE:
        raise StorageUnavailable(
            f"SQLite {version} can corrupt files that several processes write.",
            hint="Install apsw 3.51.3 or newer.",
        )
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return  # not Linux: there is no such list to ask
    place, best, kind = directory.resolve(), "", ""
    for line in lines:
        _, point, filesystem, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if len(point) >= len(best) and place.is_relative_to(point):
            best, kind = point, filesystem
    if kind in NETWORK_FILESYSTEMS:
        raise StorageUnavailable(
            f"{directory} is on a network file system ({kind}), which cannot lock safely.",
            hint="Choose a directory on a local disk with --data or COMMONPLACE_DATA.",
        )


def typed(error: apsw.Error | UnicodeDecodeError) -> CommonplaceError:
    """What an SQLite error means for the caller."""
    extended = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.FullError) or extended in (
        apsw.SQLITE_IOERR_WRITE,
        apsw.SQLITE_IOERR_SHMSIZE,
    ):
        return StorageFull(
            "There is no room to write; nothing of this call was stored.",
            hint="Free disk space and try again; reading goes on.",
        )
    if isinstance(error, apsw.ReadOnlyError):
        return StorageReadOnly(
            "The file can only be read; nothing of this call was stored.",
            hint="Look at the rights of the data directory, and whether its disk is read-only.",
        )
    damaged = apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError
    if isinstance(error, damaged):
        return StorageCorrupt(
            "The file is damaged.", hint="Run 'commonplace doctor' and restore from a backup."
        )
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StorageUnavailable(
            f"Another process has been writing for over {BUSY_SECONDS:.0f} seconds.",
            hint="Try again; if it lasts, look for a stopped process.",
        )
    if isinstance(error, apsw.ConstraintError):
        return Conflict("Something with the same identity exists already.")
    return StorageUnavailable(
        f"The storage refused ({type(error).__name__}, code {extended}).",
        hint="Nothing of this call was acknowledged; look at the disk and try again.",
    )


def _waiting_turn() -> Callable[[int], bool]:
    """A busy handler that waits for the other process by its own clock, with jitter."""

    def handler(tries: int) -> bool:
        if tries == 0:
            handler.until = time.monotonic() + BUSY_SECONDS  # type: ignore[attr-defined]
        if time.monotonic() > handler.until:  # type: ignore[attr-defined]
            return False
        time.sleep(random.uniform(0.0002, 0.001 if tries < 50 else 0.004))  # noqa: S311
        return True

    return handler


def connect(path: Path, *, create: bool = False) -> apsw.Connection:
    """An open connection with the settings that the promises rest on."""
    if create and not path.exists():
        # SQLite gives its side files the mode of the main file.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_handler(_waiting_turn())
    connection.execute(
        "PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY;"
        f"PRAGMA journal_size_limit = {WAL_BYTES}; PRAGMA wal_autocheckpoint = {WAL_PAGES}"
    )
    return connection


def create(path: Path, steps: Sequence[str]) -> None:
    """A new file with all tables, made aside and put in place whole.

    So a file without them is never one that is still being made: it is damage. Of several who
    create the same file, one puts his in place, and the others use it.
    """
    for suffix in ("-wal", "-journal"):
        left = path.with_name(path.name + suffix)
        # Looked at in this order: who creates the file at this moment makes its log after it.
        if left.exists() and left.stat().st_size and not path.exists():
            raise _damaged(f"{path.name} is missing, but its log {left.name} is there.")
    aside = path.with_name(f"{path.name}.{new_id()}.new")
    try:
        try:
            connection = connect(aside, create=True)
            try:
                # Nobody sees it yet, so that it needs no journal; each commit still syncs it.
                connection.pragma("journal_mode", "memory")
                schema.migrate(connection, steps)
                connection.pragma("journal_mode", "wal")
            finally:
                connection.close(True)
            try:
                os.link(aside, path)  # unlike a rename, never over a file that came meanwhile
            except FileExistsError:
                return
            except OSError:
                if not path.exists():
                    aside.rename(path)  # a file system without links
            sync_directory(path.parent)
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                aside.with_name(aside.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                f"There is no room for {path.name}.", hint="Free disk space and try again."
            ) from error
        raise StorageUnavailable(
            f"{path} cannot be made: {error.strerror or error}.",
            hint="Look at the directory and its rights.",
        ) from error


def _damaged(what: str) -> StorageCorrupt:
    return StorageCorrupt(
        what,
        hint="Restore it with 'commonplace restore', and see what is left with"
        " 'commonplace doctor'; if it never held anything, delete it.",
    )


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
    jobs: list[_Job] = field(default_factory=list)
    """Those whose threads sleep until it is settled."""

    def settle(self, error: CommonplaceError | None) -> None:
        self.error = error
        self.settled.set()
        for job in self.jobs:
            job.rouse()


def _silent() -> threading.Lock:
    bell = threading.Lock()
    bell.acquire()
    return bell


@dataclass(eq=False)
class _Job:
    """A write that another thread may carry out together with its own."""

    name: str
    origin: Mapping[str, Any]
    write: Callable[[Sequence[tuple[Unit, Any]]], list[Any]]
    item: Any
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
        self._batch: _Batch | None = None
        self._jobs: deque[_Job] = deque()
        self._patient: _Job | None = None
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
            self._pass_on(me)
            self._release()
        self._await(batch, me)

    def together(self, job: _Job, coming: Announcement | None = None) -> Any:
        """Carry out a job, with those of other threads if they wait; durable on return."""
        self._jobs.append(job)
        if coming is not None:
            coming.arrive()
        try:
            return self._carried_out(job)
        finally:
            self._leave(job)

    def _leave(self, job: _Job) -> None:
        with self._count:
            job.left = True
            self._returning -= job.returning
            last = job.returning and self._nobody_to_wait_for()
        if last and (patient := self._patient) is not None:
            patient.rouse()

    def _expect_back(self, jobs: Sequence[_Job]) -> None:
        """Threads that are about to be woken may come with another write at once.

        Whoever begins while they do would have to fight them for the interpreter at every row.
        """
        with self._count:
            for job in jobs:
                job.returning = not job.left
                self._returning += job.returning

    def _carried_out(self, job: _Job) -> Any:
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

    def _run_jobs(self, me: _Job) -> None:
        """Carry out every job that waits or is about to, in one go where they are of one sort."""
        self._wait_for_coming(me)
        try:
            self._begin()
        except (apsw.Error, CommonplaceError) as error:
            self._jobs.remove(me)
            me.error = typed(error) if isinstance(error, apsw.Error) else error
            return
        while self._batch is not None and self._jobs:
            jobs = [self._jobs.popleft()]
            while self._jobs and self._jobs[0].write == jobs[0].write and len(jobs) < BATCH_UNITS:
                jobs.append(self._jobs.popleft())
            try:
                self._run(self._batch, jobs)
            finally:
                for job in jobs:
                    if job.error is not None:  # the others sleep on until the commit
                        job.rouse()
        self._pass_on(None)

    def _wait_for_coming(self, me: _Job) -> None:
        """Give those who have announced themselves a moment to come."""
        until = time.monotonic() + COMING_SECONDS
        self._patient = me
        while not self._nobody_to_wait_for() and (patience := until - time.monotonic()) > 0:
            me.bell.acquire(timeout=patience)
        self._patient = None

    def _run(self, batch: _Batch, jobs: Sequence[_Job]) -> None:
        """Carry out jobs of one sort together; if that fails, each alone."""
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


def new_id() -> str:
    """A random UUID (version 4)."""
    return new_ids(1)[0]


def new_ids(count: int) -> list[str]:
    """Random UUIDs (version 4), of one look at the system's randomness."""
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


def write_head(connection: apsw.Connection, space: str, seq: int, num: int) -> None:
    """Set the space's counters."""
    connection.execute(
        "INSERT INTO head (space, seq, next_num, hash) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (space) DO UPDATE SET seq = excluded.seq,"
        " next_num = excluded.next_num, hash = excluded.hash",
        (space, seq, num, digest(space, seq, num)),
    )


def recognised(connection: apsw.Connection) -> int:
    """The schema version of a file that is ours, or empty; another program's is refused."""
    connection.execute("BEGIN")  # all three answers from one snapshot
    try:
        version = schema.version_of(connection)
        marked = connection.pragma("application_id") == schema.APPLICATION_ID
        used = version or connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if used and not marked:
        raise StorageCorrupt(
            "The file is a SQLite database of another program.", hint="Choose another path."
        )
    return version


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


class _Scope(threading.local):
    """The unit that this thread has open, if any."""

    def __init__(self) -> None:
        self.stack: contextlib.ExitStack | None = None
        self.name = ""
        self.origin: Mapping[str, Any] = {}
        self.unit: Unit | None = None


class Store:
    """One space's file. Threads may share it; so may processes, each with its own Store."""

    def __init__(self, path: Path, space: str, steps: Sequence[str] | None = None) -> None:
        self.path = path
        self.space = space
        self._steps = schema.MIGRATIONS if steps is None else steps
        self._scope = _Scope()
        self._idle: list[apsw.Connection] = []
        self._closed = False
        self._writer = Writer(space, self._writable)
        self._sealed: readonly.Sealed | None = None
        try:
            self._find()
            self._sealed = readonly.Sealed(path) if readonly.is_read_only(path) else None
            connection = self._connect()
            try:
                version = recognised(connection)
                if version == 0:
                    raise _damaged(f"{path.name} has no tables.")
                if self._sealed is not None and version < len(self._steps):
                    raise readonly.old(path, version)
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
        self._idle.append(connection)

    @property
    def read_only(self) -> bool:
        """Whether the file can only be read."""
        return self._sealed is not None

    def _connect(self) -> apsw.Connection:
        return connect(self.path) if self._sealed is None else self._sealed.connect()

    def _writable(self) -> apsw.Connection:
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
                raise _damaged(f"{self.path.name} is empty.")

    def _prepare(self, connection: apsw.Connection, version: int) -> None:
        if version > len(self._steps):
            schema.migrate(
                connection, self._steps
            )  # refuses it, before the journal mode is changed
        if 0 < version < len(self._steps):
            copy = self.path.with_name(f"{self.path.stem}.before-v{len(self._steps)}.db")
            if not copy.exists():
                connection.execute("BEGIN")
                try:
                    copy_database(connection, copy)
                finally:
                    connection.execute("ROLLBACK")
        if connection.pragma("journal_mode", "wal") != "wal":
            raise StorageUnavailable(
                "This file system does not allow a write-ahead log.",
                hint="Choose a directory on a local disk.",
            )
        schema.migrate(connection, self._steps)

    @contextlib.contextmanager
    def read(self) -> Iterator[apsw.Connection]:
        """A consistent snapshot; inside an open unit, that unit's own view."""
        if self._scope.unit is not None:
            try:
                yield self._scope.unit.connection
            except (apsw.Error, UnicodeDecodeError) as error:
                raise typed(error) from error
            return
        if self._closed:
            raise StorageUnavailable("The store is closed.", hint="Open it again.")
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
            raise typed(error) from error
        except CommonplaceError:
            healthy = True
            raise
        finally:
            self._give_back(connection, healthy)

    def _reader(self) -> apsw.Connection:
        """A connection on which a write is refused, and not silently rolled back."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        connection = self._connect()
        connection.execute(_READ_ONLY)
        return connection

    def _give_back(self, connection: apsw.Connection, healthy: bool) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            healthy = False
        if healthy and not self._closed and len(self._idle) < 16:
            self._idle.append(connection)
        else:
            connection.close(True)

    @contextlib.contextmanager
    def unit(self, name: str, origin: Mapping[str, Any]) -> Iterator[None]:
        """Make all writes of this block one unit of work; a block inside another joins it."""
        scope = self._scope
        if scope.stack is not None:
            with self.write(name, origin):  # a part, which can fail alone
                yield
            return
        with contextlib.ExitStack() as stack:
            scope.stack, scope.name, scope.origin = stack, name, origin
            try:
                yield
            finally:
                scope.stack = None

    @contextlib.contextmanager
    def write(
        self, name: str, origin: Mapping[str, Any], undoes: int | None = None
    ) -> Iterator[Unit]:
        """The unit to write with: a new one, or a part of the one that is open."""
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
        with unit_in_scope.part():
            yield unit_in_scope

    @contextlib.contextmanager
    def _begin(self, name: str, origin: Mapping[str, Any], undoes: int | None) -> Iterator[Unit]:
        if self._closed:
            raise StorageUnavailable("The store is closed.", hint="Open it again.")
        with self._writer.unit() as connection:
            unit = Unit(self._writer, connection, self.space, name, origin, undoes)
            self._scope.unit = unit
            try:
                yield unit
                unit.close()
            finally:
                self._scope.unit = None

    @contextlib.contextmanager
    def maintain(self) -> Iterator[apsw.Connection]:
        """A durable write of what is outside history: access counters, the outbox, indexes."""
        if self._scope.unit is not None:
            with self._scope.unit.part():
                yield self._scope.unit.connection
            return
        if self._closed:
            raise StorageUnavailable("The store is closed.", hint="Open it again.")
        with self._writer.unit() as connection:
            yield connection

    @property
    def open_unit(self) -> Unit | None:
        """The unit in which this thread has begun to write, if it is still open."""
        return self._scope.unit

    def announced(self) -> Announcement:
        """Around the preparation of a write, so that commits may wait for it a moment."""
        return Announcement(self._writer)

    def together(
        self,
        name: str,
        origin: Mapping[str, Any],
        write: Callable[[Sequence[tuple[Unit, T]]], list[R]],
        item: T,
        coming: Announcement | None = None,
    ) -> R:
        """Write an item as a unit of its own; `write` may be given those of other threads too.

        Inside an open unit it is a part of that. `coming` announced it.
        """
        if self._scope.stack is None and self._scope.unit is None:
            if self._closed:
                raise StorageUnavailable("The store is closed.", hint="Open it again.")
            result: R = self._writer.together(_Job(name, origin, write, item), coming)
            return result
        if coming is not None:
            coming.arrive()
        with self.write(name, origin) as unit:
            return write([(unit, item)])[0]

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file and empty it, so that nothing old stays in it."""
        if self._scope.unit is not None:
            raise StorageUnavailable("A unit of work is open.", hint="Finish it first.")
        with self._writer.idle() as connection:
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.Error as error:
                raise typed(error) from error

    def rewrite(self) -> None:
        """Write the whole file anew, so that no byte of what was deleted stays between rows."""
        with self._writer.idle() as connection:
            try:
                connection.execute("VACUUM")
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


def copy_database(
    source: apsw.Connection, target: Path, progress: Callable[[int, int], None] | None = None
) -> None:
    """A consistent copy of an open database, also while others write to it."""
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    copy = apsw.Connection(str(part))
    try:
        # An open read transaction pins the snapshot; without it, a backup in steps starts
        # over whenever another connection writes, and might never end under load.
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
    """Make a rename or a new file in the directory durable, where the system has a way to."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
