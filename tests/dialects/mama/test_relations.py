"""How decisions are related: chains of a topic, references, ranking, and what comes with a hit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from commonplace.dialects.mama import decisions, searching
from commonplace.engine.finding.ranking import recency_gauss

from .conftest import SEED_DECISION, Mama


def edges(mama: Mama) -> set[tuple[str, str, str]]:
    """(from, relationship, to) of the whole graph."""
    drawn = mama.operation("http_graph")["edges"]
    return {(edge["from"], edge["relationship"], edge["to"]) for edge in drawn}


def test_a_result_tells_its_relation_though_the_other_is_cut_off(mama: Mama) -> None:
    first = mama.decide("dinner", "Eat pasta", "The children like it")
    second = mama.decide("auth_v2", "Add OAuth2 support", f"builds_on: {first}")
    for limit, ids in ((1, [second]), (2, [second, first])):
        found = mama.call("search", query="auth_v2", limit=limit)["results"]
        assert [each["id"] for each in found] == ids
        last = found[-1]
        assert last["related_to"] == (first if limit == 1 else second)
        assert last["edge_reason"] == "Auto-detected from reasoning: builds_on reference"


def test_the_same_topic_supersedes_and_another_does_not(wordy: Mama) -> None:
    first, other = wordy.decide("a", "one"), wordy.decide("A", "elsewhere")
    second, third = wordy.decide("a", "two"), wordy.decide("a", "three")
    assert edges(wordy) == {(second, "supersedes", first), (third, "supersedes", second)}
    states = {each: wordy.memory.get(each).state for each in (first, second, third, other)}
    assert states == {
        first: "superseded", second: "superseded", third: "active", other: "active",
    }  # fmt: skip


def test_the_seeds_decision_with_an_edge(mama: Mama) -> None:
    first = mama.call("save", **SEED_DECISION)["id"]
    second = mama.decide(
        "auth_v2",
        "Add OAuth2 support alongside JWT",
        f"builds_on: {first}. Need social login for user growth while keeping API auth.",
    )
    assert edges(mama) == {(second, "builds_on", first)}
    found = {each["id"]: each for each in mama.found("authentication approach")}
    assert found[second]["related_to"] == first
    assert found[second]["edge_reason"] == "Auto-detected from reasoning: builds_on reference"
    assert "related_to" not in found[first]


@pytest.mark.parametrize(
    ("reasoning", "expected"),
    [
        ("builds_on: decision_a. Because.", [("builds_on", "decision_a")]),
        ("BUILDS_ON:decision_a", [("builds_on", "decision_a")]),
        ("**builds_on**: decision_a", [("builds_on", "decision_a")]),
        ("**debates:** decision_a", [("debates", "decision_a")]),
        ("- debates: `decision_a-1`, more", [("debates", "decision_a-1")]),
        (
            "synthesizes: [decision_a, decision_b]",
            [("synthesizes", "decision_a"), ("synthesizes", "decision_b")],
        ),
        (
            "synthesizes: decision_a , decision_b and",
            [("synthesizes", "decision_a"), ("synthesizes", "decision_b")],
        ),
        ("builds_on: decision_a를 따른다", [("builds_on", "decision_a")]),
        (
            "builds_on: decision_a debates: decision_b builds_on: decision_a",
            [("builds_on", "decision_a"), ("debates", "decision_b")],
        ),
        (
            "builds_on: 3f2a0000-0000-4000-8000-00000000000a",
            [("builds_on", "3f2a0000-0000-4000-8000-00000000000a")],
        ),
        ("rebuilds_on: decision_a", []),
        ("builds_on decision_a", []),
        ("builds_on: the decision", []),
        ("supersedes: decision_a", []),
        ("", []),
    ],
)
def test_references_are_read_from_the_reasoning(
    reasoning: str, expected: list[tuple[str, str]]
) -> None:
    assert decisions.references(reasoning) == expected


def test_a_hundred_references_are_read_and_no_more() -> None:
    many = "synthesizes: [" + ", ".join(f"decision_{n}" for n in range(101)) + "]"
    assert len(decisions.references(many)) == 100
    for hostile in ("builds_on" * 50_000, "synthesizes: [" * 50_000, "*" * 500_000, "a" * 900_000):
        assert decisions.references(hostile) == []


def test_a_reference_to_nothing_is_left_out(wordy: Mama) -> None:
    there = wordy.decide("a", "one")
    wordy.decide("b", "two", f"synthesizes: [decision_gone_1_abcd, {there}] builds_on: decision_x")
    assert {(kind, end) for _, kind, end in edges(wordy)} == {("synthesizes", there)}


def test_relatives_come_behind_the_hit_with_what_they_inherit(mama: Mama) -> None:
    base = mama.decide("zebra", "Paint stripes on the wall", "The room looks dull")
    later = mama.decide(
        "auth", "Use JWT with refresh tokens", f"Stateless authentication. builds_on: {base}"
    )
    against = mama.decide("pasta", "Cook it for nine minutes", f"debates: {later}")
    both = mama.decide("violin", "Tune to 442 Hz", f"synthesizes: [{later}, {base}]")
    found = mama.found("authentication with JWT tokens")
    shown = {each["id"]: each for each in found}
    assert found[0]["id"] == later
    assert (found[0]["graph_source"], found[0]["graph_rank"]) == ("primary", 1.0)
    similarity = found[0]["similarity"]
    expected = {
        base: ("builds_on", 0.75, 0.9),
        both: ("synthesized_by", 0.7, 0.88),
        against: ("debated_by", 0.65, 0.85),
    }
    assert [each["id"] for each in found[1:]] == list(expected)
    for identity, (source, rank, share) in expected.items():
        each = shown[identity]
        assert (each["graph_source"], each["graph_rank"]) == (source, rank)
        assert each["related_to"] == later
        assert each["similarity"] == pytest.approx(similarity * share, abs=0.001)
    assert mama.call("search", query="authentication with JWT tokens", limit=2)["count"] == 2


def test_a_chain_comes_with_the_hit(mama: Mama) -> None:
    first = mama.decide("layout", "Xylophone", "Mango.")
    second = mama.decide("layout", "Use a grid for the page layout", "Flexbox was too fragile.")
    found = mama.found("page layout with a grid")
    assert [each["id"] for each in found][:2] == [second, first]
    chained = found[1]
    assert (chained["graph_source"], chained["graph_rank"]) == ("supersedes_chain", 0.8)
    assert (chained["related_to"], chained["edge_reason"]) == (second, "Newer decision on layout")
    assert chained["similarity"] == pytest.approx(found[0]["similarity"] * 0.9, abs=0.001)


def test_what_was_forgotten_does_not_come_with_a_hit(mama: Mama) -> None:
    first = mama.decide("layout", "Xylophone", "Mango.")
    mama.decide("layout", "Use a grid for the page layout", "Flexbox was too fragile.")
    mama.memory.forget(first)
    assert first not in {each["id"] for each in mama.found("page layout with a grid")}


def test_recency_weighs_three_tenths(mama: Mama) -> None:
    with time_machine.travel(datetime.now(UTC) - timedelta(days=7), tick=True):
        old = mama.decide("colour", "Paint the kitchen wall blue", "It is calm")
    new = mama.decide("paint", "Paint the kitchen wall blue", "It is calm")
    found = {each["id"]: each for each in mama.found("which colour for the kitchen wall")}
    assert found[old]["recency_age_days"] == pytest.approx(7, abs=0.01)
    assert found[old]["recency_score"] == pytest.approx(0.4859, abs=0.002)
    assert found[new]["recency_score"] == pytest.approx(1, abs=0.001)
    for each in found.values():
        score = 0.7 * each["similarity"] + 0.3 * each["recency_score"]
        assert each["final_score"] == pytest.approx(score, abs=0.001)
    assert next(iter(found)) == new
    assert recency_gauss(7) == pytest.approx(0.4859, abs=0.001)


@pytest.mark.parametrize(
    ("query", "threshold"),
    [("one", 0.7), ("two words", 0.7), ("now three words", 0.6), ("a b c d", 0.6)],
)
def test_short_queries_must_match_better(query: str, threshold: float) -> None:
    assert searching.adaptive_threshold(query) == threshold


def test_what_is_below_the_threshold_is_not_shown(mama: Mama) -> None:
    mama.call("save", **SEED_DECISION)
    assert mama.found("authentication approach")
    assert mama.found("garden furniture") == []
    for found in mama.found("how do we let people sign in to the API"):
        assert found["similarity"] >= 0.6


def test_links_survive_versions(wordy: Mama) -> None:
    first, second = wordy.decide("a", "one"), wordy.decide("a", "two")
    third = wordy.decide("b", "three", f"builds_on: {second}")
    before = edges(wordy)
    assert before == {(second, "supersedes", first), (third, "builds_on", second)}
    for outcome in ("failed", "partial", "success"):
        for identity in (first, second, third):
            wordy.call("update", id=identity, outcome=outcome, reason="Seen.")
    assert edges(wordy) == before
    wordy.memory.undo()
    assert edges(wordy) == before
    assert len(wordy.memory.history.versions(third)) == 5


def test_undoing_a_save_gives_the_chain_its_end_back(wordy: Mama) -> None:
    first = wordy.decide("a", "one")
    wordy.decide("a", "two")
    wordy.memory.undo()
    assert wordy.memory.get(first).state == "active"
    third = wordy.decide("a", "three")
    assert edges(wordy) == {(third, "supersedes", first)}


def test_a_restored_decision_does_not_fork_its_chain(wordy: Mama) -> None:
    first, second = wordy.decide("a", "one"), wordy.decide("a", "two")
    wordy.memory.revise(first, state="active")
    third = wordy.decide("a", "three")
    assert edges(wordy) == {(second, "supersedes", first), (third, "supersedes", second)}
