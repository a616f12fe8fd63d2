"""Fit an answer into a response: excerpts get shorter, then the last items are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from commonplace.dialects.contract import as_json

BYTES = 1_000_000
"""What the lists of an answer may have in all, below the megabyte of a response."""
WIDTHS = (2_000, 500, 100)
"""How many characters of a text are shown in a list, the first that fits."""

T = TypeVar("T")
Shown = dict[str, Any]


def once(value: Any) -> int:
    """The bytes of a value that is only in the structured result."""
    return len(as_json(value).encode())


def twice(value: Any) -> int:
    """The bytes of a value that is in the structured result and, as escaped JSON, in the text."""
    written = as_json(value)
    return once(value) + once(written)


def fitted(
    items: Sequence[T],
    show: Callable[[T, int], Shown],
    most: int = BYTES,
    size: Callable[[Any], int] = twice,
) -> list[Shown]:
    """All items, shortened if needed; if that is not enough, the first ones that fit."""
    for width in WIDTHS:
        shown = [show(item, width) for item in items]
        sizes = [size(each) + 1 for each in shown]
        if sum(sizes) <= most:
            return shown
    return as_many(shown, most, size)


def as_many(
    shown: Sequence[Shown], most: int = BYTES, size: Callable[[Any], int] = twice
) -> list[Shown]:
    """The first items, as many as fit into `most` bytes."""
    kept = []
    for each in shown:
        most -= size(each) + 1
        if most < 0:
            break
        kept.append(each)
    return kept
