"""Calls at the same moment: each is decided by what is there when it writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from commonplace.access.caller import Caller
from commonplace.dialects.contract import RequestInfo
from commonplace.engine.content import credit
from racing import overtaken

from .brain import Brain, Refused


def after(brain: Brain, first: Callable[[], Any], tool: str, **arguments: Any) -> Any:
    """What a call answers that waited while `first` was done: its value, or the error's text."""
    with overtaken(brain.memory, partial(brain.call, tool, **arguments)) as waiting:
        first()
    error = waiting.exception()
    if error is None:
        return waiting.result()
    assert isinstance(error, Refused), error
    return str(error)


def archive(brain: Brain, identity: str) -> None:
    """What memory_delete does, without its wait for the files."""
    brain.memory.revise(identity, state="archived", ref=None)


def test_a_place_that_was_taken_meanwhile_is_named_with_what_to_do(brain: Brain) -> None:
    place = {"type": "entity", "category": "people", "name": "bob"}
    attrs = {"category": "people", "name": "bob"}
    first = partial(brain.memory.remember, "# Bob", kind="entity", title="bob",
                    ref="entity-people-bob", attrs=attrs)  # fmt: skip
    told = after(brain, first, "memory_store", **place, content="# Other")
    assert told.startswith("A memory already exists at entities/people/bob.md.")
    assert "memory_update with id entity-people-bob" in told


def test_an_update_keeps_what_was_written_to_the_memory_meanwhile(brain: Brain) -> None:
    alice = brain.store()
    one = brain.memory.get(alice)
    first = partial(brain.memory.revise, alice, attrs={**one.attrs, "promoted": True})
    assert after(brain, first, "memory_update", id=alice, content="# New")["updated"] is True
    changed = brain.memory.get(alice)
    assert (changed.text, changed.attrs["promoted"]) == ("# New", True)


def test_what_was_archived_meanwhile_is_neither_updated_nor_archived_again(brain: Brain) -> None:
    for tool, more in (("memory_update", {"content": "# New"}), ("memory_delete", {})):
        alice = brain.store()
        one = brain.memory.get(alice)
        told = after(brain, partial(archive, brain, alice), tool, id=alice, **more)
        assert told.startswith(f"There is no memory {alice}.")
        assert (brain.memory.get(one.id).text, brain.memory.get(one.id).state) == (
            "# Alice", "archived",
        )  # fmt: skip


def test_what_was_pinned_meanwhile_is_not_archived(brain: Brain) -> None:
    alice = brain.store()
    pin = partial(brain.memory.revise, alice, pinned=True)
    assert "is pinned" in after(brain, pin, "memory_delete", id=alice)
    assert brain.memory.get(alice).state == "active"


def test_compaction_adds_facts_to_the_text_that_an_update_wrote_meanwhile(brain: Brain) -> None:
    alice = brain.store("alice", "# Alice\n\n- Likes tea")
    episode = brain.store("talk", "- Alice moved to Lisbon in May", type="episode", tags=["alice"])
    brain.memory.revise(episode, credit=0.95)
    brain.sync()  # so that the thread that watches the files has nothing to write
    first = partial(brain.memory.revise, alice, text="# Alice\n\n- Likes coffee")
    assert after(brain, first, "memory_compact")["promoted"] == 1
    text = brain.memory.get(alice).text
    assert "Likes coffee" in text and "moved to Lisbon" in text


def test_an_answer_is_judged_once(brain: Brain) -> None:
    alice = brain.store()
    brain.call("memory_retrieve", id=alice)

    def judge() -> Any:
        outcome = brain.gate.perform(
            Caller(), RequestInfo(), "clawbrain", "record_outcome", {"signal": "task_completed"}
        )
        return outcome.wire["value"]["judged"]

    with overtaken(brain.memory, judge) as waiting:
        assert len(credit.apply_outcome_to_turn(brain.memory, "task_completed")) == 1
    assert waiting.result() == []
