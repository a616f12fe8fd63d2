"""An open space: its store, its resident index, the embedder, and what waits to be written."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from commonplace.embedding.provider import Embedder
from commonplace.engine import checks
from commonplace.engine.model import Usage, moment
from commonplace.errors import EmbeddingUnavailable
from commonplace.storage import counters, derived
from commonplace.storage.ports import Rows, Store
from commonplace.storage.writing import Unit, newest_operation

if TYPE_CHECKING:
    from commonplace.engine.content.fact_counts import FactCount
    from commonplace.engine.finding.substring_cache import Haystacks
    from commonplace.engine.model import Origin
    from commonplace.storage.index import Snapshot, SpaceIndex


@dataclass(slots=True, eq=False)
class Noted:
    """Reads of one memory that wait to be written, or are being written."""

    count: int = 0
    at: int = 0
    reaches: int | None = None
    """What the counter says once they are in it; None until somebody writes them."""


@dataclass(eq=False)
class OpenSpace:
    """What every engine function works on."""

    store: Store
    embedder: Embedder | None
    wake: Callable[[], None] = field(default=lambda: None)
    pins: int = 0
    has_work: bool = False
    _haystacks: Haystacks | None = None
    _fact_count: FactCount | None = None
    _index: SpaceIndex | None = None
    _model: tuple[str, str, int] | None = None
    _reads: dict[int, Noted] = field(default_factory=dict)
    _writing: list[dict[int, Noted]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """The space's name."""
        return self.store.space

    @contextlib.contextmanager
    def write(self, name: str, origin: Origin | None, undoes: int | None = None) -> Iterator[Unit]:
        """A unit of work, or a part of the one that is open."""
        with self.store.write(name, checks.origin(origin).as_dict(), undoes) as unit:
            yield unit

    @property
    def index(self) -> SpaceIndex:
        """The resident index, made on first use."""
        model = self.model  # which may ask a provider, and so not under the lock
        with self._lock:
            if self._index is None or self._index.model != model:
                from commonplace.storage.index import SpaceIndex

                self._index = SpaceIndex(self.name, model)
            return self._index

    @property
    def haystacks(self) -> Haystacks:
        """Texts as substring search compares them, kept between searches."""
        with self._lock:
            if self._haystacks is None:
                from commonplace.engine.finding.substring_cache import Haystacks

                self._haystacks = Haystacks()
            return self._haystacks

    @haystacks.setter
    def haystacks(self, held: Haystacks) -> None:
        self._haystacks = held

    @property
    def fact_count(self) -> FactCount:
        """How many facts there are, kept between those that are added."""
        with self._lock:
            if self._fact_count is None:
                from commonplace.engine.content.fact_counts import FactCount

                self._fact_count = FactCount()
            return self._fact_count

    @property
    def model(self) -> tuple[str, str, int] | None:
        """(id, weights, dimensions) of the embedder; None without one, or until it has answered."""
        if self._model is None and self.embedder is not None:
            try:
                model = self.embedder
                self._model = (model.id, model.weights, model.dimensions)
            except EmbeddingUnavailable:
                return None
        return self._model

    @contextlib.contextmanager
    def view(self) -> Iterator[tuple[Rows, Snapshot]]:
        """A read snapshot together with the index at exactly the same operation."""
        while True:
            with self.store.read() as connection:
                index = self._indexed(connection)
                if index is not None:
                    yield connection, index
                    return
            # Look again from a newer snapshot.

    def _indexed(self, connection: Rows) -> Snapshot | None:
        """The index at the operation that a connection sees.

        None if another reader moved it on, or if it is of another file and was given up.
        """
        from commonplace.storage.index import OtherHistory

        try:
            if self.store.open_unit is not None:
                self.store.open_unit.show_head()
                return self.index.private_snapshot(connection)
            index = self.index.snapshot(connection)
        except OtherHistory:
            self.forget_index()
            return None
        at = newest_operation(connection, self.name)
        return index if (index.seq, index.operation) == at else None

    def forget_index(self) -> None:
        """Load what is held in memory anew at the next use."""
        with self._lock:
            self._index = self._haystacks = self._fact_count = None

    def current_model(self, connection: Rows) -> int | None:
        """The number of the embedder's model in this file, if any vector is by it."""
        if self.model is None:
            return None
        return derived.known_model(connection, self.name, self.model[0], self.model[1])

    def count_reads(self, nums: list[int], at: int) -> None:
        """Note that memories were read; written within a second, if anything can be."""
        if self.store.read_only:
            return
        if self.store.open_unit is not None:
            # Their rows may be gone with the unit, and their numbers then be another's.
            self.add_reads(nums, 1, at)
            return
        with self._lock:
            for num in nums:
                noted = self._reads.setdefault(num, Noted())
                noted.count, noted.at = noted.count + 1, at
        self.wake()

    @property
    def has_reads(self) -> bool:
        """Whether noted reads wait to be written."""
        return bool(self._reads)

    def noted_reads(self, num: int) -> list[Noted]:
        """Reads of a memory that may not be written yet; to be asked for before its counter."""
        with self._lock:
            batches = (self._reads, *self._writing)
            return [batch[num] for batch in batches if num in batch]

    def write_reads(self) -> None:
        """Add the noted reads to the counters; on failure they stay noted."""
        with self._lock:
            reads, self._reads = self._reads, {}
            self._writing.append(reads)
        try:
            if reads:
                self._add(reads)
        except BaseException:
            with self._lock:
                for num, noted in reads.items():
                    again = self._reads.setdefault(num, Noted())
                    again.count += noted.count
                    again.at = max(again.at, noted.at)
            raise
        finally:
            with self._lock:
                self._writing = [each for each in self._writing if each is not reads]

    def add_reads(self, nums: Iterable[int], times: int, at: int) -> None:
        """Add to the counters now, in the open unit if there is one."""
        self._add({num: Noted(times, at) for num in nums})

    def _add(self, reads: dict[int, Noted]) -> None:
        with self.store.maintain() as connection:
            for num, noted in reads.items():
                accesses, last = counters.read(connection, self.name, num)
                noted.reaches = accesses + noted.count
                counters.write(connection, self.name, num, noted.reaches, max(last, noted.at))

    def close(self) -> None:
        """Write what is noted and close the file."""
        try:
            self.write_reads()
        finally:
            self.store.close()


def used(connection: Rows, space: str, num: int, noted: Sequence[Noted]) -> Usage:
    """How often a memory was read: what its counter says, and what was noted beside it."""
    accesses, last = counters.read(connection, space, num)
    # A counter that has come as far as noted reads take it holds them already.
    waiting = [each for each in noted if each.reaches is None or accesses < each.reaches]
    newest = max(last, *(each.at for each in waiting), 0)
    return Usage(accesses + sum(each.count for each in waiting), moment(newest) if newest else None)
