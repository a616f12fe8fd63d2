"""Hashes of rows with long values."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commonplace.storage import tables
from commonplace.storage.tables import Hashed

COLUMNS = ("space", "first", "second")
BELOW = tables._PIECE
LONG_VALUES = {
    "plain text": "a" * 3 * BELOW,
    "single quotes": "it's " * BELOW,
    "double quotes": 'a "b" ' * BELOW,
    "both quotes": 'it\'s "b" ' * BELOW,
    "a double quote in the last piece": "it's " * BELOW + '"',
    "a quote on both sides of a cut": "a" * (BELOW - 1) + "'" + "'" + "a" * BELOW,
    "a backslash on both sides of a cut": "a" * (BELOW - 1) + "\\\\" + "'" * BELOW,
    "outside ASCII": "é😀\u2028\x00\x7f" * BELOW,
    "half of a surrogate pair": "\ud83d" * (BELOW + 1),
    "bytes": bytes(range(256)) * BELOW,
    "bytes with single quotes": b"it's " * BELOW,
    "at the limit": "'" * BELOW,
    "one above the limit": b'"' * (BELOW + 1),
}


@pytest.mark.parametrize("value", LONG_VALUES.values(), ids=LONG_VALUES)
def test_a_long_value_is_hashed_in_pieces_as_it_was_at_once(value: str | bytes) -> None:
    at_once = Hashed("contents", COLUMNS)
    in_pieces = Hashed("contents", COLUMNS, long_values=True)
    row = ("default", 7, value)
    assert in_pieces.hash(row) == at_once.hash(row)
    assert in_pieces.hash(("default", None, value[:-1])) != in_pieces.hash(("default", None, value))


@given(
    st.lists(st.text("'\"\\a\n é\ud800😀") | st.binary() | st.integers() | st.none(), min_size=1)
)
@example(["'"])
@example([b"'"])
def test_values_are_written_in_pieces_of_any_length(values: list[object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for length in (1, 2, 3, 7):
            patch.setattr(tables, "_PIECE", length)
            row = tuple(values)
            assert (
                tables._hash_in_pieces(b"a", row)
                == tables.sha256(b"a" + ascii(row).encode()).digest()
            )


def test_contents_of_artifacts_are_hashed_in_pieces() -> None:
    """A row of a version of 20 MB is checked without building a text of 20 MB for it."""
    row = ("default", 1, "artifact", 1, b"\x00" * 20_000_000, "", "{}", 0, 1)
    pieces: list[int] = []

    class Counting:
        def __init__(self, start: bytes) -> None:
            self.update(start)

        def update(self, data: bytes) -> None:
            pieces.append(sys.getsizeof(data))

        def digest(self) -> bytes:
            return b""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "sha256", Counting)
        tables.CONTENTS.hash(row)
    assert len(pieces) > 300
    assert max(pieces) < 5 * tables._PIECE
