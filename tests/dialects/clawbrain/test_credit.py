"""Turns, outcomes, and what they do to credits."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from commonplace import Commonplace
from commonplace.cli.app import run
from commonplace.engine.binding import lease
from commonplace.engine.content import credit
from commonplace.engine.transfer.exporting import export_space
from commonplace.engine.transfer.importing import import_file
from commonplace.errors import InvalidInput

from .brain import Brain, opened


def score(brain: Brain, name: str) -> float:
    top = brain.call("credit_report", top_n=100)["top"]
    return next(each["score"] for each in top if each["name"] == name)


def test_a_retrieval_and_a_search_are_one_turn_each(brain: Brain) -> None:
    one, two = brain.store("one", "Harbour."), brain.store("two", "Harbour.")
    brain.call("memory_retrieve", id=one)
    brain.call("memory_search", query="harbour")

    turns = [(t.subject, t.payload) for t in brain.memory.events.all(kind="turn")]

    ids = [brain.memory.get(each, count=False).id for each in (one, two)]
    assert turns == [("local-session", {"ids": ids[:1]}), ("local-session", {"ids": ids[::-1]})]
    assert brain.memory.usage(two).accesses == 0, "a search does not count as an access"


def test_an_outcome_moves_the_credits_of_the_newest_open_turn(brain: Brain) -> None:
    for name in ("one", "two"):
        brain.store(name, "Harbour.")
    brain.call("memory_retrieve", id="entity-people-one")
    brain.call("memory_search", query="harbour")

    judged = credit.apply_outcome_to_turn(brain.memory, "user_correction", "local-session")

    after = 0.9 * 0.5 + 0.1 * -0.4 / math.sqrt(2)
    assert [round(one.after, 6) for one in judged] == [round(after, 6)] * 2
    assert score(brain, "one") == score(brain, "two") == round(after, 4)
    assert brain.memory.usage("entity-people-two").accesses == 1
    assert len(credit.apply_outcome_to_turn(brain.memory, "positive_feedback")) == 1, (
        "then the one before"
    )
    assert credit.apply_outcome_to_turn(brain.memory, "positive_feedback") == [], (
        "and then none is open"
    )
    changes = brain.memory.events.all(kind="credit")
    assert [(c.payload or {})["reward"] for c in changes] == [-0.4, -0.4, 0.3]


@pytest.mark.parametrize("others", [0, 60])
def test_a_turn_has_its_outcome_after_an_import_that_numbers_it_anew(
    tmp_path: Path, others: int
) -> None:
    file = tmp_path / "export.jsonl"
    with Commonplace(tmp_path / "old", embedding="none") as memory:
        gone = [memory.remember(f"one of many {n}").id for n in range(30)]
        one, two = memory.remember("Harbour.").id, memory.remember("Quay.").id
        for returned in (one, two):
            credit.record_turn(memory, "local-session", [returned])
        assert len(credit.apply_outcome_to_turn(memory, "tool_success")) == 1
        memory.purge(*gone)
        with lease(memory) as space, file.open("w") as written:
            export_space(space, written.write)
    with Commonplace(tmp_path / "new", embedding="none") as memory:
        for n in range(others):
            memory.remember(f"already here {n}")
        with lease(memory) as space:
            import_file(space, file, trust_file=True)
        assert [
            each.memory.id for each in credit.apply_outcome_to_turn(memory, "tool_success")
        ] == [one]
        assert credit.apply_outcome_to_turn(memory, "tool_success") == []


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        ("task_completed", 0.5),
        ("positive_feedback", 0.48),
        ("tool_success", 0.46),
        ("user_correction", 0.41),
        ("session_abandoned", 0.43),
    ],
)
def test_each_signal_has_its_reward(memory: object, signal: str, expected: float) -> None:
    from commonplace import Commonplace

    assert isinstance(memory, Commonplace)
    one = memory.remember("x", kind="entity")
    credit.record_turn(memory, "s", [one.id])

    (judged,) = credit.apply_outcome_to_turn(memory, signal, "s")

    assert judged.after == pytest.approx(expected)


def test_other_sessions_and_unknown_signals_change_nothing(brain: Brain) -> None:
    brain.store("one")
    brain.call("memory_retrieve", id="entity-people-one")

    assert credit.apply_outcome_to_turn(brain.memory, "task_completed", "another") == []
    with pytest.raises(InvalidInput, match="task_completed"):
        credit.apply_outcome_to_turn(brain.memory, "applause")
    assert score(brain, "one") == 0.5


def test_what_was_archived_since_is_left_out(brain: Brain) -> None:
    brain.store("one", "Harbour.")
    brain.store("two", "Harbour.")
    brain.call("memory_search", query="harbour")
    brain.call("memory_delete", id="entity-people-one")

    (judged,) = credit.apply_outcome_to_turn(brain.memory, "positive_feedback")

    assert judged.memory.ref == "entity-people-two"


def test_the_command_line_tells_of_an_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    with opened(tmp_path / "data", environ={"SESSION_ID": "mine"}) as brain:
        brain.store("one")
        brain.call("memory_retrieve", id="entity-people-one")
        brain.call("memory_retrieve", id="entity-people-one")
    assert run(["credit", "good", "--data", data, "--session", "other"]) == 1
    capsys.readouterr()

    assert run(["credit", "bad", "--data", data, "--session", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "id": "entity-people-one", "before": 0.5, "after": 0.41,
    }  # fmt: skip
    assert run(["credit", "good", "--data", data]) == 0
    assert "entity-people-one  0.410 → 0.399" in capsys.readouterr().out


def test_feedback_of_the_other_dialect_goes_by_the_same_rule(brain: Brain) -> None:
    own = brain.memory.get(brain.store("one"), count=False)
    other = brain.memory.remember("A note.")

    brain.call("feedback", ids=[own.id], useful=False)
    brain.call("feedback", ids=[other.id], useful=True)

    assert brain.memory.get(own.id).credit == pytest.approx(0.41)
    assert brain.memory.get(other.id).credit == pytest.approx(0.55), "others move towards 1"


def test_a_strategy_changes_the_rule_for_everybody(brain: Brain) -> None:
    own = brain.memory.get(brain.store("one"), count=False)
    brain.file("STRATEGY.md").write_text("alpha: 0.5\ncredit_update: additive\n")
    kept_until(brain, credit.Rule(0.5, 0.01, True))

    brain.call("feedback", ids=[own.id], useful=True)

    assert brain.memory.get(own.id).credit == pytest.approx(0.65)


def kept_until(brain: Brain, rule: credit.Rule) -> None:
    from conftest import wait_until

    wait_until(lambda: credit.read_rule(brain.memory) == rule)


def test_credits_fade_by_the_day(tmp_path: Path) -> None:
    began = datetime(2026, 2, 1, 12, tzinfo=UTC)
    with (
        time_machine.travel(began, tick=False) as clock,
        opened(tmp_path / "data") as brain,
    ):
        brain.store("one", "Harbour.")
        clock.move_to(began + timedelta(hours=23))
        assert score(brain, "one") == 0.5
        clock.move_to(began + timedelta(days=10, hours=1))
        faded = round(0.5 * math.exp(-0.1), 4)
        assert score(brain, "one") == faded
        (found,) = brain.call("memory_search", query="harbour")["results"]
        assert found["credit_score"] == faded
        assert found["combined_score"] == round(0.4 * 0.5 + 0.6 * 0.5 * math.exp(-0.1), 4)
        (judged,) = credit.apply_outcome_to_turn(brain.memory, "task_completed")
        assert judged.before == pytest.approx(0.5 * math.exp(-0.1))
    with (
        time_machine.travel(began + timedelta(days=11), tick=False),
        opened(tmp_path / "data") as b,
    ):
        assert [e.subject for e in b.memory.events.all(kind="lifecycle")] == ["decay"]
    with (
        time_machine.travel(began + timedelta(days=11.5), tick=False),
        opened(tmp_path / "data") as b,
    ):
        assert len(b.memory.events.all(kind="lifecycle", subject="decay")) == 1, "once a day"
