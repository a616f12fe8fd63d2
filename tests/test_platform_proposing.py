"""Proposals from conversations that are stored already, with and without a language model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from commonplace import Commonplace, Line
from commonplace.cli.app import run
from commonplace.platform import llm, review
from commonplace.platform.proposing import find_statements
from dialects.being.model_server import ModelServer, model_server


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path / "data", embedding="none") as opened:
        lines = ["We decided to use Redis.", "My sister breeds\nherons. Do you like them?"]
        said = [Line(speaker="user", text=text, tags=["project:shop"]) for text in lines]
        said.append(Line(speaker="assistant", text="We decided to use Postgres."))
        opened.conversations.add("imported", *said)
        yield opened


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with model_server() as served:
        yield served


def access(model: ModelServer) -> llm.Access:
    return llm.Access("k", "openai", "m", f"{model.url}/v1")


def waiting(memory: Commonplace) -> list[str]:
    return sorted(each.text for each in review.pending_proposals(memory.within(None))[0])


def found(*chosen: tuple[int, str]) -> dict[str, object]:
    return {"found": [{"line": n, "kind": "fact", "sentence": text} for n, text in chosen]}


def test_stored_conversations_are_proposed_from_once(memory: Commonplace) -> None:
    assert review.propose_from_stored(memory) == 1
    assert waiting(memory) == ["We decided to use Redis."]
    assert review.propose_from_stored(memory) == 0
    (proposal,), _ = review.pending_proposals(memory)
    assert proposal.tags == ("project:shop",)
    review.reject(memory, proposal.id)
    assert review.propose_from_stored(memory) == 0, "a decision stays"


def test_more_lines_than_a_batch_are_all_looked_at(
    memory: Commonplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review, "BATCH_MESSAGES", 2)
    lines = [Line(speaker="user", text=f"We decided to use port {n}.") for n in range(5)]
    memory.conversations.add("more", *lines)
    assert review.propose_from_stored(memory) == 6


def test_a_model_chooses_sentences_and_cannot_write_any(
    memory: Commonplace, model: ModelServer
) -> None:
    model.script = lambda what, shown: found(
        (0, "We decided to use Redis."), (1, "My sister breeds herons."), (1, "I breed herons."),
        (7, "My sister breeds herons."), (-1, "Do you like them?"), (1, " "),
    )  # fmt: skip
    find = partial(find_statements, access(model))
    assert review.propose_from_stored(memory, find) == 2
    assert waiting(memory) == ["My sister breeds herons.", "We decided to use Redis."]
    assert review.propose_from_stored(memory, find) == 0
    assert all("Postgres" not in str(shown) for _, shown in model.asked)


@pytest.mark.parametrize("manner", ["401", "garbage", "empty"])
def test_a_model_that_misbehaves_proposes_nothing(
    memory: Commonplace, model: ModelServer, manner: str
) -> None:
    model.manners = [manner]
    with pytest.raises(llm.ModelUnavailable):
        review.propose_from_stored(memory, partial(find_statements, access(model)))
    assert waiting(memory) == []


def test_the_command_proposes_and_needs_a_model_only_if_asked(
    memory: Commonplace, model: ModelServer, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    at = ["--data", str(memory.library.path), "--embedding", "none"]
    assert run(["review", "propose", *at]) == 0
    assert capsys.readouterr().out == "proposed 1\n"
    assert run(["review", "propose", "--with-model", *at]) == 2
    assert "needs a key for a language model" in capsys.readouterr().err
    for wrong in (["accept", "x", "--with-model"], ["--with-model"], ["propose", "x"]):
        assert run(["review", *wrong, *at]) == 2
    capsys.readouterr()
    monkeypatch.setenv("COMMONPLACE_LLM_OPENAI_URL", f"{model.url}/v1")
    model.script = lambda what, shown: found((1, "My sister breeds herons."))
    assert run(["review", "propose", "--with-model", "--json", *at]) == 0
    assert capsys.readouterr().out == '{"proposed": 1}\n'
    assert len(waiting(memory)) == 2
