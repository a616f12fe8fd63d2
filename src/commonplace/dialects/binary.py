"""Files as base64 text, as operations take and return them.

They are converted piece by piece: one call for a whole file would hold the interpreter lock, and so
every other request, for a tenth of a second.
"""

from __future__ import annotations

import base64

PIECE = 3 * 2**16
"""Bytes of a piece: a multiple of 3, so that only the last piece is padded."""


def encode(data: bytes) -> str:
    """Bytes as base64 text."""
    pieces = (data[at : at + PIECE] for at in range(0, len(data), PIECE))
    return "".join(base64.b64encode(piece).decode() for piece in pieces)


def decode(text: str) -> bytes:
    """The bytes of a base64 text; ValueError for anything else."""
    length = PIECE // 3 * 4
    pieces = (text[at : at + length] for at in range(0, len(text), length))
    return b"".join(map(base64.b64decode, pieces))
