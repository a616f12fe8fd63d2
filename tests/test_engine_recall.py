from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from commonplace import Commonplace, Draft, Line, Weighting
from commonplace.engine.binding import engine_call
from commonplace.engine.finding.likeness import similarity
from commonplace.engine.finding.recall import MEANING_ONLY, WORDS_ONLY
from commonplace.engine.maintenance.upkeep import embed_all
from commonplace.errors import InvalidInput
from conftest import WordVectors, texts

LIFE = [
    "Alice moved to the vision team in March",
    "The database migration runs every Sunday night",
    "Bob is allergic to peanuts",
    "Our office in Lisbon closed last year",
    "The cat sleeps on the radiator",
    "Invoices are sent on the first of the month",
    "We chose PostgreSQL because of its JSON support",
    "The train to Vienna leaves at seven",
    "Grandmother's soup needs fresh dill",
    "The backup disk is in the lower drawer",
]


@pytest.fixture
def life(real: Commonplace) -> Commonplace:
    real.remember_many([Draft(text=text) for text in LIFE])
    return real


def test_an_embedder_may_return_numbers_of_another_type(tmp_path: Path) -> None:
    class Doubles(WordVectors):
        def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[Any]:
            return super().embed(texts, query=query).astype(np.float64)

    with Commonplace(tmp_path / "data", embedding=Doubles(meanings={"tea": "drink"})) as memory:
        memory.remember_many([Draft(text=text) for text in (*LIFE, "Nobody offers tea")])
        hits = memory.recall("drink", minimum=0)
        assert (hits[0].memory.text, hits[0].why.dense_rank) == ("Nobody offers tea", 1)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("who works on images and cameras?", LIFE[0]),
        ("food intolerance of a colleague", LIFE[2]),
        ("pet feline warm place", LIFE[4]),
        ("when do we bill customers?", LIFE[5]),
        ("railway departure time", LIFE[7]),
        ("cooking ingredient herbs", LIFE[8]),
    ],
)
def test_the_right_memory_is_found_by_meaning(life: Commonplace, query: str, expected: str) -> None:
    hits = life.recall(query, minimum=0)
    assert hits[0].memory.text == expected
    assert hits.degraded == ""
    assert hits[0].why.dense_rank == 1
    assert all(0 <= hit.score <= 1 for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("peanuts", LIFE[2]),
        ("POSTGRESQL", LIFE[6]),
        ("invoice", LIFE[5]),
        ("Lisbon office", LIFE[3]),
    ],
)
def test_the_right_memory_is_found_by_word(life: Commonplace, query: str, expected: str) -> None:
    hit = life.recall(query)[0]
    assert hit.memory.text == expected
    assert hit.why.lexical_rank == 1
    assert hit.why.lexical == pytest.approx(1.0)


def test_every_hit_says_why_it_came(memory: Commonplace) -> None:
    memory.remember("red apples and green apples")
    memory.remember("red cars", title="green wheels")
    memory.remember("blue sky")
    hits = memory.recall("Green apples, red?")
    assert texts(hits) == ["red apples and green apples", "red cars"]
    assert set(hits[0].why.words) == {"Green", "apples", "red"}
    assert set(hits[1].why.words) == {"Green", "red"}
    assert [hit.why.lexical_rank for hit in hits] == [1, 2]
    assert [hit.why.dense_rank for hit in hits] == [None, None]
    assert hits[0].why.lexical == 1.0 > hits[1].why.lexical > 0
    assert hits[0].similarity == pytest.approx(1.0), "without vectors: the share of the words"
    shown = str(hits[0].why)
    assert "rank 1" in shown
    assert "apples" in shown
    assert hits[1].why.as_dict()["lexical_rank"] == 2


def test_ranks_in_explanations_are_those_of_each_leg(
    tmp_path: Path,
) -> None:
    meanings = {"felin": "cat", "kitten": "cat"}
    with Commonplace(tmp_path, embedding=WordVectors(meanings=meanings)) as memory:
        memory.remember("cat")
        memory.remember("feline kitten")
        memory.remember("cat with a very long tail of other words behind it")
        memory.remember("stone")
        hits = {hit.memory.text: hit.why for hit in memory.recall("cat")}
        assert hits["cat"].lexical_rank == 1
        assert hits["cat with a very long tail of other words behind it"].lexical_rank == 2
        assert hits["feline kitten"].lexical_rank is None
        assert hits["feline kitten"].words == ()
        assert hits["cat"].dense_rank == hits["feline kitten"].dense_rank == 1
        assert hits["cat"].similarity == pytest.approx(1, abs=0.02)
        assert hits["stone"].dense_rank == 4 if "stone" in hits else True


def test_titles_tags_and_dates_find_a_memory_too(memory: Commonplace) -> None:
    memory.remember("plain", title="About walruses", tags=["zoology"], occurred_at="2023-05-08")
    memory.remember("other")
    for query in ("walrus", "zoology", "what happened in May 2023"):
        assert texts(memory.recall(query)) == ["plain"], query


def test_a_linked_memory_is_found_without_a_word_in_common(memory: Commonplace) -> None:
    one = memory.remember("the walrus project")
    two = memory.remember("budget approved")
    memory.remember("unrelated")
    memory.links.add(two.id, one.id, "about", weight=0.9)
    hits = memory.recall("walrus")
    assert texts(hits) == ["the walrus project", "budget approved"]
    assert hits[1].why.words == ()
    assert hits[1].why.graph > 0
    assert "links" in str(hits[1].why)
    assert texts(memory.recall("walrus", weighting=Weighting(graph=0))) == ["the walrus project"]
    memory.forget(two.id)
    assert texts(memory.recall("walrus")) == ["the walrus project"]


def test_a_stronger_link_hands_on_more(memory: Commonplace) -> None:
    one = memory.remember("the walrus project")
    weak, strong = memory.remember("weakly"), memory.remember("strongly")
    memory.links.add(one.id, weak.id, "about", weight=0.2)
    memory.links.add(one.id, strong.id, "about", weight=0.8)
    hits = memory.recall("walrus", minimum=0)
    assert texts(hits) == ["the walrus project", "strongly", "weakly"]
    assert hits[1].why.graph == pytest.approx(4 * hits[2].why.graph)


def test_recency_importance_and_credit_count_where_the_weighting_asks(memory: Commonplace) -> None:
    now = datetime.now(UTC)
    memory.remember("fern old", created_at=now - timedelta(days=300), importance=0.5, credit=0.9)
    memory.remember("fern mid", occurred_at=now - timedelta(days=30), importance=0.9, credit=0.1)
    memory.remember("fern new", importance=0.1, credit=0.5)

    def first(**weights: float) -> list[str]:
        return texts(memory.recall("fern", weighting=Weighting(**weights)))  # type: ignore[arg-type]

    assert first(recency=1) == ["fern new", "fern mid", "fern old"]
    assert first(importance=1) == ["fern mid", "fern old", "fern new"]
    assert first(credit=1) == ["fern old", "fern new", "fern mid"]
    score = {
        hit.memory.text: hit.score
        for hit in memory.recall("fern", weighting=Weighting(recency=1.0, recency_days=30))
    }
    plain = {hit.memory.text: hit.score for hit in memory.recall("fern")}
    assert score["fern new"] == pytest.approx((plain["fern new"] + 1) / 2, abs=1e-3)
    assert score["fern mid"] == pytest.approx((plain["fern mid"] + 0.5) / 2, abs=1e-3)


def test_rank_fusion_scores_first_place_in_both_legs_one(vectored: Commonplace) -> None:
    for text in ("walrus", "walrus and seal", "seal", "stone"):
        vectored.remember(text)
    hits = vectored.recall("walrus", weighting=Weighting(fusion="ranks", lexical=0.5, dense=0.5))
    assert hits[0].memory.text == "walrus"
    assert hits[0].score == pytest.approx(1.0)
    second = hits[1]
    assert second.memory.text == "walrus and seal"
    assert second.score == pytest.approx(61 / 62, abs=1e-3)


def test_one_leg_can_be_asked_alone(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding=WordVectors(meanings={"felin": "cat"})) as memory:
        memory.remember("feline")
        memory.remember("cat food and dog food and bird food")
        assert texts(memory.recall("cat", weighting=WORDS_ONLY)) == [
            "cat food and dog food and bird food"
        ]
        assert texts(memory.recall("cat", weighting=MEANING_ONLY))[0] == "feline"


def test_a_long_text_is_found_by_its_best_passage(real: Commonplace) -> None:
    filler = "The committee met again and discussed the schedule of the coming quarter. " * 25
    hidden = "The golden retriever swam across the lake to fetch a wooden stick. "
    real.remember(filler + hidden + filler, title="Minutes")
    real.remember("Printers need paper and toner")
    real.remember(filler)
    hits = real.recall("dog swimming in the water", weighting=MEANING_ONLY, minimum=0)
    assert hits[0].memory.text == filler + hidden + filler
    alike = {hit.memory.text: hit.similarity for hit in hits}
    assert alike[filler + hidden + filler] > alike.get(filler, 0.0) + 0.1


def test_limits_of_a_search(memory: Commonplace) -> None:
    for i in range(30):
        memory.remember(f"walrus {i}")
    assert len(memory.recall("walrus")) == 10
    assert len(memory.recall("walrus", limit=1)) == 1
    assert len(memory.recall("walrus", limit=1_000)) == 30
    for bad in (0, 1_001, "5", True):
        with pytest.raises(InvalidInput):
            memory.recall("walrus", limit=bad)  # type: ignore[arg-type]
    for query in ("", "x" * 10_001, "\ud800", "a\x00b", None):
        with pytest.raises(InvalidInput) as caught:
            memory.recall(query)  # type: ignore[arg-type]
        assert caught.value.field == "query"
    assert memory.recall("q" * 10_000) == []


@pytest.mark.parametrize(
    "query",
    ['"', '""', "a AND", "NEAR(a b, 2)", "*", "walrus*", "col:walrus", "-walrus", "^", "(walrus",
     "'; DROP TABLE memories; --", "%", "_", "\\", "{}", "walrus OR 1=1", "🦭", "…", "?",
     " walrus "],
)  # fmt: skip
def test_hostile_syntax_is_just_text(memory: Commonplace, query: str) -> None:
    memory.remember("walrus")
    hits = memory.recall(query)
    assert texts(hits) in (["walrus"], [])
    if "walrus" in query:
        assert texts(hits) == ["walrus"]


def test_nothing_matches_where_nothing_is_alike(memory: Commonplace) -> None:
    assert memory.recall("anything") == []
    memory.remember("walrus")
    assert memory.recall("completely different") == []
    assert memory.recall("the of and") == []


def test_ties_go_to_the_newer_and_results_never_change_by_chance(memory: Commonplace) -> None:
    for i in range(40):
        memory.remember("walrus", attrs={"i": i})
    order = [hit.memory.attrs["i"] for hit in memory.recall("walrus", limit=20)]
    assert order == list(range(39, 19, -1))
    assert [hit.memory.attrs["i"] for hit in memory.recall("walrus", limit=2)] == [39, 38]


def test_similarity_is_calibrated_where_the_model_knows_and_by_words_elsewhere(
    real: Commonplace,
) -> None:
    near, far = engine_call(
        real,
        similarity,
        "We use JWT tokens for login",
        ["Authentication is done with JWT", "The soup needs dill"],
    )
    assert near > 0.6 > 0.35 > far
    same, other = engine_call(
        real, similarity, "東京で会議がある", ["東京で会議がある", "猫が好きです"]
    )
    assert same == pytest.approx(1.0, abs=0.001)
    assert other < 0.35
    same, other = engine_call(
        real, similarity, "Συνάντηση στην Αθήνα", ["Συνάντηση στην Αθήνα", "Μου αρέσουν οι γάτες"]
    )
    assert (same, other) == (1.0, 0.0)
    assert engine_call(real, similarity, "x", []) == []


def test_the_same_question_asked_before_goes_behind_its_answer(life: Commonplace) -> None:
    asked = "When does the train to Vienna leave?"
    for session in ("a", "b"):
        life.conversations.add("chat", Line(speaker="user", text=asked, session=session))
    for query in (asked, "when does the train to vienna leave"):
        hits = life.recall(query, minimum=0)
        assert hits[0].memory.text == LIFE[7]
        again = [hit for hit in hits if hit.memory.text == asked]
        assert [hit.why.order for hit in again] == ["the same question, asked before"] * 2
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert life.recall_for_prompt(query)[0].memory.text == LIFE[7]


def test_a_question_that_was_never_answered_is_not_given_to_a_prompt(life: Commonplace) -> None:
    asked = "Who owns the deploy key?"
    life.remember(asked)
    assert asked not in [hit.memory.text for hit in life.recall_for_prompt(asked)]
    assert life.recall(asked)[0].memory.text == asked
    assert life.recall("deploy key")[0].why.order == ""
    assert life.recall_for_prompt("deploy key")[0].memory.text == asked


def test_vectors_that_come_late_are_those_of_their_memories(real: Commonplace) -> None:
    real.remember_many([Draft(text=text) for text in LIFE])
    with Commonplace(real.library.path, embedding="none") as other:
        late = other.remember("The late heron stands in the reeds")
    assert real.recall("heron", minimum=0)  # the index has it, without a vector
    for number in range(3):
        real.remember(f"Something else, number {number}")
    engine_call(real, embed_all)
    queries = [*LIFE, "a bird in the marsh", "which number is it?"]
    followed = [
        [(hit.memory.id, hit.score) for hit in real.recall(query, minimum=0)] for query in queries
    ]
    assert real.recall("a bird in the marsh", minimum=0)[0].memory.id == late.id
    with Commonplace(real.library.path, embedding=real.library.embedder) as fresh:
        afresh = [
            [(hit.memory.id, hit.score) for hit in fresh.recall(q, minimum=0)] for q in queries
        ]
    assert followed == afresh
