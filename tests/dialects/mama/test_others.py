"""One memory: what other contracts stored is found here, and what is stored here is found there."""

from __future__ import annotations

import pytest

from commonplace.engine.content.memories import Draft

from .conftest import SEED_CHECKPOINT, SEED_DECISION, Mama


@pytest.fixture
def note(ours: Mama) -> str:
    """A memory of our own dialect."""
    text = "Alice prefers passkeys for authentication."
    remembered = ours.wire("remember", text=text, title="Alice", importance=0.9)
    identity: str = remembered["structuredContent"]["id"]
    return identity


def test_free_search_shows_another_contracts_memory_in_this_shape(mama: Mama, note: str) -> None:
    (found,) = mama.found("authentication with passkeys")
    assert (found["id"], found["topic"], found["kind"]) == (note, "Alice", "note")
    assert found["decision"] == "Alice prefers passkeys for authentication."
    assert (found["reasoning"], found["outcome"], found["_type"]) == ("", None, "decision")
    assert [each["id"] for each in mama.call("search")["results"]] == [note]


def test_a_search_for_decisions_shows_decisions_only(mama: Mama, note: str) -> None:
    mine = mama.call("save", **SEED_DECISION)["id"]
    for query in ("", "authentication with passkeys or JWT tokens"):
        found = mama.call("search", query=query, type="decision")["results"]
        assert [each["id"] for each in found] == [mine]


def test_what_is_not_a_decision_is_not_changed(mama: Mama, note: str) -> None:
    text = mama.failure("update", id=note, outcome="success")
    assert text.startswith(f"Error: {note} is a memory of kind note, stored by remember")
    assert mama.memory.get(note).attrs == {}


def test_the_refusal_of_a_checkpoint_names_a_tool_that_can_help(mama: Mama) -> None:
    checkpoint = mama.call("save", **SEED_CHECKPOINT)["id"]
    assert mama.failure("update", id=checkpoint, outcome="success") == (
        "Error: checkpoint_1 is a memory of kind checkpoint, stored by save, not a decision."
        " Only decisions have an outcome. A search with the type 'decision' finds them."
    )


def test_a_decision_may_build_on_another_contracts_memory(mama: Mama, note: str) -> None:
    mine = mama.decide("login", "Offer passkeys at login", f"builds_on: {note}")
    drawn = mama.operation("http_graph")
    assert [(edge["from"], edge["to"]) for edge in drawn["edges"]] == [(mine, note)]


def test_the_graph_has_other_contracts_memories_as_nodes(mama: Mama, note: str) -> None:
    mine = mama.call("save", **SEED_DECISION)["id"]
    mama.call("save", **SEED_CHECKPOINT)
    mama.memory.links.add(note, mama.memory.get(mine).id, "supports", reason="As she said.")
    drawn = mama.operation("http_graph")
    nodes = {node["id"]: node for node in drawn["nodes"]}
    assert nodes.keys() == {note, mine}
    assert nodes[note]["kind"] == "note"
    assert "kind" not in nodes[mine]
    assert drawn["edges"] == [
        {"from": note, "to": mine, "relationship": "supports", "reason": "As she said."}
    ]
    alone = mama.operation("http_graph", topic="Alice")
    assert [node["id"] for node in alone["nodes"]] == [note]


def test_long_memories_of_other_contracts_leave_room_in_the_graph(mama: Mama) -> None:
    mine = mama.call("save", **SEED_DECISION)["id"]
    drafts = [Draft(text=f"{number} " + "long " * 80_000) for number in range(3)]
    long = mama.memory.remember_many(drafts)
    drawn = mama.operation("http_graph")
    assert {node["id"] for node in drawn["nodes"]} == {mine, *(each.id for each in long)}
    assert max(len(node["decision"]) for node in drawn["nodes"]) < 10_010


def test_similar_decisions_of_any_memory_can_be_asked_for(mama: Mama, note: str) -> None:
    mine = mama.decide("login", "Offer passkeys at login", "Alice prefers them")
    similar = mama.operation("http_similar", id=note)["similar"]
    assert [each["id"] for each in similar] == [mine]


def test_other_contracts_see_the_newest_decision_of_a_topic(mama: Mama, ours: Mama) -> None:
    mama.decide("caching", "Use Redis", "Fast in-memory cache")
    mama.decide("caching", "Switch to local LRU cache", "Redis added too much ops burden")
    found = ours.wire("recall", query="which cache do we use")["structuredContent"]["memories"]
    assert [each["text"] for each in found] == [
        "Topic: caching\nDecision: Switch to local LRU cache\n"
        "Reasoning: Redis added too much ops burden"
    ]
    assert (found[0]["kind"], found[0]["tags"], found[0]["trust"]) == (
        "decision", ["topic:caching"], "inferred",
    )  # fmt: skip


def test_a_decision_that_another_contract_rewrote_is_shown_as_it_is(mama: Mama) -> None:
    identity = mama.call("save", **SEED_DECISION)["id"]
    mama.memory.revise(identity, text="Use sessions after all.")
    (found,) = mama.call("search")["results"]
    assert (found["topic"], found["decision"], found["reasoning"]) == (
        "auth_strategy", "Use sessions after all.", "",
    )  # fmt: skip


def test_another_contracts_decision_is_one_here_too(mama: Mama, ours: Mama) -> None:
    stored = ours.wire("remember", text="We deploy on Fridays.", kind="decision")
    identity = stored["structuredContent"]["id"]
    mama.call("update", id=identity, outcome="failed", reason="It was a Friday.")
    (found,) = mama.call("search", type="decision")["results"]
    assert (found["id"], found["topic"], found["outcome"]) == (identity, "decision", "FAILED")


def test_a_decision_whose_tags_were_replaced_stays_in_its_topic(mama: Mama, ours: Mama) -> None:
    first = mama.decide("caching", "Use Redis")
    ours.wire("revise", id=mama.memory.get(first).id, tags=["important"])
    drawn = mama.operation("http_graph", topic="caching")
    assert [node["id"] for node in drawn["nodes"]] == [first]

    second = mama.decide("caching", "Switch to local LRU cache")
    drawn = mama.operation("http_graph", topic="caching")
    assert ([node["id"] for node in drawn["nodes"]], drawn["meta"]["total_nodes"]) == (
        [second, first], 2,
    )  # fmt: skip
    assert [(edge["from"], edge["to"]) for edge in drawn["edges"]] == [(second, first)]
    held = mama.memory.get(first)
    assert (held.state, list(held.tags)) == ("superseded", ["important", "topic:caching"])


def test_a_decision_with_as_many_tags_as_it_may_have_gets_an_outcome(mama: Mama) -> None:
    identity = mama.decide("deploying", "Deploy on Fridays")
    tags = ["topic:deploying", *(f"week-{number}" for number in range(99))]
    mama.memory.revise(identity, tags=tags)
    mama.call("update", id=identity, outcome="failed")
    assert mama.found("deploying")[0]["outcome"] == "FAILED"
    assert list(mama.memory.get(identity).tags) == tags


def test_another_contracts_checkpoint_can_be_resumed_until_it_is_done(
    mama: Mama, ours: Mama
) -> None:
    mama.call("save", type="checkpoint", summary="Earlier.")
    ours.wire("checkpoint", summary="The fence is half painted.", next=["the gate"])
    loaded = mama.call("load_checkpoint")["checkpoint"]
    assert loaded["summary"] == "The fence is half painted.\n- next: the gate"
    assert isinstance(loaded["id"], int)
    ours.wire("checkpoint", done=True)
    assert mama.call("load_checkpoint")["checkpoint"]["summary"] == "Earlier."


def test_a_checkpoint_is_resumed_however_many_were_done_since(mama: Mama) -> None:
    mama.call("save", type="checkpoint", summary="Earlier.")
    done = Draft(text="over", kind="checkpoint", attrs={"done": True})
    for count in (1, 50, 51):
        mama.memory.remember_many([done] * count)
        assert mama.call("load_checkpoint")["checkpoint"]["summary"] == "Earlier."


def test_what_was_forgotten_is_nowhere(mama: Mama, note: str) -> None:
    identity = mama.call("save", **SEED_DECISION)["id"]
    mama.memory.forget(note, identity)
    assert mama.call("search")["count"] == 0
    assert mama.found("authentication with passkeys or JWT") == []
    assert mama.operation("http_graph")["nodes"] == []
    assert "not found" in mama.failure("update", id=identity, outcome="success")


def test_a_checkpoint_that_another_contract_deleted_is_not_listed(mama: Mama, ours: Mama) -> None:
    mama.call("save", type="checkpoint", summary="Kept.")
    ours.wire("checkpoint", summary="Forgotten.")
    (newest,), _ = mama.memory.browse(kinds=["checkpoint"], limit=1)
    mama.memory.forget(newest.id)
    listed = mama.operation("http_checkpoints")
    assert ([each["summary"] for each in listed["checkpoints"]], listed["count"]) == (["Kept."], 1)


def test_reading_here_counts_as_reading(mama: Mama, note: str) -> None:
    mama.found("authentication with passkeys")
    assert mama.memory.usage(note).accesses == 1
