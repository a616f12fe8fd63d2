"""Fit a list into a response: shorten the excerpts, then omit the last items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from commonplace.dialects.contract import as_json

MAX_BYTES = 1_000_000
"""The maximum size of all lists of a response, which can have at most a megabyte."""
EXCERPT_WIDTHS = (2_000, 500, 100)
"""Lengths of excerpts in lists; the first one at which the list fits is used."""

T = TypeVar("T")
Item = dict[str, Any]


def structured_size(value: Any) -> int:
    """Return the bytes of a value that only the structured result contains."""
    return len(as_json(value).encode())


def full_size(value: Any) -> int:
    """Return the bytes of a value in the structured result and, as escaped JSON, in the text."""
    return structured_size(value) + structured_size(as_json(value))


def fit_items(
    items: Sequence[T],
    show: Callable[[T, int], Item],
    most: int = MAX_BYTES,
    size: Callable[[Any], int] = full_size,
) -> list[Item]:
    """Return all items, shortened if needed; if they still do not fit, only the first ones."""
    for width in EXCERPT_WIDTHS:
        entries = [show(item, width) for item in items]
        sizes = [size(each) + 1 for each in entries]
        if sum(sizes) <= most:
            return entries
    return first_fitting(entries, most, size)


def first_fitting(
    items: Sequence[Item], most: int = MAX_BYTES, size: Callable[[Any], int] = full_size
) -> list[Item]:
    """Return the first items, as many as fit into `most` bytes."""
    result = []
    for each in items:
        most -= size(each) + 1
        if most < 0:
            break
        result.append(each)
    return result
