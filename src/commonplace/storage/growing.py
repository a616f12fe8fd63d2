"""Arrays that can grow while others read them, and functions to join, sort and search arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commonplace.errors import StorageCorrupt


class GrowingArray:
    """An array to append to. Views taken earlier stay valid and unchanged."""

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
        """Reserve space for values, and for half as many more, if the array is empty.

        The system allocates real memory only for the parts that are written.
        """
        if self.size == 0:
            room = count + count // 2
            self._buffer = np.empty((room, *self._buffer.shape[1:]), self._buffer.dtype)

    def fork(self) -> GrowingArray:
        """Return a copy with the same content; appending to the copy does not change this array."""
        fork = GrowingArray(self._buffer.dtype)
        fork._buffer, fork.size = self.view, self.size
        return fork

    @property
    def view(self) -> NDArray[Any]:
        """The current values."""
        return self._buffer[: self.size]


def concatenated(parts: list[NDArray[Any]], growing: GrowingArray) -> NDArray[Any]:
    """Concatenate arrays, converted to the type of `growing`."""
    return parts[0] if len(parts) == 1 else np.concatenate([growing.view[:0], *parts])


def sort_by_term(terms: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Sort terms stably: return their order, and the sorted terms.

    Sorting numbers is several times faster than an argsort. So the low bits of each term are
    replaced by its position, and these numbers are sorted.
    """
    low = np.uint64((1 << max(len(terms) - 1, 1).bit_length()) - 1)
    keys = np.arange(len(terms), dtype=np.uint64)
    keys |= terms & ~low
    keys.sort()
    keys &= low
    order = keys.view(np.int64)
    ordered = terms.take(order)
    # The short keys collided: two terms differ only in their low bits.
    if (ordered[1:] < ordered[:-1]).any():
        order = np.argsort(terms, kind="stable")
        ordered = terms.take(order)
    return order, ordered


@dataclass(frozen=True)
class SortedPostings:
    """Postings sorted by term."""

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
    order, terms = sort_by_term(terms)
    starts = np.flatnonzero(np.concatenate([[True], terms[1:] != terms[:-1]]))
    return SortedPostings(
        terms[starts], np.append(starts, len(terms)), positions.take(order), times.take(order)
    )


def positions_of(
    where: NDArray[np.int64], numbers: NDArray[np.int64], what: str, likely: int = 0
) -> NDArray[np.intp]:
    """Return the position of each number in `where`.

    Raise StorageCorrupt if a number is missing, because the index is damaged then. Both arrays are
    sorted in an intact file. The numbers are usually consecutive from `likely` on, so that range is
    tried first.
    """
    end = likely + len(numbers)
    if end <= len(where) and (where[likely:end] == numbers).all():
        return np.arange(likely, end)
    at = np.searchsorted(where, numbers)
    if len(numbers) and (at.max() >= len(where) or (where[at] != numbers).any()):
        raise damaged_index(f"{what} of a row that does not exist")
    return at


def damaged_index(what: str) -> StorageCorrupt:
    """Return the error for an index that does not match the rows."""
    return StorageCorrupt(
        f"The search index is damaged: {what}.",
        hint="Run 'commonplace doctor --repair' to rebuild it from the rows.",
    )
