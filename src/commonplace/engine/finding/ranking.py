"""Ranking: compute the score of every memory of a space for one query.

Each score is an array over all positions of the index. The score by words is scaled by the share of
the query that a memory contains, so that a query with few matching words is ranked by meaning.
Messages of a conversation are also scored by their neighbours and their session. Formulas that a
dialect's contract fixes are at the end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from commonplace.embedding.provider import knows_script
from commonplace.engine import checks
from commonplace.engine.content.projects import Project, is_labelled
from commonplace.engine.finding import confidence
from commonplace.engine.finding.filters import Filters, proximity_to_periods, visible_memories
from commonplace.engine.history import timeline
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import When, microseconds
from commonplace.errors import EmbeddingUnavailable, InvalidInput, StorageCorrupt
from commonplace.storage import derived, links
from commonplace.storage.database import now
from commonplace.storage.derived import quantise, unpack_matrix
from commonplace.storage.index import (
    NEVER,
    Snapshot,
    WordScores,
    bm25_term,
    highest_positions,
    rarity,
)
from commonplace.storage.ports import Rows
from commonplace.storage.signs import LEAST_CHOSEN
from commonplace.storage.tables import LINKS, MEMORIES, Row
from commonplace.text import dates
from commonplace.text.analysis import analyse_query
from commonplace.text.scripts import dominant_script

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Number = TypeVar("Number", float, NDArray[np.float64])

DAY = 86_400_000_000
_WORD = re.compile(r"[\w'’.@/-]+")
_WEIGHTS = (
    "lexical", "dense", "coverage", "k1", "b", "neighbours", "session_words", "speaker",
    "answers", "graph", "spread", "period", "recency", "recency_days", "importance", "credit",
)  # fmt: skip
GLOBAL_SHARE = 0.95  # the share of its score that a memory without a project keeps
OTHER_BRANCH_SHARE = 0.97
SESSION_K1, SESSION_B = 1.2, 0.75  # BM25 parameters for whole sessions, which are long texts
# roles with most of the messages, which queries rarely ask about
ANSWERING_ROLES = ("assistant", "ai", "bot")
FAIR_LIKENESS = 0.4  # the least value by which the cosines of a search are scaled
RESPELT_WEIGHT = 0.7  # the weight of a word that replaces a misspelt word of the query
CROWDING_CANDIDATES, CROWDING_NEIGHBOURS = (
    150,
    5,
)  # compare this many of the best with each other; average this many
CROWDING_PENALTY, CROWDING_PENALTY_ALONE = (
    0.25,
    0.5,
)  # penalty for similarity; the second without an English part


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """The weight of each part of the score. The benchmarks use the defaults."""

    lexical: float = 0.35
    dense: float = 0.65
    coverage: float = 2.0
    """The exponent of the share of the query that matches, which scales the score by words."""
    k1: float = 1.0
    b: float = 0.5
    neighbours: float = 0.15
    """Weight of the messages before and after a message."""
    session_words: float = 0.3
    """Weight of the words of the whole session."""
    speaker: float = 0.1
    """Weight of messages by a speaker that the query names."""
    answers: float = 0.05
    """Subtracted from messages of an assistant, since users ask for their own statements."""
    graph: float = 0.2
    """Weight of a link from one of the best results."""
    graph_seeds: int = 10
    period: float = 1.5
    """The share by which the score rises for a memory of a time that the query names."""
    recency: float = 0.0
    recency_days: float = 30.0
    importance: float = 0.0
    credit: float = 0.0
    spread: float = 0.7
    """The share of results chosen by score alone; the others come from further sessions."""
    newer_first: bool = True
    """Put a newer statement before the older one that it replaces."""
    crowding: bool = True
    """Lower the score by meaning of memories that resemble many others."""
    fusion: Literal["scores", "ranks"] = "scores"
    """How to combine words and meaning: by scaled scores, or by reciprocal ranks."""
    rank_k: int = 60

    def __post_init__(self) -> None:
        for name in _WEIGHTS:
            checks.number(getattr(self, name), name)
        checks.share(self.spread, "spread")
        checks.flag(self.newer_first, "newer_first")
        checks.flag(self.crowding, "crowding")
        checks.limit(self.graph_seeds, "graph_seeds", checks.MAX_NUMBER)
        checks.limit(self.rank_k, "rank_k", checks.MAX_NUMBER)
        checks.one_of(self.fusion, "fusion", ("scores", "ranks"))
        if not self.recency_days:
            raise InvalidInput("recency_days must be more than 0.", field="recency_days")


DEFAULT = Weighting()
_WITHOUT_EXTRAS = Weighting(
    neighbours=0.0, session_words=0.0, speaker=0.0, answers=0.0, graph=0.0, spread=1.0,
    period=0.0, newer_first=False,
)  # fmt: skip
WORDS_ONLY = replace(_WITHOUT_EXTRAS, dense=0.0, coverage=0.0)
MEANING_ONLY = replace(_WITHOUT_EXTRAS, lexical=0.0)
NEAREST_FIRST = replace(MEANING_ONLY, crowding=False)
"""By similarity alone, for contracts that show it: no result is more similar than one before it."""


@dataclass
class Search:
    """The scores of one query over one snapshot, each as an array over all positions."""

    snapshot: Snapshot
    mask: Flags
    query: str
    terms: list[str]
    information: list[float]
    """The information of each term, in nats; empty if nothing reads it."""
    bm25: Floats
    covered: Floats
    """The share of the query's words, weighted by their rarity, that each memory contains."""
    holding: list[NDArray[np.int32]]
    """For each term, the positions that contain it."""
    times: list[NDArray[np.uint8]]
    """For each term, how often it occurs at these positions."""
    cosine: Floats
    embedded: Flags
    named_speakers: set[int]
    """The codes of the speakers that the query names."""
    named_terms: list[int]
    """The numbers of the terms of these speakers' names."""
    script: str
    has_cosines: bool
    """Whether the query was compared by meaning, too."""
    degraded: str
    """Why the query was not compared by meaning; empty if it was."""
    vector: NDArray[np.int8] | None = None
    """The vector of the query, or None."""
    former: dict[int, Row] = field(default_factory=dict)
    """With `as_of`: by position, the former rows of memories that have changed since."""
    seq: int | None = None
    """With `as_of`: the last operation that is included."""
    project: Project | None = None
    """The project whose memories are preferred to global ones."""
    quick: bool = False
    """Whether the vector of the query has only the part that is computed quickly."""
    english: bool = True
    """With `quick`: whether the query is in English."""
    period_proximity: Floats | None = None
    """If the query names a time: the proximity of each memory to it, 0..1."""
    boost: Floats | None = None
    """If the query names a time: the factor for each memory's score."""
    uncrowded: Floats | None = None
    """The cosines, reduced for memories that resemble many others."""
    respelt: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For terms that no memory contains: the most similar (word, term) in the memories."""
    linked_from: dict[int, tuple[int, float]] = field(default_factory=dict)
    """For positions that links lead to from the best results: the result, and the weight."""

    @cached_property
    def distinctive_positions(self) -> list[NDArray[np.int32]]:
        """Where the rare names and codes of the query occur."""
        return confidence.distinctive_positions(self)


class Question:
    """The terms of a query, and its vectors if an embedder is available.

    With `quick`, a vector has only the part that is computed quickly, if the model has one. Times
    such as "last week" are relative to `seen_from`; without it, the query is not searched for
    times.
    """

    def __init__(
        self,
        space: OpenSpace,
        query: str,
        *,
        quick: bool = False,
        seen_from: datetime | None = None,
    ) -> None:
        self.query = query
        self.periods: list[tuple[int, int]] = []
        self.undated = query
        if seen_from is not None and dates.TIME_WORD.search(query):
            for period, (start, end) in dates.find_periods(query, seen_from):
                self.periods.append((microseconds(period[0]), microseconds(period[1])))
                self.undated = f"{self.undated[:start]}{' ' * (end - start)}{self.undated[end:]}"
        self.terms = list(dict.fromkeys(analyse_query(query)))
        self.script = "latin" if query.isascii() else dominant_script(query)
        self.degraded = ""
        self.embedder = space.embedder
        if self.embedder is None:
            self.degraded = "There is no embedding provider; only words were searched."
        self.usable = self.embedder is not None and knows_script(self.embedder.id, self.script)
        self.quick = quick and hasattr(self.embedder, "embed_without_english")

    @cached_property
    def words(self) -> dict[str, list[str]]:
        """Pairs of each word, as the query writes it, and its terms."""
        return self._words(self.query)

    def _words(self, text: str) -> dict[str, list[str]]:
        found = {word.strip("'’.-") for word in _WORD.findall(text)}
        known = set(self.terms)
        return {word: [t for t in _terms_of(word) if t in known] for word in sorted(found)}

    @property
    def undated_words(self) -> dict[str, list[str]]:
        """The same as `words`, without the words that name a time."""
        return self._words(self.undated) if self.periods else self.words

    @property
    def english(self) -> bool:
        """Whether the query is in English. Only a model with a quick part can tell."""
        return bool(self.embedder.knows_english(self.query))  # type: ignore[union-attr]

    def vector(self, text: str) -> tuple[NDArray[np.int8], float] | None:
        """Return the vector and scale of a text, or None if it cannot be embedded."""
        if self.embedder is None or not self.usable:
            return None
        try:
            if self.quick:
                rows = self.embedder.embed_without_english([text])  # type: ignore[attr-defined]
            else:
                rows = self.embedder.embed([text], query=True)
            return _quantised(np.asarray(rows, np.float32).tobytes())
        except EmbeddingUnavailable as error:
            self.degraded, self.usable = error.message, False
            return None


@lru_cache(maxsize=256)
def _quantised(vector: bytes) -> tuple[NDArray[np.int8], float]:
    """Return a vector of float32 numbers as it would be stored, and its scale."""
    row = np.frombuffer(vector, np.float32)[None]
    matrix, scales = unpack_matrix(quantise(row)[0], row.shape[1])
    return matrix[0], float(scales[0])


# Cache the terms of single words, which many queries share.
_terms_of = lru_cache(maxsize=8_192)(analyse_query)


def score_legs(
    space: OpenSpace,
    connection: Rows,
    snapshot: Snapshot,
    asked: Question,
    filters: Filters,
    weighting: Weighting,
    as_of: When | None,
) -> Search:
    """Score every position by words and by meaning."""
    seen = visible_memories(space, connection, snapshot, filters, as_of)
    snapshot = seen.snapshot
    bm25, covered, holding, times = score_words(snapshot, asked.terms, weighting)
    query, respelt = asked.query, dict[str, tuple[str, str]]()
    if not asked.quick and not all(map(len, holding)):
        # Few queries have a word that no memory contains.
        from commonplace.engine.finding import spelling

        query, respelt = spelling.correct_spelling(snapshot, asked, holding)
        if respelt:
            bm25, covered, holding, times = score_words(snapshot, asked.terms, weighting, respelt)
    named, spoken = _named_speakers(snapshot, query)
    search = Search(
        snapshot, seen.mask, asked.query, asked.terms, [], bm25, covered, holding, times,
        np.zeros(snapshot.size, np.float32), snapshot.embedded, named,
        [derived.term_number(term) for name in sorted(_speaker_names(snapshot, named))
         for term in analyse_query(name)],
        asked.script, False, "", None, seen.former, seen.seq, filters.project, respelt=respelt,
    )  # fmt: skip
    vector = asked.vector(query) if weighting.dense > 0 else None
    if vector is not None:
        search.has_cosines, search.vector = True, vector[0]
        search.information = confidence.term_information(search, asked)
        search.quick, search.english = asked.quick, asked.quick and asked.english
        lines = snapshot.session >= 0 if named else None
        also = None
        if snapshot.scores_only_some:  # The best matches by words are scored by meaning, too.
            also = highest_positions(bm25 * covered, seen.mask & (bm25 > 0), LEAST_CHOSEN)
        if lines is None or not bool((lines | ~seen.mask).all()):
            search.cosine = snapshot.cosine(*vector, seen.mask, also)
        if lines is not None:
            first_person = asked.vector(spoken) or vector
            spoken_to = snapshot.cosine(*first_person, seen.mask, also)
            search.cosine = np.where(lines, spoken_to, search.cosine)
    search.degraded = asked.degraded
    if asked.periods and weighting.period:
        search.period_proximity = proximity_to_periods(snapshot, asked.periods)
        search.boost = 1 + np.float32(weighting.period) * search.period_proximity
    return search


def score_words(
    snapshot: Snapshot,
    terms: Sequence[str],
    weighting: Weighting,
    respelt: Mapping[str, tuple[str, str]] | None = None,
) -> WordScores:
    """Score every position by the terms of a query; terms in `respelt` count less."""
    near = respelt or {}
    weighed = [(near[term][1], RESPELT_WEIGHT) if term in near else (term, 1.0) for term in terms]
    return snapshot.bm25(weighed, k1=weighting.k1, b=weighting.b)


def fuse(search: Search, weighting: Weighting) -> Floats:
    """Combine the scores by words and by meaning into one score in 0..1."""
    mask = search.mask
    weights = {
        "words": weighting.lexical,
        "meaning": weighting.dense if search.has_cosines else 0.0,
    }
    total = sum(weights.values()) or 1.0
    if weighting.fusion == "ranks":
        score = np.zeros_like(search.bm25)
        legs = {"words": search.bm25, "meaning": np.where(search.embedded, search.cosine, 0)}
        for name, leg in legs.items():
            found = np.flatnonzero(mask & (leg > 0))
            order = found[np.argsort(-leg[found], kind="stable")]
            worth = reciprocal_rank(np.arange(1.0, len(order) + 1), weighting.rank_k)
            score[order] += (weights[name] / total * worth).astype(np.float32)
        return score
    score = np.zeros_like(search.bm25)
    if weights["words"]:
        words = scale_to_best(search.bm25, mask)
        if weighting.coverage:
            words *= search.covered ** np.float32(weighting.coverage)
        score += np.float32(weights["words"] / total) * words
    if weights["meaning"]:
        cosine = _cosines_less_crowding(search) if weighting.crowding else search.cosine
        likeness = scale_to_best(cosine, mask & search.embedded, FAIR_LIKENESS)
        score += np.float32(weights["meaning"] / total) * likeness
    return score


def _cosines_less_crowding(search: Search) -> Floats:
    """Return the cosines, reduced for memories that resemble many other results.

    Texts of the same form have similar vectors and are similar to most queries, above all in the
    multilingual encoder. They would rank above a statement that matches only this query. The
    similarity is measured with the multilingual part of the vectors. Models with one part keep
    their cosines.
    """
    snapshot = search.snapshot
    if len(snapshot.parts) < 2:
        return search.cosine
    best = highest_positions(search.cosine, search.mask & search.embedded, CROWDING_CANDIDATES)
    if len(best) <= CROWDING_NEIGHBOURS:
        return search.cosine
    import simsimd  # unlike a matrix product of numpy, this starts no threads

    rows = snapshot.vectors.parts[-1][snapshot.first_vectors(best)[0]]
    alike = np.asarray(simsimd.cdist(rows, rows, metric="dot"), np.float32)
    lengths = np.sqrt(np.maximum(np.diagonal(alike), 1))
    alike /= lengths[:, None] * lengths
    np.fill_diagonal(alike, -1)
    near = np.partition(alike, -CROWDING_NEIGHBOURS, axis=1)[:, -CROWDING_NEIGHBOURS:].mean(axis=1)
    alone = confidence.compared_by_last_part(search, best)
    less = np.where(alone, CROWDING_PENALTY_ALONE, CROWDING_PENALTY).astype(np.float32) * (
        near - near.mean()
    )
    apart: Floats = search.cosine - less.max()  # for all other memories, which match less
    apart[best] = search.cosine[best] - less
    search.uncrowded = apart
    return apart


def score_all(
    space: OpenSpace, connection: Rows, search: Search, weighting: Weighting
) -> tuple[Floats, Floats, Floats]:
    """Return three arrays: the final score, the part from the conversation, and that from links."""
    fused = fuse(search, weighting)
    score = _add_conversation_scores(search, weighting, fused)
    context = score - fused
    score = _add_property_scores(search, weighting, score)
    if search.boost is not None:
        score = score * search.boost
    if search.project is not None:
        score = score * score_share_by_project(search.snapshot, search.project)
    linked = _scores_from_links(space, connection, search, weighting, score)
    if linked.any():
        score = (score + linked) / np.float32(1 + weighting.graph)
    return score, context, linked


def _add_conversation_scores(search: Search, weighting: Weighting, fused: Floats) -> Floats:
    """Add to messages the scores of their neighbours, their session and a named speaker."""
    snapshot, mask = search.snapshot, search.mask
    score = fused.copy()
    shared = weighting.session_words
    if snapshot.sessions and (weighting.neighbours or shared):
        score = add_neighbour_scores(snapshot, mask, fused, weighting.neighbours)
        lines = mask & (snapshot.session >= 0)
        if shared and lines.any():
            whole = np.float32(shared) * session_scores_by_words(search)[snapshot.session[lines]]
            score[lines] = (score[lines] + whole) / np.float32(1 + shared)
    if snapshot.sessions and weighting.answers:
        codes = [
            code for name, code in snapshot.speakers.items() if name.lower() in ANSWERING_ROLES
        ]
        score -= np.float32(weighting.answers) * _messages_by(snapshot, codes)
    if search.named_speakers and weighting.speaker:
        share = np.float32(weighting.speaker / (1 + shared))
        named = _messages_by(snapshot, search.named_speakers)
        for term in search.named_terms:  # A memory that is not a message may be about the speaker.
            positions = snapshot.postings(term)[0]
            named[positions[snapshot.session[positions] < 0]] = 1.0
        score = np.asarray((score + share * named) / (1 + share), np.float32)
    return score


def _messages_by(snapshot: Snapshot, codes: Iterable[int]) -> Floats:
    """Return 1 for the messages of these speakers, and 0 for all other memories."""
    # The last entry is for code -1: no speaker.
    flags = np.zeros(len(snapshot.speakers) + 1, np.float32)
    flags[list(codes)] = 1
    spoken: Floats = flags[snapshot.speaker]
    return spoken


def session_scores_by_words(search: Search) -> Floats:
    """Return the BM25 score of each session as a whole, scaled so that the best has 1."""
    snapshot, count = search.snapshot, search.snapshot.sessions
    codes = snapshot.session
    lines = search.mask & (codes >= 0)
    lengths = np.bincount(codes[lines], snapshot.length[lines], count).astype(np.float32)
    there = int(np.count_nonzero(lengths))
    mean = float(lengths.sum()) / max(there, 1)
    scores = np.zeros(count, np.float32)
    for positions, times in zip(search.holding, search.times, strict=True):
        spoken = lines[positions]
        held = np.bincount(codes[positions[spoken]], times[spoken], count).astype(np.float32)
        rare = rarity(there, int(np.count_nonzero(held)))
        worth = bm25_term(held, lengths, mean, k1=SESSION_K1, b=SESSION_B)
        scores += np.float32(rare) * worth
    return scale_to_best(scores, np.ones(count, np.bool_))


def add_neighbour_scores(snapshot: Snapshot, mask: Flags, own: Floats, weight: float) -> Floats:
    """Add to each message the weighted scores of the messages before and after it."""
    before, after = snapshot.neighbours
    here = np.arange(snapshot.size)
    before = np.where(mask[before], before, here)
    after = np.where(mask[after], after, here)
    w = np.float32(weight)
    return np.asarray((own + w * own[before] + w * own[after]) / (1 + 2 * w), np.float32)


def _add_property_scores(search: Search, weighting: Weighting, score: Floats) -> Floats:
    """Add recency, importance and credit, if the weighting gives them a weight."""
    total = weighting.recency + weighting.importance + weighting.credit
    if not total:
        return score
    snapshot = search.snapshot
    added = weighting.importance * snapshot.importance + weighting.credit * snapshot.credit
    if weighting.recency:
        happened = np.where(snapshot.occurred == NEVER, snapshot.created, snapshot.occurred)
        days = np.maximum(0, (now() - happened) / DAY)
        added = added + weighting.recency * np.exp2(-days / weighting.recency_days)
    mixed: Floats = ((score + added) / np.float32(1 + total)).astype(np.float32)
    return mixed


def score_share_by_project(snapshot: Snapshot, project: Project) -> Floats:
    """Return the share of its score that each memory keeps; it is 1 in this project and branch."""
    # The last entry is for code -1: no project.
    shares = np.full(len(snapshot.projects) + 1, GLOBAL_SHARE, np.float32)
    for tags, code in snapshot.projects.items():
        if is_labelled(tags):
            shares[code] = OTHER_BRANCH_SHARE if project.other_branch(tags) else 1.0
    found: Floats = shares[snapshot.project]
    return found


def _scores_from_links(
    space: OpenSpace,
    connection: Rows,
    search: Search,
    weighting: Weighting,
    score: Floats,
) -> Floats:
    """Return the scores that the best results pass on along their links."""
    linked = np.zeros_like(score)
    if not weighting.graph:
        return linked
    if search.seq is None and not space.has_links(connection, search.snapshot):
        return linked
    nums = search.snapshot.num
    leaders = highest_positions(score, search.mask, weighting.graph_seeds)
    seeds = {int(nums[at]): at for at in leaders.tolist()}
    order: NDArray[np.int64] | None = None
    for seed, end, weight in _links_of_seeds(space, connection, search, list(seeds)):
        order = np.argsort(nums, kind="stable") if order is None else order
        at = _newest_position(nums, order, end)
        if not 0 <= weight <= 1:  # Links are read without verifying their hashes here.
            raise StorageCorrupt(
                f"A link of memory {seed} has the weight {weight}, which is not in 0..1.",
                hint="Run 'commonplace doctor' and restore from a backup.",
            )
        if at is not None and search.mask[at]:
            from_seed = seeds[seed]
            added = weighting.graph * edge_score(float(score[from_seed]), weight, 1)
            if added > linked[at]:
                linked[at] = added
                search.linked_from[at] = from_seed, weight
    return linked


def _newest_position(nums: NDArray[np.int64], order: NDArray[np.int64], num: int) -> int | None:
    """Return where a memory stands last in `nums`, or None; `order` sorts `nums`."""
    found = int(np.searchsorted(nums, num, side="right", sorter=order)) - 1
    at = int(order[found]) if found >= 0 else -1
    return at if at >= 0 and nums[at] == num else None


def _links_of_seeds(
    space: OpenSpace, connection: Rows, search: Search, nums: Sequence[int]
) -> list[tuple[int, int, float]]:
    """Return (seed, linked memory, weight) for the links of the seeds, now or with `as_of`."""
    if search.seq is None:
        return links.of_memories(connection, space.name, nums)
    then = timeline.rows_at(connection, space.name, MEMORIES, search.seq)
    number = {row["id"]: row["num"] for row in then}
    wanted = set(nums)
    found = []
    for link in timeline.rows_at(connection, space.name, LINKS, search.seq):
        source, target = number.get(link["source"]), number.get(link["target"])
        if source is None or target is None:
            continue
        if source in wanted:
            found.append((source, target, float(link["weight"])))
        if target in wanted:
            found.append((target, source, float(link["weight"])))
    return found


def spread_over_sessions(
    snapshot: Snapshot, ranked: NDArray[np.int64], count: int, first: float
) -> list[int]:
    """Choose some of the ranked positions, from more than one or two sessions.

    A share of them is chosen by score alone. The rest are the best memories of further sessions,
    and memories that are not messages.
    """
    certain = math.ceil(first * count)
    if not snapshot.sessions or len(ranked) <= count or certain >= count:
        return [int(at) for at in ranked[:count]]
    chosen = ranked[:certain].tolist()
    seen = set(snapshot.session[chosen].tolist())
    for at in ranked[certain:].tolist():
        session = int(snapshot.session[at])
        if len(chosen) < count and (session < 0 or session not in seen):
            chosen.append(at)
            seen.add(session)
    taken = set(chosen)
    chosen += [at for at in ranked.tolist() if at not in taken][: count - len(chosen)]
    place = {at: rank for rank, at in enumerate(ranked.tolist())}
    return sorted(chosen, key=place.__getitem__)


def newest_position(search: Search, num: int) -> int | None:
    """Return the index of a memory's newest entry in the arrays of the search, or None."""
    nums = search.snapshot.num
    return _newest_position(nums, np.argsort(nums, kind="stable"), num)


def _speaker_names(snapshot: Snapshot, codes: set[int]) -> list[str]:
    return [name for name, code in snapshot.speakers.items() if code in codes] if codes else []


def _named_speakers(snapshot: Snapshot, query: str) -> tuple[set[int], str]:
    """Return the codes of the speakers that a query names, and the query in the first person.

    Speakers write about themselves in the first person, and an embedding model treats a name as the
    topic. So the query "When did Ann move?" is compared with messages as "When did I move?".
    """
    if not snapshot.sessions:
        return set(), query
    folded = query.casefold()
    named: dict[str, int] = {}
    for word in set(re.findall(r"\w+", folded)):
        for full, code in snapshot.speakers_by_first_word.get(word, ()):
            if " " in full and re.search(rf"\b{re.escape(full)}\b", folded):
                named[full] = code
            elif len(word) > 2:
                named[word] = code
    spoken = query
    for name in sorted(named, key=len, reverse=True):
        pattern = rf"\b{re.escape(name)}\b('s|’s)?"
        spoken = re.sub(pattern, lambda m: "my" if m.group(1) else "I", spoken, flags=re.IGNORECASE)
    return set(named.values()), spoken


def scale_to_best(scores: Floats, among: Flags, fair: float = 0.0) -> Floats:
    """Scale scores so that the best within the mask has 1.

    If the best is below `fair`, scale by `fair` instead, so that weak matches keep low scores.
    """
    scaled: Floats = scores * among
    full = max(float(scaled.max(initial=0.0)), fair)
    if full <= 0:
        return np.zeros_like(scores)
    scaled /= np.float32(full)
    return np.clip(scaled, np.float32(0), np.float32(1), out=scaled)


def reciprocal_rank(rank: Number, k: int) -> Number:
    """Return the reciprocal rank fusion score of a rank; the first rank scores 1."""
    return (k + 1) / (k + rank)


def credit_after(
    score: float, reward: float, shared_by: int, *, alpha: float = 0.1, additive: bool = False
) -> float:
    """ClawBrain: return a credit after an outcome that `shared_by` memories share, within 0..1.

    The moving average approaches reward/√n, which is at most .5. Outcomes alone never raise a
    credit above that.
    """
    delta = reward / math.sqrt(shared_by)
    new = score + alpha * delta if additive else (1 - alpha) * score + alpha * delta
    return min(1.0, max(0.0, new))


def credit_decayed(score: float, days: float, *, rate: float = 0.01) -> float:
    """ClawBrain: return a credit that was not used for some days."""
    return score * math.exp(-rate * max(0.0, days))


def credit_weighted(relevance: Number, credit: Number) -> Number:
    """ClawBrain: return the score that search sorts by, of one memory or of many."""
    return 0.4 * relevance + 0.6 * credit


def faded_importance(importance: float, sessions: int, reactivations: int) -> float:
    """Being: return the importance after sessions without a recall; never above the original."""
    return importance * math.exp(-max(0, sessions - reactivations) / 30)


def recency_gauss(age_days: float, *, scale_days: float = 7.0) -> float:
    """MAMA: return a recency of 1 for now and about .49 after the scale, on a bell curve."""
    return math.exp(-((max(0.0, age_days) / scale_days) ** 2) / (2 * math.log(2)))


def recency_boosted(similarity: float, age_days: float) -> float:
    """MAMA: return the sum of similarity and recency, weighted .7 and .3."""
    return 0.7 * similarity + 0.3 * recency_gauss(age_days)


def recency_exponential(age_hours: float, *, scale_hours: float = 168.0) -> float:
    """Penfield: return a recency of 1 for now that falls by a factor e in each scale."""
    return math.exp(-max(0.0, age_hours) / scale_hours)


def edge_score(seed: float, weight: float, depth: int) -> float:
    """Return the score that a neighbour inherits from the result it is linked to."""
    return seed * weight * 0.5 ** (depth - 1)
