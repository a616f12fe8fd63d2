"""Calls at the same moment: each is decided by what is there when it writes."""

from __future__ import annotations

from functools import partial

from racing import overtaken

from .conftest import Mama


def test_a_decision_knows_how_long_its_chain_is_when_it_is_stored(wordy: Mama) -> None:
    save = partial(
        wordy.call, "save", type="decision", topic="auth", decision="Use JWT", reasoning="Stateless"
    )
    with overtaken(wordy.memory, save) as waiting:
        wordy.decide("auth", "Use sessions")
        wordy.decide("auth", "Use cookies")
    saved = waiting.result()
    assert saved["reasoning_graph"] == {"topic": "auth", "depth": 3, "latest": saved["id"]}


def test_an_outcome_keeps_what_was_written_to_the_decision_meanwhile(wordy: Mama) -> None:
    decision = wordy.decide("auth", "Use JWT")
    update = partial(wordy.call, "update", id=decision, outcome="failed", reason="Too large")
    with overtaken(wordy.memory, update) as waiting:
        memory = wordy.memory.get(decision)
        wordy.memory.revise(
            decision,
            tags=[*memory.tags, "reviewed"],
            attrs={**memory.attrs, "limitation": "mobile"},
        )
    assert waiting.result()["success"] is True
    memory = wordy.memory.get(decision)
    assert memory.attrs["limitation"] == "mobile"
    assert {"reviewed", "outcome:failed"} <= set(memory.tags)


def test_a_decision_that_was_forgotten_meanwhile_has_no_outcome(wordy: Mama) -> None:
    decision = wordy.decide("auth", "Use JWT")
    update = partial(wordy.failure, "update", id=decision, outcome="success")
    with overtaken(wordy.memory, update) as waiting:
        wordy.memory.forget(decision)
    assert waiting.result() == f"Error: Decision not found: {decision}"
    assert "outcome" not in wordy.memory.get(decision).attrs
