"""Substring search that says where: in the title, in a tag, in the text.

Texts that were read once are kept as `haystacks.py` has them, in which all memories are looked at
together. Of what is not kept, and in a large space, the trigram index names those that can hold a
needle. All matches are scored at once, and only those that are shown are read as verified rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from commonplace.engine import checks
from commonplace.engine.content import credit
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.substring_cache import FEW, KEPT_BYTES, NOWHERE, Folded, Kept
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Memory
from commonplace.errors import InvalidInput
from commonplace.storage import derived
from commonplace.storage.ports import Rows
from commonplace.storage.tables import MEMORIES
from commonplace.text.analysis import fold, trigrams

if TYPE_CHECKING:
    from commonplace.storage.index import Ints, Snapshot

Place = Literal["title", "tag", "text"]
PLACES: tuple[Place, ...] = ("title", "tag", "text")
QUICK = 1_000_000  # words to look through that take less time than to ask the index
STALE = 1_000_000  # bytes that may go stale before anything is copied
GRAMS = 4  # more of them cost more to look up than they leave out

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Located:
    """The memories that hold every needle, column by column: what a score may go by."""

    num: Ints
    credit: Doubles
    credited: Ints
    """When the credit was set, in microseconds; 0 where nobody said."""
    places: NDArray[np.int8]
    """Where each needle was found first: a row for each memory, of indexes in PLACES."""


def locate(
    space: OpenSpace,
    needles: Sequence[str],
    filters: Filters,
    score: Callable[[Located], Doubles],
    *,
    limit: int = 50,
) -> tuple[list[tuple[Memory, tuple[Place, ...]]], int]:
    """Return memories that hold every needle, by score and then the newest first; and how many.

    All of them are scored at once; each comes with the place of each needle.
    """
    wanted = [fold(checks.text(needle, "needle", max_chars=1_000)) for needle in needles]
    if not wanted:
        return [], 0
    with space.view() as (connection, snapshot):
        at = np.flatnonzero(filters.mask(snapshot, connection, space.name))
        located = _compare(space, connection, snapshot, at, wanted)
        if not len(located.num):
            return [], 0
        best = _best(_scores(score, located), located.num, limit)
        nums = located.num[best].tolist()
        rows = MEMORIES.by_nums(connection, space.name, nums)
        shown = [
            (Memory.of(rows[num]), tuple(PLACES[place] for place in places))
            for num, places in zip(nums, located.places[best].tolist(), strict=True)
            if num in rows
        ]
        return shown, len(located.num)


def _scores(score: Callable[[Located], Doubles], located: Located) -> Doubles:
    scores = np.asarray(score(located))
    if scores.shape != located.num.shape or scores.dtype != np.float64 or np.isnan(scores).any():
        raise InvalidInput("score must give one number for each memory.", field="score")
    return scores


def _best(scores: Doubles, nums: Ints, limit: int) -> NDArray[np.intp]:
    """The places of the highest scores, best first; of equal ones the newest first."""
    chosen = np.arange(len(scores))
    if len(scores) > limit:
        least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
        room = limit - len(above)
        if len(equal) > room:
            equal = equal[np.argpartition(nums[equal], len(equal) - room)[len(equal) - room :]]
        chosen = np.concatenate([above, equal])
    return chosen[np.lexsort((-nums[chosen], -scores[chosen]))]


def _candidates(
    connection: Rows,
    space: str,
    kept: Kept,
    nums: Ints,
    rows: Ints,
    needles: Sequence[str],
) -> NDArray[np.bool_]:
    """Which of these memories may hold the needles."""
    missing = rows < 0
    every = np.ones(len(nums), np.bool_)
    if len(nums) <= FEW or (len(kept.of_word) < QUICK and not missing.any()):
        return every
    grams: list[str] = []
    for needle in needles:
        own = trigrams(needle)
        grams += own[:: max(1, len(own) // GRAMS)][:GRAMS]
    if not grams:
        return every
    most = None if missing.any() else FEW + 1
    named = derived.holding(connection, space, grams, most)
    if len(named) == most:
        return every
    may = np.isin(nums, np.array(named, np.int64))
    # What is kept is quickly looked at; what is not is read only where it may match.
    return may if len(named) <= FEW else may | ~missing


def _compare(
    space: OpenSpace,
    connection: Rows,
    snapshot: Snapshot,
    positions: NDArray[np.intp],
    needles: Sequence[str],
) -> Located:
    """Those of the positions whose memories hold every needle."""
    kept = space.haystacks.now
    nums, seqs = snapshot.num[positions], snapshot.row_seq[positions]
    rows = kept.rows(nums, seqs)
    may = _candidates(connection, space.name, kept, nums, rows, needles)
    nums, seqs, rows = nums[may], seqs[may], rows[may]
    loose: list[Folded] = []
    if (rows < 0).any():
        loose = _read(space, connection, nums[rows < 0].tolist())
        if space.store.open_unit is None:  # what a unit has not committed may never be
            kept = _keep(space, loose, snapshot)
            rows = kept.rows(nums, seqs)
            left = set(nums[rows < 0].tolist())
            loose = [one for one in loose if one.num in left]
        nums, rows = nums[rows >= 0], rows[rows >= 0]
    places = np.empty((len(rows), len(needles)), np.int8)
    # The longest leaves the fewest for the others.
    for column in sorted(range(len(needles)), key=lambda at: -len(needles[at])):
        places[:, column] = kept.places(rows, needles[column])
        hold = places[:, column] != NOWHERE
        nums, rows, places = nums[hold], rows[hold], places[hold]
    located = Located(nums, kept.credit[rows], kept.credited[rows], places)
    return _with(located, loose, needles) if loose else located


def _with(located: Located, loose: Sequence[Folded], needles: Sequence[str]) -> Located:
    """What was located, and those of others that hold every needle."""
    found = [(one, [one.place(needle) for needle in needles]) for one in loose]
    held = [(one, places) for one, places in found if NOWHERE not in places]
    if not held:
        return located
    return Located(
        np.append(located.num, [one.num for one, _ in held]),
        np.append(located.credit, [one.credit for one, _ in held]),
        np.append(located.credited, [one.credited for one, _ in held]),
        np.concatenate([located.places, np.array([places for _, places in held], np.int8)]),
    )


def _keep(space: OpenSpace, read: Sequence[Folded], snapshot: Snapshot) -> Kept:
    """Keep what was read for the next search; let go of what is stale, when that is too much."""
    held = space.haystacks
    size = len(held.now.held)
    if held.stale > max(STALE, size // (10 if size > KEPT_BYTES * 0.9 else 2)):
        held = space.haystacks = held.without_stale(snapshot.num[snapshot.alive])
    held.keep(read)
    return held.now


def _read(space: OpenSpace, connection: Rows, nums: Sequence[int]) -> list[Folded]:
    rows = (MEMORIES.first(connection, space.name, num=num) for num in nums)
    return [_folded(row) for row in rows if row is not None]


def _folded(row: dict[str, Any]) -> Folded:
    """A row as it is compared."""
    return Folded(
        row["num"],
        row["seq"],
        fold(row["title"]),
        [fold(tag) for tag in json.loads(row["tags"])],
        fold(row["text"]),
        row["credit"],
        credit.credited(json.loads(row["attrs"])),
    )
