"""Keeping an answer within a response: excerpts get shorter, then what comes last is left out."""

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
    """The bytes of a value that stands in the structured result alone."""
    return len(as_json(value).encode())


def twice(value: Any) -> int:
    """The bytes of one that stands there and, as JSON within JSON, in the text too."""
    written = as_json(value)
    return once(value) + once(written)


def fitted(
    items: Sequence[T],
    show: Callable[[T, int], Shown],
    most: int = BYTES,
    size: Callable[[Any], int] = twice,
) -> list[Shown]:
    """The items, or as many of the first as `most` bytes hold when even short ones are too many."""
    for width in WIDTHS:
        shown = [show(item, width) for item in items]
        sizes = [size(each) + 1 for each in shown]
        if sum(sizes) <= most:
            return shown
    return as_many(shown, most, size)


def as_many(
    shown: Sequence[Shown], most: int = BYTES, size: Callable[[Any], int] = twice
) -> list[Shown]:
    """As many of the first as `most` bytes hold."""
    kept = []
    for each in shown:
        most -= size(each) + 1
        if most < 0:
            break
        kept.append(each)
    return kept
