"""Three rankings as one score: words, meaning and links, by weighted reciprocal ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RRF_K = 60
RELATED = 0.25  # unrelated texts have less similarity than this


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the three rankings, which add up to 1."""

    bm25: float = 0.4
    vector: float = 0.4
    graph: float = 0.2


RECALL = Weights()
SEMANTIC = Weights(bm25=0.3, vector=0.6, graph=0.1)


@dataclass(frozen=True, slots=True)
class Ranks:
    """A memory's ranks by words and by meaning; None if it is not ranked."""

    bm25: int | None
    vector: int | None
    similarity: float


def reciprocal(rank: int | None, k: int = RRF_K) -> float:
    """1 for the first rank, less for each further one, 0 for no rank."""
    from commonplace.engine.finding.ranking import reciprocal_rank

    return 0.0 if rank is None else reciprocal_rank(float(rank), k)


def fused_score(ranks: Ranks, weights: Weights, k: int = RRF_K, *, meaning: bool = True) -> float:
    """The score by words and meaning; without a ranking by meaning, words get both weights."""
    if not meaning:
        return (weights.bm25 + weights.vector) * reciprocal(ranks.bm25, k)
    near = ranks.vector if ranks.similarity >= RELATED else None
    return weights.bm25 * reciprocal(ranks.bm25, k) + weights.vector * reciprocal(near, k)


def ranked(values: Mapping[str, float]) -> dict[str, int]:
    """Ranks by value, the highest first; equal values are ordered by key."""
    order = sorted(values, key=lambda one: (-values[one], one))
    return {identity: place for place, identity in enumerate(order, start=1)}


def final_score(base: float, graph: int | None, weight: float, importance: float, k: int) -> float:
    """The score with the weight of links added, slightly raised by importance; 0 to 1."""
    joined = base + weight * reciprocal(graph, k)
    return max(0.0, min(1.0, joined * (0.9 + 0.2 * importance)))
