"""Recall: the best memories or sessions for a query, each with the reasons it was found."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commonplace.embedding.builtin import word_information
from commonplace.embedding.provider import calibrate
from commonplace.engine import checks
from commonplace.engine.finding import confidence, current
from commonplace.engine.finding.arranging import QUESTION_ENDS, REPEATED_SHARE, Arrangement, arrange
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.ranking import (
    DEFAULT,
    MEANING_ONLY,
    NEAREST_FIRST,
    WORDS_ONLY,
    Flags,
    Floats,
    Question,
    Search,
    Weighting,
    score_all,
    score_legs,
)
from commonplace.engine.history import timeline
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Memory, When, moment
from commonplace.errors import InvalidInput, StorageCorrupt
from commonplace.storage.database import now
from commonplace.storage.fields import STATES
from commonplace.storage.index import Snapshot
from commonplace.storage.tables import MEMORIES, MESSAGES, Row
from commonplace.text.analysis import analyse_query

__all__ = [
    "DEFAULT",
    "MEANING_ONLY",
    "NEAREST_FIRST",
    "WORDS_ONLY",
    "Hit",
    "Hits",
    "SessionHit",
    "Weighting",
    "Why",
    "recall",
    "recall_for_prompt",
    "recall_sessions",
]

QUERY_CHARS = 10_000
WAIT_SECONDS = 0.15  # to wait for vectors of memories stored just before
PROMPT_MINIMUM = 0.55  # a hook adds to every prompt, so it needs better reasons than a search
PROMPT_CHARS = 2_000  # how much of the beginning and of the end of a prompt is used
PROMPT_INFORMATION = 11.0  # in nats; a prompt of one word that says less asks for nothing
PROMPT_WORDS = 32  # how many of these words the query has, since embedding takes time
COMPANIONS = {"beside": "beside a result", "linked": "linked with a result"}
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Why:
    """Why a memory was found."""

    words: tuple[str, ...]
    """The query's words that it contains."""
    lexical: float
    """Its score by words; the best of this search has 1."""
    lexical_rank: int | None
    similarity: float
    """Its calibrated similarity to the query, 0..1."""
    dense_rank: int | None
    context: float
    """How much its conversation, or the query naming its speaker, added to the score."""
    graph: float
    """How much links from other results added to the score."""
    crowded: float = 0.0
    """How much its likeness to the query counts less, since it resembles many other memories."""
    period: float = 0.0
    """How near it is to the time that the query names, 0..1; 0 if it names none."""
    as_it_was: bool = False
    """True for a former version, found with `as_of`."""
    order: str = ""
    """Why it stands before or after another result, if not by its own score."""

    def __str__(self) -> str:
        parts = []
        if self.lexical_rank is not None:
            shown = ", ".join(self.words) or "parts of words"
            parts.append(f"words: {shown} (rank {self.lexical_rank})")
        if self.dense_rank is not None:
            parts.append(f"meaning: {self.similarity:.2f} (rank {self.dense_rank})")
        if self.crowded > 0.02:
            parts.append(f"like many others: -{self.crowded:.2f}")
        if self.context > 0.005:
            parts.append(f"context: +{self.context:.2f}")
        if self.graph > 0.005:
            parts.append(f"links: +{self.graph:.2f}")
        if self.period > 0.25:
            parts.append("time: as in the query" if self.period == 1 else "time: near the query's")
        if self.as_it_was:
            parts.append("a former version")
        if self.order:
            parts.append(self.order)
        return "; ".join(parts) or "nothing matched better"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        rounded = {name: round(values[name], 6) for name in values if type(values[name]) is float}
        return {**values, **rounded, "words": list(self.words)}


@dataclass(frozen=True, slots=True)
class Hit:
    """One memory found, with its score in 0..1 and the reasons."""

    memory: Memory
    score: float
    """How it ranks among the results of this search."""
    why: Why
    probability: float = 1.0
    """How probable it is that it answers the query; it means the same in every space."""
    replaced_by: str = ""
    """The id of a newer result that almost certainly replaces it."""
    newer: str = ""
    """The id of a newer result that may replace it, for a person or an agent to judge."""
    replaces: str = ""
    """The id of the superseded memory that the query found, and that this one has replaced."""
    companion: str = ""
    """Why it is returned although its own text is not probable enough: "beside" a result in its
    conversation, or "linked" with one. `probability` is that of its own text."""

    @property
    def similarity(self) -> float:
        """Calibrated similarity to the query, for contracts that have a threshold."""
        return self.why.similarity


class Hits(list[Hit]):
    """The results of a recall, best first."""

    degraded: str = ""
    """Why meaning was not searched, or not of all memories; empty if it was."""


@dataclass(frozen=True, slots=True)
class SessionHit:
    """A session of a conversation, with its score in 0..1 and its best message."""

    conversation: str
    session: str
    score: float
    best: Memory


def recall(
    space: OpenSpace,
    query: str,
    filters: Filters,
    weighting: Weighting | None,
    *,
    limit: int,
    as_of: When | None,
    count: bool,
    minimum: float | None = None,
    share: float | None = None,
    quick: bool = False,
    asked_at: When | None = None,
) -> Hits:
    """Return the best live memories for a query, or those that were live at a time."""
    if not isinstance(weighting, Weighting | None):
        raise InvalidInput(
            "weighting must be a Weighting.", hint="Or leave it out.", field="weighting"
        )
    weighting = weighting or DEFAULT
    least = confidence.checked_bounds(minimum, share)
    checks.flag(count, "count")
    checks.limit(limit)
    checks.text(query, "query", max_chars=QUERY_CHARS)
    asked = Question(space, query, quick=quick, seen_from=_reference_time(asked_at, as_of))
    seconds = WAIT_SECONDS if weighting.dense > 0 else 0.0
    now_only = as_of is None
    with space.view_with_vectors(seconds, partial=now_only) as (connection, snapshot, missing):
        search = score_legs(space, connection, snapshot, asked, filters, weighting, as_of)
        score, context, linked = score_all(space, connection, search, weighting)
        matched = search.mask & (score > 0)
        if not search.has_cosines:
            matched &= (search.bm25 > 0) | (linked > 0) | (context > 0.01)
        by = score
        if search.has_cosines and weighting == NEAREST_FIRST:
            # No memory is too far away. A large space gives 0 to those that it has not compared.
            matched = search.mask & search.embedded
            matched &= (search.cosine != 0) | (not snapshot.scores_only_some)
            by = np.where(score > 0, score, np.minimum(search.cosine, np.float32(0)))
        found = arrange(space, connection, search, by, matched, weighting, filters, limit, least[0])
        hits = _build_hits(space, asked, search, found, score, context, linked, least)
    loading = f"loading, only the newest {snapshot.size:,} memories were searched"
    hits.degraded = (
        (loading if snapshot.since else "")
        or search.degraded
        or (f"embedding, {missing} waiting" if missing else "")
    )
    if count and hits and as_of is None:
        space.count_reads([hit.memory.num for hit in hits], now())
    return hits


def _reference_time(asked_at: When | None, as_of: When | None) -> datetime:
    """Return the moment from which times in a query, such as "last week", are seen."""
    given = ((asked_at, "asked_at"), (as_of, "as_of"))
    known = [at for value, name in given if (at := checks.time(value, name)) is not None]
    if known:
        return moment(known[0])
    try:
        return datetime.now().astimezone()
    except ValueError:  # the machine's zone is a day or more from UTC
        return datetime.now(UTC)


def _build_hits(
    space: OpenSpace,
    asked: Question,
    search: Search,
    found: Arrangement,
    score: Floats,
    context: Floats,
    linked: Floats,
    least: tuple[float, float],
) -> Hits:
    top = np.asarray(found.order, np.int64)
    probability = _probabilities(search, found, top)
    # a time in the query changes the order only, not what is worth returning
    plain = score if search.boost is None else score / search.boost
    kept = confidence.worth_returning(search, top, probability, plain, linked, least)
    newest = [*(newer for newer, _ in found.newer.values()), *found.superseding]
    probability, companions = confidence.shown_probabilities(
        search, top, probability, linked, kept, np.isin(top, newest)
    )
    companion = dict(zip(top.tolist(), companions, strict=True))
    top, probability = top[kept], probability[kept]
    if not len(top):
        return Hits()
    words = _matched_words(asked, search, top)
    likeness = _similarities(space, search, top)
    best = float((search.bm25 * search.mask).max(initial=0.0)) or 1.0
    embedded = search.embedded[top] & search.has_cosines
    by_words = _ranks_by(search.bm25, search.mask, top, search.bm25[top] > 0)
    by_meaning = _ranks_by(search.cosine, search.mask, top, embedded)
    apart = search.cosine if search.uncrowded is None else search.uncrowded
    crowded = search.cosine[top] - apart[top]
    there = set(top.tolist())
    hits = Hits()
    for i, at in enumerate(top.tolist()):
        row = _row_of_result(search, found, at)
        newer, chance = found.newer.get(at, (at, 0.0))
        by = (
            str(_row_of_result(search, found, newer)["id"])
            if newer in there and newer != at
            else ""
        )
        why = Why(
            words=words[i],
            lexical=float(search.bm25[at]) / best,
            lexical_rank=by_words[i],
            similarity=float(likeness[i]),
            dense_rank=by_meaning[i],
            context=max(0.0, float(context[at])),
            graph=float(linked[at]),
            crowded=max(0.0, float(crowded[i])),
            period=0.0 if search.period_proximity is None else float(search.period_proximity[at]),
            as_it_was=at in search.former,
            order=_reason_for_order(found, at, by, chance) or COMPANIONS.get(companion[at], ""),
        )
        hits.append(
            Hit(
                Memory.of(row),
                min(1.0, max(0.0, float(score[at]))),
                why,
                float(probability[i]),
                replaced_by=by if chance >= current.MARK_REPLACED else "",
                newer=by if 0 < chance < current.MARK_REPLACED else "",
                replaces=found.superseding.get(at, ("", 0.0))[0],
                companion=companion[at],
            )
        )
    return hits


def _probabilities(
    search: Search, found: Arrangement, top: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the probability of each result; a replacement has at least that of the replaced."""
    if found.probabilities.keys() >= set(found.order):
        probability = np.asarray([found.probabilities[at] for at in found.order], np.float64)
    else:
        probability = confidence.probabilities(search, top)
    probability[[at in found.asked_before for at in top.tolist()]] *= REPEATED_SHARE
    place = {at: i for i, at in enumerate(top.tolist())}
    for older, (newer, _) in found.newer.items():
        if older in place and newer in place:
            i, j = place[newer], place[older]
            probability[i] = max(probability[i], probability[j])
    for at, (_, chance) in found.superseding.items():
        probability[place[at]] = max(probability.max(), chance)
    return probability


def _reason_for_order(found: Arrangement, at: int, by: str, chance: float) -> str:
    if at in found.superseding:
        return "it has replaced a memory that matches"
    if at in found.asked_before:
        return "the same question, asked before"
    if by and chance:
        surely = "replaces" if chance >= current.MARK_REPLACED else "may replace"
        return f"older: a newer result {surely} it"
    if by:
        return "older than a similar result"
    if any(newer == at for newer, _ in found.newer.values()):
        return "newer than a similar result"
    return ""


def _row_of_result(search: Search, found: Arrangement, at: int) -> Row:
    return search.former.get(at) or _verified_row(search.snapshot, at, found.rows)


def _matched_words(
    asked: Question, search: Search, top: NDArray[np.int64]
) -> list[tuple[str, ...]]:
    """Return the words of the query that each result contains, as the query writes them."""
    written: dict[str, str] = {}
    for word, terms in asked.words.items():
        for term in terms:
            near = search.respelt.get(term)
            written.setdefault(term, f"{near[0]} (for {word})" if near else word)
    held: list[dict[str, None]] = [{} for _ in top]
    for term, positions in zip(search.terms, search.holding, strict=True):
        if len(positions):
            place = np.minimum(positions.searchsorted(top), len(positions) - 1)
            for i in np.flatnonzero(positions[place] == top).tolist():
                held[i][written.get(term, term)] = None
    return [tuple(words) for words in held]


def _verified_row(snapshot: Snapshot, at: int, rows: dict[int, Row]) -> Row:
    """Return the row of a position; StorageCorrupt if it differs from the index."""
    row = rows.get(int(snapshot.num[at]))
    if (
        row is None
        or row["seq"] != snapshot.row_seq[at]
        or row["state"] != STATES[snapshot.state[at]]
        or snapshot.kinds.get(row["kind"]) != snapshot.kind[at]
        or np.float32(row["importance"]) != snapshot.importance[at]
        or row["created_at"] != snapshot.created[at]
    ):
        raise StorageCorrupt(
            f"Row {int(snapshot.num[at])} of memories differs from the index.",
            hint="Run 'commonplace doctor --repair' to rebuild the index from the rows.",
        )
    return row


def _similarities(space: OpenSpace, search: Search, top: NDArray[np.int64]) -> NDArray[Any]:
    """Return calibrated similarities; without vectors, the share of the query's words."""
    shared: NDArray[Any] = search.covered[top]
    if not search.has_cosines or space.embedder is None:
        return shared
    likeness = calibrate(search.cosine[top], space.embedder.id, search.script)
    return np.where(search.embedded[top], likeness, shared)


def _ranks_by(leg: Floats, mask: Flags, top: NDArray[np.int64], ranked: Flags) -> list[int | None]:
    """Return the rank by one leg of each result that is `ranked`; None for the others."""
    ranks: list[int | None] = [None] * len(top)
    own = leg[top[ranked]]
    better = np.sort(leg[(leg > own.min(initial=np.inf)) & mask])
    found = len(better) + 1 - better.searchsorted(own, side="right")
    for i, rank in zip(np.flatnonzero(ranked).tolist(), found.tolist(), strict=True):
        ranks[i] = rank
    return ranks


def recall_for_prompt(
    space: OpenSpace,
    prompt: str,
    filters: Filters,
    *,
    limit: int,
    minimum: float | None,
    count: bool,
) -> Hits:
    """Return the memories that help with a prompt, of any length; usually few, often none.

    A person waits for each prompt, so only the quick part of the model is used.
    """
    checks.flag(count, "count")
    checks.limit(limit)
    checks.optional_text(prompt, "prompt", max_chars=checks.TEXT_CHARS)
    least = PROMPT_MINIMUM if minimum is None else minimum
    confidence.checked_bounds(least, None)
    query = prompt_query(prompt)
    if not _may_need_memories(query):
        return Hits()
    found = recall(
        space, query, filters, None, limit=limit, as_of=None, count=False, minimum=least, quick=True
    )
    best = Hits(hit for hit in found if hit.probability >= least)
    best.degraded = found.degraded
    if count and best:
        space.count_reads([hit.memory.num for hit in best], now())
    return best


def _may_need_memories(query: str) -> bool:
    """Whether memories may help with a prompt: not with "continue", "yes" or "fix it"."""
    terms = set(analyse_query(query))
    if len(terms) != 1 or query.endswith(QUESTION_ENDS):
        return bool(terms)
    words = [word for word in re.findall(r"\w+", query) if terms & set(analyse_query(word))]
    return max(map(word_information, words), default=0.0) >= PROMPT_INFORMATION


def prompt_query(prompt: str) -> str:
    """Return what is asked for a prompt: its last and its first sentences, in few words."""
    text = prompt.strip()
    if len(text) > 2 * PROMPT_CHARS:
        text = f"{text[:PROMPT_CHARS]}\n{text[-PROMPT_CHARS:]}"
    pieces = dict.fromkeys(" ".join(piece.split()) for piece in _SENTENCE.split(text))
    sentences = [piece.split() for piece in pieces]
    first: list[str] = []
    last: list[str] = []
    while sentences and (room := PROMPT_WORDS - len(first) - len(last)) > 0:
        if len(last) <= len(first):
            last = [*sentences.pop()[:room], *last]
        else:
            first += sentences.pop(0)[:room]
    return " ".join([*first, *last])


def recall_sessions(
    space: OpenSpace,
    query: str,
    filters: Filters,
    *,
    limit: int,
    as_of: When | None,
    asked_at: When | None = None,
) -> list[SessionHit]:
    """Rank sessions by their best message, which `recall` scores with its whole session's words."""
    checks.limit(limit)
    checks.text(query, "query", max_chars=QUERY_CHARS)
    space.wait_for_vectors(WAIT_SECONDS)
    asked = Question(space, query, seen_from=_reference_time(asked_at, as_of))
    with space.view() as (connection, snapshot):
        if not snapshot.sessions and as_of is None:
            return []
        search = score_legs(space, connection, snapshot, asked, filters, DEFAULT, as_of)
        snapshot = search.snapshot
        lines = np.flatnonzero(search.mask & (snapshot.session >= 0))
        if not len(lines):
            return []
        scores = score_all(space, connection, search, DEFAULT)[0]
        codes, values = snapshot.session[lines], scores[lines]
        order = np.lexsort((-values, codes))
        first = order[np.flatnonzero(np.diff(codes[order], prepend=-1))]
        sessions, score, leaders = codes[first], values[first], lines[first]
        ranked = np.lexsort((sessions, -score))[:limit]
        found = []
        for i in ranked.tolist():
            at = int(leaders[i])
            num = int(snapshot.num[at])
            row = search.former.get(at) or _verified_row(
                snapshot, at, MEMORIES.by_nums(connection, space.name, [num])
            )
            said = timeline.rows_at(connection, space.name, MESSAGES, search.seq, memory=num)
            if not said:
                raise StorageCorrupt(
                    f"Memory {num} is a message in the index, but has no row in messages.",
                    hint="Run 'commonplace doctor'.",
                )
            names = said[0]["conversation"], said[0]["session"]
            found.append(SessionHit(*names, float(score[i]), Memory.of(row)))
        return found
