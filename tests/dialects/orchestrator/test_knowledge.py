"""The knowledge graph: facts with validity, over the engine's."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from commonplace.dialects.orchestrator import knowledge
from commonplace.engine.binding import lease
from commonplace.engine.content.facts import name_key
from commonplace.engine.model import NOBODY
from commonplace.storage.database import new_id
from commonplace.storage.tables import FACTS

from .conftest import Workspace


def add(workspace: Workspace, *triple: str, **more: str) -> str:
    subject, predicate, object_ = triple
    answer = workspace.value(
        "memory_kg_add", subject=subject, predicate=predicate, object=object_, **more
    )
    assert answer["info"] == "triple added"
    return str(answer["triple_id"])


def test_what_began_or_ended_on_a_day_was_true_on_that_day(workspace: Workspace) -> None:
    add(workspace, "Max", "works_at", "Acme", valid_from="2026-03-01T09:00:00Z")

    def true(as_of: str) -> int:
        return int(workspace.value("memory_kg_query", entity="Max", as_of=as_of)["count"])

    days = ("2026-02-28", "2026-03-01", "2026-03-01T08:59:59Z", "2026-03-01T09:00:00Z")
    assert [true(day) for day in days] == [0, 1, 0, 1]
    assert true("2026-03-01T18:00:00+09:00") == 1 and true("2026-03-01T17:59:59+09:00") == 0
    triple = {"subject": "Max", "predicate": "works_at", "object": "Acme"}
    ended = workspace.value("memory_kg_invalidate", **triple, ended="2026-06-30T18:00:00Z")
    assert ended["info"] == "triple invalidated"
    days = ("2026-06-30", "2026-06-30T18:00:00Z", "2026-06-30T18:00:01Z", "2026-07-01")
    assert [true(day) for day in days] == [1, 1, 0, 0]


def test_what_began_earlier_today_can_end_today(workspace: Workspace) -> None:
    triple = {"subject": "Max", "predicate": "likes", "object": "Tea"}
    begun = datetime.now(UTC).isoformat()
    add(workspace, *triple.values(), valid_from=begun)
    assert workspace.value("memory_kg_invalidate", **triple)["info"] == "triple invalidated"
    (told,) = workspace.value("memory_kg_query", entity="Max")["results"]
    assert told["current"] is False
    assert datetime.fromisoformat(told["valid_to"]) >= datetime.fromisoformat(begun)
    later = {**triple, "object": "Rum"}
    add(workspace, *later.values(), valid_from="2999-01-01")
    refused = workspace.value("memory_kg_invalidate", **later)
    assert "cannot end before it begins" in refused["info"]


def test_a_triple_comes_back_in_both_directions(workspace: Workspace) -> None:
    add(workspace, "Max", "works_at", "Acme", valid_from="2025-01-01")
    add(workspace, "Ann", "knows", "max")
    answer = workspace.value("memory_kg_query", entity="MAX")
    assert answer["entity"] == "MAX"
    assert answer["count"] == 2
    assert answer["results"] == [
        {
            "subject": "Ann", "predicate": "knows", "object": "max", "valid_from": "",
            "valid_to": "", "direction": "incoming", "current": True,
        },
        {
            "subject": "Max", "predicate": "works_at", "object": "Acme",
            "valid_from": "2025-01-01", "valid_to": "", "direction": "outgoing", "current": True,
        },
    ]  # fmt: skip
    out = workspace.value("memory_kg_query", entity="Max", direction="outgoing")
    assert [one["object"] for one in out["results"]] == ["Acme"]
    back = workspace.value("memory_kg_query", entity="Max", direction="incoming")
    assert [one["subject"] for one in back["results"]] == ["Ann"]


def test_as_of_keeps_what_was_true_then(workspace: Workspace) -> None:
    add(workspace, "Max", "works_at", "Acme", valid_from="2024-01-01")
    workspace.value(
        "memory_kg_invalidate", subject="max", predicate="works_at", object="ACME",
        ended="2024-06-30",
    )  # fmt: skip
    add(workspace, "Max", "works_at", "Globex", valid_from="2024-07-01")

    def employer(date: str) -> list[str]:
        found = workspace.value("memory_kg_query", entity="Max", as_of=date)["results"]
        return [one["object"] for one in found]

    assert employer("2023-12-31") == []
    assert employer("2024-01-01") == ["Acme"]
    assert employer("2024-06-30") == ["Acme"]
    assert employer("2024-07-01") == ["Globex"]
    ended = workspace.value("memory_kg_query", entity="Acme")["results"][0]
    assert (ended["valid_to"], ended["current"]) == ("2024-06-30", False)


def test_the_same_open_triple_is_the_one_already_there(workspace: Workspace) -> None:
    first = add(workspace, "Max", "likes", "tea")
    assert add(workspace, "max", "LIKES", "Tea") == first
    workspace.value("memory_kg_invalidate", subject="Max", predicate="likes", object="tea")
    assert add(workspace, "Max", "likes", "tea") != first


def test_contradictions_are_not_closed(workspace: Workspace) -> None:
    add(workspace, "Max", "lives_in", "Bonn")
    add(workspace, "Max", "lives_in", "Rome")
    assert workspace.value("memory_kg_stats")["current_facts"] == 2


def test_a_source_is_kept_with_the_triple(workspace: Workspace) -> None:
    drawer = workspace.value(
        "memory_add_drawer", wing="w", room="r", content="Max lives in Bonn since 2020."
    )["drawer_id"]
    add(workspace, "Max", "lives_in", "Bonn", source_closet=drawer)
    add(workspace, "Max", "was_in", "Rome", source_closet="somewhere else")
    rome, bonn = workspace.memory.facts.query("Max")
    assert bonn.memory == workspace.memory.get(drawer).id
    assert (rome.memory, rome.attrs["source_closet"]) == (None, "somewhere else")
    assert bonn.confidence == 1.0


def test_a_source_may_be_longer_than_an_id(workspace: Workspace) -> None:
    given = {"subject": "Max", "predicate": "likes", "object": "tea"}
    answer = workspace.value("memory_kg_add", **given, source_closet="page " * 200)
    assert answer["info"] == "triple added"
    (fact,) = workspace.memory.facts.query("Max")
    assert fact.attrs["source_closet"] == "page " * 200


def test_invalidation_ends_today_and_says_when_nothing_matched(workspace: Workspace) -> None:
    add(workspace, "Max", "likes", "tea")
    given = {"subject": "Max", "predicate": "likes", "object": "tea"}
    assert workspace.value("memory_kg_invalidate", **given) == {"info": "triple invalidated"}
    ended = workspace.value("memory_kg_query", entity="tea")["results"][0]["valid_to"]
    assert ended == f"{datetime.now(UTC):%Y-%m-%d}"
    again = workspace.value("memory_kg_invalidate", **given)
    assert again == {"info": "no open triple matched, nothing was invalidated"}
    assert workspace.value("memory_kg_invalidate", subject="Max")["info"] == (
        "subject, predicate, and object are required"
    )


def test_the_timeline_goes_by_beginning_and_ends_at_a_hundred(workspace: Workspace) -> None:
    add(workspace, "Max", "met", "Ann")
    add(workspace, "Max", "moved_to", "Rome", valid_from="2024-03-01")
    add(workspace, "Eve", "moved_to", "Bonn", valid_from="2023-03-01")
    answer = workspace.value("memory_kg_timeline")
    assert [one["object"] for one in answer["events"]] == ["Bonn", "Rome", "Ann"]
    assert {one["direction"] for one in answer["events"]} == {""}
    assert workspace.value("memory_kg_timeline", entity="eve")["count"] == 1
    for n in range(100):
        workspace.memory.facts.add("Max", "saw", f"thing {n}")
    assert workspace.value("memory_kg_timeline")["count"] == 100


def test_stats_count_entities_and_facts(workspace: Workspace) -> None:
    add(workspace, "Max", "likes", "tea")
    add(workspace, "max", "lives_in", "Rome")
    workspace.value("memory_kg_invalidate", subject="Max", predicate="likes", object="tea")
    assert workspace.value("memory_kg_stats") == {
        "entities": 3, "triples": 2, "current_facts": 1, "expired_facts": 1,
        "relationship_types": ["likes", "lives_in"],
    }  # fmt: skip


def test_a_query_gives_five_hundred_at_most_the_newest_first(workspace: Workspace) -> None:
    with workspace.memory.unit("many"):
        for n in range(501):
            workspace.memory.facts.add("Max", "saw", f"thing {n}")
    answer = workspace.value("memory_kg_query", entity="Max")
    assert answer["count"] == 500
    assert answer["results"][0]["object"] == "thing 500"


def test_five_hundred_long_triples_are_told(workspace: Workspace) -> None:
    with workspace.memory.unit("many"):
        for n in range(500):
            workspace.memory.facts.add("М" * 400, f"{n} ".ljust(400, "п"), "о" * 400)
    assert workspace.value("memory_kg_query", entity="М" * 400)["count"] == 500
    assert workspace.value("memory_kg_timeline")["count"] == 100
    assert len(workspace.value("memory_kg_stats")["relationship_types"]) == 500


def test_what_is_wrong_with_a_query_is_an_error(workspace: Workspace) -> None:
    assert workspace.call("memory_kg_query").error == "entity is required"
    wrong = workspace.call("memory_kg_query", entity="Max", direction="sideways").error
    assert wrong == "direction must be outgoing, incoming or both"
    told = workspace.call("memory_kg_query", entity="x", as_of="whenever").error
    assert told.startswith("as_of is not a date")
    bad = workspace.value(
        "memory_kg_add", subject="a", predicate="b", object="c", valid_from="whenever"
    )
    assert bad["triple_id"] == ""
    assert "not a date" in bad["info"]
    assert workspace.value("memory_kg_add", subject="a")["info"] == (
        "subject, predicate, and object are required"
    )


def fill(workspace: Workspace, triples: Iterable[tuple[str, str, str]]) -> None:
    """Many facts at once, as the engine stores them."""
    empty = {"valid_from": None, "valid_to": None, "confidence": 1.0, "memory": None,
             "attrs": "{}", "origin": "{}"}  # fmt: skip
    with lease(workspace.memory) as space, space.write("many", NOBODY) as unit:
        for triple in triples:
            names = dict(zip(("subject", "predicate", "object"), triple, strict=True))
            keys = {f"{part}_key": name_key(name) for part, name in names.items()}
            FACTS.insert(unit, {**empty, **names, **keys, "id": new_id(), "created_at": unit.at})


@pytest.mark.parametrize(("entities", "fits"), [(4_998, True), (4_999, False)])
def test_five_thousand_entities_are_the_most(
    workspace: Workspace, entities: int, fits: bool
) -> None:
    fill(workspace, (("hub", "has", f"part {n}") for n in range(entities - 1)))
    assert workspace.value("memory_kg_stats")["entities"] == entities
    answer = workspace.value("memory_kg_add", subject="new", predicate="is", object="newer")
    assert (answer["info"] == "triple added") is fits
    if not fits:
        assert answer["info"] == "the workspace may have 5000 entities, and has 4999"
        one = workspace.value("memory_kg_add", subject="hub", predicate="is", object="newer")
        assert one["info"] == "triple added"


def test_fifty_thousand_triples_are_the_most(workspace: Workspace) -> None:
    fill(workspace, ((f"s{n % 250}", "p", f"o{n // 250}") for n in range(49_999)))
    assert add(workspace, "s1", "new", "o1")
    answer = workspace.value("memory_kg_add", subject="s1", predicate="newer", object="o1")
    assert answer["info"] == "the workspace has 50000 triples, the most it may have"
    assert add(workspace, "s1", "new", "o1")


@pytest.mark.parametrize("free", [0, 1, 5, 16])
def test_no_triple_too_many_is_stored_by_sixteen_at_once(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    monkeypatch.setattr(knowledge, "MAX_TRIPLES", 20 + free)
    fill(workspace, (("hub", "has", f"part {n}") for n in range(20)))
    ready = threading.Barrier(16)

    def one(n: int) -> str:
        ready.wait()
        told: str = workspace.value(
            "memory_kg_add", subject="hub", predicate="holds", object=f"part {n}"
        )["info"]
        return told

    with ThreadPoolExecutor(16) as pool:
        answers = Counter(pool.map(one, range(16)))
    full = f"the workspace has {20 + free} triples, the most it may have"
    assert answers == Counter({"triple added": free, full: 16 - free})
    assert workspace.value("memory_kg_stats")["triples"] == 20 + free
