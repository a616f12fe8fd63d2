from __future__ import annotations

import contextlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace, Origin
from commonplace.engine.binding import lease
from commonplace.engine.content.facts import FactCount, NoRoom, Room
from commonplace.engine.model import Fact
from commonplace.errors import Conflict, InvalidInput, NotFound


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


def counted(memory: Commonplace) -> tuple[int, int]:
    """(facts, entities) as they are kept between calls."""
    with lease(memory) as space, space.store.read() as connection:
        space.cache(FactCount).catch_up(connection, space.name)
        facts, entities, _ = space.cache(FactCount).counts_including(connection, space.name)
        return facts, entities


def told(memory: Commonplace) -> tuple[int, int]:
    """(facts, entities) as they are counted from the rows."""
    totals = memory.facts.totals()
    return totals.facts, totals.entities


def test_no_fact_is_stored_beyond_the_room_there_is(memory: Commonplace) -> None:
    room = Room(facts=2, entities=10)
    memory.facts.add("a", "is", "b", room=room)
    second = memory.facts.add("a", "was", "b", room=room)
    with pytest.raises(NoRoom, match=r"There are 2 facts; at most 2 are allowed\.") as refused:
        memory.facts.add("a", "will be", "b", room=room)
    assert (refused.value.full, refused.value.counted) == ("facts", 2)
    assert memory.facts.add("A", "was", "B", room=room) == second, "it takes no more room"
    assert told(memory) == (2, 2)
    memory.facts.retract(second.id)
    memory.facts.add("a", "will be", "b", room=room)
    assert told(memory) == (2, 2)
    memory.facts.add("a", "may be", "b")  # nobody asked whether there is room
    assert told(memory) == (3, 2)


def test_no_thing_is_named_beyond_the_room_there_is(memory: Commonplace) -> None:
    room = Room(facts=10, entities=4)
    memory.facts.add("a", "is", "b", room=room)
    memory.facts.add("c", "is", "c", room=room)
    with pytest.raises(NoRoom, match="Facts name 3 entities; at most 4 are allowed") as refused:
        memory.facts.add("d", "is", "e", room=room)
    assert (refused.value.full, refused.value.counted) == ("entities", 3)
    memory.facts.add("d", "is", "d", room=room)
    with pytest.raises(NoRoom):
        memory.facts.add("a", "is", "e", room=room)
    memory.facts.add("e", "is", "f")
    memory.facts.add("f", "is", "e", room=room)  # both are known
    assert told(memory) == counted(memory) == (5, 6)


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0), (True, 1), ("1", 1), (1, None), (1.5, 1)])
def test_what_is_no_room_is_refused(memory: Commonplace, wrong: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidInput):
        Room(*wrong)
    with pytest.raises(InvalidInput, match="must be a Room"):
        memory.facts.add("a", "is", "b", room=wrong)  # type: ignore[arg-type]
    assert told(memory) == (0, 0)


def test_threads_that_reach_the_end_of_the_room_together_do_not_pass_it(
    tmp_path: Path,
) -> None:
    room = Room(facts=40, entities=1_000)
    ready = threading.Barrier(16)
    with (
        Commonplace(tmp_path, embedding=None) as one,
        Commonplace(tmp_path, embedding=None) as another,
    ):
        for n in range(30):
            one.facts.add("hub", "has", f"part {n}", room=room)

        def add(n: int) -> bool:
            memory = (one, another)[n % 2]  # each with a count of its own, as two processes have
            ready.wait()
            try:
                with memory.unit("call"):  # as a tool is called
                    memory.facts.add("hub", "holds", f"piece {n}", room=room)
            except NoRoom:
                return False
            return True

        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(add, range(16))) == 10
        assert told(one) == counted(one) == counted(another) == (40, 41)


def test_the_kept_count_follows_every_way_in_which_facts_come_and_go(tmp_path: Path) -> None:
    chance = random.Random(5)
    with (
        Commonplace(tmp_path, embedding=None) as memory,
        Commonplace(tmp_path, embedding=None) as another,
    ):

        def add() -> None:
            source = memory.remember(f"note {chance.random()}") if chance.random() < 0.5 else None
            names = [f"n{chance.randrange(12)}" for _ in range(2)]
            memory.facts.add(names[0], "is", names[1], memory=source.id if source else None)

        def close() -> None:
            if facts := [each for each in memory.facts.query() if each.valid_to is None]:
                fact = chance.choice(facts)
                memory.facts.close(fact.subject, fact.predicate, fact.object)

        def retract() -> None:
            if facts := memory.facts.query():
                memory.facts.retract(chance.choice(facts).id)

        def undo() -> None:
            if memory.history.operations():
                with contextlib.suppress(Conflict):
                    memory.undo()

        def purge() -> None:
            if sources := [each.memory for each in memory.facts.query() if each.memory]:
                memory.purge(chance.choice(sources))

        ways = [add, add, add, close, retract, undo, purge]
        seen = set()
        for step in range(300):
            way = chance.choice(ways)
            way()
            if chance.random() < 0.6:  # else several ways lie between two looks
                seen.add(way.__name__)
                assert counted(memory) == told(memory), f"after step {step}, {way.__name__}"
            if chance.random() < 0.2:
                assert counted(another) == told(memory)
        assert seen == {way.__name__ for way in ways}


def test_a_unit_counts_what_it_has_written_itself_and_keeps_none_of_it(memory: Commonplace) -> None:
    room = Room(facts=3, entities=10)
    memory.facts.add("a", "is", "b", room=room)
    with pytest.raises(NoRoom), memory.unit("three at once"):
        for verb in ("was", "may be", "will be"):
            memory.facts.add("a", verb, "b", room=room)
    assert told(memory) == counted(memory) == (1, 2)
    with memory.unit("two at once"):
        for verb in ("was", "may be"):
            memory.facts.add("a", verb, "b", room=room)
    assert told(memory) == counted(memory) == (3, 2)
