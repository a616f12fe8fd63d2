"""Combine the rankings by words, meaning and links into a score, by weighted reciprocal ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RRF_K = 60
MIN_SIMILARITY = 0.25  # unrelated texts have a lower similarity


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the three rankings; their sum is 1."""

    bm25: float = 0.4
    vector: float = 0.4
    graph: float = 0.2


RECALL_WEIGHTS = Weights()
SEMANTIC_WEIGHTS = Weights(bm25=0.3, vector=0.6, graph=0.1)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a memory by words and by meaning; None for no rank."""

    bm25: int | None
    vector: int | None
    similarity: float


def reciprocal_score(rank: int | None, k: int = RRF_K) -> float:
    """Return the score of a rank: 1 for the first, less for later ones, 0 for None."""
    from commonplace.engine.finding.ranking import reciprocal_rank

    return 0.0 if rank is None else reciprocal_rank(float(rank), k)


def fused_score(ranks: Ranks, weights: Weights, k: int = RRF_K, *, meaning: bool = True) -> float:
    """Return the score by words and meaning; without meaning, words get both weights."""
    if not meaning:
        return (weights.bm25 + weights.vector) * reciprocal_score(ranks.bm25, k)
    similar = ranks.vector if ranks.similarity >= MIN_SIMILARITY else None
    return weights.bm25 * reciprocal_score(ranks.bm25, k) + weights.vector * reciprocal_score(
        similar, k
    )


def ranks_by_value(values: Mapping[str, float]) -> dict[str, int]:
    """Return the ranks of the keys by value, highest first; equal values are sorted by key."""
    order = sorted(values, key=lambda one: (-values[one], one))
    return {identity: place for place, identity in enumerate(order, start=1)}


def final_score(base: float, graph: int | None, weight: float, importance: float, k: int) -> float:
    """Return the final score from 0 to 1, with the links; importance moves it by a tenth."""
    joined = base + weight * reciprocal_score(graph, k)
    return max(0.0, min(1.0, joined * (0.9 + 0.2 * importance)))
