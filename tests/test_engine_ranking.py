from __future__ import annotations

import math

import numpy as np
import pytest

from commonplace.engine.finding import ranking
from commonplace.storage.index import bm25_term, highest_positions, rarity


@pytest.mark.parametrize(
    ("score", "reward", "shared", "expected"),
    [
        (0.5, 0.5, 1, 0.5),  # task_completed leaves .5 where it is
        (0.5, 0.3, 1, 0.48),  # positive_feedback pulls .5 down: outcomes never lift above .5
        (0.5, 0.5, 4, 0.475),
        (0.5, -0.4, 1, 0.41),
        (0.9, 0.5, 1, 0.86),
        (0.0, -0.4, 1, 0.0),
        (0.01, -0.4, 1, 0.0),
    ],
)
def test_clawbrain_s_credit_moves_towards_the_shared_reward(
    score: float, reward: float, shared: int, expected: float
) -> None:
    assert ranking.credit_after(score, reward, shared) == pytest.approx(expected)


def test_clawbrain_s_credit_may_be_added_up_instead_and_stays_within_bounds() -> None:
    assert ranking.credit_after(0.5, 0.3, 1, additive=True) == pytest.approx(0.53)
    assert ranking.credit_after(0.99, 0.5, 1, alpha=1, additive=True) == 1.0
    assert ranking.credit_after(0.1, -0.4, 1, alpha=1, additive=True) == 0.0


def test_outcomes_alone_never_lift_a_credit_above_one_half() -> None:
    score = 0.5
    for _ in range(1_000):
        score = ranking.credit_after(score, 0.5, 1)
    assert score <= 0.5 + 1e-9


def test_clawbrain_s_credit_fades_a_hundredth_a_day() -> None:
    assert ranking.credit_decayed(0.8, 0) == 0.8
    assert ranking.credit_decayed(0.8, 1) == pytest.approx(0.8 * 0.990050, abs=1e-6)
    assert ranking.credit_decayed(1.0, 69.3147) == pytest.approx(0.5, abs=1e-5)
    assert ranking.credit_decayed(0.8, -5) == 0.8, "the future does not raise it"


def test_clawbrain_s_search_weighs_credit_over_relevance() -> None:
    assert ranking.credit_weighted(1.0, 0.5) == pytest.approx(0.7)
    assert ranking.credit_weighted(0.5, 1.0) == pytest.approx(0.8)
    assert ranking.credit_weighted(1.0, 1.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("importance", "sessions", "reactivations", "expected"),
    [
        (0.9, 0, 0, 0.9),
        (1.0, 30, 0, math.exp(-1)),
        (0.5, 60, 30, 0.5 * math.exp(-1)),
        (0.5, 3, 10, 0.5),  # recalled more often than it aged: never above what it was
        (0.5, 69, 0, 0.5 * math.exp(-2.3)),
    ],
)
def test_being_s_importance_fades_with_sessions_it_was_not_recalled_in(
    importance: float, sessions: int, reactivations: int, expected: float
) -> None:
    faded = ranking.faded_importance(importance, sessions, reactivations)
    assert faded == pytest.approx(expected)
    assert (faded <= 0.05) == (expected <= 0.05)


def test_being_lets_a_memory_of_one_half_die_after_seventy_sessions() -> None:
    assert ranking.faded_importance(0.5, 69, 0) > 0.05
    assert ranking.faded_importance(0.5, 70, 0) <= 0.05


def test_mama_s_recency_is_a_bell_curve_of_a_week() -> None:
    assert ranking.recency_gauss(0) == 1.0
    assert ranking.recency_gauss(7) == pytest.approx(0.486, abs=1e-3)
    assert ranking.recency_gauss(14) == pytest.approx(0.0559, abs=1e-3)
    assert ranking.recency_gauss(-1) == 1.0
    assert ranking.recency_boosted(0.8, 0) == pytest.approx(0.86)
    assert ranking.recency_boosted(0.8, 7) == pytest.approx(0.56 + 0.3 * 0.486, abs=1e-3)


def test_penfield_s_recency_falls_by_a_factor_e_each_week() -> None:
    assert ranking.recency_exponential(0) == 1.0
    assert ranking.recency_exponential(168) == pytest.approx(math.exp(-1))


def test_a_reciprocal_rank_is_one_for_first_place_and_less_for_each_further_one() -> None:
    assert [ranking.reciprocal_rank(rank, 60) for rank in (1, 2)] == [1.0, 61 / 62]
    assert [ranking.reciprocal_rank(rank, 1) for rank in (1, 2, 3)] == [1.0, 2 / 3, 0.5]


def test_what_a_neighbour_inherits_halves_with_every_further_link() -> None:
    assert ranking.edge_score(0.8, 0.5, 1) == pytest.approx(0.4)
    assert ranking.edge_score(0.8, 0.5, 2) == pytest.approx(0.2)
    assert ranking.edge_score(1.0, 1.0, 3) == 0.25


def test_rarity_falls_with_every_holder_and_is_never_negative() -> None:
    values = [rarity(100, holding) for holding in range(101)]
    assert values == sorted(values, reverse=True)
    assert values[-1] > 0
    assert rarity(3, 1) == pytest.approx(math.log(1 + 2.5 / 1.5))


def test_occurrences_are_worth_more_in_short_texts_and_saturate() -> None:
    def worth(times: int, length: float) -> float:
        one = np.array([times], np.float32), np.array([length], np.float32)
        return float(bm25_term(*one, 10.0, k1=0.9, b=0.4)[0])

    assert worth(1, 10) == pytest.approx(1.0)
    assert worth(1, 5) > worth(1, 10) > worth(1, 40)
    assert worth(1, 10) < worth(2, 10) < worth(50, 10) < 1.9


@pytest.mark.parametrize("count", [1, 5, 6, 7, 20])
def test_the_highest_scores_come_first_and_of_equal_ones_the_newest(count: int) -> None:
    score = np.array([0.5, 0.9, -0.1, 0.5, 0.7, 0.5, 0.9, 0.0], np.float32)
    mask = np.array([True, True, True, True, False, True, False, True])
    assert highest_positions(score, mask, count).tolist() == [1, 5, 3, 0, 7, 2][:count]
    assert highest_positions(score, np.zeros(8, np.bool_), count).tolist() == []


@pytest.mark.parametrize("size", [99, 640, 1_000, 20_001])
@pytest.mark.parametrize("decimals", [1, 8])
def test_the_highest_of_many_scores_are_those_of_a_full_sort(size: int, decimals: int) -> None:
    random = np.random.default_rng(size)
    score = np.round(random.random(size), decimals).astype(np.float32)
    mask = random.random(size) < 0.7
    full = [at for at in np.lexsort((-np.arange(size), -score)).tolist() if mask[at]]
    for count in (1, 9, 10, 150, size):
        assert highest_positions(score, mask, count).tolist() == full[:count]
    few = np.zeros(size, np.bool_)
    few[[3, size - 1]] = True
    assert sorted(highest_positions(score, few, 10).tolist()) == [3, size - 1]


def test_scores_are_scaled_to_the_best_that_may_be_found() -> None:
    scores = np.array([4.0, 1.0, 2.0, -1.0], np.float32)
    among = np.array([False, True, True, True])
    assert ranking.scale_to_best(scores, among).tolist() == pytest.approx([0, 0.5, 1, 0])
    assert ranking.scale_to_best(scores, among, 8.0).tolist() == pytest.approx([0, 0.125, 0.25, 0])
    assert ranking.scale_to_best(scores, among, 1.0).tolist() == pytest.approx([0, 0.5, 1, 0])
    assert ranking.scale_to_best(scores, np.zeros(4, np.bool_)).tolist() == [0, 0, 0, 0]
    nothing = np.array([0.0, -0.5], np.float32)
    assert ranking.scale_to_best(nothing, np.array([True, True])).tolist() == [0, 0]
