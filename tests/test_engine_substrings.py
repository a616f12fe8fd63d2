"""Substring search against the plain way: look into every memory, one after the other."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from commonplace import Commonplace, Filters
from commonplace.dialects.clawbrain.tools import RELEVANCE, search_memories
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content import credit
from commonplace.engine.finding import substring_cache, substrings
from commonplace.engine.finding.ranking import credit_weighted
from commonplace.engine.finding.substring_cache import TextCache, needle_offsets
from commonplace.engine.finding.substrings import FIELDS, Matches
from commonplace.engine.library import Library
from commonplace.engine.model import Memory
from commonplace.errors import InvalidInput
from commonplace.storage.database import now
from commonplace.text.analysis import fold

DAY = credit.DAY
WORDS = ["ab", "aB", "ba", "abab", "c-a", "aß", "ASS", "éa", "e\u0301a", "日本", "本日", "ﬁ", "a.b"]
SPACES = [" ", "  ", "\n", "\t", "\xa0", "\u3000", "-"]


def locate(memory: Commonplace, needles: list[str], score: Callable[[Matches], Any]) -> Any:
    return engine_call(memory, substrings.locate, needles, Filters(), score)


@pytest.fixture(params=["usual", "small", "crowded"], scope="module")
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Library]:
    """With the limits as they are; so small that all are passed; so that little is kept."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "usual":
            for module in (substring_cache, substrings):
                patch.setattr(module, "FEW_MEMORIES", 2)
                patch.setattr(module, "KEPT_BYTES", 150 if request.param == "crowded" else 10**6)
            patch.setattr(substring_cache, "MOST_UNSORTED", 5)
            patch.setattr(substring_cache, "CHUNK", 7)
            patch.setattr(substring_cache, "LONGEST_BYTES", 100)
            patch.setattr(substrings, "STALE_BYTES", 50)
            patch.setattr(substrings, "QUICK_WORDS", 20)
        library = Library(tmp_path_factory.mktemp("data"), embedder=None)
        yield library
        library.close()


texts = st.lists(
    st.tuples(st.sampled_from(SPACES), st.sampled_from(WORDS)), min_size=1, max_size=6
).map(lambda parts: "".join(itertools.chain(*parts)).strip() or "a")
memories = st.lists(
    st.tuples(
        st.one_of(st.just(""), texts),
        st.lists(texts, max_size=3),
        texts,
        st.sampled_from([0.0, 0.3, 0.5, 0.7, 1.0]),
        st.sampled_from([None, 0, 1, 2, 40, 4_000, "yesterday", -5, 10**40, True]),
        st.sampled_from(["entity", "episode", "note"]),
    ),
    max_size=12,
)
needles = st.one_of(
    texts,
    st.sampled_from(["a", "A", "b", "ab", "ab a", "b\n", "fi", "ss", "日", "本日", "\u0301", "z"]),
)
_numbers = itertools.count()


def places_of(memory: Memory, needle: str) -> str | None:
    wanted = fold(needle)
    if wanted in fold(memory.title):
        return "title"
    if any(wanted in fold(tag) for tag in memory.tags):
        return "tag"
    return "text" if wanted in fold(memory.text) else None


def plainly(
    memory: Commonplace, wanted: list[str], kinds: list[str] | None
) -> list[tuple[float, int, str, tuple[str, ...]]]:
    """The formula of the contract, for one memory after the other; the best first."""
    rate, at, found = credit.read_rule(memory).decay_rate, now(), []
    for one in memory.browse(limit=1_000, kinds=kinds)[0]:
        where = [places_of(one, needle) for needle in wanted]
        known = tuple(place for place in where if place is not None)
        if len(known) == len(where):
            relevance = sum(RELEVANCE[place] for place in known) / len(known)
            score = credit.decayed_credit(one.credit, one.attrs, rate, at)
            found.append((credit_weighted(relevance, score), one.num, one.id, known))
    return sorted(found, reverse=True)


@given(
    memories, memories, st.lists(needles, min_size=1, max_size=4), st.integers(0, 2**32),
    st.integers(1, 20), st.sampled_from([None, "entity", "episode"]),
)  # fmt: skip
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_search_gives_what_the_formula_gives_for_each_memory(
    library: Library, first: list, second: list, asked: list[str], seed: int, most: int,
    type: str | None,
) -> None:  # fmt: skip
    memory = Commonplace(library=library, space=f"s{next(_numbers)}")
    chance = random.Random(seed)
    for batch in (first, second):
        with memory.unit("change"):
            for title, tags, text, score, days, kind in batch:
                since = now() - days * DAY - DAY // 2 if type_is_number(days) else days
                attrs = {} if days is None else {"credited": since}
                memory.remember(text, title=title, tags=tags, credit=score, kind=kind, attrs=attrs)
        with memory.unit("change again"):
            for one in memory.browse(limit=1_000)[0]:
                what = chance.random()
                if what < 0.2:
                    memory.revise(one.id, text=one.text + " ab", credit=chance.random())
                elif what < 0.25:
                    memory.revise(one.id, state="archived")
                elif what < 0.3:
                    memory.forget(one.id)
        for query in asked:
            kinds = {"entity": ["entity", "note"], "episode": ["episode"], None: None}[type]
            expected = plainly(memory, [query.strip()], kinds)
            words = list(dict.fromkeys(query.split()))
            if not expected and len(words) > 1:
                expected = plainly(memory, words, kinds)

            found, total = search_memories(memory, query, type, most)

            assert total == len(expected)
            assert [(one.id, where) for one, where in found] == [
                (identity, where) for _, _, identity, where in expected[:most]
            ]


def type_is_number(days: object) -> bool:
    return type(days) is int and 0 <= days < 10_000


def test_many_memories_with_needles_from_rare_to_universal(library: Library) -> None:
    memory = Commonplace(library=library, space="many")
    chance = random.Random(7)
    with memory.unit("store"):
        for at in range(700):
            memory.remember(
                f"u{at} {' '.join(chance.choices(WORDS, k=8))} end",
                title=chance.choice(["", "harbour", "an end"]),
                tags=chance.choice([[], ["tag-end"], ["harbour side", "x"]]),
                credit=chance.choice([0.1, 0.5, chance.random()]),
                attrs={"credited": now() - (at % 30) * DAY - DAY // 2},
            )
    for query in (
        "u7",
        "u699",
        "end",
        "e",
        "harbour",
        "ab ba",
        "b a",
        " end",
        "日本",
        "zz",
        "u1 end",
    ):
        expected = plainly(memory, [query.strip()], None)
        if not expected and " " in query.strip():
            expected = plainly(memory, query.split(), None)
        found, total = search_memories(memory, query, None, 20)
        assert total == len(expected)
        assert [one.id for one, _ in found] == [each[2] for each in expected[:20]], query


def test_what_a_unit_has_not_committed_is_found_in_it_and_nowhere_else(library: Library) -> None:
    memory = Commonplace(library=library, space="unit")
    kept = memory.remember("A harbour.")
    assert locate(memory, ["harbour"], lambda found: found.credit)[1] == 1
    with pytest.raises(RuntimeError), memory.unit("open"):
        memory.remember("A new harbour.")
        memory.revise(kept.id, text="A quay.")
        assert locate(memory, ["harbour"], lambda found: found.credit)[1] == 1
        assert locate(memory, ["new harbour"], lambda found: found.credit)[1] == 1
        assert locate(memory, ["quay"], lambda found: found.credit)[1] == 1
        raise RuntimeError
    assert locate(memory, ["quay"], lambda found: found.credit)[1] == 0
    assert locate(memory, ["harbour"], lambda found: found.credit)[1] == 1


def test_the_columns_are_those_of_the_rows(memory: Commonplace) -> None:
    set_at = now()
    memory.remember("A harbour.", credit=0.1, attrs={"credited": set_at})
    memory.remember("B.", title="Harbour", tags=["quay"], credit=0.3)
    seen: list[Matches] = []

    def score(found: Matches) -> np.ndarray:
        seen.append(found)
        return found.credit

    found, total = locate(memory, ["HARBOUR"], score)

    assert total == 2
    assert [one.credit for one, _ in found] == [0.3, 0.1], "not as the index rounds them"
    assert dict(zip(seen[0].credit.tolist(), seen[0].credited.tolist(), strict=True)) == {
        0.1: set_at, 0.3: 0,
    }  # fmt: skip
    assert {FIELDS[place] for place in seen[0].places[:, 0]} == {"title", "text"}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda found: 1.0,
        lambda found: found.credit[:1],
        lambda found: found.credit * np.nan,
        lambda found: found.credit.astype(object),
        lambda found: None,
    ],
)
def test_a_score_must_be_one_number_for_each(memory: Commonplace, wrong: object) -> None:
    memory.remember("A harbour.")
    memory.remember("Another harbour.")
    with pytest.raises(InvalidInput):
        locate(memory, ["harbour"], wrong)  # type: ignore[arg-type]


def test_many_changes_leave_little_that_is_stale(
    memory: Commonplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(substrings, "STALE_BYTES", 1_000)
    one = memory.remember("x" * 400)
    for at in range(30):
        memory.revise(one.id, text=f"{at} " + "x" * 400)
        assert locate(memory, [f"{at} x"], lambda found: found.credit)[1] == 1
    with lease(memory) as space:
        assert len(space.cache(TextCache).now.texts) < 3_000


def test_searches_while_others_write(tmp_path: Path) -> None:
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        with memory.unit("store"):
            for at in range(400):
                memory.remember(f"word{at} common")
        wrong: list[object] = []
        done = threading.Event()

        def search() -> None:
            while not done.is_set():
                try:
                    found, total = locate(memory, ["common"], lambda one: one.credit)
                    if total < 400 or not all("common" in one.text for one, _ in found):
                        wrong.append(total)
                except Exception as error:
                    wrong.append(error)

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        for at in range(100):
            memory.remember(f"more{at} common and new{at}")
        done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert locate(memory, ["common"], lambda one: one.credit)[1] == 500


@given(st.binary(max_size=60), st.binary(min_size=1, max_size=4))
def test_occurrences_are_those_of_the_standard_library(held: bytes, needle: bytes) -> None:
    expected = [at for at in range(len(held)) if held.startswith(needle, at)]
    assert needle_offsets(np.frombuffer(held, np.uint8), needle).tolist() == expected


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(-(2**40), 2**62 - 1)), max_size=30),
    st.floats(0, 1),
)
def test_many_credits_fade_as_one_does(each: list[tuple[float, int]], rate: float) -> None:
    at = now()
    scores, since = [score for score, _ in each], [when for _, when in each]

    many = credit.decayed_credits(np.array(scores, float), np.array(since, np.int64), rate, at)

    assert many.tolist() == [
        credit.decayed_credit(score, {"credited": when}, rate, at) for score, when in each
    ]
