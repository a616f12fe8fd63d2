"""The order in which the best results are returned: the current statement first.

`current.py` judges two texts; here the results of one search are compared with each other, and a
result that was superseded explicitly is replaced by its successor. The query itself, asked before
and stored as a line of a conversation, goes behind what may answer it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from commonplace.embedding.provider import cosines
from commonplace.engine.content.links import SUPERSEDES
from commonplace.engine.content.projects import PROJECT
from commonplace.engine.finding import confidence
from commonplace.engine.finding.current import (
    LEADERS,
    LONGEST,
    POOL,
    RANK_FIRST,
    SHORTEST,
    Statement,
    names_of,
    replacement_probabilities,
)
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.ranking import (
    DEFAULT,
    Floats,
    Search,
    Weighting,
    fuse,
    newest_position,
    spread_over_sessions,
)
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import LIVE_STATES
from commonplace.storage.index import NEVER, Flags, Snapshot, highest_positions
from commonplace.storage.ports import Rows
from commonplace.storage.tables import LINKS, MEMORIES, Row
from commonplace.text.analysis import analyse_query

POOL_FACTOR = 5  # times the limit: how many results are looked at to find other sessions
LEAST_ALIKE = 0.2  # less similar statements are not about the same thing
# A newer statement goes first only if it answers the query too: its share of the older one's score
# counts together with their likeness.
RATIO_WEIGHT = 0.7
LEAST_RATIO_AND_LIKENESS = 0.7
FEW_SUPERSEDED = 64
REPEATED_SHARE = 0.5  # share of its score and probability that the same question keeps
QUESTION_ENDS = ("?", "？", "؟")


@dataclass
class Arrangement:
    """Positions of results, best first, with their rows and what is known of their order."""

    order: list[int]
    rows: dict[int, Row] = field(default_factory=dict)
    probabilities: dict[int, float] = field(default_factory=dict)
    """The probability of each result, if it was computed before the results were arranged."""
    newer: dict[int, tuple[int, float]] = field(default_factory=dict)
    """For an older statement: the newer one, and how probably it replaces the older; 0 if nothing
    is to be reported."""
    superseding: dict[int, tuple[str, float]] = field(default_factory=dict)
    """For a replacement: the id and probability of the superseded memory that the query found."""
    asked_before: set[int] = field(default_factory=set)
    """Results that only ask what the query asks."""


def arrange(
    space: OpenSpace,
    connection: Rows,
    search: Search,
    score: Floats,
    matched: NDArray[np.bool_],
    weighting: Weighting,
    filters: Filters,
    limit: int,
    minimum: float,
) -> Arrangement:
    """Choose the results, and put newer statements before those that they replace."""
    ranked = highest_positions(
        score, matched, max(POOL_FACTOR * limit, POOL) if weighting.newer_first else limit
    )
    order = spread_over_sessions(search.snapshot, ranked, limit, weighting.spread)
    found = Arrangement(order)
    if minimum > 0 and not search.snapshot.has_superseded:
        # usually nothing answers a prompt, and then no row has to be read
        probability = confidence.probabilities(search, np.asarray(order, np.int64))
        found.probabilities = dict(zip(order, probability.tolist(), strict=True))
        if (
            probability.max(initial=0.0) < minimum
            and confidence.probabilities(search, ranked).max(initial=0.0) < minimum
        ):
            return Arrangement([])
    pairs: list[Pair] = []
    if weighting.newer_first:
        pool = list(dict.fromkeys([*order, *ranked[:POOL].tolist()]))[:POOL]
        pairs = _comparable_pairs(space, search, pool, min(LEADERS, len(order)), score)
    shown = dict.fromkeys([*order, *(pair.newer for pair in pairs)])
    stored = [at for at in shown if at not in search.former]
    rows = MEMORIES.by_nums(connection, space.name, search.snapshot.num[stored].tolist())
    found.rows = rows
    if not weighting.newer_first:
        return found
    found.newer = _replacing_results(search, pairs, rows)
    for older, (newer, _) in found.newer.items():
        _put_before(order, newer, older)
        score[newer] = max(score[newer], score[older])
    del order[limit:]
    found.asked_before = _repeated_questions(search, rows, order)
    if found.asked_before:
        score[list(found.asked_before)] *= np.float32(REPEATED_SHARE)
        order.sort(key=lambda at: -float(score[at]))
    if search.seq is None and set(filters.states) == set(LIVE_STATES):
        _bring_replacements(space, connection, search, filters, found, score, limit)
    return found


def _repeated_questions(search: Search, rows: dict[int, Row], order: Sequence[int]) -> set[int]:
    """Return the results that are the query itself, or the same question in nearly its words."""
    found = set()
    terms, words = set(search.terms), len(search.query.split())
    for at in order:
        row = search.former.get(at) or rows.get(int(search.snapshot.num[at]))
        text = "" if row is None else row["text"].rstrip()
        if (
            text.endswith(QUESTION_ENDS)
            and words >= 0.6 * len(text.split())
            and set(analyse_query(text)) == terms
        ):
            found.add(at)
    return found


def _put_before(order: list[int], newer: int, older: int) -> None:
    if newer in order:
        if order.index(newer) < order.index(older):
            return
        order.remove(newer)
    order.insert(order.index(older), newer)


class Pair(NamedTuple):
    """Two results, of which the newer one may replace the older one."""

    older: int
    newer: int
    alike: float | None
    """Their cosine; None if one has no vector."""


def _replacing_results(
    search: Search, pairs: Sequence[Pair], rows: dict[int, Row]
) -> dict[int, tuple[int, float]]:
    """Return for the first results the newer statement that probably replaces each."""
    if not pairs:
        return {}
    statements: dict[int, Statement | None] = {}

    def statement(at: int) -> Statement | None:
        if at not in statements:
            row = search.former.get(at) or rows.get(int(search.snapshot.num[at]))
            text = "" if row is None else row["text"]
            fits = len(text) <= LONGEST and len(text.split()) >= SHORTEST
            statements[at] = Statement.of(text) if fits else None
        return statements[at]

    names = names_of(search.query)
    named = [set(positions.tolist()) for positions in search.distinctive_positions]
    found: dict[int, tuple[int, float]] = {}
    best: dict[int, float] = {}
    for older, newer, alike in pairs:
        if any(older in holding and newer not in holding for holding in named):
            continue  # the query names a code that the older statement has and this one has not
        one, other = statement(older), statement(newer)
        if one is None or other is None:
            continue
        chance, reported = replacement_probabilities(one, other, alike, names, search.terms)
        if chance >= best.get(older, RANK_FIRST):
            best[older], found[older] = chance, (newer, reported)
    return found


def _project_names(snapshot: Snapshot, at: NDArray[np.int64]) -> NDArray[np.object_]:
    """Return the label of each result's project; empty for those without a project."""
    codes = snapshot.project[at].tolist()
    names = {
        code: next((label for label in labels if label.startswith(PROJECT)), "")
        for labels, code in (snapshot.projects.items() if max(codes, default=-1) >= 0 else ())
    }
    return np.array([names.get(code, "") for code in codes], np.object_)


def _comparable_pairs(
    space: OpenSpace, search: Search, pool: Sequence[int], leaders: int, score: Floats
) -> list[Pair]:
    """Return pairs of a leading result and one of the pool that is newer, similar and scores well.

    Only the index is read, so that rows are read of few results.
    """
    snapshot = search.snapshot
    at = np.asarray(pool, np.int64)
    occurred, created, session = (
        each[at] for each in (snapshot.occurred, snapshot.created, snapshot.session)
    )
    happened = np.where(occurred == NEVER, created, occurred)
    scores, first = score[at], np.s_[:leaders, None]
    flags: Flags = happened > happened[first]
    flags &= (session[first] < 0) | (session != session[first])
    project = _project_names(snapshot, at)
    flags &= (project == project[first]) | (project == "") | (project[first] == "")
    if (
        search.period_proximity is not None
    ):  # what was true at the time that the query names stays first
        then = search.period_proximity[at]
        flags &= then >= then[first]
    if not flags.any():
        return []
    alike = _cosines_to_pool(space, snapshot, pool, leaders)
    ratio = scores / np.maximum(scores[first], 1e-6)
    enough = np.fmax(alike, LEAST_ALIKE) + RATIO_WEIGHT * ratio
    flags &= ~(alike < LEAST_ALIKE) & (enough >= LEAST_RATIO_AND_LIKENESS)
    return [
        Pair(pool[i], pool[j], None if math.isnan(near := float(alike[i, j])) else near)
        for i, j in np.argwhere(flags).tolist()
    ]


def _cosines_to_pool(
    space: OpenSpace, snapshot: Snapshot, pool: Sequence[int], leaders: int
) -> NDArray[np.float32]:
    """Return the cosines of the first results with all of the pool; NaN if one has no vector."""
    alike = np.full((leaders, len(pool)), np.nan, np.float32)
    if space.embedder is None or not len(snapshot.owner):
        return alike
    at, has = snapshot.first_vectors(pool)
    vectors = snapshot.vectors[at[has]].astype(np.float32)
    leading = has[:leaders]
    first = vectors[: np.count_nonzero(leading)]
    alike[np.ix_(leading, has)] = cosines(space.embedder.id, first, vectors)
    return alike


def _bring_replacements(
    space: OpenSpace,
    connection: Rows,
    search: Search,
    filters: Filters,
    found: Arrangement,
    score: Floats,
    limit: int,
) -> None:
    """Add replacements of superseded memories that match the query better than the results."""
    snapshot = search.snapshot
    if not snapshot.has_superseded:
        return
    retired = replace(filters, states=("superseded",)).mask(snapshot, connection, space.name)
    former = replace(search, mask=retired)
    few = np.flatnonzero(retired)
    if len(few) <= FEW_SUPERSEDED:  # judging them takes less time than ranking them
        chances = confidence.probabilities(former, few, links=False)
        foreign = confidence.compared_by_last_part(former, few).any()  # these are judged together
        if not foreign and chances.max(initial=0.0) < confidence.MINIMUM:
            return
    best = highest_positions(fuse(former, DEFAULT), retired, 1)
    if not len(best):
        return
    chance = float(confidence.probabilities(former, best, links=False)[0])
    known = np.asarray(found.order, np.int64)
    others = confidence.probabilities(search, known, links=False)
    if chance < max(confidence.MINIMUM, float(others.max(initial=0.0))):
        return
    (old,) = MEMORIES.by_nums(connection, space.name, snapshot.num[best].tolist()).values()
    row: Row | None = old
    at = None
    while row is not None and row["state"] == "superseded":
        link = LINKS.first(connection, space.name, kind=SUPERSEDES, target=row["id"])
        row = None if link is None else MEMORIES.by_id(connection, space.name, link["source"])
    if row is not None:
        at = newest_position(search, row["num"])
    if row is None or at is None or not search.mask[at]:
        return
    found.rows[row["num"]] = row
    found.superseding[at] = old["id"], chance
    if at in found.order:
        found.order.remove(at)
    score[at] = max([float(score[at]), *(float(score[each]) for each in found.order[:1])])
    found.order.insert(0, at)
    del found.order[limit:]
