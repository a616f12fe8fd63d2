"""Files as base64 text, converted in pieces."""

from __future__ import annotations

import base64

import pytest

from commonplace.dialects.binary import PIECE_BYTES, decode, encode


@pytest.mark.parametrize(
    "size", [0, 1, 2, 3, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 2]
)
def test_pieces_are_joined_to_the_whole(size: int) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    assert encode(data) == base64.b64encode(data).decode()
    assert decode(encode(data)) == data


def test_what_is_not_base64_is_an_error() -> None:
    with pytest.raises(ValueError, match="padding"):
        decode("abc")
