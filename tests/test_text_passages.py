import time
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.text.passages import Span, split_passages
from commonplace.text.wordpieces import wordpieces_before

ENGLISH = (
    "Yesterday Melanie told me that her daughter painted a sunset over the lake. "
    "They had stayed at the old cabin for a week, and it had rained on every day but one. "
)
ANY_TEXT = st.text(st.characters(codec=None))
LONG_TEXT = st.lists(
    st.sampled_from(
        ["word ", "Wohnungsbaugesellschaft", ". ", "\n\n", "会議", "회", "👩‍💻", "é", " "]
    ),
    max_size=200,
).map("".join)


def pieces(text: str, spans: list[Span]) -> list[str]:
    return [text[span.start : span.stop] for span in spans]


@pytest.mark.parametrize("text", ["", "x", "A short memory.", "猫が好き", " \n "])
def test_a_short_text_is_one_passage(text: str) -> None:
    assert split_passages(text) == [Span(0, len(text))]


def test_a_text_is_split_only_above_the_budget() -> None:
    below, at, above = ("会" * n for n in (239, 240, 241))
    assert len(split_passages(below)) == 1
    assert len(split_passages(at)) == 1
    assert len(split_passages(above)) == 2


def test_a_paragraph_border_is_preferred_and_shares_nothing() -> None:
    first = ENGLISH * 4
    text = first + "\n\n" + ENGLISH * 4
    assert split_passages(text)[0] == Span(0, len(first) + 2)
    assert split_passages(text)[1].start == len(first) + 2


def test_a_sentence_border_is_preferred_to_a_word_border() -> None:
    passages = pieces(ENGLISH * 20, split_passages(ENGLISH * 20))
    assert len(passages) > 2
    assert all(passage.rstrip().endswith(".") for passage in passages)


def test_japanese_is_cut_after_a_sentence() -> None:
    text = "会議は来週の火曜日の午後三時からです。" * 40
    assert all(passage.endswith("。") for passage in pieces(text, split_passages(text)))


def test_words_stay_whole_where_there_is_no_sentence() -> None:
    text = "lantern " * 1_000
    assert {word for passage in pieces(text, split_passages(text)) for word in passage.split()} == {
        "lantern"
    }


def tokens(text: str) -> int:
    return ceil(wordpieces_before(text)[-1] - 1e-6)


def test_neighbours_share_some_words_but_not_many() -> None:
    text = "the old cabin by the lake and " * 300
    spans = split_passages(text, budget=100, overlap=10)
    shared = [tokens(text[b.start : a.stop]) for a, b in pairwise(spans)]
    assert min(shared) >= 5
    assert max(shared) <= 11


def test_without_overlap_passages_only_touch() -> None:
    spans = split_passages("the old cabin by the lake " * 300, overlap=0)
    assert all(a.stop == b.start for a, b in pairwise(spans))


def test_an_unbroken_run_is_cut_but_never_inside_an_emoji() -> None:
    family = "👨‍👩‍👧‍👦"
    for passage in pieces(family * 300, split_passages(family * 300)):
        assert passage == family * (len(passage) // len(family))


@pytest.mark.parametrize(
    "unit",
    [ENGLISH, "会議は来週です。", "회의는 내일입니다 ", "QWxhZGRpbg9", "\n", ". ", "a\u0301"],
)
def test_a_million_characters_take_less_than_a_second(unit: str) -> None:
    text = (unit * (1_000_000 // len(unit) + 1))[:1_000_000]
    began = time.process_time()
    spans = split_passages(text)
    assert time.process_time() - began < 1
    assert spans[-1].stop == 1_000_000


@given(st.one_of(ANY_TEXT, LONG_TEXT), st.integers(1, 60), st.integers(0, 80))
def test_passages_cover_the_text_and_move_on(text: str, budget: int, overlap: int) -> None:
    spans = split_passages(text, budget=budget, overlap=overlap)
    assert spans[0].start == 0
    assert spans[-1].stop == len(text)
    for a, b in pairwise(spans):
        assert a.start < b.start <= a.stop < b.stop or (a.start < b.start == a.stop <= b.stop)


@given(LONG_TEXT, st.integers(20, 60))
def test_passages_stay_within_the_budget(text: str, budget: int) -> None:
    # A word that had to be cut counts a little more as two.
    assert all(tokens(p) <= budget + 2 for p in pieces(text, split_passages(text, budget=budget)))
