"""What is derived from a text is the same however fast it is computed."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.storage.database import new_id, new_ids
from commonplace.storage.derived import pack_terms, pack_text
from commonplace.text.analysis import _ASCII_WORDS, DETECTION_WORDS, analyse, ascii_chunks

_WORDS = ["the", "of", "und", "der", "les", "est", "foo-bar", "v1.2.3", "1,234", "C++", "c#",
          "don't", "it's", "HTTPServer", "a_b", "__x__", "me@example.com", "l'homme", "cat",
          "Zeitungen", "RUNNING", "ABCs", "12ab", "e.g.", "#tag", "+1", "-", "größe", "会議は",
          "a" * 64, "a" * 65, "c" * 130 + "und"]  # fmt: skip
_GAPS = [" ", ", ", ". ", "\n", "-", "_", "'", "/", "@", "+", "#", ""]
_TEXTS = st.lists(
    st.tuples(st.sampled_from(_WORDS), st.sampled_from(_GAPS)).map("".join), max_size=30
).map("".join)


@given(_TEXTS)
def test_a_texts_packed_terms_are_those_of_its_analysis(text: str) -> None:
    assert pack_text(text) == pack_terms(analyse(text))


def test_a_long_text_is_judged_by_its_first_words_alone() -> None:
    english = "the " * DETECTION_WORDS
    for text in (english + "und der les", "und der die " + english, "cat " * 300):
        assert pack_text(text) == pack_terms(analyse(text))


@given(st.text(max_size=60))
def test_any_text_is_packed_as_it_is_analysed(text: str) -> None:
    assert pack_text(text) == pack_terms(analyse(text))


@given(_TEXTS)
def test_chunks_are_those_of_the_pattern_with_and_without_it(text: str) -> None:
    plain = text.encode("ascii", "replace").decode()
    assert ascii_chunks(plain) == _ASCII_WORDS.findall(plain)


@pytest.mark.parametrize("length", [63, 64, 65, 66, 128, 129])
@pytest.mark.parametrize("before", ["", "a ", "many words before it and a comma, " * 3])
@pytest.mark.parametrize("after", ["", " b", "\nand more after it " * 3])
def test_words_around_the_longest_are_cut_alike(length: int, before: str, after: str) -> None:
    text = f"{before}{'w' * length}{after}"
    assert ascii_chunks(text) == _ASCII_WORDS.findall(text)


def test_ids_are_random_uuids_of_version_four() -> None:
    ids = [new_id(), *new_ids(1_000)]
    assert len(set(ids)) == len(ids)
    for identity in ids:
        parsed = uuid.UUID(identity)
        assert str(parsed) == identity
        assert parsed.version == 4
        assert parsed.variant == uuid.RFC_4122
    assert new_ids(0) == []
