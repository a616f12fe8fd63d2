"""Times that a query names: memories of that time are preferred, and no others are left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from commonplace import Commonplace, Draft, Line, Weighting
from commonplace.errors import InvalidInput
from conftest import texts

ASKED_AT = datetime(2026, 6, 20, 12, tzinfo=UTC)  # a Saturday
MEALS = {
    "2025-07-14": "Fried calamari at the harbour",
    "2026-04-09": "Baked a leek quiche for Nora",
    "2026-06-06": "Ate dumplings with the family",
    "2026-06-16": "Ordered a pizza with anchovies",
    "2026-06-19": "Had ramen with Joe",
}


@pytest.fixture
def meals(real: Commonplace) -> Commonplace:
    real.remember_many(
        [Draft(text=text, occurred_at=f"{day}T12:00:00Z") for day, text in MEALS.items()]
    )
    return real


@pytest.mark.parametrize(
    ("words", "day"),
    [
        ("last summer", "2025-07-14"),
        ("in April", "2026-04-09"),
        ("two weeks ago", "2026-06-06"),
        ("on Tuesday", "2026-06-16"),
        ("yesterday", "2026-06-19"),
        ("on 6 June", "2026-06-06"),
        ("on July 14th, 2025", "2025-07-14"),
    ],
)
def test_what_happened_at_the_time_that_is_named_comes_first(
    meals: Commonplace, words: str, day: str
) -> None:
    hits = meals.recall(f"What did I eat {words}?", asked_at=ASKED_AT, minimum=0)
    assert hits[0].memory.text == MEALS[day]
    assert "time: as in the query" in str(hits[0].why)
    assert set(texts(hits)) == set(MEALS.values())
    assert [hit.why.period == 1 for hit in hits].count(True) == 1


def test_a_time_prefers_memories_and_removes_none(meals: Commonplace) -> None:
    plain = Weighting(period=0)
    for words in ("yesterday", "in April", "in 1999"):
        query = f"What did I eat {words}?"
        dated = meals.recall(query, asked_at=ASKED_AT)
        undated = meals.recall(query, asked_at=ASKED_AT, weighting=plain)
        assert set(texts(dated)) == set(texts(undated)) != set()
        assert [hit.probability for hit in dated if hit.why.period < 0.1] != []


def test_a_query_without_a_time_is_ranked_as_before(meals: Commonplace) -> None:
    hits = meals.recall("What did I eat?", asked_at=ASKED_AT, minimum=0)
    plain = meals.recall("What did I eat?", minimum=0, weighting=Weighting(period=0))
    assert [(hit.memory.id, hit.score) for hit in hits] == [
        (hit.memory.id, hit.score) for hit in plain
    ]
    assert not any("time:" in str(hit.why) for hit in hits)


def test_times_are_seen_from_now_and_a_memory_without_one_is_of_when_it_was_stored(
    real: Commonplace,
) -> None:
    today = datetime.now().astimezone()
    real.remember("Met the plumber", occurred_at=today - timedelta(days=1))
    real.remember("Met the electrician", occurred_at=today - timedelta(days=9))
    real.remember("Met the gardener")
    assert texts(real.recall("Who did I meet yesterday?", limit=1)) == ["Met the plumber"]
    assert texts(real.recall("Who did I meet today?", limit=1)) == ["Met the gardener"]
    then = today + timedelta(seconds=1)  # the time of `as_of` is the moment it is seen from
    assert texts(real.recall("Who did I meet yesterday?", limit=1, as_of=then)) == [
        "Met the plumber"
    ]


def test_what_was_true_at_that_time_stays_before_what_replaced_it(real: Commonplace) -> None:
    for year in (2024, 2025, 2026):
        real.remember(
            f"The release manager is {['Ana', 'Ben', 'Cleo'][year - 2024]}",
            occurred_at=f"{year}-03-01T12:00:00Z",
        )
    assert "Cleo" in real.recall("Who is the release manager?")[0].memory.text
    hits = real.recall("Who was the release manager in 2024?", asked_at=ASKED_AT)
    assert "Ana" in hits[0].memory.text


def test_sessions_of_the_time_that_is_named_come_first(real: Commonplace) -> None:
    for day in ("2026-05-02", "2026-06-13", "2026-06-19"):
        line = Line(speaker="user", text="Let us plan the garden", at=f"{day}T10:00:00Z",
                    session=day)  # fmt: skip
        real.conversations.add("chat", line)
    for words, day in (("in May", "2026-05-02"), ("last weekend", "2026-06-13")):
        found = real.recall_sessions(f"What did we plan {words}?", asked_at=ASKED_AT)
        assert found[0].session == day and len(found) == 3


@pytest.mark.parametrize("bad", ["soon", "", 7])
def test_a_moment_that_is_none_is_refused(meals: Commonplace, bad: object) -> None:
    for call in (meals.recall, meals.recall_sessions):
        with pytest.raises(InvalidInput) as refused:
            call("What did I eat?", asked_at=bad)  # type: ignore[operator]
        assert refused.value.field == "asked_at"
