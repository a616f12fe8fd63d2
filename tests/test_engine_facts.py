from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from commonplace import Commonplace, Origin
from commonplace.engine.model import Fact
from commonplace.errors import InvalidInput, NotFound


def triples(facts: list[Fact]) -> list[tuple[str, str, str]]:
    return [(fact.subject, fact.predicate, fact.object) for fact in facts]


def test_a_fact_comes_back_with_every_field(memory: Commonplace) -> None:
    source = memory.remember("Ann told me", ref="told")
    fact = memory.facts.add(
        "Ann", "works at", "Acme", valid_from="2024-01-01", valid_to="2025-01-01",
        confidence=0.5, memory="told", attrs={"a": 1}, origin=Origin(user="u"),
    )  # fmt: skip
    assert memory.facts.query("Ann") == [fact]
    assert (fact.confidence, fact.memory, fact.attrs) == (0.5, source.id, {"a": 1})
    assert fact.valid_from == datetime(2024, 1, 1, tzinfo=UTC)
    assert fact.valid_to == datetime(2025, 1, 1, tzinfo=UTC)
    assert fact.origin == Origin(user="u")


def test_the_same_open_fact_again_is_the_one_already_there(memory: Commonplace) -> None:
    first = memory.facts.add("Ann", "works at", "Acme")
    assert memory.facts.add(" ann ", "WORKS  at", "ＡＣＭＥ") == first
    assert len(memory.history.operations()) == 1
    memory.facts.close("Ann", "works at", "Acme")
    again = memory.facts.add("Ann", "works at", "Acme")
    assert again.id != first.id, "what has ended may begin again"
    assert len(memory.facts.query("Ann")) == 2


def test_facts_are_asked_by_entity_role_and_predicate_newest_first(memory: Commonplace) -> None:
    memory.facts.add("Ann", "knows", "Bob")
    memory.facts.add("Bob", "knows", "Cid")
    memory.facts.add("Bob", "likes", "Ann")
    assert triples(memory.facts.query("bob")) == [
        ("Bob", "likes", "Ann"), ("Bob", "knows", "Cid"), ("Ann", "knows", "Bob"),
    ]  # fmt: skip
    assert triples(memory.facts.query("Bob", role="object")) == [("Ann", "knows", "Bob")]
    assert len(memory.facts.query("Bob", role="subject")) == 2
    assert triples(memory.facts.query(predicate="LIKES")) == [("Bob", "likes", "Ann")]
    assert len(memory.facts.query()) == 3
    assert len(memory.facts.query(limit=2)) == 2
    assert memory.facts.query("Nobody") == []
    with pytest.raises(InvalidInput):
        memory.facts.query("Bob", role="both")  # type: ignore[arg-type]


def test_a_fact_has_two_clocks_when_it_was_true_and_when_we_learned_it(memory: Commonplace) -> None:
    before = datetime.now(UTC)
    time.sleep(0.002)
    memory.facts.add("Ann", "lives in", "Rome", valid_from="2020-01-01")
    time.sleep(0.002)
    believed = datetime.now(UTC)
    time.sleep(0.002)
    memory.facts.close("Ann", "lives in", "Rome", ended="2022-06-30")
    memory.facts.add("Ann", "lives in", "Oslo", valid_from="2022-07-01")

    def homes(**when: object) -> list[str]:
        return [fact.object for fact in memory.facts.query("Ann", **when)]  # type: ignore[arg-type]

    assert homes(true_at="2021-01-01") == ["Rome"]
    assert homes(true_at="2022-06-30") == ["Rome"], "the last day counts"
    assert homes(true_at="2022-06-30T00:00:01") == []
    assert homes(true_at="2023-01-01") == ["Oslo"]
    assert homes(true_at="2019-12-31") == []
    assert homes(true_at="2023-01-01", known_at=believed) == ["Rome"], "we did not know better"
    assert homes(known_at=before) == []
    assert memory.facts.query("Ann", known_at=believed)[0].valid_to is None


def test_closing_ends_every_open_match_and_says_which(memory: Commonplace) -> None:
    memory.facts.add("Ann", "likes", "tea", valid_from="2024-01-01")
    with pytest.raises(InvalidInput):
        memory.facts.close("Ann", "likes", "tea", ended="2023-12-31")
    closed = memory.facts.close("ANN", "likes", "Tea")
    assert len(closed) == 1
    assert closed[0].valid_to is not None
    assert memory.facts.close("Ann", "likes", "tea") == []
    assert [each.name for each in memory.history.operations()] == ["close fact", "add fact"]


def test_a_retracted_fact_was_never_true_but_was_believed(memory: Commonplace) -> None:
    fact = memory.facts.add("Ann", "owns", "a zebra")
    time.sleep(0.002)
    believed = datetime.now(UTC)
    time.sleep(0.002)
    memory.facts.retract(fact.id)
    assert memory.facts.query("Ann") == []
    assert memory.facts.query("Ann", known_at=believed) == [fact]
    with pytest.raises(NotFound):
        memory.facts.retract(fact.id)


def test_the_timeline_goes_by_beginnings(memory: Commonplace) -> None:
    memory.facts.add("Ann", "moved to", "Oslo", valid_from="2022-01-01")
    memory.facts.add("Ann", "is", "tall")
    memory.facts.add("Ann", "moved to", "Rome", valid_from="1999-01-01")
    memory.facts.add("Bob", "met", "Ann", valid_from="2010-01-01")
    memory.facts.add("Bob", "met", "Cid", valid_from="2001-01-01")
    assert [fact.object for fact in memory.facts.timeline("Ann")] == ["Rome", "Ann", "Oslo", "tall"]
    assert [fact.object for fact in memory.facts.timeline(limit=2)] == ["Rome", "Cid"]


def test_bad_facts_are_refused(memory: Commonplace) -> None:
    for bad in (("", "b", "c"), ("a", "b", "\x00"), ("a", 5, "c"), ("a" * 501, "b", "c")):
        with pytest.raises(InvalidInput):
            memory.facts.add(*bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        memory.facts.add("a", "b", "c", valid_from="2024-01-02", valid_to="2024-01-01")
    with pytest.raises(InvalidInput):
        memory.facts.add("a", "b", "c", confidence=2)
    with pytest.raises(NotFound):
        memory.facts.add("a", "b", "c", memory="no such")
    assert memory.facts.query() == []
