"""Search decisions by meaning and recency; each result is followed by its linked decisions.

Similarities are calibrated, so that the contract's thresholds have the same meaning for all models.
A memory without a vector that shares words with the query gets the contract's fixed similarity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from commonplace.dialects.mama import checkpoints, decisions
from commonplace.engine.binding import engine_call
from commonplace.engine.model import Link, Memory
from commonplace.text.analysis import analyse, analyse_query

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.finding.recall import Hit

MIN_SIMILARITY = 0.5  # the smallest similarity of any result
SHORT_WORDS = 3
# thresholds for queries of one or two words, and of three or more
SHORT_QUERY, LONG_QUERY = 0.7, 0.6
TOPIC_SHARE = 0.35
"""The weight of the topic relative to the whole text in a short query, measured with the queries of
tests/dialects/mama/test_topics.py: no correct decision is lost and no wrong one is added, and the
contract's own example "authentication approach" gets a similarity of .75 instead of .71.
"""
WORDS_SIMILARITY = 0.75  # the similarity of a match by words
TOPIC_SIMILARITY = 0.9  # the similarity of a decision whose topic is the query
SUPERSEDES = "supersedes"
CHAIN_RANK, CHAIN_SHARE = 0.8, 0.9
DAY_SECONDS = 86_400
CHECKPOINT_PAGE = 50  # page size when the latest checkpoint is searched
READ_CHARS = 20_000  # maximum length of a memory's text that is compared with the query


@dataclass(frozen=True, slots=True)
class Relation:
    """The labels, the rank and the similarity factor of memories linked by one kind of link."""

    outward: str
    inward: str
    rank: float
    share: float


RELATIONS = {
    "builds_on": Relation("builds_on", "built_on_by", 0.75, 0.9),
    "refines": Relation("refines", "refined_by", 0.7, 0.85),
    "synthesizes": Relation("synthesizes", "synthesized_by", 0.7, 0.88),
    "debates": Relation("debates", "debated_by", 0.65, 0.85),
    "contradicts": Relation("contradicts", "contradicted_by", 0.6, 0.8),
}
LINK_KINDS = (SUPERSEDES, *RELATIONS)


@dataclass(slots=True)
class SearchResult:
    """A search result: a memory with its scores."""

    memory: Memory
    similarity: float
    recency: float = 0.0
    age_days: float = 0.0
    score: float = 0.0
    source: str = "primary"
    rank: float = 1.0
    related_to: Memory | None = None
    reason: str = ""
    links: list[Link] = field(default_factory=list)


def suggest(
    memory: Commonplace,
    query: str,
    *,
    limit: int,
    threshold: float | None = None,
    kinds: Sequence[str] | None = None,
    without_kinds: Sequence[str] = (),
    words: float = 0.0,
) -> list[SearchResult]:
    """Return the best matches, each followed by its linked memories, at most `limit` in all.

    `words` is the fraction of the query's words that a match without a vector must contain.
    """
    least = max(MIN_SIMILARITY, adaptive_threshold(query) if threshold is None else threshold)
    candidates = _candidates(memory, query, limit, kinds, without_kinds, words)
    if threshold is None and _is_short(query):
        _raise_by_topic(memory, query, candidates, least)
    candidates = [found for found in candidates if found.similarity >= least]
    for found in candidates:
        _set_scores(found)
    candidates.sort(key=_best_first_key)
    shown = _with_linked(memory, candidates[: limit * 2], limit, kinds, without_kinds)
    for found in shown:
        memory.get(found.memory.id)  # counts as read
    return _newest_first_in_chains(shown)


def adaptive_threshold(query: str) -> float:
    """Return the similarity threshold for a query; a short query has a higher one."""
    return SHORT_QUERY if _is_short(query) else LONG_QUERY


def _is_short(query: str) -> bool:
    return len(query.split()) < SHORT_WORDS


def _raise_by_topic(
    memory: Commonplace, query: str, candidates: Sequence[SearchResult], least: float
) -> None:
    """Raise the similarity of decisions whose topic is similar to the query."""
    topics: dict[str, list[SearchResult]] = {}
    for found in candidates:
        topic = (decisions.topic_of(found.memory) or "").replace("_", " ").strip()
        if topic and _blend_topic(found.similarity, 1.0) >= least:
            topics.setdefault(topic, []).append(found)
    from commonplace.engine.finding.likeness import similarity

    likenesses = engine_call(memory, similarity, query, list(topics)) if topics else []
    for likeness, held in zip(likenesses, topics.values(), strict=True):
        for found in held:
            found.similarity = max(found.similarity, _blend_topic(found.similarity, likeness))


def _blend_topic(similarity: float, likeness: float) -> float:
    return (1 - TOPIC_SHARE) * similarity + TOPIC_SHARE * likeness


def most_similar(
    memory: Commonplace, query: str, *, limit: int, least: float
) -> list[SearchResult]:
    """Return decisions by similarity only, without recency and linked memories."""
    found = found_decisions(memory, query, limit)
    return [each for each in found if each.similarity >= least][:limit]


def found_decisions(memory: Commonplace, query: str, limit: int) -> list[SearchResult]:
    """Return at least as many decisions, if there are as many, in the order of their similarity."""
    found = _candidates(memory, query, limit, [decisions.KIND], (), 1.0)
    return sorted(found, key=lambda each: -each.similarity)


def _candidates(
    memory: Commonplace,
    query: str,
    limit: int,
    kinds: Sequence[str] | None,
    without_kinds: Sequence[str],
    words: float,
) -> list[SearchResult]:
    from commonplace.engine.finding.ranking import Weighting

    plain = Weighting(graph=0.0)
    most = min(limit * 2, 1_000)
    hits: list[Hit] = list(
        memory.recall(
            query, limit=most, weighting=plain, count=False, kinds=kinds,
            without_kinds=without_kinds, minimum=0,
        )
    )  # fmt: skip
    if kinds is None or decisions.KIND in kinds:
        hits += memory.recall(
            query, limit=most, weighting=plain, count=False, kinds=[decisions.KIND],
            states=["superseded"], minimum=0,
        )  # fmt: skip
    terms = set(analyse_query(query))
    return [SearchResult(hit.memory, _similarity(hit, query, terms, words)) for hit in hits]


def _similarity(hit: Hit, query: str, terms: set[str], words: float) -> float:
    """Return the calibrated similarity, or a fixed one if words or the topic match the query."""
    topic = decisions.read(hit.memory).topic
    asked_for = TOPIC_SIMILARITY if topic.casefold() == query.strip().casefold() else 0.0
    held = terms & set(analyse(f"{hit.memory.title} {hit.memory.text[:READ_CHARS]}"))
    if hit.why.dense_rank is None:
        by_words = hit.why.lexical_rank is not None and len(held) >= words * len(terms)
        return max(WORDS_SIMILARITY if by_words else 0.0, asked_for)
    return max(hit.similarity, WORDS_SIMILARITY if held and held == terms else 0.0, asked_for)


def _set_scores(found: SearchResult) -> None:
    from commonplace.engine.finding.ranking import recency_boosted, recency_gauss

    age = datetime.now(UTC) - found.memory.created_at
    found.age_days = max(0.0, age.total_seconds() / DAY_SECONDS)
    found.recency = recency_gauss(found.age_days)
    found.score = recency_boosted(found.similarity, found.age_days)


def _best_first_key(found: SearchResult) -> tuple[float, float, int]:
    return (-found.score, -found.memory.created_at.timestamp(), -found.memory.num)


def _with_linked(
    memory: Commonplace,
    primaries: Sequence[SearchResult],
    limit: int,
    kinds: Sequence[str] | None,
    without_kinds: Sequence[str],
) -> list[SearchResult]:
    """Return each match followed by its linked memories.

    A linked memory that is itself a match stays at its own place.
    """
    first = {found.memory.id: found for found in primaries}
    shown: dict[str, SearchResult] = {}
    earlier: dict[str, SearchResult] = {}
    for primary in primaries:
        if len(shown) >= limit:
            break
        shown[primary.memory.id] = primary
        relatives = _linked_results(memory, primary, limit)
        for relative in relatives:
            if newest_first_key(primary.memory) < newest_first_key(relative.memory):
                earlier.setdefault(primary.memory.id, relative)
            other = first.get(relative.memory.id)
            if other is not None:
                _record_relation(primary, other, relative.reason)
            elif relative.memory.id not in shown and _has_wanted_kind(
                relative.memory, kinds, without_kinds
            ):
                _set_scores(relative)
                shown[relative.memory.id] = relative
    kept = list(shown.values())[:limit]
    seen = {found.memory.id for found in kept}
    for found in kept:
        other = earlier.get(found.memory.id)
        if found.related_to is None and other is not None and other.memory.id not in seen:
            found.related_to, found.reason = other.memory, other.reason
    return kept


def _has_wanted_kind(
    memory: Memory, kinds: Sequence[str] | None, without_kinds: Sequence[str]
) -> bool:
    return memory.kind not in without_kinds and (kinds is None or memory.kind in kinds)


def _record_relation(one: SearchResult, other: SearchResult, reason: str) -> None:
    """Record in the newer of two linked matches that it refers to the older one."""
    newer, older = sorted((one, other), key=lambda each: newest_first_key(each.memory))
    if newer.related_to is None:
        newer.related_to, newer.reason = older.memory, reason


def _linked_results(memory: Commonplace, primary: SearchResult, limit: int) -> list[SearchResult]:
    """Return the memories linked to a match: first the chain of its topic, then other links."""
    primary.links = [link for link in memory.links.of(primary.memory.id) if link.kind in LINK_KINDS]
    chain = _chain_results(memory, primary, limit)
    stated = []
    for kind, relation in RELATIONS.items():
        for link in primary.links:
            if link.kind != kind:
                continue
            outward = link.source == primary.memory.id
            other = _visible_memory(memory, link.target if outward else link.source)
            if other is None:
                continue
            name = relation.outward if outward else relation.inward
            stated.append(
                SearchResult(other, primary.similarity * relation.share, source=name,
                             rank=relation.rank, related_to=primary.memory, reason=link.reason)
            )  # fmt: skip
    return [*chain, *stated]


def _chain_results(memory: Commonplace, primary: SearchResult, limit: int) -> list[SearchResult]:
    """Return the decisions before and after a match in its chain, nearest first."""
    met = {primary.memory.id}
    edge = [primary.memory.id]
    chain: list[SearchResult] = []
    links = primary.links
    while edge and len(chain) < limit:
        here = edge.pop(0)
        if here != primary.memory.id:
            links = memory.links.of(here, kinds=[SUPERSEDES])
        for link in links:
            end = link.target if link.source == here else link.source
            if link.kind != SUPERSEDES or end in met:
                continue
            met.add(end)
            edge.append(end)
            other = _visible_memory(memory, end)
            if other is not None:
                chain.append(
                    SearchResult(other, primary.similarity * CHAIN_SHARE, source="supersedes_chain",
                                 rank=CHAIN_RANK, related_to=primary.memory, reason=link.reason)
                )  # fmt: skip
    return chain


def _visible_memory(memory: Commonplace, identity: str) -> Memory | None:
    found = memory.get(identity, count=False)
    return found if decisions.is_visible(found) else None


def _newest_first_in_chains(shown: Sequence[SearchResult]) -> list[SearchResult]:
    """Reorder the results, so that among decisions of one topic the newest is first."""
    ordered = list(shown)
    topics: dict[str, list[int]] = {}
    for at, found in enumerate(ordered):
        if (topic := decisions.topic_of(found.memory)) is not None:
            topics.setdefault(topic, []).append(at)
    for places in topics.values():
        chain = sorted((shown[at] for at in places), key=lambda each: newest_first_key(each.memory))
        for at, found in zip(places, chain, strict=True):
            ordered[at] = found
    return ordered


def newest_first_key(memory: Memory) -> tuple[float, int]:
    """Return the sort key for the order newest first."""
    return (-memory.created_at.timestamp(), -memory.num)


def newest_memories(
    memory: Commonplace,
    *,
    limit: int,
    kinds: Sequence[str] | None = None,
    without_kinds: Sequence[str] = (),
) -> list[Memory]:
    """Return the newest memories, including superseded decisions."""
    live, _ = memory.browse(kinds=kinds, without_kinds=without_kinds, limit=limit)
    past: Iterable[Memory] = ()
    if kinds is None or decisions.KIND in kinds:
        past, _ = memory.browse(kinds=[decisions.KIND], states=["superseded"], limit=limit)
    return sorted([*live, *past], key=newest_first_key)[:limit]


def latest_checkpoint(memory: Commonplace) -> Memory | None:
    """Return the checkpoint to resume from: the newest that is not marked as done."""
    # Begin with a page of one, because the newest checkpoint is usually not marked as done.
    offset, limit = 0, 1
    while True:
        page, _ = memory.browse(kinds=[checkpoints.KIND], offset=offset, limit=limit)
        for each in page:
            if not each.attrs.get("done"):
                return each
        if len(page) < limit:
            return None
        offset, limit = offset + limit, CHECKPOINT_PAGE
