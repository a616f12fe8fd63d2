"""Substring search that reports where each needle is: in the title, in a tag, or in the text.

A needle is a text to search for. Texts that were read are cached (`substring_cache.py`), so that
all memories are compared at once. For texts that are not cached, and in a large space, the trigram
index returns the candidates. All matches are scored at once, and only the returned ones are read as
verified rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from commonplace.engine import checks
from commonplace.engine.content import credit
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.substring_cache import (
    FEW_MEMORIES,
    KEPT_BYTES,
    NOWHERE,
    CachedTexts,
    FoldedMemory,
    TextCache,
)
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Memory
from commonplace.errors import InvalidInput
from commonplace.storage import derived
from commonplace.storage.ports import Rows
from commonplace.storage.tables import MEMORIES
from commonplace.text.analysis import fold, trigrams

if TYPE_CHECKING:
    from commonplace.storage.index import Ints, Snapshot

TextField = Literal["title", "tag", "text"]
FIELDS: tuple[TextField, ...] = ("title", "tag", "text")
QUICK_WORDS = (
    1_000_000  # Up to this many words, searching the cache is faster than the trigram index.
)
STALE_BYTES = 1_000_000  # bytes of stale texts at which the cache is copied without them
# how many texts a search may read into the cache if there is no trigram index
READ_AT_ONCE = 20_000
GRAMS = 4  # trigrams to look up for a needle; more would take longer than they save

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Matches:
    """The memories that contain every needle, as columns for scoring."""

    num: Ints
    credit: Doubles
    credited: Ints
    """When the credit was set, in microseconds; 0 if unknown."""
    places: NDArray[np.int8]
    """For each memory, the first field with each needle, as indexes into FIELDS."""


def locate(
    space: OpenSpace,
    needles: Sequence[str],
    filters: Filters,
    score: Callable[[Matches], Doubles],
    *,
    limit: int = 50,
) -> tuple[list[tuple[Memory, tuple[TextField, ...]]], int]:
    """Return the matches with the highest scores, and the number of all matches.

    A match is a memory that contains every needle, with the field of each needle. Among equal
    scores, the newest memory comes first.
    """
    wanted = [fold(checks.text(needle, "needle", max_chars=1_000)) for needle in needles]
    if not wanted:
        return [], 0
    with space.view() as (connection, snapshot):
        at = np.flatnonzero(filters.mask(snapshot, connection, space.name))
        matches = _find_matches(space, connection, snapshot, at, wanted)
        if not len(matches.num):
            return [], 0
        best = _best_positions(_scores(score, matches), matches.num, limit)
        nums = matches.num[best].tolist()
        rows = MEMORIES.by_nums(connection, space.name, nums)
        shown = [
            (Memory.of(rows[num]), tuple(FIELDS[place] for place in places))
            for num, places in zip(nums, matches.places[best].tolist(), strict=True)
            if num in rows
        ]
        return shown, len(matches.num)


def _scores(score: Callable[[Matches], Doubles], matches: Matches) -> Doubles:
    scores = np.asarray(score(matches))
    if scores.shape != matches.num.shape or scores.dtype != np.float64 or np.isnan(scores).any():
        raise InvalidInput("score must return one number for each memory.", field="score")
    return scores


def _best_positions(scores: Doubles, nums: Ints, limit: int) -> NDArray[np.intp]:
    """Return the positions of the highest scores, best first; among equals, the newest first."""
    chosen = np.arange(len(scores))
    if len(scores) > limit:
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
        room = limit - len(above)
        if len(equal) > room:
            equal = equal[np.argpartition(nums[equal], len(equal) - room)[len(equal) - room :]]
        chosen = np.concatenate([above, equal])
    return chosen[np.lexsort((-nums[chosen], -scores[chosen]))]


def _may_contain(
    connection: Rows,
    space: OpenSpace,
    cached: CachedTexts,
    nums: Ints,
    rows: Ints,
    needles: Sequence[str],
) -> NDArray[np.bool_]:
    """Return a flag for each of these memories: whether it may contain the needles."""
    missing = rows < 0
    every = np.ones(len(nums), np.bool_)
    if len(nums) <= FEW_MEMORIES or (len(cached.of_word) < QUICK_WORDS and not missing.any()):
        return every
    if not connection.grams_indexed and (
        not missing.any() or (space.store.open_unit is None and missing.sum() <= READ_AT_ONCE)
    ):
        # The texts are read into the cache once, instead of being read by every search.
        return every
    grams: list[str] = []
    for needle in needles:
        own = trigrams(needle)
        grams += own[:: max(1, len(own) // GRAMS)][:GRAMS]
    if not grams:
        return every
    most = None if missing.any() else FEW_MEMORIES + 1
    named = derived.memories_with_grams(connection, space.name, grams, most)
    if len(named) == most:
        return every
    may = np.isin(nums, np.array(named, np.int64))
    # Cached texts are fast to compare; other texts are read only if they may match.
    return may if len(named) <= FEW_MEMORIES else may | ~missing


def _find_matches(
    space: OpenSpace,
    connection: Rows,
    snapshot: Snapshot,
    positions: NDArray[np.intp],
    needles: Sequence[str],
) -> Matches:
    """Return the memories at these positions that contain every needle."""
    cached = space.cache(TextCache).now
    nums, seqs = snapshot.num[positions], snapshot.row_seq[positions]
    rows = cached.rows(nums, seqs)
    may = _may_contain(connection, space, cached, nums, rows, needles)
    nums, seqs, rows = nums[may], seqs[may], rows[may]
    uncached: list[FoldedMemory] = []
    if (rows < 0).any():
        uncached = _read_memories(space, connection, nums[rows < 0].tolist())
        # An open unit may be rolled back, so its rows are not cached.
        if space.store.open_unit is None:
            cached = _cache_texts(space, uncached, snapshot)
            rows = cached.rows(nums, seqs)
            left = set(nums[rows < 0].tolist())
            uncached = [one for one in uncached if one.num in left]
        nums, rows = nums[rows >= 0], rows[rows >= 0]
    places = np.empty((len(rows), len(needles)), np.int8)
    # Compare the longest needle first: it leaves the fewest memories for the others.
    for column in sorted(range(len(needles)), key=lambda at: -len(needles[at])):
        places[:, column] = cached.first_fields(rows, needles[column])
        hold = places[:, column] != NOWHERE
        nums, rows, places = nums[hold], rows[hold], places[hold]
    matches = Matches(nums, cached.credit[rows], cached.credited[rows], places)
    return _add_uncached(matches, uncached, needles) if uncached else matches


def _add_uncached(
    matches: Matches, uncached: Sequence[FoldedMemory], needles: Sequence[str]
) -> Matches:
    """Add the uncached memories that contain every needle."""
    found = [(one, [one.first_field(needle) for needle in needles]) for one in uncached]
    held = [(one, places) for one, places in found if NOWHERE not in places]
    if not held:
        return matches
    return Matches(
        np.append(matches.num, [one.num for one, _ in held]),
        np.append(matches.credit, [one.credit for one, _ in held]),
        np.append(matches.credited, [one.credited for one, _ in held]),
        np.concatenate([matches.places, np.array([places for _, places in held], np.int8)]),
    )


def _cache_texts(space: OpenSpace, read: Sequence[FoldedMemory], snapshot: Snapshot) -> CachedTexts:
    """Cache the texts just read for the next search; drop stale texts if there are too many."""
    held = space.cache(TextCache)
    size = len(held.now.texts)
    if held.stale > max(STALE_BYTES, size // (10 if size > KEPT_BYTES * 0.9 else 2)):
        held = space.caches[TextCache] = held.without_stale(snapshot.num[snapshot.alive])
    held.add(read)
    return held.now


def _read_memories(space: OpenSpace, connection: Rows, nums: Sequence[int]) -> list[FoldedMemory]:
    rows = (MEMORIES.first(connection, space.name, num=num) for num in nums)
    return [
        FoldedMemory(
            row["num"],
            row["seq"],
            fold(row["title"]),
            [fold(tag) for tag in json.loads(row["tags"])],
            fold(row["text"]),
            row["credit"],
            credit.credited_at(json.loads(row["attrs"])),
        )
        for row in rows
        if row is not None
    ]
