from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from commonplace import Commonplace, Draft, Filters, Origin, Weighting
from commonplace.engine.binding import engine_call
from commonplace.engine.finding import filters
from commonplace.engine.maintenance import upkeep
from commonplace.errors import InvalidInput
from conftest import WordVectors, texts

ANN = Origin(user="ann", client="editor", tool="save", session="s1", url="https://e.org")


@pytest.fixture
def stocked(memory: Commonplace) -> Commonplace:
    memory.remember_many(
        [
            Draft(text="fern one", kind="decision", tags=["a", "b"], importance=0.9, origin=ANN,
                  occurred_at="2024-01-10", created_at="2025-03-01"),
            Draft(text="fern two", tags=["b"], credit=0.9, pinned=True, trust="inferred",
                  created_at="2024-01-15T12:00:00"),
            Draft(text="fern three", kind="fact", tags=["c"], state="dying", trust="external",
                  origin=Origin(user="bob", client="editor"), created_at="2024-02-01"),
            Draft(text="fern four", state="archived", tags=["a"]),
            Draft(text="fern five", state="superseded", kind="decision"),
            Draft(text="fern six", state="dead"),
        ]
    )  # fmt: skip
    return memory


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "one two three"),
    ({"kinds": ["decision"]}, "one"),
    ({"kinds": ["decision", "fact"]}, "one three"),
    ({"kinds": ["no-such-kind"]}, ""),
    ({"kinds": []}, ""),
    ({"without_kinds": ["note"]}, "one three"),
    ({"tags_any": ["a", "c"]}, "one three"),
    ({"tags_all": ["a", "b"]}, "one"),
    ({"tags_all": ["b"], "tags_any": ["a", "z"]}, "one"),
    ({"tags_any": ["z"]}, ""),
    ({"tags_any": ["A"]}, ""),
    ({"states": ["dying"]}, "three"),
    ({"states": ["archived", "dead"]}, "four six"),
    ({"states": ["superseded"]}, "five"),
    ({"states": []}, ""),
    ({"states": ["active", "archived"], "tags_any": ["a"]}, "one four"),
    ({"since": "2024-01-10", "until": "2024-01-15"}, "one two"),
    ({"until": "2024-01-10"}, "one"),
    ({"until": "2024-01-09"}, ""),
    ({"since": datetime(2024, 1, 15, 12, tzinfo=UTC)}, "two three"),
    ({"since": "2024-01-15T12:00:00.000001"}, "three"),
    ({"created_since": "2025-01-01"}, "one"),
    ({"created_until": "2024-01-31"}, "two"),
    ({"importance": 0.9}, "one"),
    ({"credit": 0.9}, "two"),
    ({"pinned": True}, "two"),
    ({"pinned": False}, "one three"),
    ({"origin": Origin(client="editor")}, "one three"),
    ({"origin": ANN}, "one"),
    ({"origin": Origin(user="ann", client="other")}, ""),
    ({"trust": ["stated"]}, "one"),
    ({"trust": ["inferred", "external"]}, "two three"),
    ({"trust": ["stated", "external"]}, "one three"),
    ({"trust": []}, ""),
    ({"speakers": ["Ann"]}, ""),
    ({"kinds": ["decision"], "tags_all": ["a"], "importance": 0.5, "origin": ANN}, "one"),
]


@pytest.mark.parametrize(
    "few", [0, filters.FEW_MEMORIES]
)  # labels by their list, or memory by memory
@pytest.mark.parametrize(("conditions", "expected"), FILTERS)
def test_every_way_of_finding_obeys_every_filter(
    stocked: Commonplace,
    monkeypatch: pytest.MonkeyPatch,
    conditions: dict[str, Any],
    expected: str,
    few: int,
) -> None:
    monkeypatch.setattr(filters, "FEW_MEMORIES", few)
    wanted = {f"fern {name}" for name in expected.split()}
    assert set(texts(stocked.recall("fern", **conditions))) == wanted
    found, count = stocked.browse(**conditions)
    assert set(texts(found)) == wanted
    assert count == len(wanted)
    found, count = stocked.find_text("fern", **conditions)
    assert set(texts(found)) == wanted
    assert count == len(wanted)
    as_of = stocked.recall("fern", as_of=datetime.now(UTC), **conditions)
    assert set(texts(as_of)) == wanted
    given = Filters(**conditions)
    assert set(texts(stocked.recall("fern", filters=given))) == wanted


@pytest.mark.parametrize(("conditions", "expected"), FILTERS)
def test_filters_decide_the_same_in_the_past(
    stocked: Commonplace, conditions: dict[str, Any], expected: str
) -> None:
    at = datetime.now(UTC)
    with stocked.unit("everything changes"):
        for each in stocked.browse(states=["active", "dying", "archived", "superseded", "dead"])[0]:
            changes = {"kind": "other", "tags": ["q"], "importance": 0.0, "credit": 0.0}
            stocked.revise(each.id, **changes, state="dead", pinned=not each.pinned)
    wanted = {f"fern {name}" for name in expected.split()}
    assert set(texts(stocked.recall("fern", as_of=at, **conditions))) == wanted


def test_ids_restrict_too(stocked: Commonplace) -> None:
    one, two = stocked.browse(limit=2)[0]
    for each in (one, two):
        assert texts(stocked.recall("fern", ids=[each.id])) == [each.text]
        assert texts(stocked.find_text("fern", ids=[each.id])) == [each.text]
    assert stocked.recall("fern", ids=[]) == []


def test_a_filter_given_twice_is_overridden_by_the_later_one(stocked: Commonplace) -> None:
    given = Filters(kinds=["decision"], tags_any=["b"])
    assert texts(stocked.recall("fern", filters=given, kinds=["note"])) == ["fern two"]


@pytest.mark.parametrize(
    "bad",
    [{"kinds": "decision"}, {"tags_any": [1]}, {"states": ["asleep"]}, {"states": "active"},
     {"importance": 2}, {"credit": "x"}, {"since": "then"}, {"trust": ["much"]}, {"ids": 5},
     {"colour": "red"}, {"tags_any": ["\ud800"]}, {"ids": ["\x00"]}, {"kinds": ["\ud800"]},
     {"pinned": "yes"}, {"origin": "ann"}, {"origin": Origin(user="\ud800")},
     {"speakers": ["\ud800"]}],
)  # fmt: skip
def test_a_filter_that_means_nothing_is_refused_by_name(
    stocked: Commonplace, bad: dict[str, Any]
) -> None:
    for call in (stocked.recall, stocked.find_text):
        with pytest.raises(InvalidInput) as caught:
            call("fern", **bad)
        assert str(caught.value.field).split(".")[0] == next(iter(bad))
    with pytest.raises(InvalidInput):
        stocked.browse(**bad)


@pytest.mark.parametrize("fusion", ["scores", "ranks"])
@pytest.mark.parametrize(
    "conditions",
    [{"tags_all": ["rare"]}, {"kinds": ["rare"]}, {"importance": 0.9}, {"trust": ["external"]},
     {"origin": Origin(user="rare")}, {"since": "2030-01-01"}],
)  # fmt: skip
def test_filters_apply_before_ranking_so_that_even_the_last_of_a_thousand_is_found(
    crowd: Commonplace, conditions: dict[str, Any], fusion: Any
) -> None:
    weighting = Weighting(fusion=fusion)
    unfiltered = texts(crowd.recall("harbour lights", limit=990, weighting=weighting, minimum=0))
    assert not [text for text in unfiltered if text.startswith("rare")]
    hits = crowd.recall("harbour lights", limit=3, weighting=weighting, minimum=0, **conditions)
    assert sorted(texts(hits)) == [
        "rare 0 lights and much else that has nothing to do with it, at great length",
        "rare 1 lights and much else that has nothing to do with it, at great length",
        "rare 2 lights and much else that has nothing to do with it, at great length",
    ]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Any:
    common = [Draft(text=f"harbour lights harbour lights {i}") for i in range(997)]
    rare = [
        Draft(text=f"rare {i} lights and much else that has nothing to do with it, at great length",
              tags=["rare"], kind="rare", importance=0.9, trust="external",
              origin=Origin(user="rare"), occurred_at="2031-01-01")
        for i in range(3)
    ]  # fmt: skip
    with Commonplace(tmp_path_factory.mktemp("crowd"), embedding=WordVectors()) as memory:
        memory.remember_many(common + rare)
        engine_call(memory, upkeep.embed_all)
        yield memory
