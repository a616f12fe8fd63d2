"""Truncate the long texts of a list, so that the list fits into a response.

The available bytes are divided evenly; a text that is shorter than its share leaves the remainder
to other texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.dialects.contract import as_json
from commonplace.text.snippets import opening

MAX_BYTES = 1_000_000
"""The maximum size of all items of a list; smaller than the maximum response."""
TEXT_FIELDS = (
    "topic", "decision", "reasoning", "failure_reason", "edge_reason", "summary", "next_steps",
)  # fmt: skip
FILES_FIELD = "open_files"
TRUNCATED_FIELD = "truncated"
"""The field of an item with the names of the truncated texts."""


def fit_items(items: Sequence[dict[str, Any]], most: int = MAX_BYTES) -> list[dict[str, Any]]:
    """Truncate the texts of the items, so that all together have at most `most` bytes."""
    sizes = [_escaped_size(each) for each in items]
    if sum(sizes) <= most:
        return list(items)
    if any(FILES_FIELD in each for each in items):
        items = [_truncate_files(each, most // (2 * len(items))) for each in items]
        sizes = [_escaped_size(each) for each in items]
    texts = [
        _escaped_size(each[name])
        for each in items
        for name in TEXT_FIELDS
        if isinstance(each.get(name), str)
    ]
    share = _size_per_text(texts, most - (sum(sizes) - sum(texts)))
    return [_truncate_texts(each, share) for each in items]


def _escaped_size(value: Any) -> int:
    """Return the size of a value in a tool's result, which is JSON within JSON."""
    return len(as_json(as_json(value)).encode())


def _size_per_text(sizes: Sequence[int], room: int) -> int:
    """Return the maximum size of each text at which all texts fit."""
    left = len(sizes)
    for size in sorted(sizes):
        if size * left > room:
            return max(0, room // left)
        room -= size
        left -= 1
    return room


def _truncate_files(item: dict[str, Any], share: int) -> dict[str, Any]:
    """Return the item with as many of its files as fit into its share."""
    kept: list[str] = []
    room = share
    for file in item.get(FILES_FIELD, ()):
        room -= _escaped_size(file)
        if room < 0:
            return {**item, FILES_FIELD: kept, TRUNCATED_FIELD: [FILES_FIELD]}
        kept.append(file)
    return item


def _truncate_texts(item: dict[str, Any], share: int) -> dict[str, Any]:
    whole = {name: item[name] for name in TEXT_FIELDS if isinstance(item.get(name), str)}
    shown = {name: _truncate(text, share) for name, text in whole.items()}
    cut = [name for name, text in shown.items() if text != whole[name]]
    return (
        {**item, **shown, TRUNCATED_FIELD: [*item.get(TRUNCATED_FIELD, ()), *cut]} if cut else item
    )


def _truncate(text: str, share: int) -> str:
    """Truncate a text to its share."""
    if _escaped_size(text) <= share:
        return text
    least, most = 0, min(len(text), share)
    while least < most:
        middle = (least + most + 1) // 2
        if _escaped_size(opening(text, middle)) <= share:
            least = middle
        else:
            most = middle - 1
    return opening(text, least)
