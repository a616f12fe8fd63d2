from __future__ import annotations

import pytest

from commonplace import Commonplace, Draft, Line
from commonplace.engine.finding.confidence import MINIMUM
from commonplace.engine.finding.recall import PROMPT_WORDS, prompt_query
from commonplace.errors import InvalidInput
from conftest import texts

BELIEFS = [
    "The user drinks oat milk cappuccino.",
    "The user's son Jonas is allergic to walnuts.",
    "CI runs on GHA with self-hosted runners.",
    "The servers run Debian 12.",
    "Error E4417 means that the licence server cannot be reached.",
    "The family dog is a border collie called Pepper.",
]


@pytest.fixture
def beliefs(real: Commonplace) -> Commonplace:
    real.remember_many([Draft(text=text) for text in BELIEFS])
    return real


@pytest.mark.parametrize(
    "query",
    ["Who painted the Mona Lisa?", "What is the capital of Australia?", "Explain relativity."],
)
def test_nothing_is_returned_for_a_question_about_something_else(
    beliefs: Commonplace, query: str
) -> None:
    assert texts(beliefs.recall(query)) == []
    assert beliefs.recall(query, minimum=0) != []
    assert beliefs.recall_for_prompt(query) == []


def test_a_question_gets_what_answers_it_and_nothing_else(beliefs: Commonplace) -> None:
    hits = beliefs.recall("What is Jonas allergic to?")
    assert texts(hits) == [BELIEFS[1]]
    assert hits[0].probability > 0.9


@pytest.mark.parametrize(("query", "expected"), [("GHA", 2), ("why do I see E4417", 4)])
def test_an_exact_rare_word_is_a_hit(beliefs: Commonplace, query: str, expected: int) -> None:
    hits = beliefs.recall(query)
    assert hits[0].memory.text == BELIEFS[expected]
    assert hits[0].probability >= 0.9


def test_a_share_of_the_best_score_leaves_out_what_is_much_worse(beliefs: Commonplace) -> None:
    everything = beliefs.recall("What is Jonas allergic to?", minimum=0)
    best = everything[0].score
    for share in (0.0, 0.1, 0.5, 1.0):
        hits = beliefs.recall("What is Jonas allergic to?", minimum=0, share=share)
        assert texts(hits) == texts(h for h in everything if h.score >= share * best)


@pytest.mark.parametrize("name", ["minimum", "share"])
@pytest.mark.parametrize("bad", [-0.01, 1.01, "much", True])
def test_limits_are_shares(memory: Commonplace, name: str, bad: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        memory.recall("walrus", **{name: bad})  # type: ignore[arg-type]
    assert caught.value.field == name


def test_a_prompt_with_several_topics_gets_several_answers(beliefs: Commonplace) -> None:
    prompt = (
        "Please order a coffee for me. What should I cook, given that Jonas is allergic to nuts?"
    )
    found = texts(beliefs.recall_for_prompt(prompt))
    assert BELIEFS[1] in found
    assert BELIEFS[3] not in found


def test_any_prompt_can_be_asked(beliefs: Commonplace) -> None:
    assert beliefs.recall_for_prompt("") == []
    assert beliefs.recall_for_prompt("?!") == []
    long = "Refactor this function. " * 5_000 + "Which dog does the family have?"
    assert len(prompt_query(long).split()) <= PROMPT_WORDS
    assert len(prompt_query("word " * 5_000).split()) == PROMPT_WORDS
    assert prompt_query("One two. Three four. Five six.") == "One two. Three four. Five six."
    assert BELIEFS[5] in texts(beliefs.recall_for_prompt(long))


@pytest.mark.parametrize("prompt", ["continue", "Continue.", "yes please", "go on", "fix it", "ok"])
def test_a_prompt_that_asks_for_nothing_gets_nothing(beliefs: Commonplace, prompt: str) -> None:
    beliefs.remember("Let us continue on Monday, yes, and fix it before we go.")
    assert beliefs.recall_for_prompt(prompt) == []
    assert beliefs.recall_for_prompt("Monday")


@pytest.mark.parametrize(
    "question",
    [
        "How many days after the talk on beekeeping did Ann paint the kayak green?",
        "Which office did the club ask for a permit to bake bread on the shore?",
        "Did the lathe in the cellar need a permit after Ann moved?",
    ],
)
def test_a_question_whose_words_stand_in_several_memories_is_not_answered_by_one(
    real: Commonplace, question: str
) -> None:
    for text in (
        "The workshop has a new lathe.", "The kayak club meets on Sundays.",
        "Green paint is in the cellar.", "Fresh bread is baked on Fridays.",
        "Beekeeping needs a permit here.", "Ann moved her boat to the other shore.",
        "The permit office closes at noon.", "He fell asleep during the long talk on taxes.",
    ):  # fmt: skip
        real.remember(text)
    assert real.recall(question) == []
    assert real.recall("When does the kayak club meet?")


TALK = (
    "Shall I order the pizza now?",
    "Yes please.",
    "The printer in the hall is broken again.",
    "I will call the repair shop.",
)


def test_a_line_that_stands_beside_a_result_has_the_probability_of_its_own_text(
    beliefs: Commonplace,
) -> None:
    lines = [Line(speaker="Ann", text=text, session="s") for text in TALK]
    beliefs.conversations.add("talk", *lines)
    first, second = beliefs.recall("is the printer broken?")
    assert (first.memory.text, second.memory.text) == TALK[2:]
    assert (first.companion, second.companion) == ("", "beside")
    assert first.probability > 0.9
    assert second.probability < MINIMUM
    assert "beside a result" in str(second.why)


def test_lines_that_both_answer_are_no_companions(beliefs: Commonplace) -> None:
    said = ["The printer in the hall is broken again.", "The broken printer is in the hall."]
    beliefs.conversations.add("talk", *(Line(speaker="Ann", text=t, session="s") for t in said))
    hits = beliefs.recall("is the printer in the hall broken?")
    assert [hit.companion for hit in hits] == ["", ""]
    assert all(hit.probability > 0.9 for hit in hits)


def test_a_line_whose_neighbour_is_not_returned_keeps_their_common_probability(
    beliefs: Commonplace,
) -> None:
    beliefs.conversations.add("talk", *(Line(speaker="Ann", text=t, session="s") for t in TALK))
    all_of_it = beliefs.recall("is the printer broken?")
    (only,) = beliefs.recall("is the printer broken?", ids=[all_of_it[1].memory.id])
    assert only.companion == ""
    assert only.probability >= MINIMUM


def test_a_memory_that_is_linked_with_a_result_has_the_probability_of_its_own_text(
    beliefs: Commonplace,
) -> None:
    found = beliefs.recall("Which Debian do the servers run?")[0].memory
    budget = beliefs.remember("Ask Miriam before you touch the budget sheet.")
    plain = beliefs.recall("Which Debian do the servers run?")
    beliefs.links.add(found.id, budget.id, "relates_to", weight=1.0)
    first, second = beliefs.recall("Which Debian do the servers run?")
    assert first.probability == plain[0].probability
    assert (first.companion, second.companion) == ("", "linked")
    assert second.memory.id == budget.id
    assert second.probability < MINIMUM
    assert "linked with a result" in str(second.why)


def test_a_linked_memory_that_answers_too_is_no_companion(beliefs: Commonplace) -> None:
    servers = beliefs.recall("Which Debian do the servers run?")[0].memory
    other = beliefs.remember("The build servers run Debian 11.")
    beliefs.links.add(servers.id, other.id, "relates_to", weight=1.0)
    hits = beliefs.recall("Which Debian do the servers run?")
    assert {hit.memory.id: hit.companion for hit in hits} == {servers.id: "", other.id: ""}


def test_a_link_from_a_memory_that_does_not_answer_leads_to_no_result(
    beliefs: Commonplace,
) -> None:
    asked = "Which Debian do the servers run?"
    (found,) = beliefs.recall(asked)
    one = beliefs.remember("Ask Miriam before you touch the budget sheet.")
    other = beliefs.remember("Miriam keeps the budget in euros.")
    beliefs.links.add(one.id, other.id, "relates_to", weight=1.0)
    assert texts(beliefs.recall(asked)) == [found.memory.text]
    beliefs.links.add(found.memory.id, one.id, "relates_to", weight=1.0)
    assert texts(beliefs.recall(asked)) == [found.memory.text, one.text]
