"""Fit the results of tools into a response, by shortening the texts of a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.dialects.contract import as_json
from commonplace.dialects.penfield.schemas import CONTENT_CHARS
from commonplace.text.snippets import opening

MIB = 1024 * 1024
LARGE = 48 * MIB  # the size of an artifact, a document, or a page of long memories as JSON
MAX_BYTES = 1_000_000
"""The maximum size of a list; smaller than the maximum response."""
MIN_CHARS = 100  # shorter texts of a list stay whole
_TEXTS = ("content", "content_with_context", "description")


def response_size(answer: Any) -> int:
    """Return the bytes of a tool's result, which has the answer twice: as a value and as text."""
    written = as_json(answer)
    return len(written.encode()) + len(as_json(written).encode())


def fit_texts(answer: dict[str, Any], items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return an answer; if it is too large, shorten the long texts of the items in it."""
    chars = CONTENT_CHARS
    while chars > MIN_CHARS and response_size(answer) > MAX_BYTES:
        chars //= 2
        for item in items:
            item.update({name: opening(item[name], chars) for name in _TEXTS if name in item})
    return answer
