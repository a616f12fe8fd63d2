"""Encode and decode files as base64 text, the form in which operations take and return them.

Files are converted piece by piece: a single call for a large file would hold the interpreter lock
and block all other requests for a tenth of a second.
"""

from __future__ import annotations

import base64

PIECE_BYTES = 3 * 2**16
"""The size of a piece in bytes: a multiple of 3, so that only the last piece is padded."""


def encode(data: bytes) -> str:
    """Encode bytes as base64 text."""
    pieces = (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))
    return "".join(base64.b64encode(piece).decode() for piece in pieces)


def decode(text: str) -> bytes:
    """Decode a base64 text; raise ValueError if it is incomplete. Other characters are ignored."""
    length = PIECE_BYTES // 3 * 4
    pieces = (text[at : at + length] for at in range(0, len(text), length))
    return b"".join(map(base64.b64decode, pieces))
