"""A cache for substring search: case-folded texts in one buffer, and columns about them.

A needle is the text to search for. A needle without white space lies within one word, so it is
searched for in the distinct words, which are few compared with the texts; an index lists the rows
of each word. A needle with white space is searched for in the texts of the rows that have all its
words.

Rows are only appended. A changed memory gets a new row and its old row becomes stale, so a search
needs no lock. When too many rows are stale, a copy without them replaces the cache.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from commonplace.storage.growing import GrowingArray

KEPT_BYTES = 40_000_000  # bytes of cached text in each open space
LONGEST_BYTES = KEPT_BYTES // 100
FEW_MEMORIES = 300  # Up to this many memories are compared one by one.
MOST_UNSORTED = 10_000  # Up to this many uses of words may stay unsorted.
CHUNK = 1 << 18  # bytes to compare at once; they fit into the processor's cache
SEPARATOR = "\0"  # the separator of texts; no text contains it, so no needle matches across it
TITLE, TAG, TEXT, NOWHERE = range(4)

Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]
FieldCodes = NDArray[np.int8]


class FoldedMemory(NamedTuple):
    """One memory with its texts case-folded for comparison, and its credit."""

    num: int
    seq: int
    title: str
    tags: Sequence[str]
    text: str
    credit: float
    credited: int

    def first_field(self, needle: str) -> int:
        """Return the first field that contains a needle: TITLE, TAG, TEXT or NOWHERE."""
        if needle in self.title:
            return TITLE
        if any(needle in tag for tag in self.tags):
            return TAG
        return TEXT if needle in self.text else NOWHERE

    def words(self) -> dict[str, int]:
        """Return every distinct word and the first field that contains it."""
        found = dict.fromkeys(self.text.split(), TEXT)
        found.update((word, TAG) for tag in self.tags for word in tag.split())
        found.update((word, TITLE) for word in self.title.split())
        return found

    def stored_parts(self) -> tuple[bytes, bytes, bytes]:
        """Return title, tags and text as the cache stores them."""
        tags = "".join(tag + SEPARATOR for tag in self.tags)
        return (self.title + SEPARATOR).encode(), tags.encode(), self.text.encode()


class _WordUses(NamedTuple):
    """The rows that contain each word, and the field in each row, sorted by word."""

    row: Ints32
    place: FieldCodes
    starts: Ints
    """The offset of each word's first use, followed by the end of the last use."""


@dataclass(frozen=True, slots=True)
class CachedTexts:
    """An immutable state of the cache."""

    row_of: Ints
    """The newest row by the memory's number; -1 if there is none."""
    texts: NDArray[np.uint8]
    num: Ints
    seq: Ints
    ends: Ints
    """For each row, offsets in `texts`: its start, and the ends of title, tags and text."""
    credit: NDArray[np.float64]
    credited: Ints
    spelt: NDArray[np.uint8]
    """All words in one buffer."""
    begins: Ints
    of_word: Ints32
    in_row: Ints32
    at_place: FieldCodes
    by_words: _WordUses
    """The uses sorted by word, without the newest ones."""

    def rows(self, nums: Ints, seqs: Ints) -> Ints:
        """Return the row of each memory; -1 if its current version is not cached."""
        if not len(self.seq):
            return np.full(len(nums), -1, np.int64)
        known = len(self.row_of)
        found = np.where(nums < known, self.row_of[np.minimum(nums, known - 1)], -1)
        found[self.seq[found] != seqs] = -1
        return found

    def first_fields(self, rows: Ints, needle: str) -> FieldCodes:
        """Return the first field that contains a needle, for each row."""
        words = needle.split()
        if words == [needle] and len(rows) > FEW_MEMORIES:
            return self._first_fields_of_word(needle)[rows]
        may = np.arange(len(rows))
        for word in sorted(words, key=len, reverse=True):
            if len(may) > FEW_MEMORIES:
                may = may[self._first_fields_of_word(word)[rows[may]] != NOWHERE]
        places = np.full(len(rows), NOWHERE, np.int8)
        places[may] = self._compare_texts(rows[may], needle)
        return places

    def _first_fields_of_word(self, needle: str) -> FieldCodes:
        """Return, for each row, the first field with a word that contains the needle."""
        at = needle_offsets(self.spelt, needle.encode())
        words = np.searchsorted(self.begins, at, "right") - 1
        words = words[np.flatnonzero(np.diff(words, prepend=-1))]
        holding = np.zeros(len(self.begins), np.bool_)
        holding[words] = True
        done = len(self.by_words.row)
        newest = np.flatnonzero(holding[self.of_word[done:]]) + done
        words = words[words < len(self.by_words.starts) - 1]
        starts = self.by_words.starts[words]
        counts = self.by_words.starts[words + 1] - starts
        older = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        rows = np.concatenate([self.by_words.row[older], self.in_row[newest]])
        places = np.concatenate([self.by_words.place[older], self.at_place[newest]])
        found = np.full(len(self.num), NOWHERE, np.int8)
        found[rows] = TEXT
        better = np.flatnonzero(places < TEXT)
        for place in (TAG, TITLE):
            found[rows[better[places[better] == place]]] = place
        return found

    def _compare_texts(self, rows: Ints, needle: str) -> FieldCodes:
        ends, wanted = self.ends[rows], needle.encode()
        if len(rows) <= FEW_MEMORIES:
            found = np.array(
                [
                    begin + at if (at := self.texts[begin:end].tobytes().find(wanted)) >= 0 else -1
                    for begin, _, _, end in ends.tolist()
                ],
                np.int64,
            )
        else:
            everywhere = needle_offsets(self.texts, wanted)
            found = np.append(everywhere, -1)[np.searchsorted(everywhere, ends[:, 0])]
        places = (found >= ends[:, 1]).astype(np.int8) + (found >= ends[:, 2])
        places[(found < 0) | (found >= ends[:, 3])] = NOWHERE
        return places

    def memory_at(self, row: int) -> FoldedMemory:
        """Return the memory of a row."""
        begin, titled, tagged, end = self.ends[row].tolist()
        held = self.texts[begin:end].tobytes()
        return FoldedMemory(
            int(self.num[row]),
            int(self.seq[row]),
            held[: titled - begin - 1].decode(),
            held[titled - begin : tagged - begin].decode().split(SEPARATOR)[:-1],
            held[tagged - begin :].decode(),
            float(self.credit[row]),
            int(self.credited[row]),
        )


class TextCache:
    """The cached texts of one space. Threads may share it."""

    def __init__(self) -> None:
        self.stale = 0
        """Bytes of stale rows."""
        self._lock = threading.Lock()
        self._words: dict[str, int] = {}
        dtypes: dict[str, Any] = {
            "texts": np.uint8, "num": np.int64, "seq": np.int64, "credit": np.float64,
            "credited": np.int64, "spelt": np.uint8, "begins": np.int64, "of_word": np.int32,
            "in_row": np.int32, "at_place": np.int8,
        }  # fmt: skip
        self._arrays = {name: GrowingArray(dtype) for name, dtype in dtypes.items()}
        self._arrays["ends"] = GrowingArray(np.int64, 4)
        none = _WordUses(np.empty(0, np.int32), np.empty(0, np.int8), np.zeros(1, np.int64))
        self.now = self._freeze(np.empty(0, np.int64), none)
        """The state that searches use."""

    def _freeze(self, row_of: Ints, by_words: _WordUses) -> CachedTexts:
        views: dict[str, Any] = {name: each.view for name, each in self._arrays.items()}
        return CachedTexts(row_of=row_of, by_words=by_words, **views)

    def add(self, read: Sequence[FoldedMemory]) -> None:
        """Cache memories for the next search, as far as there is space."""
        with self._lock:
            room = KEPT_BYTES - self._arrays["texts"].size
            kept, parts = [], []
            for one in read:
                own = one.stored_parts()
                size = sum(map(len, own)) + len(SEPARATOR)
                if size <= LONGEST_BYTES and size <= room:
                    kept.append(one)
                    parts.append(own)
                    room -= size
            if not kept:
                return
            nums = np.array([one.num for one in kept], np.int64)
            former, first = self.now.row_of, self._arrays["num"].size
            row_of = np.full(max(len(former), int(nums.max()) + 1), -1, np.int64)
            row_of[: len(former)] = former
            stale = row_of[nums]
            stale = stale[stale >= 0]
            self.stale += int((self.now.ends[stale, 3] - self.now.ends[stale, 0]).sum())
            row_of[nums] = first + np.arange(len(nums))
            by_words = self._add_words(kept, first)
            self._add_rows(kept, parts)
            self.now = self._freeze(row_of, by_words)

    def _extend(self, name: str, values: Sequence[Any]) -> None:
        growing = self._arrays[name]
        growing.extend(np.array(values, growing.view.dtype))

    def _add_rows(
        self, kept: Sequence[FoldedMemory], parts: Sequence[tuple[bytes, bytes, bytes]]
    ) -> None:
        ends, at = [], self._arrays["texts"].size
        for title, tags, text in parts:
            tagged = at + len(title) + len(tags)
            ends.append((at, at + len(title), tagged, tagged + len(text)))
            at = tagged + len(text) + len(SEPARATOR)
        held = b"".join(part for own in parts for part in (*own, SEPARATOR.encode()))
        self._arrays["texts"].extend(_writable_copy(held))
        self._arrays["ends"].extend(np.array(ends, np.int64))
        for name in ("num", "seq", "credit", "credited"):
            self._extend(name, [getattr(one, name) for one in kept])

    def _add_words(self, kept: Sequence[FoldedMemory], first: int) -> _WordUses:
        words, begin = self._words, self._arrays["spelt"].size
        fresh, begins, lengths = [], [], []
        of_word: list[int] = []
        places: list[int] = []
        for one in kept:
            found = one.words()
            for word in found:
                if word not in words:
                    words[word] = len(words)
                    fresh.append((word + SEPARATOR).encode())
                    begins.append(begin)
                    begin += len(fresh[-1])
            of_word += map(words.__getitem__, found)
            places += found.values()
            lengths.append(len(found))
        self._arrays["spelt"].extend(_writable_copy(b"".join(fresh)))
        self._extend("begins", begins)
        self._extend("of_word", of_word)
        self._extend("in_row", np.repeat(first + np.arange(len(kept)), lengths).tolist())
        self._extend("at_place", places)
        uses = self._arrays["of_word"].view
        if len(uses) - len(self.now.by_words.row) <= max(MOST_UNSORTED, len(uses) // 4):
            return self.now.by_words
        order = np.argsort(uses, kind="stable")
        counts = np.bincount(uses, minlength=len(words))
        return _WordUses(
            self._arrays["in_row"].view[order],
            self._arrays["at_place"].view[order],
            np.concatenate([[0], np.cumsum(counts)]),
        )

    def without_stale(self, nums: Ints) -> TextCache:
        """Return a copy that has only the newest rows of these memories."""
        now, copy = self.now, TextCache()
        rows = now.row_of[nums[nums < len(now.row_of)]]
        copy.add([now.memory_at(row) for row in rows[rows >= 0].tolist()])
        return copy


def _writable_copy(held: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(held), np.uint8)


def needle_offsets(text: NDArray[np.uint8], needle: bytes) -> Ints:
    """Return every offset at which a needle begins, in order."""
    wanted = np.frombuffer(needle, np.uint8)
    last = len(text) - len(wanted) + 1
    if last <= 0:
        return np.empty(0, np.int64)
    # Search for the needle's two rarest bytes first, and compare the others where both match.
    sample = np.bincount(text[:: max(1, len(text) // 10_000)], minlength=256)
    rarest = np.argsort(sample[wanted], kind="stable").tolist()
    found = []
    for start in range(0, last, CHUNK):
        stop = min(last, start + CHUNK)
        hits = text[start + rarest[0] : stop + rarest[0]] == wanted[rarest[0]]
        if len(rarest) > 1:
            hits &= text[start + rarest[1] : stop + rarest[1]] == wanted[rarest[1]]
        at = np.flatnonzero(hits)
        if len(at):
            found.append(at + start)
    if not found:
        return np.empty(0, np.int64)
    where = np.concatenate(found)
    for offset in rarest[2:]:
        where = where[text[where + offset] == wanted[offset]]
    return where
