"""Misspelt words of a query, which the nearest word of the memories stands for."""

from __future__ import annotations

import pytest

from commonplace import Commonplace, Draft, Weighting
from commonplace.engine.finding.recall import WORDS_ONLY
from conftest import texts

NOTES = [
    "The staging cluster runs Kubernetes 1.29.",
    "Jonas is allergic to walnuts.",
    "We had lunch at the Ethiopian restaurant.",
    "Our trip down the Mississippi is in May.",
    "Maria lives in Porto.",
    "The invoices are in the accounting folder.",
]


@pytest.fixture
def notes(real: Commonplace) -> Commonplace:
    real.remember_many([Draft(text=text) for text in NOTES])
    return real


@pytest.mark.parametrize(
    ("query", "expected", "shown"),
    [
        ("What is Jonsa alergic to?", 1, "jonas (for Jonsa)"),  # exchanged
        ("Which restaraunt did we like?", 2, "restaurant (for restaraunt)"),  # two slips
        ("When is the missisipi trip?", 3, "mississippi (for missisipi)"),  # two letters left out
        ("Where are the invoicces?", 5, "invoices (for invoicces)"),  # one added
        ("Who looks after the kubermetes cluster?", 0, "kubernetes (for kubermetes)"),  # changed
    ],
)
def test_a_misspelt_word_finds_the_nearest_word_of_the_memories(
    notes: Commonplace, query: str, expected: int, shown: str
) -> None:
    hit = notes.recall(query)[0]
    assert hit.memory.text == NOTES[expected]
    assert shown in hit.why.words and shown in str(hit.why)


def test_without_a_model_too(memory: Commonplace) -> None:
    memory.remember_many([Draft(text=text) for text in NOTES])
    hits = memory.recall("restaraunt", weighting=WORDS_ONLY, minimum=0)
    assert texts(hits) == [NOTES[2]]


def test_the_word_itself_counts_more_than_its_neighbour(memory: Commonplace) -> None:
    memory.remember("The walnuts are in the cellar")
    right = memory.recall("the quinces and walnuts", minimum=0)
    wrong = memory.recall("the quinces and wallnuts", minimum=0)
    assert texts(right) == texts(wrong)
    assert wrong[0].similarity < right[0].similarity


@pytest.mark.parametrize(
    "query",
    [
        "What is the melting point of gallium?",
        "Who knits jumpers?",  # not Jonas
        "walmart",  # further away than one slip
        "onas",  # the first letter is never wrong
        "Jon",  # too short
        "Wo wohnt Marla mit den Kindern?",  # German, where unknown words are not mistakes
    ],
)
def test_other_unknown_words_stand_for_nothing(notes: Commonplace, query: str) -> None:
    hits = notes.recall(query, minimum=0)
    assert not any("(for " in str(hit.why) for hit in hits)


def test_a_known_english_word_is_no_mistake(notes: Commonplace) -> None:
    hits = notes.recall("Where does Marta live?", minimum=0)  # a name that the model knows
    assert not any("(for " in str(hit.why) for hit in hits)


def test_a_word_that_a_memory_holds_is_left_alone(notes: Commonplace) -> None:
    notes.remember("Jonsa is a village")
    hits = notes.recall("Where is Jonsa?", minimum=0)
    assert hits[0].memory.text == "Jonsa is a village"
    assert not any("(for " in str(hit.why) for hit in hits)


def test_silence_stays_about_things_that_are_not_there(notes: Commonplace) -> None:
    for query in (
        "Which walrus sings?",
        "How do I calibrate a sextant?",
        "Who wrote the Kalevala?",
    ):
        assert texts(notes.recall(query)) == []


def test_archived_words_are_no_neighbours(notes: Commonplace) -> None:
    (hit,) = notes.recall("Jonas walnuts", limit=1)
    notes.forget(hit.memory.id)
    hits = notes.recall("What is Jonsa eating?", minimum=0, weighting=Weighting(dense=0))
    assert not any("(for Jonsa)" in str(each.why) for each in hits)
