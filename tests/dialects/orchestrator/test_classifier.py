"""The classifier, which knows what sort of thing a text tells."""

from __future__ import annotations

import pytest

from commonplace.dialects.orchestrator.classifier import classify, prose_of, split_segments


@pytest.mark.parametrize(
    ("text", "sort"),
    [
        ("We decided to use Postgres instead of Mongo because of transactions.", "decision"),
        ("I prefer tabs. Always use tabs, never use spaces; that is my rule.", "preference"),
        ("It finally works! We shipped version 2 and deployed it on Friday.", "milestone"),
        ("The build is broken: an error, then a crash, and the root cause is open.", "problem"),
        ("I feel so proud and grateful, I cried with joy when they came.", "emotional"),
        ("There was a crash and an error, a nasty bug; the fix was a lock. Resolved.", "milestone"),
    ],
)
def test_each_sort_is_recognised(text: str, sort: str) -> None:
    assert [one.memory_type for one in classify(text)][:1] == [sort]


def test_a_text_of_no_sort_has_none() -> None:
    assert classify("The harbour has nine quays and a lighthouse at its end.") == []


def test_confidence_is_the_score_of_five_and_grows_with_length() -> None:
    short = "We decided on it because it fits."  # two patterns of five
    assert classify(short) == []
    assert [one.confidence for one in classify(short, 0.3)] == [pytest.approx(0.4)]
    filler = "The quays lie along the water. " * 6
    longer = classify(f"{short} {filler}", 0.3)[0].confidence
    longest = classify(f"{short} {filler * 3}", 0.3)[0].confidence
    assert (longer, longest) == (pytest.approx(0.6), pytest.approx(0.8))
    many = "We decided: because, instead of, rather than, the reason, go with, trade-off."
    assert classify(many)[0].confidence == 1.0


def test_segments_under_twenty_characters_are_ignored() -> None:
    assert classify("because because", 0.1) == []


def test_turns_paragraphs_and_long_blocks_are_segments() -> None:
    talk = "Human: one\nmore\nAssistant: two\n> three"
    assert split_segments(talk) == ["Human: one\nmore", "Assistant: two", "> three"]
    assert split_segments("one\n\ntwo\n \nthree") == ["one", "two", "three"]
    assert len(split_segments("\n".join(f"line {n}" for n in range(60)))) == 3
    assert len(split_segments("\n".join(f"line {n}" for n in range(20)))) == 1


def test_code_does_not_count() -> None:
    code = "A note about the harbour here.\n```\nerror = crash(bug)\n```\ndef fail():\n"
    assert prose_of(code) == "A note about the harbour here."
    assert classify(code, 0.1) == []
