"""What is proposed of what people say: at least nine of ten proposals are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonplace.text.proposals import (
    MOST_CHARS,
    SENTENCE_CHARS,
    Proposal,
    find_proposals,
    proposal_in,
)

LINES = [
    tuple(line.split("|", 1))
    for line in (Path(__file__).parent / "proposal_lines.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def test_precision_is_at_least_90_percent_on_300_labelled_lines() -> None:
    assert len(LINES) >= 300 and len({text for _, text in LINES}) == len(LINES)
    proposed = [(kind, text) for kind, text in LINES if find_proposals(text)]
    right = [text for kind, text in proposed if kind != "-"]
    stated = [text for kind, text in LINES if kind != "-"]
    precision, recall = len(right) / len(proposed), len(right) / len(stated)
    assert precision >= 0.90, [text for kind, text in proposed if kind == "-"]
    assert recall >= 0.70, [text for text in stated if not find_proposals(text)]


def test_the_kind_is_right_too() -> None:
    found = [(kind, find_proposals(text)) for kind, text in LINES if kind != "-"]
    kinds = [(kind, made[0].kind) for kind, made in found if made]
    assert sum(label == kind for label, kind in kinds) >= 0.9 * len(kinds), [
        pair for pair in kinds if pair[0] != pair[1]
    ]


def test_a_message_gives_its_sentences_word_for_word() -> None:
    text = (
        "Thanks! By the way, we decided to use Redis. Can you fix the test? Never push on Fridays."
    )
    assert find_proposals(text) == [
        Proposal("decision", "We decided to use Redis."),
        Proposal("rule", "Never push on Fridays."),
    ]


@pytest.mark.parametrize(
    "text",
    ["", "   ", "```\nnever push to main ever\n```", "> we decided to use Redis",
     "    always run it first",
     "We decided to use Redis. " + "x" * MOST_CHARS,
     "We decided to use " + "Redis " * SENTENCE_CHARS],
    ids=lambda text: text[:16],
)  # fmt: skip
def test_code_quotations_and_long_texts_give_nothing(text: str) -> None:
    assert find_proposals(text) == []


def test_a_sentence_is_proposed_once() -> None:
    assert len(find_proposals("We decided to use Redis. We decided to use Redis.")) == 1
    assert proposal_in("Never") is None
