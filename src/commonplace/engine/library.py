"""A data directory and its open spaces, with the thread for background work."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from commonplace.embedding.provider import Embedder
from commonplace.engine import checks
from commonplace.engine.content import memories
from commonplace.engine.maintenance import upkeep
from commonplace.errors import (
    CommonplaceError,
    EmbeddingUnavailable,
    InvalidInput,
    StorageUnavailable,
)
from commonplace.storage import counters, derived, opening, outbox
from commonplace.storage import memories as stored
from commonplace.storage.ports import Coordination, Maintenance, Rows, Spaces, Store, Watch
from commonplace.storage.sqlite.spaces import unusable_error
from commonplace.storage.tables import LINKS, Row
from commonplace.storage.writing import Unit, newest_change

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from commonplace.engine.model import Origin
    from commonplace.storage.index import Snapshot, SpaceIndex

C = TypeVar("C")

OPEN_SPACES = 64
OPEN_IN_DATABASE = 1_024
"""On a database server, an open space holds only its index: no file, no connection."""
MOST_RESIDENT = 1_000_000
"""If more than OPEN_SPACES are open, their indexes hold at most this many memories."""
UPKEEP_SECONDS = 0.5
# Embedding begins when no call has stored for this time, or at the latest after the second time.
STORE_PAUSE, STORE_SECONDS = 0.03, 0.25
VECTORS_EXPECTED_SECONDS = 10.0
POLL_SECONDS = 0.01  # seconds between two checks for vectors that other processes wrote
MOST_COUNTED = 200  # how many of the newest embedding requests a search reads
MOST_AWAITED = 50  # If more vectors than this are missing, a search does not wait for them.
RETRY_SECONDS = 1.0


def default_path() -> Path:
    """Return the default data directory."""
    return Path(os.environ.get("COMMONPLACE_DATA") or "~/.commonplace")


def default_database(path: str | Path | None) -> str | None:
    """Return the default database URL for a path; None if the path is given explicitly."""
    return opening.default_database() if path is None else None


def directory(path: str | Path | None = None) -> Path:
    """Return the absolute path of a data directory; raise InvalidInput if the path is invalid."""
    path = default_path() if path is None else path
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise InvalidInput("The data directory must be a path.", hint="Give one.", field="data")
    if not name.strip():
        raise InvalidInput(
            "The path of the data directory is blank.", hint="Give a path.", field="data"
        )
    try:
        if b"\x00" in os.fsencode(name):
            raise ValueError("a NUL")
        found = Path(name).expanduser().absolute()
    except (ValueError, RuntimeError) as error:
        # The text is no file name, or the home directory is unknown.
        raise InvalidInput(
            f"The data directory cannot be {ascii(name)[:60]}: {str(error)[:60]}.",
            hint="Choose another path.",
            field="data",
        ) from None
    if found.is_file():
        raise unusable_error(found, os.strerror(errno.ENOTDIR))
    return found


@dataclass(slots=True, eq=False)
class PendingReads:
    """Reads of one memory that are not written yet, or are being written."""

    count: int = 0
    at: int = 0
    reaches: int | None = None
    """The counter's value including these reads; None before the write starts."""


@dataclass(eq=False)
class OpenSpace:
    """One open space: its store, its index, the embedder, and read counts not yet written."""

    store: Store
    embedder: Embedder | None
    wake: Callable[[float, float], None] = field(default=lambda *_: None)
    """Makes the background thread work, as `Library._wake_upkeep` describes."""
    pins: int = 0
    has_work: bool = False
    embed_later: bool = False
    """Whether memories are embedded after the call that stores them has returned."""
    searched_at: float = float("-inf")
    """When the space was last searched for memories without vectors and without a request."""
    caches: dict[type, object] = field(default_factory=dict)
    allow_secrets: bool = False
    """Whether secrets are stored unmasked."""
    _index: SpaceIndex | None = None
    _newest: SpaceIndex | None = None
    """The index of the newest memories, used while the index of a large space loads."""
    _loader: threading.Thread | None = None
    _model: tuple[str, str, int] | None = None
    _embedded_until: tuple[int, str, int] | None = None
    """The newest change at which all memories of other processes had their vectors."""
    _has_links: tuple[tuple[int, str, int], bool] | None = None
    """Whether the space had a link, and the newest change at that time."""
    _expected: dict[int, float] = field(default_factory=dict)
    _embedded: threading.Condition = field(default_factory=threading.Condition)
    _reads: dict[int, PendingReads] = field(default_factory=dict)
    _writing: list[dict[int, PendingReads]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """The name of the space."""
        return self.store.space

    def write(
        self, name: str, origin: Origin | None, undoes: int | None = None
    ) -> AbstractContextManager[Unit]:
        """Open a unit of work, or join the open one."""
        return self.store.write(name, checks.origin(origin).as_dict(), undoes)

    @property
    def index(self) -> SpaceIndex:
        """The in-memory index, created on first use."""
        model = self.model  # The model may ask a provider, so it is read before the lock is taken.
        with self._lock:
            if self._index is None or self._index.model != model:
                from commonplace.storage.index import SpaceIndex

                self._index = SpaceIndex(self.name, model)
            return self._index

    def cache(self, kind: type[C]) -> C:
        """Return the space's instance of a cache class, created on first use."""
        with self._lock:
            if kind not in self.caches:
                self.caches[kind] = kind()
            return cast(C, self.caches[kind])

    @property
    def model(self) -> tuple[str, str, int] | None:
        """The id, weights and dimensions of the embedder; None without an embedder, or before it
        has answered.
        """
        if self._model is None and self.embedder is not None:
            try:
                model = self.embedder
                self._model = (model.id, model.weights, model.dimensions)
            except EmbeddingUnavailable:
                return None
        return self._model

    @contextlib.contextmanager
    def view(self, *, partial: bool = False) -> Iterator[tuple[Rows, Snapshot]]:
        """Open a read snapshot together with the index at exactly the same operation.

        With `partial`, the index of a large space may hold only the newest memories until all are
        loaded; its `since` is then set.
        """
        while True:
            with self.store.read() as connection:
                index = self._updated_index(connection, partial=partial)
                if index is not None:
                    yield connection, index
                    return
            # The index is newer than the snapshot: try again with a newer snapshot.

    def _updated_index(self, connection: Rows, *, partial: bool = False) -> Snapshot | None:
        """Return the index at the operation that a connection sees.

        Return None if another reader has updated the index, or if its file was replaced.
        """
        from commonplace.storage.index import DifferentHistory

        try:
            if self.store.open_unit is not None:
                self.store.open_unit.write_head()
                return self.index.private_snapshot(connection)
            newest = newest_change(connection, self.name)
            chosen = self.index
            if partial and chosen.size is None:
                chosen = self._load_newest(connection) or chosen
            index = chosen.snapshot(connection, newest)
        except DifferentHistory:
            self.forget_index()
            return None
        return index if index.newest == newest else None

    def _load_newest(self, connection: Rows) -> SpaceIndex | None:
        """Return an index of a large space's newest memories, and load all in the background.

        Return None for a space that is not large, and after a failure in the background; the caller
        then loads the index and gets the error.
        """
        from commonplace.storage.index import SpaceIndex

        if self._loader is None and (since := stored.first_number_to_load(connection, self.name)):
            newest = SpaceIndex(self.name, self._model, since)
            newest.snapshot(connection)  # Load this part first: the rest would slow it down.
            with self._lock:
                if self._loader is None:
                    self._newest = newest
                    self._loader = threading.Thread(
                        target=self._load_index, name="commonplace-index", daemon=True
                    )
                    self._loader.start()
        return self._newest

    def _load_index(self) -> None:
        try:
            with self.store.read() as connection:
                self.index.snapshot(connection)
        except CommonplaceError:
            pass  # The next search raises the error.
        finally:
            self._newest = None

    def update_index(self) -> None:
        """Update the index if it is loaded, so that the next call need not update it."""
        if self._index is not None and self._index.size is not None:
            with contextlib.suppress(CommonplaceError), self.view():  # a search raises the error
                pass

    @property
    def memories_in_index(self) -> int:
        """The number of memories in the loaded index."""
        index = self._index
        return 0 if index is None else index.size or 0

    def forget_index(self) -> None:
        """Drop all caches; the next use loads them again."""
        with self._lock:
            self._index = self._newest = self._loader = None
            self.caches.clear()

    def current_model(self, connection: Rows) -> int | None:
        """Return the number of the embedder's model in this file, or None without vectors."""
        if self.model is None:
            return None
        return derived.find_model_number(connection, self.name, self.model[0], self.model[1])

    def embed_soon(self, nums: Iterable[int]) -> None:
        """Start embedding the outbox; searches wait for the vectors of these memories."""
        until = time.monotonic() + VECTORS_EXPECTED_SECONDS
        with self._embedded:
            self._expected.update(dict.fromkeys(nums, until))
        self.has_work = True
        self.wake(STORE_SECONDS, STORE_PAUSE)

    def mark_vectors_done(self, nums: Iterable[int]) -> None:
        """Record that the vectors of memories are written, or will not be written soon."""
        with self._embedded:
            for num in nums:
                self._expected.pop(num, None)
            self._embedded.notify_all()

    def expected_vectors(self) -> set[int]:
        """Return the numbers of the memories whose vectors are expected."""
        at = time.monotonic()
        with self._embedded:
            for num in [num for num, until in self._expected.items() if until < at]:
                del self._expected[num]  # Late: the unit of work may have been rolled back.
            return set(self._expected)

    def wait_for_vectors(self, seconds: float) -> int:
        """Wait for the expected vectors; return how many are still missing."""
        if not self._expected or self.store.open_unit is not None:
            return 0  # An open unit of work may prevent others from writing vectors.
        awaited = self.expected_vectors()
        if len(awaited) > MOST_AWAITED:
            return len(awaited)
        self.wake(0.0, math.inf)
        with self._embedded:
            self._embedded.wait_for(lambda: awaited.isdisjoint(self._expected), seconds)
            return len(awaited & self._expected.keys())

    @contextlib.contextmanager
    def view_with_vectors(
        self, seconds: float, *, partial: bool = False
    ) -> Iterator[tuple[Rows, Snapshot, int]]:
        """Open `view` when the expected vectors are written, or after at most `seconds`.

        Also yield the number of memories, stored by calls of any process, that still lack vectors;
        it is 0 if `seconds` is 0.
        """
        if not seconds:
            with self.view(partial=partial) as (connection, index):
                yield connection, index, 0
            return
        until = time.monotonic() + seconds
        missing, others = self.wait_for_vectors(seconds), None
        while True:
            with self.view(partial=partial) as (connection, index):
                waiting = self._stored_elsewhere(connection, index)
                others = waiting if others is None else others & waiting
                if others:
                    self.has_work = True  # The other process may have ended.
                    self.wake(0.0, math.inf)
                too_many = missing + len(others) > MOST_AWAITED
                if not others or too_many or time.monotonic() >= until:
                    yield connection, index, missing + len(others)
                    return
            time.sleep(POLL_SECONDS)

    def _stored_elsewhere(self, connection: Rows, index: Snapshot) -> set[int]:
        """Return memories from calls of other processes that are not embedded yet.

        The query is skipped if nothing has changed since it found none.
        """
        if self.embedder is None or self.store.open_unit is not None:
            return set()
        if self._embedded_until == index.newest:
            return set()
        found = outbox.newest_call_requests(connection, self.name, MOST_COUNTED)
        found -= self.expected_vectors()
        if not found:
            self._embedded_until = index.newest
        return found

    def has_links(self, connection: Rows, index: Snapshot) -> bool:
        """Return whether the space has a link; this is cached until an operation changes it."""
        if self.store.open_unit is not None:
            return not LINKS.is_empty(connection, self.name)
        known = self._has_links
        if known is None or known[0] != index.newest:
            known = self._has_links = index.newest, not LINKS.is_empty(connection, self.name)
        return known[1]

    def count_reads(self, nums: list[int], at: int) -> None:
        """Count memories as read; the background thread writes the counts within a second."""
        if self.store.read_only:
            return
        if self.store.open_unit is not None:
            # These reads are not cached: if the unit is rolled back, other memories get these row
            # numbers.
            self.add_reads(nums, 1, at)
            return
        with self._lock:
            for num in nums:
                pending = self._reads.get(num) or self._reads.setdefault(num, PendingReads())
                pending.count, pending.at = pending.count + 1, at
        self.wake(UPKEEP_SECONDS, math.inf)

    @property
    def has_reads(self) -> bool:
        """Whether there are pending reads to write."""
        return bool(self._reads)

    def pending_reads(self, num: int) -> list[PendingReads]:
        """Return reads of a memory that may not be written yet.

        Call this before reading the counter.
        """
        with self._lock:
            batches = (self._reads, *self._writing)
            return [batch[num] for batch in batches if num in batch]

    def write_reads(self) -> None:
        """Add pending reads to the counters; after a failure they stay pending."""
        with self._lock:
            reads, self._reads = self._reads, {}
            self._writing.append(reads)
        try:
            if reads:
                self._write_counts(reads)
        except BaseException:
            with self._lock:
                for num, pending in reads.items():
                    again = self._reads.setdefault(num, PendingReads())
                    again.count += pending.count
                    again.at = max(again.at, pending.at)
            raise
        finally:
            with self._lock:
                self._writing = [each for each in self._writing if each is not reads]

    def add_reads(self, nums: Iterable[int], times: int, at: int) -> None:
        """Add to the read counters now, in the open unit if there is one."""
        self._write_counts({num: PendingReads(times, at) for num in nums})

    def _write_counts(self, reads: dict[int, PendingReads]) -> None:
        with self.store.maintain() as connection:
            new = {num: (pending.count, pending.at) for num, pending in reads.items()}
            totals = counters.add(connection, self.name, new)
            for num, pending in reads.items():
                pending.reaches = totals[num]

    def close(self) -> None:
        """Write pending reads and close the file."""
        try:
            if self._loader is not None and self._index is not None:
                self._index.stop()
                self._loader.join()
            self.write_reads()
        finally:
            self.store.close()


def _close(space: OpenSpace) -> None:
    with contextlib.suppress(CommonplaceError):  # If the disk is full, the read counts are lost.
        space.close()


class Library:
    """All spaces of one data directory. Safe to share between threads."""

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        embedder: Embedder | None,
        open_spaces: int | None = None,
        database: str | None = None,
        allow_secrets: bool = False,
        auto_accept: bool = False,
        embed: Literal["now", "later"] = "now",
    ) -> None:
        if database is None:
            database = path if opening.is_database_url(path) else default_database(path)
        self.database = database
        """The URL of the database with the rows; None if they are in files."""
        self.path = directory(None if path == database else path)
        for method in ("embed", "close"):
            if embedder is not None and not callable(getattr(embedder, method, None)):
                raise InvalidInput(
                    f"embedding is not an Embedder: it has no method {method}.",
                    hint='Use "builtin", "none", a URL, or an Embedder.',
                    field="embedding",
                )
        self.embedder = embedder
        self.allow_secrets = checks.flag(allow_secrets, "allow_secrets")
        self.auto_accept = checks.flag(auto_accept, "auto_accept")
        """Whether new proposals are accepted automatically (`platform/review.py`)."""
        self.embed_later = checks.one_of(embed, "embed", ("now", "later")) == "later"
        if open_spaces is None:
            open_spaces = OPEN_SPACES if database is None else OPEN_IN_DATABASE
        self._open_spaces = checks.limit(open_spaces, "open_spaces", 10_000)
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, OpenSpace] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._closed = False
        self._closing: list[tuple[str, Future[None]]] = []
        self._closer: ThreadPoolExecutor | None = None
        self._due_changed = threading.Condition()
        self._latest = self._paused = math.inf  # when the upkeep thread begins its work
        self._stop = threading.Event()
        self._upkeep_thread: threading.Thread | None = None
        self._spaces: Spaces = opening.open_spaces(self.path, self.database)

    @property
    def read_only(self) -> bool:
        """Whether the spaces are read-only."""
        return self._spaces.read_only

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about the configuration of the storage, which the server logs at its start."""
        return self._spaces.warnings

    @property
    def maintenance(self) -> Maintenance:
        """Backups, checks and repair of the stored data."""
        return self._spaces.maintenance(self)

    @property
    def coordination(self) -> Coordination:
        """Locks and work requests that all processes share."""
        return self._spaces.coordination

    def open_system(self) -> Store:
        """Open the store of accounts and credentials, which all spaces share.

        The caller closes it.
        """
        return opening.open_system(self.path, self.database)

    @staticmethod
    def derive(row: Row, speaker: str) -> memories.PreparedMemory:
        """Compute the index entries of a memory from its row."""
        return memories.index_entries(row, speaker)

    def file(self, space: str) -> Path:
        """Return the path of a space's file."""
        return self._spaces.file(checks.space(space))

    def exists(self, space: str) -> bool:
        """Return whether the space exists."""
        return self._spaces.exists(checks.space(space))

    def size(self, space: str) -> int:
        """Return the size of a space in bytes."""
        return self._spaces.size(checks.space(space))

    def watch(self, space: str) -> Watch:
        """Return an object that reports whether a space has changed."""
        return self._spaces.watch(checks.space(space))

    def spaces(self) -> list[str]:
        """Return the names of all spaces that exist."""
        return self._spaces.names()

    @contextlib.contextmanager
    def lease(self, space: str) -> Iterator[OpenSpace]:
        """Open a space unless it is open already, and keep it open during the block."""
        opened = self._open_and_pin(space)
        try:
            yield opened
        finally:
            with self._lock:
                opened.pins -= 1

    def _open_and_pin(self, name: str) -> OpenSpace:
        with self._lock:
            if self._closed:
                raise StorageUnavailable("The library is closed.", hint="Open it again.")
            opened = self._opened.get(name) if isinstance(name, str) else None
            if opened is not None:
                opened.pins += 1
                self._opened.move_to_end(name)
                return opened
            lock = self._opening.setdefault(checks.space(name), threading.Lock())
        with lock:
            with self._lock:
                opened = self._opened.get(name)
                if opened is not None:
                    opened.pins += 1
                    return opened
            opened = OpenSpace(
                self._spaces.open(name), self.embedder, self._wake_upkeep, pins=1,
                allow_secrets=self.allow_secrets, embed_later=self.embed_later,
            )  # fmt: skip
            if upkeep.find_work(opened):
                opened.has_work = True
                self._wake_upkeep()
            with self._lock:
                self._opened[name] = opened
                self._opening.pop(name, None)
                surplus = self._take_surplus()
        for each in surplus:
            self._retire(each)
        return opened

    def _retire(self, space: OpenSpace) -> None:
        """Close a space in another thread, because its last commit and checkpoint take a while."""
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._closer is None and not self._closed:
                self._closer = ThreadPoolExecutor(1, "commonplace-closer")
            if self._closer is None or self._closed:
                _close(space)
                return
            self._closing = [each for each in self._closing if not each[1].done()]
            self._closing.append((space.name, self._closer.submit(_close, space)))
            too_many = len(self._closing) > self._open_spaces
            oldest = self._closing[0][1]
        if too_many:
            oldest.exception()  # waits until the space is closed

    def _take_surplus(self) -> list[OpenSpace]:
        """Remove and return the least recently used open spaces that are not in use."""
        surplus = []
        resident = sum(space.memories_in_index for space in self._opened.values())
        for name in list(self._opened):
            count = len(self._opened)
            if count <= self._open_spaces and (count <= OPEN_SPACES or resident <= MOST_RESIDENT):
                break
            if self._opened[name].pins == 0:
                surplus.append(self._opened.pop(name))
                resident -= surplus[-1].memories_in_index
        return surplus

    def drop(self, space: str) -> None:
        """Close the file of a space, so that the file can be replaced or removed."""
        checks.space(space)
        with self._lock:
            opened = self._opened.get(space)
            if opened is not None and opened.pins:
                raise StorageUnavailable("The space is in use.", hint="Try again.")
            self._opened.pop(space, None)
            closing = [future for name, future in self._closing if name == space]
        if opened is not None:
            opened.close()
        for future in closing:
            future.result()

    def remove(self, space: str) -> None:
        """Delete a space and all its content; raise StorageUnavailable while it is in use."""
        self.drop(space)
        self._spaces.remove(space)

    def _wake_upkeep(self, within: float = UPKEEP_SECONDS, pause: float = math.inf) -> None:
        """Make the upkeep thread work within some seconds, or sooner: when nobody has called this
        for `pause` seconds. Calls that follow each other closely need not share the processor then.
        """
        if self._upkeep_thread is None:
            with self._lock:
                if self._upkeep_thread is None and not self._closed:
                    self._upkeep_thread = threading.Thread(
                        target=self._upkeep, name="commonplace-upkeep", daemon=True
                    )
                    self._upkeep_thread.start()
        now = time.monotonic()
        with self._due_changed:
            before = min(self._latest, self._paused)
            self._latest = min(self._latest, now + within)
            if pause < math.inf:
                self._paused = now + pause
            if min(self._latest, self._paused) < before:
                self._due_changed.notify()

    def _wait_until_due(self) -> None:
        with self._due_changed:
            while (left := min(self._latest, self._paused) - time.monotonic()) > 0:
                self._due_changed.wait(left if left < math.inf else None)
            self._latest = self._paused = math.inf

    def _upkeep(self) -> None:
        """Write read counts and embed memories from the outbox, until the library is closed."""
        while True:
            self._wait_until_due()
            if self._stop.is_set():
                return
            waiting = False
            for name in self._spaces_with_work():
                try:
                    with self.lease(name) as space:
                        waiting |= upkeep.write_and_embed(space, self._stop)
                except Exception as error:
                    # A full disk or an unavailable provider may be the cause: try again later.
                    waiting = True
                    # Any other error is a fault, such as one in an embedder.
                    if not isinstance(error, CommonplaceError):
                        upkeep.log_fault(name)
                    with self._lock:
                        if name in self._opened:
                            self._opened[name].has_work = True
            if waiting:
                self._wake_upkeep(RETRY_SECONDS)

    def _spaces_with_work(self) -> list[str]:
        with self._lock:
            return [
                name for name, space in self._opened.items() if space.has_reads or space.has_work
            ]

    def close(self) -> None:
        """Stop the threads, write read counts, and close every file."""
        with self._lock:
            if self._closed:
                return
            if any(space.store.open_unit is not None for space in self._opened.values()):
                raise StorageUnavailable("A unit of work is open.", hint="Finish it first.")
            self._closed = True
            opened = list(self._opened.values())
            self._opened.clear()
        self._stop.set()
        self._wake_upkeep(0.0)
        if self._upkeep_thread is not None:
            self._upkeep_thread.join(timeout=10)
        if self._closer is not None:
            self._closer.shutdown()
        for space in opened:
            _close(space)
        self._spaces.close()
        if self.embedder is not None:
            self.embedder.close()
