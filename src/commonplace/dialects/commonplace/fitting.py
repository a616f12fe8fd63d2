"""Fit an answer into a response: excerpts get shorter, then the last items are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from commonplace.dialects.contract import as_json

BYTES = 1_000_000
"""The size of all lists of a response; a response has at most a megabyte."""
WIDTHS = (2_000, 500, 100)
"""Lengths of excerpts in lists; the first that fits is used."""

T = TypeVar("T")
Item = dict[str, Any]


def structured_size(value: Any) -> int:
    """The bytes of a value that is only in the structured result."""
    return len(as_json(value).encode())


def full_size(value: Any) -> int:
    """The bytes of a value that is in the structured result and, as escaped JSON, in the text."""
    return structured_size(value) + structured_size(as_json(value))


def fit(
    items: Sequence[T],
    show: Callable[[T, int], Item],
    most: int = BYTES,
    size: Callable[[Any], int] = full_size,
) -> list[Item]:
    """All items, shortened if needed; if that is not enough, the first ones that fit."""
    for width in WIDTHS:
        shown = [show(item, width) for item in items]
        sizes = [size(each) + 1 for each in shown]
        if sum(sizes) <= most:
            return shown
    return first_fitting(shown, most, size)


def first_fitting(
    shown: Sequence[Item], most: int = BYTES, size: Callable[[Any], int] = full_size
) -> list[Item]:
    """The first items, as many as fit into `most` bytes."""
    result = []
    for each in shown:
        most -= size(each) + 1
        if most < 0:
            break
        result.append(each)
    return result
