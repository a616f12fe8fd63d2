from __future__ import annotations

import threading

import pytest

from commonplace import Commonplace, Line, Origin
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, StorageUnavailable
from conftest import WordVectors, texts


class Stop(Exception):
    """What a test raises inside a unit."""


def test_a_unit_is_one_operation_with_the_unit_s_name_and_origin(memory: Commonplace) -> None:
    with memory.unit("tool call", Origin(tool="save")):
        one = memory.remember("one", origin=Origin(user="ann"))
        two = memory.remember("two")
        memory.links.add(one.id, two.id, "knows")
        memory.facts.add("a", "b", "c")
    operations = memory.history.operations()
    assert [each.name for each in operations] == ["tool call"]
    assert operations[0].origin == Origin(user="ann", tool="save")
    assert one.version == two.version == operations[0].seq
    memory.undo()
    assert memory.browse() == ([], 0)
    assert memory.links.of() == memory.facts.query() == []


def test_a_unit_that_fails_stores_nothing(memory: Commonplace) -> None:
    kept = memory.remember("kept")
    with pytest.raises(Stop), memory.unit("fails"):
        memory.remember("lost")
        memory.revise(kept.id, text="changed")
        memory.conversations.add("talk", Line(speaker="a", text="b"))
        memory.events.record("audit")
        memory.artifacts.create("x", path="/x")
        raise Stop
    assert texts(memory.browse()) == ["kept"]
    assert memory.get(kept.id) == kept
    assert memory.events.all() == memory.artifacts.all() == memory.conversations.names() == []
    assert len(memory.history.operations()) == 1
    assert memory.remember("next").version == kept.version + 1


def test_an_inner_failure_that_is_caught_leaves_the_rest(memory: Commonplace) -> None:
    memory.remember("taken", ref="r")
    with memory.unit("outer"):
        memory.remember("before")
        with pytest.raises(Conflict):
            memory.remember("never", ref="r")
        with pytest.raises(InvalidInput):
            memory.remember("")
        memory.remember("after")
    assert texts(memory.browse()) == ["after", "before", "taken"]


def test_the_first_write_of_a_unit_may_fail_and_the_rest_is_stored(memory: Commonplace) -> None:
    memory.remember("taken", ref="r")
    with memory.unit("outer"):
        with pytest.raises(Conflict):
            memory.remember("never", ref="r")
        stored = memory.remember("after")
    assert texts(memory.browse()) == ["after", "taken"]
    assert memory.history.operations()[0].seq == stored.version == 2


def test_a_unit_inside_another_joins_it(memory: Commonplace) -> None:
    with memory.unit("outer"):
        memory.remember("one")
        with memory.unit("inner"):
            memory.remember("two")
    assert [each.name for each in memory.history.operations()] == ["outer"]
    with pytest.raises(Stop), memory.unit("outer"):
        with memory.unit("inner"):
            memory.remember("three")
        raise Stop
    assert texts(memory.browse()) == ["two", "one"]


def test_a_unit_inside_another_is_itself_all_or_nothing(memory: Commonplace) -> None:
    with memory.unit("outer"):
        memory.remember("one")
        with pytest.raises(Stop), memory.unit("inner"):
            memory.remember("half")
            raise Stop
        memory.remember("two")
    assert texts(memory.browse()) == ["two", "one"]
    with memory.unit("outer"):
        with pytest.raises(Stop), memory.unit("inner"):
            memory.remember("half")
            raise Stop
        memory.remember("three")
    assert texts(memory.browse()) == ["three", "two", "one"]


def test_an_empty_unit_is_no_operation(memory: Commonplace) -> None:
    with memory.unit("nothing"):
        assert memory.browse() == ([], 0)
    assert memory.history.operations() == []


def seen(memory: Commonplace) -> dict[str, object]:
    return {
        "browse": texts(memory.browse(order="oldest")),
        "recall": sorted(texts(memory.recall("walrus", count=False))),
        "find": sorted(texts(memory.find_text("walrus"))),
        "links": len(memory.links.of()),
        "facts": len(memory.facts.query()),
    }


def test_reads_in_a_unit_see_its_writes_and_nobody_else_does(vectored: Commonplace) -> None:
    memory = vectored
    first = memory.remember("first walrus")
    before = seen(memory)
    inside: list[dict[str, object]] = []
    outside: list[dict[str, object]] = []
    with memory.unit("writes"):
        second = memory.remember("second walrus")
        inside.append(seen(memory))
        memory.revise(first.id, text="first seal")
        memory.links.add(first.id, second.id, "knows", weight=0.1)
        memory.facts.add("a", "b", "c")
        inside.append(seen(memory))
        memory.forget(second.id)
        inside.append(seen(memory))
        looker = threading.Thread(target=lambda: outside.append(seen(memory)))
        looker.start()
        looker.join()
    assert inside[0]["recall"] == ["first walrus", "second walrus"]
    assert inside[1]["browse"] == ["first seal", "second walrus"]
    assert inside[1]["find"] == ["second walrus"]
    assert (inside[1]["links"], inside[1]["facts"]) == (1, 1)
    assert inside[2]["browse"] == ["first seal"]
    assert outside == [before]
    assert seen(memory) == inside[2]


def test_after_a_unit_that_failed_the_index_is_as_before(vectored: Commonplace) -> None:
    memory = vectored
    first = memory.remember("first walrus")
    before = seen(memory)
    with pytest.raises(Stop), memory.unit("fails"):
        memory.remember("second walrus")
        memory.revise(first.id, text="no such animal")
        assert seen(memory)["find"] == ["second walrus"]
        raise Stop
    assert seen(memory) == before
    memory.remember("third walrus")
    assert seen(memory)["recall"] == ["first walrus", "third walrus"]


def test_recalls_between_the_writes_of_a_unit_change_nothing_of_its_outcome(
    memory: Commonplace,
) -> None:
    with memory.unit("long"):
        for i in range(20):
            memory.remember(f"walrus {i}")
            assert len(memory.recall("walrus", limit=50)) == i + 1
    assert len(memory.recall("walrus", limit=50)) == 20
    assert len(memory.history.operations()) == 1


def test_units_of_two_spaces_do_not_mix(memory: Commonplace) -> None:
    other = memory.at("other")
    with pytest.raises(Stop), memory.unit("mine"):
        memory.remember("mine")
        other.remember("theirs")
        raise Stop
    assert memory.browse() == ([], 0)
    assert texts(other.browse()) == ["theirs"]


def test_a_unit_with_a_slow_embedder_holds_nothing_up_before_it_writes(
    vectored: Commonplace, words: WordVectors
) -> None:
    words.gate.clear()
    slow = threading.Thread(target=lambda: vectored.remember("slow"))
    slow.start()
    vectored.forget(*[])  # a write that needs no embedding goes through meanwhile
    vectored.facts.add("a", "b", "c")
    assert slow.is_alive()
    words.gate.set()
    slow.join()
    assert texts(vectored.browse()) == ["slow"]


@pytest.mark.parametrize("name", ["", "\ud800", None, "x" * 501])
def test_a_unit_needs_a_name_that_can_be_stored(memory: Commonplace, name: object) -> None:
    with pytest.raises(CommonplaceError), memory.unit(name):  # type: ignore[arg-type]
        memory.remember("x")
    assert memory.browse() == ([], 0)


def test_a_library_is_not_closed_inside_a_unit(memory: Commonplace) -> None:
    with pytest.raises(StorageUnavailable), memory.unit("open"):
        memory.remember("given up")
        memory.library.close()
    memory.remember("works on")
    assert texts(memory.browse()) == ["works on"]
