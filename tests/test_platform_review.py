"""Proposals wait in an inbox; every decision can be undone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from commonplace import Commonplace, InvalidInput, Line
from commonplace.cli.app import run
from commonplace.engine.library import Library
from commonplace.platform import review


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path / "data", embedding="none") as opened:
        yield opened


def say(memory: Commonplace, *texts: str, speaker: str = "user") -> int:
    lines = [Line(speaker=speaker, text=text, tags=["project:shop"]) for text in texts]
    return review.propose(memory, memory.conversations.add("talk", *lines))


def waiting(memory: Commonplace) -> list[str]:
    return sorted(each.text for each in review.pending_proposals(memory)[0])


def test_only_what_the_user_states_is_proposed_with_its_line(memory: Commonplace) -> None:
    assert say(memory, "Thanks. We decided to use Redis.", "What is Redis?") == 1
    assert say(memory, "We decided to use Redis.", speaker="assistant") == 0
    (proposal,), total = review.pending_proposals(memory)
    assert (total, proposal.text, proposal.trust) == (1, "We decided to use Redis.", "inferred")
    assert proposal.attrs["line"] == "Thanks. We decided to use Redis."
    assert proposal.tags == ("project:shop",)
    found = [hit.memory.kind for hit in memory.recall("Redis", limit=50)]
    assert found and "proposal" not in found, "what nobody approved is not recalled"


def test_an_acceptance_stores_it_and_undo_brings_the_proposal_back(memory: Commonplace) -> None:
    say(memory, "We decided to use Redis.", "Never push on Fridays.")
    (proposal,) = [each for each in review.pending_proposals(memory)[0] if "Redis" in each.text]
    stored = review.accept(memory, proposal.id)
    assert (stored.kind, stored.trust, stored.tags) == ("decision", "stated", ("project:shop",))
    (link,) = memory.links.of(stored.id)
    assert (link.kind, link.target) == ("derived_from", proposal.attrs["source"])
    assert waiting(memory) == ["Never push on Fridays."]
    memory.undo()
    assert waiting(memory) == ["Never push on Fridays.", "We decided to use Redis."]
    assert memory.browse(kinds=["decision"])[1] == 0
    assert review.accept(memory, proposal.id, "We use Redis 7.").text == "We use Redis 7."


def test_a_rejection_and_an_edit_can_be_undone(memory: Commonplace) -> None:
    say(memory, "Never push on Fridays.")
    (proposal,) = review.pending_proposals(memory)[0]
    review.edit(memory, proposal.id, "Never push on Sundays.")
    assert waiting(memory) == ["Never push on Sundays."]
    memory.undo()
    review.reject(memory, proposal.id)
    assert waiting(memory) == []
    for decide in (review.accept, review.reject):
        with pytest.raises(InvalidInput, match="already rejected"):
            decide(memory, proposal.id)
    memory.undo()
    assert waiting(memory) == ["Never push on Fridays."]


def test_everything_can_be_accepted_at_once_and_undone_at_once(memory: Commonplace) -> None:
    say(memory, *(f"We decided to use tool number {number}." for number in range(230)))
    assert review.accept_all(memory) == 230
    assert waiting(memory) == [] and memory.browse(kinds=["decision"])[1] == 230
    memory.undo()
    assert review.pending_proposals(memory)[1] == 230 and memory.browse(kinds=["decision"])[1] == 0


def test_a_library_can_accept_everything_as_soon_as_it_is_proposed(tmp_path: Path) -> None:
    library = Library(tmp_path / "data", embedder=None, auto_accept=True)
    with Commonplace(library=library) as memory:
        with memory.unit("capture"):
            assert say(memory, "We decided to use Redis.", "What is Redis?") == 1
        (stored,), _ = memory.browse(kinds=["decision"])
        assert (stored.text, stored.trust) == ("We decided to use Redis.", "stated")
        assert waiting(memory) == []
        memory.undo()
        assert memory.browse(kinds=["decision"])[1] == 0 and waiting(memory) == []
    library.close()


def test_other_memories_are_no_proposals(memory: Commonplace) -> None:
    stored = memory.remember("We decided to use Redis.")
    for decide in (review.accept, review.reject):
        with pytest.raises(InvalidInput, match="not a proposal"):
            decide(memory, stored.id)
    with pytest.raises(InvalidInput, match="not a proposal"):
        review.edit(memory, stored.id, "x")


def test_the_command_lists_accepts_edits_and_rejects(
    memory: Commonplace, capsys: pytest.CaptureFixture[str]
) -> None:
    say(memory, "We decided to use Redis.", "Never push on Fridays.", "I prefer tabs.")
    ids = {each.text: each.id for each in review.pending_proposals(memory)[0]}
    data = ["--data", str(memory.library.path), "--embedding", "none"]

    def do(*args: str) -> tuple[int, str, str]:
        code = run([*args, *data])
        told = capsys.readouterr()
        return code, told.out, told.err

    code, out, err = do("review")
    assert code == 0 and "3 waiting" in err and "We decided to use Redis." in out
    code, out, _ = do("review", "--json")
    kinds = sorted(json.loads(line)["kind"] for line in out.splitlines())
    assert kinds == ["decision", "preference", "rule"]
    assert "remembered" in do("review", "accept", ids["We decided to use Redis."][:8])[1]
    assert do("review", "edit", ids["I prefer tabs."], "--text", "I prefer spaces.")[0] == 0
    assert do("review", "reject", ids["Never push on Fridays."])[0] == 0
    code, out, _ = do("review")
    assert "I prefer spaces." in out and "Redis" not in out and "Fridays" not in out
    assert do("undo")[0] == 0
    assert "Fridays" in do("review")[1]
    assert "accepted 2" in do("review", "--auto-accept")[1]
    assert "there are no pending proposals" in do("review")[2]
    assert do("undo")[0] == 0
    left, right = (each.id for each in review.pending_proposals(memory)[0])
    assert do("review", "reject", right)[0] == 0
    code, out, err = do("review", "accept", left, right)
    assert (code, out) == (2, "") and "already rejected" in err
    assert [each.id for each in review.pending_proposals(memory)[0]] == [left], (
        "nothing was accepted"
    )
    assert "Omit it" in do("review", "accept", left, "--auto-accept")[2]
    for wrong in (["burn", "x"], ["accept"], ["edit", "abcd"], ["reject", "abcd", "--text", "x"]):
        assert do("review", *wrong)[0] == 2
