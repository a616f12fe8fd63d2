"""Arrays that can be extended while others read them, and how they are joined and sorted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commonplace.errors import StorageCorrupt


class Growing:
    """An array to append to; earlier views stay valid and unchanged."""

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        shape = (0,) if width is None else (0, width)
        self._buffer: NDArray[Any] = np.empty(shape, dtype)
        self.size = 0

    def extend(self, values: NDArray[Any]) -> None:
        """Append values."""
        end = self.size + len(values)
        if end > len(self._buffer):
            if self.size == 0:
                # Make a writable copy if the array is a view of immutable bytes.
                self._buffer = np.require(values, self._buffer.dtype, ["C", "W"])
                self.size = end
                return
            room = max(end, self.size + self.size // 2)
            grown = np.empty((room, *self._buffer.shape[1:]), self._buffer.dtype)
            grown[: self.size] = self._buffer[: self.size]
            self._buffer = grown
        self._buffer[self.size : end] = values
        self.size = end

    def reserve(self, count: int) -> None:
        """Make room for values to come, and half as many more, if the array is empty.

        A large array takes real memory only for what has been written to it.
        """
        if self.size == 0:
            room = count + count // 2
            self._buffer = np.empty((room, *self._buffer.shape[1:]), self._buffer.dtype)

    def fork(self) -> Growing:
        """A copy with the same content; appending to it does not change this one."""
        fork = Growing(self._buffer.dtype)
        fork._buffer, fork.size = self.view, self.size
        return fork

    @property
    def view(self) -> NDArray[Any]:
        """The present values."""
        return self._buffer[: self.size]


def concatenated(parts: list[NDArray[Any]], growing: Growing) -> NDArray[Any]:
    """Concatenate arrays, with the type of the target."""
    return parts[0] if len(parts) == 1 else np.concatenate([growing.view[:0], *parts])


def by_term(terms: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Sort terms stably: return their order, and the sorted terms.

    Numbers are sorted several times quicker than their order is found. So the low bits of each
    term give way to its place: what is sorted is (rest of the term, place).
    """
    low = np.uint64((1 << max(len(terms) - 1, 1).bit_length()) - 1)
    keys = np.arange(len(terms), dtype=np.uint64)
    keys |= terms & ~low
    keys.sort()
    keys &= low
    order = keys.view(np.int64)
    ordered = terms.take(order)
    # the short keys collided: two terms differ only in their low bits
    if (ordered[1:] < ordered[:-1]).any():
        order = np.argsort(terms, kind="stable")
        ordered = terms.take(order)
    return order, ordered


@dataclass(frozen=True)
class SortedPostings:
    """Postings in the order of their terms."""

    terms: NDArray[np.uint64]
    starts: NDArray[np.int64]
    positions: NDArray[np.int32]
    times: NDArray[np.uint8]


def sorted_postings(
    earlier: SortedPostings | None,
    terms: NDArray[np.uint64],
    positions: NDArray[np.int32],
    times: NDArray[np.uint8],
) -> SortedPostings:
    """Sort postings by their terms, together with earlier ones."""
    if earlier is not None:
        terms = np.concatenate([np.repeat(earlier.terms, np.diff(earlier.starts)), terms])
        positions = np.concatenate([earlier.positions, positions])
        times = np.concatenate([earlier.times, times])
    order, terms = by_term(terms)
    starts = np.flatnonzero(np.concatenate([[True], terms[1:] != terms[:-1]]))
    return SortedPostings(
        terms[starts], np.append(starts, len(terms)), positions.take(order), times.take(order)
    )


def positions_of(
    where: NDArray[np.int64], numbers: NDArray[np.int64], what: str, likely: int = 0
) -> NDArray[np.intp]:
    """The place of each number in `where`; StorageCorrupt if one is missing, since an index is
    damaged then. Both arrays are sorted in an intact file. The numbers are usually consecutive
    from `likely` on, which is tried first.
    """
    end = likely + len(numbers)
    if end <= len(where) and (where[likely:end] == numbers).all():
        return np.arange(likely, end)
    at = np.searchsorted(where, numbers)
    if len(numbers) and (at.max() >= len(where) or (where[at] != numbers).any()):
        raise damaged_index(f"{what} of a row that is not found")
    return at


def damaged_index(what: str) -> StorageCorrupt:
    """The error for an index that does not fit the rows."""
    return StorageCorrupt(
        f"The search index is damaged: {what}.",
        hint="Run 'commonplace doctor --repair' to rebuild it from the rows.",
    )
