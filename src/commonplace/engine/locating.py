"""Substring search that says where: in the title, in a tag, in the text.

The trigram index names the few memories that can hold a needle; each is compared as folded text,
which is kept between searches, and only those that are shown are read as verified rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from commonplace.engine import checks
from commonplace.engine.filters import Filters
from commonplace.engine.model import Memory
from commonplace.engine.opened import OpenSpace
from commonplace.storage.tables import MEMORIES
from commonplace.text.fold import fold, trigrams

if TYPE_CHECKING:
    import apsw

    from commonplace.storage.index import Ints, Snapshot

Place = Literal["title", "tag", "text"]
GRAMS = 4  # more of them cost more to look up than they leave out
KEPT_CHARS = 50_000_000  # of folded text, for each open space


class Located(NamedTuple):
    """Where each needle was found first, and what a score may go by."""

    num: int
    credit: float
    attrs: Mapping[str, Any]
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class _Folded:
    seq: int
    title: str
    tags: tuple[str, ...]
    text: str
    attrs: Mapping[str, Any]

    def places(self, needles: Sequence[str]) -> tuple[Place, ...] | None:
        """Where each needle is; None if one is nowhere."""
        found = []
        for needle in needles:
            if needle in self.title:
                found.append(_TITLE)
            elif self.tags and any(needle in tag for tag in self.tags):
                found.append(_TAG)
            elif needle in self.text:
                found.append(_TEXT)
            else:
                return None
        return found[0] if len(found) == 1 else tuple(place for (place,) in found)


_TITLE: tuple[Place, ...] = ("title",)
_TAG: tuple[Place, ...] = ("tag",)
_TEXT: tuple[Place, ...] = ("text",)


def locate(
    space: OpenSpace,
    needles: Sequence[str],
    filters: Filters,
    score: Callable[[Located], float],
    *,
    limit: int,
) -> tuple[list[tuple[Memory, Located]], int]:
    """Memories that hold every needle, by score and then the newest first; and how many."""
    import numpy as np

    wanted = [fold(checks.text(needle, "needle", max_chars=1_000)) for needle in needles]
    if not wanted:
        return [], 0
    with space.view() as (connection, snapshot):
        mask = filters.mask(snapshot, connection, space.name)
        candidates = _candidates(connection, wanted)
        if candidates is not None:
            mask &= np.isin(snapshot.num, candidates)
        located = _compare(space, connection, snapshot, np.flatnonzero(mask), wanted)
        found = [(score(one), one.num, one) for one in located]
        best = nlargest(limit, found)
        rows = MEMORIES.by_nums(connection, space.name, [num for _, num, _ in best])
        shown = [(Memory.of(rows[num]), one) for _, num, one in best if num in rows]
        return shown, len(found)


def _candidates(connection: apsw.Connection, needles: Sequence[str]) -> list[int] | None:
    """Numbers of all memories that may hold the needles; None when every one may."""
    grams: list[str] = []
    for needle in needles:
        own = trigrams(needle)
        grams += own[:: max(1, len(own) // GRAMS)][:GRAMS]
    if not grams:
        return None
    query = " AND ".join('"' + gram.replace('"', '""') + '"' for gram in dict.fromkeys(grams))
    rows = connection.execute("SELECT rowid FROM grams WHERE grams MATCH ?", (query,))
    return [row[0] for row in rows]


def _compare(
    space: OpenSpace,
    connection: apsw.Connection,
    snapshot: Snapshot,
    positions: Ints,
    needles: Sequence[str],
) -> list[Located]:
    nums = snapshot.num[positions].tolist()
    seqs = snapshot.row_seq[positions].tolist()
    credits = snapshot.credit[positions].tolist()
    kept = space.folded
    found = []
    for num, seq, credit in zip(nums, seqs, credits, strict=True):
        folded = kept.get(num)
        if folded is None or folded.seq != seq:
            folded = _read(space, connection, num)
            if folded is None:
                continue
        places = folded.places(needles)
        if places is not None:
            found.append(Located(num, credit, folded.attrs, places))
    return found


def _read(space: OpenSpace, connection: apsw.Connection, num: int) -> _Folded | None:
    row = MEMORIES.fetch_one(connection, space.name, "AND num = ?", num)
    if row is None:
        return None
    folded = _Folded(
        row["seq"],
        fold(row["title"]),
        tuple(fold(tag) for tag in json.loads(row["tags"])),
        fold(row["text"]),
        json.loads(row["attrs"]),
    )
    if space.store.open_unit is None:  # what a unit has not committed may never be
        _keep(space, num, folded)
    return folded


def _keep(space: OpenSpace, num: int, folded: _Folded) -> None:
    size = len(folded.text) + 200
    if size > KEPT_CHARS // 100:
        return
    space.folded_chars += size
    if space.folded_chars > KEPT_CHARS:
        space.folded, space.folded_chars = {}, size
    space.folded[num] = folded
