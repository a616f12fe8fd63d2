import pytest

from commonplace.engine.checks import check_text
from commonplace.errors import InvalidInput


@pytest.mark.parametrize("text", ["a", "ab", "Grüße", "会議", "a\r\n\tb", "👩‍💻", "\u202e"])
def test_acceptable_text_comes_back_unchanged(text: str) -> None:
    assert check_text(text, "content", max_chars=10) is text


def test_the_limit_counts_characters_and_is_inclusive() -> None:
    assert check_text("x" * 9, "content", max_chars=10)
    assert check_text("猫" * 10, "content", max_chars=10)
    with pytest.raises(InvalidInput) as error:
        check_text("x" * 1_235, "content", max_chars=1_234)
    assert error.value.field == "content"
    assert "1,235" in error.value.message
    assert "1,234" in error.value.message


@pytest.mark.parametrize("value", [None, 5, b"bytes", ["list"], {"a": 1}, True])
def test_what_is_not_text_is_refused_by_its_type(value: object) -> None:
    with pytest.raises(InvalidInput, match=type(value).__name__) as error:
        check_text(value, "title", max_chars=10)
    assert error.value.field == "title"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\x00b", "NUL"),
        ("cut \ud83d", "U+D83D"),
        ("\udc4d", "position 0"),
        ("", "empty"),
        (" \n\t\u3000", "blank"),
    ],
)
def test_unstorable_text_is_refused_with_reason_and_advice(text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as error:
        check_text(text, "content", max_chars=100)
    assert says in error.value.message
    assert error.value.hint
    assert error.value.field == "content"


@pytest.mark.parametrize("text", ["", "  "])
def test_empty_text_is_accepted_where_allowed(text: str) -> None:
    assert check_text(text, "note", max_chars=10, allow_empty=True) == text
