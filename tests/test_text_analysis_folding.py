from hypothesis import given
from hypothesis import strategies as st

from commonplace.text.analysis import fold, trigrams

ANY_TEXT = st.text(st.characters(codec=None))


def test_case_width_and_composition_do_not_matter() -> None:
    assert fold("STRASSE") == fold("Straße")
    assert fold("ＡＢＣ　１２３") == "abc 123"
    assert fold("Cafe\u0301") == fold("CAFÉ")
    assert fold("ｶﾞﾗｽ") == "ガラス"
    assert fold("ΟΔΟΣ") == fold("οδος")


def test_accents_still_matter_for_substrings() -> None:
    assert fold("résumé") != fold("resume")


def test_a_needle_is_found_inside_a_word() -> None:
    assert fold("BAUGESELL") in fold("Wohnungsbaugesellschaft")
    assert fold("Baustelle") not in fold("Wohnungsbaugesellschaft")


def test_trigrams_are_distinct_and_in_order() -> None:
    assert trigrams("banana") == ["ban", "ana", "nan"]
    assert trigrams("東京都庁") == ["東京都", "京都庁"]


def test_fewer_than_three_characters_have_no_trigram() -> None:
    assert trigrams("ab") == []
    assert trigrams("abc") == ["abc"]


@given(ANY_TEXT)
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_what_contains_a_needle_has_all_its_trigrams(head: str, needle: str, tail: str) -> None:
    assert set(trigrams(needle)) <= set(trigrams(head + needle + tail))
