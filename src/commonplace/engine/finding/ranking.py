"""Ranking formulas: pure functions, for the engine and for the contracts of the dialects."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Number = TypeVar("Number", float, NDArray[np.float64])


def bm25_term(
    times: NDArray[np.float32], lengths: Floats, mean_length: float, *, k1: float, b: float
) -> Floats:
    """Return BM25's term frequency part: it rises with the occurrences, and saturates."""
    damped = k1 * (1 - b + b * lengths / max(mean_length, 1e-9))
    return np.asarray(times * (k1 + 1) / (times + damped), np.float32)


def rarity(documents: int, holding: int) -> float:
    """Return a term's inverse document frequency; never negative."""
    return math.log1p((documents - holding + 0.5) / (holding + 0.5))


def to_best(scores: Floats, among: Flags, fair: float = 0.0) -> Floats:
    """Scale scores so that the best within the mask has 1.

    If the best is below `fair`, `fair` counts as 1 instead, so that weak matches stay weak.
    """
    full = max(float(scores[among].max(initial=0.0)), fair)
    if full <= 0:
        return np.zeros_like(scores)
    return np.where(among, np.clip(scores / np.float32(full), 0, 1), 0).astype(np.float32)


def reciprocal_rank(rank: Number, k: int) -> Number:
    """Return the reciprocal rank fusion score of a rank; the first has 1."""
    return (k + 1) / (k + rank)


def credit_after(
    score: float, reward: float, shared_by: int, *, alpha: float = 0.1, additive: bool = False
) -> float:
    """ClawBrain: a credit after an outcome that `shared_by` memories share, within 0..1.

    The moving average approaches reward/√n, which is at most .5, so outcomes alone never raise a
    credit above that.
    """
    delta = reward / math.sqrt(shared_by)
    new = score + alpha * delta if additive else (1 - alpha) * score + alpha * delta
    return min(1.0, max(0.0, new))


def credit_decayed(score: float, days: float, *, rate: float = 0.01) -> float:
    """ClawBrain: a credit that nobody used for some days."""
    return score * math.exp(-rate * max(0.0, days))


def credit_weighted(relevance: Number, credit: Number) -> Number:
    """ClawBrain: the score that search sorts by, of one memory or of many."""
    return 0.4 * relevance + 0.6 * credit


def faded_importance(importance: float, sessions: int, reactivations: int) -> float:
    """Being: importance after sessions in which it was not recalled; never more than it was."""
    return importance * math.exp(-max(0, sessions - reactivations) / 30)


def recency_gauss(age_days: float, *, scale_days: float = 7.0) -> float:
    """MAMA: 1 for now, about .49 after the scale, falling like a bell curve."""
    return math.exp(-((max(0.0, age_days) / scale_days) ** 2) / (2 * math.log(2)))


def recency_boosted(similarity: float, age_days: float) -> float:
    """MAMA: similarity and recency, seven to three."""
    return 0.7 * similarity + 0.3 * recency_gauss(age_days)


def recency_exponential(age_hours: float, *, scale_hours: float = 168.0) -> float:
    """Penfield: 1 for now, falling by a factor e each scale."""
    return math.exp(-max(0.0, age_hours) / scale_hours)


def edge_score(seed: float, weight: float, depth: int) -> float:
    """What a neighbour inherits of the result it was reached from."""
    return seed * weight * 0.5 ** (depth - 1)
