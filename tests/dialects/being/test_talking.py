"""Talking with a being, from a terminal and over REST; its model service is on loopback."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.access.caller import ALL_SCOPES
from commonplace.access.credentials import Grant
from commonplace.cli.app import run
from commonplace.dialects.being import bridges, sight
from commonplace.engine.finding.filters import Filters

from .conftest import serving
from .model_server import ModelServer


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMMONPLACE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COMMONPLACE_EMBEDDING", "none")
    monkeypatch.delenv("COMMONPLACE_LLM_KEY", raising=False)
    assert run(["being", "create", "Nova"]) == 0
    return tmp_path / "data"


@pytest.fixture
def with_model(data: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    for name, value in {**model.environ(), "COMMONPLACE_LLM_KEY": "sk-of-operator"}.items():
        monkeypatch.setenv(name, value)

    def script(what: str, shown: Any) -> Any:
        if what == "extract":
            said = " ".join(each["content"] for each in shown)
            return {
                "scenes": [{"action": f"talked: {said}", "actors": ["Nova"], "when": ["2026-05-01"],
                            "importance": 0.8}]
            }  # fmt: skip
        return "I like walks." if what == "other" else {"keywords": []}

    model.script = script
    return model


def test_what_was_said_is_answered_stored_and_becomes_a_memory(
    with_model: ModelServer, data: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.StringIO("Do you like the sea?\nAnd walks?\n\n"))
    assert run(["being", "talk", "nova"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("Nova: I like walks.") == 2
    assert "4 messages stored, 1 scene" in shown.err
    told = [shown for what, shown in with_model.asked if what == "other"]
    assert "user: Do you like the sea?" in told[1] and told[1].endswith("user: And walks?")
    with Commonplace(data, embedding="none") as memory:
        nodes, _ = memory.browse(filters=Filters(kinds=[sight.NODE]))
        assert "talked: Do you like the sea? I like walks. And walks?" in nodes[0].text
        messages, _ = memory.browse(filters=Filters(tags_all=[sight.HISTORY_TAG]))
        assert len(messages) == 4


def test_one_message_is_answered_with_what_the_being_recalls(
    with_model: ModelServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Commonplace(data, embedding="none") as memory:
        memory.remember("The sea was cold in Brighton")
    assert run(["being", "talk", "Nova", "How", "was", "the", "sea?", "--json"]) == 0
    assert '"answer": "I like walks."' in capsys.readouterr().out
    # the same words once more are new messages, not a repetition
    assert run(["being", "talk", "Nova", "How", "was", "the", "sea?"]) == 0
    with Commonplace(data, embedding="none") as memory:
        assert memory.browse(filters=Filters(tags_all=[sight.HISTORY_TAG]))[1] == 4


def test_without_a_model_the_next_step_is_named(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["being", "talk", "Nova", "hello"]) == 2
    assert "commonplace being llm-key" in capsys.readouterr().err


def test_a_model_that_fails_stores_nothing(
    with_model: ModelServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_model.manners = ["401"]
    assert run(["being", "talk", "Nova", "hello"]) != 0
    assert "error:" in capsys.readouterr().err
    with Commonplace(data, embedding="none") as memory:
        assert memory.browse(filters=Filters(tags_all=[sight.HISTORY_TAG]))[1] == 0


def test_a_being_is_named_by_its_name_or_the_beginning_of_its_id(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["being", "list"])
    identity = capsys.readouterr().out.split()[-2]
    assert run(["being", "create", "nova"]) == 0
    assert "commonplace being talk" in capsys.readouterr().err
    assert run(["being", "delete", "nova"]) == 3
    assert "several beings" in capsys.readouterr().err
    assert run(["being", "delete", "Vega"]) == 3
    assert "no being" in capsys.readouterr().err
    assert run(["being", "delete", identity[:8]]) == 0


def test_over_rest_a_being_is_given_what_was_said_before_and_what_it_has_sensed(
    tmp_path: Path, with_model: ModelServer
) -> None:
    with serving(tmp_path / "served") as served:
        being = served.being()
        memory = Commonplace(library=served.made.parts.library)
        memory.events.record(bridges.SENSE_EVENT, being, {"data": "It rains in Brighton."})
        grant = Grant(scopes=ALL_SCOPES, dialects=frozenset({"being"}))
        token = served.made.parts.tokens.credentials.create(grant).token
        for text in ("Do you like the sea?", "And walks?"):
            told = served.request("POST", f"/v1/beings/{being}/talk", token, {"message": text})
            assert told.json() == {"being_id": being, "reply": "I like walks."}
        first, second = (shown for what, shown in with_model.asked if what == "other")
        assert "It rains in Brighton." in first and "It rains" not in second
        assert "user: Do you like the sea?\n\nassistant: I like walks.\n\n" in second
        assert second.endswith("user: And walks?")
        assert memory.browse(filters=Filters(tags_all=[sight.HISTORY_TAG]))[1] == 4
        assert memory.events.count(kind="being.llm", subject=being) == 2
