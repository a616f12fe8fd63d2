"""The in-memory index of a space: searchable columns, terms and vectors, kept up to date.

Positions only grow: a changed memory gets a new position and its old one becomes dead, so that a
reader's snapshot never changes. The change counter in the database shows what is new, so that
writes of other processes are seen too.
"""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from commonplace.embedding.provider import Part, Vectors, combine_cosines, parts_of_model
from commonplace.errors import StorageUnavailable
from commonplace.storage import derived, index_rows
from commonplace.storage.fields import STATES
from commonplace.storage.growing import (
    GrowingArray,
    SortedPostings,
    concatenated,
    damaged_index,
    positions_of,
    sorted_postings,
)
from commonplace.storage.index_rows import MemorySelection
from commonplace.storage.ports import Rows
from commonplace.storage.signs import CHOOSE_ABOVE, Signs, vectors_to_score
from commonplace.storage.writing import newest_change, operation_id

POSTING = np.dtype([("term", "<u8"), ("times", "u1")])  # the format of derived.pack_terms
LIVE = 2  # The first two states are live.
SUPERSEDED = STATES.index("superseded")
NEVER = np.iinfo(np.int64).min
SORT_POSTINGS = 100_000  # With fewer postings, comparing all of them is as fast as a search.
# How many rows are read at once. A small batch stays in the CPU's cache. It is also below the 700
# new objects that trigger Python's garbage collection, which would take a tenth of the time.
READ_ROWS = 500
RELOAD_DEAD = 0.3
GROUP = 32  # scores of which only the highest is compared first
_LOWERED = np.float32(1e30)  # by how much scores outside a mask are lowered
ROLES = {"user", "assistant", "system", "human", "ai", "bot", "tool", "agent"}

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


class WordScores(NamedTuple):
    """The scores of every position for some terms."""

    bm25: Floats
    covered: Floats
    """The share of the terms that each position contains, weighted by their rarity."""
    holding: list[NDArray[np.int32]]
    """For each term, the positions that contain it."""
    times: list[NDArray[np.uint8]]
    """For each term, how often it occurs at these positions."""


def bm25_term(
    times: NDArray[np.float32], lengths: Floats, mean_length: float, *, k1: float, b: float
) -> Floats:
    """Return the term frequency part of BM25, which rises with the occurrences and saturates."""
    damped = k1 * (1 - b + b * lengths / max(mean_length, 1e-9))
    return np.asarray(times * (k1 + 1) / (times + damped), np.float32)


def rarity(documents: int, holding: int) -> float:
    """Return the inverse document frequency of a term; it is never negative."""
    return math.log1p((documents - holding + 0.5) / (holding + 0.5))


def highest_positions(score: Floats, mask: Flags, count: int) -> NDArray[np.int64]:
    """Return the positions of the highest scores within the mask, best first."""
    if len(score) > count:
        # Choosing by the mask takes ten times as long as this, unless most flags are equal.
        seen = np.asarray(score - _LOWERED * ~mask, np.float32)
        mask = mask & (seen >= _least_of_highest(seen, count))
    allowed = np.flatnonzero(mask)
    order = np.lexsort((-allowed, -score[allowed]))  # Among equal scores, the newest come first.
    return allowed[order][:count]


def _least_of_highest(scores: Floats, count: int) -> np.float32:
    """Return the score that exactly the `count` highest ones reach, or more with equal scores.

    The maxima of groups come first: `count` of them reach the bound that is found in them, so that
    only the few scores above it have to be ordered.
    """
    groups = len(scores) // GROUP
    if groups > 2 * count:
        whole = GROUP * groups
        tops = scores[:whole].reshape(GROUP, groups).max(axis=0)
        bound = np.partition(tops, groups - count)[groups - count]
        scores = scores[scores >= bound]
    found: np.float32 = np.partition(scores, len(scores) - count)[len(scores) - count]
    return found


@dataclass(frozen=True)
class Snapshot:
    """The data that a recall reads, as of one operation."""

    seq: int
    operation: str
    """The id of the operation."""
    change: int
    """The newest change of vectors."""
    num: Ints
    row_seq: Ints
    kind: NDArray[np.int32]
    state: NDArray[np.int8]
    importance: Floats
    credit: Floats
    pinned: Flags
    occurred: Ints
    created: Ints
    length: Floats
    session: NDArray[np.int32]
    place: Ints  # the positions of messages in their conversation
    speaker: NDArray[np.int32]
    project: NDArray[np.int32]
    """For each memory, the index in `projects` of its project and branch; -1 for neither."""
    alive: Flags  # False for positions whose memory was removed, or has a newer position
    kinds: dict[str, int]
    speakers: dict[str, int]
    projects: dict[tuple[str, ...], int]
    sessions: int
    base: SortedPostings | None
    tail_terms: NDArray[np.uint64]
    tail_positions: NDArray[np.int32]
    tail_times: NDArray[np.uint8]
    vectors: Vectors
    scales: Floats
    owner: NDArray[np.int32]  # for each vector, the position of its memory
    vectored: int  # how many positions have vectors
    parts: tuple[Part, ...]
    """The sizes of the parts of each vector."""
    signs: NDArray[np.uint8]
    """The sign bits of the vectors in a large space; else empty."""
    partial: Ints
    """The vectors whose first part is zero, by row; used with sign bits only."""
    since: int
    """While a large space is loading: the number of the oldest memory included; else 0."""

    @property
    def newest(self) -> tuple[int, str, int]:
        """The newest operation's number and id, and the number of the newest vector change."""
        return self.seq, self.operation, self.change

    @property
    def size(self) -> int:
        """The number of positions, including dead ones."""
        return len(self.num)

    @cached_property
    def live(self) -> Flags:
        """Flags of the positions of live memories."""
        flags: Flags = self.alive & (self.state < LIVE)
        return flags

    @cached_property
    def has_superseded(self) -> bool:
        """Whether a memory was superseded."""
        return bool((self.alive & (self.state == SUPERSEDED)).any())

    @cached_property
    def documents(self) -> tuple[int, float]:
        """The number of live memories, and their mean length."""
        lengths = self.length[self.live]
        return len(lengths), float(lengths.mean()) if len(lengths) else 1.0

    @cached_property
    def embedded(self) -> Flags:
        """Flags of the positions that have a vector."""
        flags: Flags = np.zeros(self.size, np.bool_)
        flags[self.owner] = True
        return flags

    @cached_property
    def _by_owner(self) -> NDArray[np.intp] | None:
        """The order of the vectors by their owners; None if they are stored in that order."""
        in_order = bool((self.owner[1:] >= self.owner[:-1]).all())
        return None if in_order else np.argsort(self.owner, kind="stable")

    def first_vectors(self, positions: Sequence[int] | Ints) -> tuple[NDArray[np.intp], Flags]:
        """Return the first vector of each position, and whether it has one.

        Vectors that were computed late are at the end of the array.
        """
        if not len(self.owner):
            return np.zeros(len(positions), np.intp), np.zeros(len(positions), np.bool_)
        wanted = np.asarray(positions, self.owner.dtype)  # or numpy would convert the whole array
        found = np.searchsorted(self.owner, wanted, sorter=self._by_owner)
        found = np.minimum(found, len(self.owner) - 1)
        at = found if self._by_owner is None else self._by_owner[found]
        return at, self.owner[at] == wanted

    @cached_property
    def neighbours(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The previous and next line of each line in its session; the line itself at an end."""
        before, after = np.arange(self.size), np.arange(self.size)
        lines = np.flatnonzero(self.live & (self.session >= 0))
        lines = lines[np.lexsort((self.place[lines], self.session[lines]))]
        same = self.session[lines[1:]] == self.session[lines[:-1]]
        before[lines[1:][same]] = lines[:-1][same]
        after[lines[:-1][same]] = lines[1:][same]
        return before, after

    @cached_property
    def newest_terms(self) -> NDArray[np.uint64]:
        """The sorted distinct terms of the postings that are not sorted yet."""
        return np.unique(self.tail_terms)

    @cached_property
    def speakers_by_first_word(self) -> dict[str, list[tuple[str, int]]]:
        """Speakers by the case-folded first word of their name: (words of the name, code)."""
        found: dict[str, list[tuple[str, int]]] = {}
        for name, code in self.speakers.items():
            words = " ".join(name.casefold().split())
            if words and words not in ROLES:
                found.setdefault(words.split(" ")[0], []).append((words, code))
        return found

    def postings(self, term: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return the positions where a term occurs, and how often it occurs in each."""
        number = np.uint64(term)
        tail = np.flatnonzero(self.tail_terms == number)
        found = self.tail_positions[tail], self.tail_times[tail]
        if self.base is None:
            return found
        at = int(np.searchsorted(self.base.terms, number))
        if at == len(self.base.terms) or self.base.terms[at] != number:
            return found
        run = slice(int(self.base.starts[at]), int(self.base.starts[at + 1]))
        if not len(tail):
            return self.base.positions[run], self.base.times[run]
        return (
            np.concatenate([self.base.positions[run], found[0]]),
            np.concatenate([self.base.times[run], found[1]]),
        )

    def in_project(self, admits: Callable[[tuple[str, ...]], bool]) -> Flags:
        """Return flags of the positions without a project, and of those with admitted labels."""
        codes = [code for labels, code in self.projects.items() if admits(labels)]
        flags: Flags = np.isin(self.project, [-1, *codes])
        return flags

    def bm25(
        self, terms: Sequence[tuple[str, float]], *, k1: float = 1.0, b: float = 0.5
    ) -> WordScores:
        """Score every position by pairs of a term and its weight."""
        scores, covered = np.zeros(self.size, np.float32), np.zeros(self.size, np.float32)
        documents, mean = self.documents
        found = [self.postings(derived.term_number(term)) for term, _ in terms]
        mass = 0.0
        for (_, weight), (positions, times) in zip(terms, found, strict=True):
            rare = rarity(documents, int(np.count_nonzero(self.live[positions])))
            worth = bm25_term(times.astype(np.float32), self.length[positions], mean, k1=k1, b=b)
            scores[positions] += np.float32(weight * rare) * worth
            covered[positions] += np.float32(weight * rare)
            mass += rare
        if mass > 0:
            covered /= np.float32(mass)
        return WordScores(scores, covered, [at for at, _ in found], [times for _, times in found])

    @property
    def scores_only_some(self) -> bool:
        """Whether the space is so large that only some of the vectors are scored exactly."""
        return len(self.owner) == len(self.signs) > CHOOSE_ABOVE

    def cosine(
        self,
        query: NDArray[np.int8],
        scale: float,
        among: Flags | None = None,
        also: Ints | None = None,
    ) -> Floats:
        """Return the cosine of each memory's best passage with a query; 0 without a vector.

        If the model's vectors have several parts, the cosines of the parts are combined into one
        (`embedding.provider.combine_cosines`). With `among`, a large space scores only the memories
        among these that are probably nearest, and the memories in `also`; all others have 0.
        """
        best = np.zeros(self.size, np.float32)
        if not len(self.owner):
            return best
        matrices, scales, owner = self.vectors.parts, self.scales, self.owner
        if among is not None and self.scores_only_some and query[: self.parts[0].dimensions].any():
            rows = vectors_to_score(self, query, among, also)
            matrices = tuple(matrix[rows] for matrix in matrices)
            scales, owner = scales[rows], owner[rows]
        import simsimd

        found, start = list[Floats](), 0
        for part, matrix in zip(self.parts, matrices, strict=True):
            here = slice(start, start := start + part.dimensions)
            cosines = np.zeros(len(owner), np.float32)
            if query[here].any() and len(owner):
                raw = simsimd.cdist(query[None, here], matrix, metric="dot")
                np.multiply(np.asarray(raw, np.float32)[0], scales * scale, out=cosines)
            found.append(cosines)
        scores = combine_cosines(found, self.parts)
        if len(owner) == self.vectored == self.size and self._by_owner is None:
            best = scores  # each memory has one vector, in the same order
        elif len(self.owner) == self.vectored:
            best[owner] = scores
        elif len(owner):
            first = np.flatnonzero(np.diff(owner, prepend=-1))
            best[owner[first]] = np.maximum.reduceat(scores, first)
        return best


class DifferentHistory(Exception):
    """Raised if the file does not contain the operation at which the index is."""


class SpaceIndex:
    """The in-memory index of one space, for one embedding model.

    With `since`, it holds the memories from this number on, and older ones once they change.
    """

    def __init__(self, space: str, model: tuple[str, str, int] | None, since: int = 0) -> None:
        self.space = space
        self.model = model
        self.since = since
        self._stopped = False
        self._parts = parts_of_model(model[0], model[2]) if model else ()
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        dimensions = self.model[2] if self.model else 0
        self._newest = (0, "", 0)
        dtypes: dict[str, Any] = {
            "num": np.int64, "row_seq": np.int64, "kind": np.int32, "state": np.int8,
            "importance": np.float32, "credit": np.float32, "pinned": np.bool_,
            "occurred": np.int64, "created": np.int64, "length": np.float32, "session": np.int32,
            "place": np.int64, "speaker": np.int32, "project": np.int32,
        }  # fmt: skip
        self._columns = {name: GrowingArray(dtype) for name, dtype in dtypes.items()}
        self._alive = np.empty(0, np.bool_)
        self._kinds: dict[str, int] = {}
        self._speakers: dict[str, int] = {}
        self._projects: dict[tuple[str, ...], int] = {}
        self._sessions: dict[tuple[str, str], int] = {}
        self._loaded = 0  # the first positions, whose numbers are in order
        self._moved: dict[int, int] = {}  # the positions of memories that were written later
        self._base: SortedPostings | None = None
        self._tail = (GrowingArray(np.uint64), GrowingArray(np.int32), GrowingArray(np.uint8))
        self._vectors = [GrowingArray(np.int8, part.dimensions) for part in self._parts]
        self._scales = GrowingArray(np.float32)
        self._owner = GrowingArray(np.int32)
        self._signs = Signs(dimensions)
        self._vectored = 0
        self._snapshot: Snapshot | None = None

    @property
    def size(self) -> int | None:
        """The number of positions, including dead ones; None before the index is loaded."""
        return None if self._snapshot is None else self._snapshot.size

    def stop(self) -> None:
        """Make a thread that is loading the index stop with an error."""
        self._stopped = True

    def snapshot(self, connection: Rows, newest: tuple[int, str, int] | None = None) -> Snapshot:
        """Return the index as of the connection's snapshot, or of a newer one that another reader
        saw.

        The connection's snapshot must begin with this call, which reads the head, or with the
        `newest_change` that is given. Raise OtherHistory if the file was replaced by an older one,
        or by one that continued from an older one.
        """
        known = self._snapshot
        newest = newest or newest_change(connection, self.space)
        if known is not None and known.newest == newest:
            return known
        with self._lock:
            current = self._snapshot
            if current is not None and current.newest != newest:
                self._check_history(connection, current, newest, moved=current is not known)
            if current is None or (current.seq, current.change) < (newest[0], newest[2]):
                try:
                    self._update(connection, newest)
                    dead = self._alive.size - int(self._alive.sum())
                    if dead > 1000 and dead > RELOAD_DEAD * self._alive.size:
                        self._clear()
                        self._update(connection, newest)
                except BaseException as error:
                    self._clear()  # The update may have been applied in part.
                    if isinstance(error, TypeError | ValueError | OverflowError):
                        raise damaged_index(
                            "a value does not have the type of its column"
                        ) from error
                    raise
            assert self._snapshot is not None
            return self._snapshot

    def _check_history(
        self, connection: Rows, current: Snapshot, newest: tuple[int, str, int], *, moved: bool
    ) -> None:
        """Raise OtherHistory unless the file has the index's history, or is slightly behind."""
        seq, operation, change = newest
        if current.seq < seq:
            same = operation_id(connection, self.space, current.seq) == current.operation
        elif current.seq == seq:
            same = current.operation == operation
        else:  # A snapshot that began after the index reached this operation cannot be behind it.
            same = moved
        if current.change > change:
            same = same and moved
        if not same:
            raise DifferentHistory

    def private_snapshot(self, connection: Rows) -> Snapshot:
        """Return the index for reads inside an open unit, including its uncommitted rows."""
        known = self._snapshot
        newest = newest_change(connection, self.space)
        if known is not None and known.newest == newest:
            return known
        return self._fork().snapshot(connection)

    def _fork(self) -> SpaceIndex:
        with self._lock:
            fork = SpaceIndex(self.space, self.model, self.since)
            fork._newest, fork._snapshot = self._newest, self._snapshot
            fork._columns = {name: growing.fork() for name, growing in self._columns.items()}
            fork._alive, fork._base, fork._vectored = self._alive, self._base, self._vectored
            fork._kinds, fork._speakers = dict(self._kinds), dict(self._speakers)
            fork._sessions, fork._projects = dict(self._sessions), dict(self._projects)
            fork._loaded, fork._moved = self._loaded, dict(self._moved)
            terms, positions, times = self._tail
            fork._tail = (terms.fork(), positions.fork(), times.fork())
            fork._vectors = [growing.fork() for growing in self._vectors]
            fork._scales = self._scales.fork()
            fork._owner, fork._signs = self._owner.fork(), self._signs.fork()
            return fork

    def _update(self, connection: Rows, newest: tuple[int, str, int]) -> None:
        if self._snapshot is None:
            self._append(connection, None)
        else:
            nums = index_rows.changed_since(connection, self.space, self._newest[0])
            late = self._embedded_late(connection, self._snapshot.embedded, nums)
            if nums:
                self._append(connection, sorted(nums))
            if late:
                numbers = np.array(late, np.int64)
                self._append_vectors(connection, late, numbers, self._positions_of(late))
        self._newest = newest
        self._snapshot = self._freeze()

    def _embedded_late(self, connection: Rows, embedded: Flags, nums: set[int]) -> list[int]:
        """Return the memories whose only change is that they got their first vectors.

        Their vectors are appended, and they keep their positions. Other memories with new vectors
        are added to `nums`.
        """
        late = []
        found = derived.embedded_since(connection, self.space, self._newest[2])
        for num, place in zip(found, self._positions_of(found).tolist(), strict=True):
            if num in nums or place < 0 or embedded[place]:
                nums.add(num)
            else:
                late.append(num)
        return sorted(late)

    def _selection(self, nums: list[int] | None) -> MemorySelection:
        return MemorySelection(self.space, nums, self.since)

    def _batches(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
        while some := list(islice(rows, READ_ROWS)):
            if self._stopped:
                raise StorageUnavailable("The space is closed.", hint="Open it again.")
            yield some

    def _append(self, connection: Rows, nums: list[int] | None) -> None:
        first = self._columns["num"].size
        columns = self._read_columns(connection, nums)
        appended = columns["num"]
        alive = np.ones(first + len(appended), np.bool_)
        alive[:first] = self._alive
        if nums is not None:
            places = self._positions_of(nums)
            alive[places[places >= 0]] = False
        self._alive = alive
        if not len(appended):
            return
        for name, values in columns.items():
            if nums is None:
                self._columns[name].reserve(len(values))
            self._columns[name].extend(values)
        if nums is None:
            self._loaded = len(appended)
        else:
            self._moved.update((num, first + i) for i, num in enumerate(appended.tolist()))
        self._append_terms(connection, nums, appended, first)
        self._append_messages(connection, nums, appended, first)
        self._append_projects(connection, nums, appended, first)
        self._append_vectors(connection, nums, appended, np.arange(first, first + len(appended)))

    def _positions_of(self, nums: Sequence[int]) -> NDArray[np.int64]:
        """Return the current position of each memory; -1 if it has none."""
        known = self._columns["num"].view[: self._loaded]
        numbers = np.array(nums, np.int64)
        at = np.searchsorted(known, numbers)
        at[at == len(known)] = -1
        if len(known):
            at[known[at] != numbers] = -1
        return np.array(
            [self._moved.get(n, p) for n, p in zip(nums, at.tolist(), strict=True)], np.int64
        )

    def _read_columns(self, connection: Rows, nums: list[int] | None) -> dict[str, NDArray[Any]]:
        """Return the columns of the memories' rows, ordered by number."""
        names = (
            "num", "row_seq", "kind", "state", "importance", "credit", "pinned", "occurred",
            "created",
        )  # fmt: skip
        kinds = self._kinds
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
        for rows in self._batches(index_rows.memory_columns(connection, self._selection(nums))):
            num, seq, kind, state, importance, credit, pinned, occurred, created = zip(
                *rows, strict=True
            )
            for name in set(kind) - kinds.keys():
                kinds[name] = len(kinds)
            if None in state:
                raise damaged_index("a row has an unknown state")
            values = (
                num, seq, [kinds[name] for name in kind], state, importance, credit, pinned,
                [NEVER if at is None else at for at in occurred], created,
            )  # fmt: skip
            for name, column in zip(names, values, strict=True):
                dtype = self._columns[name].view.dtype
                try:
                    with np.errstate(over="raise", invalid="raise"):
                        parts[name].append(np.fromiter(column, dtype, len(rows)))
                except (ArithmeticError, TypeError, ValueError) as error:
                    raise damaged_index(
                        f"a row has a value that is not valid for {name}"
                    ) from error
        columns = {name: concatenated(each, self._columns[name]) for name, each in parts.items()}
        numbers = columns["num"]
        if (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers, kind="stable")
            columns = {name: column[order] for name, column in columns.items()}
        count = len(numbers)
        columns["length"] = np.zeros(count, np.float32)
        columns["session"] = np.full(count, -1, np.int32)
        columns["place"] = np.zeros(count, np.int64)
        columns["speaker"] = np.full(count, -1, np.int32)
        columns["project"] = np.full(count, -1, np.int32)
        return columns

    def _append_terms(
        self, connection: Rows, nums: list[int] | None, appended: Ints, first: int
    ) -> None:
        parts: tuple[list[NDArray[Any]], ...] = ([], [], [])
        lengths = self._columns["length"].view[first:]
        count = 0
        for rows in self._batches(index_rows.packed_terms(connection, self._selection(nums))):
            memories, blobs, totals = zip(*rows, strict=True)
            numbers = np.fromiter(memories, np.int64, len(rows))
            starts = (numbers & 0xFFFFFFFF).tolist()
            sums = np.fromiter(map(zlib.crc32, blobs, starts), np.int64, len(rows))
            wrong = np.flatnonzero(sums != np.fromiter(totals, np.int64, len(rows)))
            if len(wrong):
                raise damaged_index(f"the terms of row {memories[wrong[0]]}")
            at = positions_of(appended, numbers, "terms", count)
            count += len(rows)
            postings = np.frombuffer(b"".join(blobs), POSTING)
            counts = np.fromiter(map(len, blobs), np.int64, len(rows)) // POSTING.itemsize
            times = np.ascontiguousarray(postings["times"])
            ends = np.cumsum(counts)
            until = np.zeros(len(times) + 1, np.int64)
            np.cumsum(times, out=until[1:])
            lengths[at] = until[ends] - until[ends - counts]
            positions = np.repeat((first + at).astype(np.int32), counts)
            for each, values in zip(parts, (postings["term"], positions, times), strict=True):
                each.append(values)
        if count != len(appended):
            raise damaged_index(f"{len(appended)} memories have {count} lists of terms")
        for growing, some in zip(self._tail, parts, strict=True):
            growing.extend(concatenated(some, growing))
        if self._tail[0].size > max(
            SORT_POSTINGS, 0 if self._base is None else self._base.times.size // 4
        ):
            self._sort_tail()

    def _sort_tail(self) -> None:
        terms, positions, times = (growing.view for growing in self._tail)
        self._base = sorted_postings(self._base, terms, positions, times)
        self._tail = (GrowingArray(np.uint64), GrowingArray(np.int32), GrowingArray(np.uint8))

    def _append_messages(
        self, connection: Rows, nums: list[int] | None, appended: Ints, first: int
    ) -> None:
        sessions, speakers = self._sessions, self._speakers
        for rows in self._batches(index_rows.message_places(connection, self._selection(nums))):
            numbers = np.fromiter((row[0] for row in rows), np.int64, len(rows))
            at = first + positions_of(appended, numbers, "a line")
            codes = [sessions.setdefault((row[1], row[2]), len(sessions)) for row in rows]
            self._columns["session"].view[at] = codes
            self._columns["place"].view[at] = [row[3] for row in rows]
            self._columns["speaker"].view[at] = [
                speakers.setdefault(row[4], len(speakers)) for row in rows
            ]

    def _append_projects(
        self, connection: Rows, nums: list[int] | None, appended: Ints, first: int
    ) -> None:
        found = index_rows.project_labels(connection, self._selection(nums))
        numbers = np.fromiter(sorted(found), np.int64, len(found))
        at = first + positions_of(appended, numbers, "a label")
        self._columns["project"].view[at] = [
            self._projects.setdefault(tuple(sorted(found[num])), len(self._projects))
            for num in numbers.tolist()
        ]

    def _append_vectors(
        self, connection: Rows, nums: list[int] | None, appended: Ints, positions: Ints
    ) -> None:
        """Append the vectors of the memories in `appended`, which are at these positions."""
        if self.model is None:
            return
        number = derived.find_model_number(connection, self.space, self.model[0], self.model[1])
        if number is None:
            return
        size = 4 + self.model[2]
        begun = self._owner.size
        if nums is None:
            for growing in (*self._vectors, self._scales, self._owner):
                growing.reserve(len(appended))
        for rows in self._batches(
            index_rows.packed_vectors(connection, self._selection(nums), number)
        ):
            memories, ordinals, starts, stops, blobs, totals = zip(*rows, strict=True)
            numbers, ordinal, start, stop = (
                np.fromiter(each, np.int64, len(rows))
                for each in (memories, ordinals, starts, stops)
            )
            sums = np.fromiter(map(zlib.crc32, blobs), np.int64, len(rows))
            sums ^= derived.passage_code(numbers, ordinal, start, stop, number)
            wrong = np.flatnonzero(sums != np.fromiter(totals, np.int64, len(rows)))
            if len(wrong) or set(map(len, blobs)) != {size}:
                raise damaged_index(f"a vector of row {memories[wrong[0] if len(wrong) else 0]}")
            packed = np.frombuffer(b"".join(blobs), np.uint8).reshape(-1, size)
            at = positions_of(appended, numbers, "a vector", self._owner.size - begun)
            self._scales.extend(np.ascontiguousarray(packed[:, :4]).view("<f4")[:, 0])
            rows_of_parts = Vectors.split(packed[:, 4:].view(np.int8), self._parts).parts
            for growing, matrix in zip(self._vectors, rows_of_parts, strict=True):
                growing.extend(matrix)
            self._owner.extend(positions[at].astype(np.int32))
        if self._owner.size > CHOOSE_ABOVE:
            self._signs.append_new(self._all_vectors(), self._parts)
        owners = self._owner.view[begun:]  # Vectors of the same owner are adjacent.
        if len(owners):
            self._vectored += 1 + int(np.count_nonzero(owners[1:] != owners[:-1]))

    def _all_vectors(self) -> Vectors:
        return Vectors(tuple(growing.view for growing in self._vectors))

    def _freeze(self) -> Snapshot:
        columns = {name: growing.view for name, growing in self._columns.items()}
        terms, positions, times = (growing.view for growing in self._tail)
        return Snapshot(
            seq=self._newest[0],
            operation=self._newest[1],
            change=self._newest[2],
            **columns,
            alive=self._alive,
            kinds=dict(self._kinds),
            speakers=dict(self._speakers),
            projects=dict(self._projects),
            sessions=len(self._sessions),
            base=self._base,
            tail_terms=terms,
            tail_positions=positions,
            tail_times=times,
            vectors=self._all_vectors(),
            scales=self._scales.view,
            owner=self._owner.view,
            vectored=self._vectored,
            parts=self._parts,
            signs=self._signs.bits.view,
            partial=self._signs.partial.view,
            since=self.since,
        )
