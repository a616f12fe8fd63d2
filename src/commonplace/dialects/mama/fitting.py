"""Cuts the long texts of lists, so that a list fits into a response.

The room is divided evenly: a text that is shorter than its share leaves the rest to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.dialects.contract import as_json
from commonplace.engine.checks import ATTRS_CHARS, TEXT_CHARS
from commonplace.text.snippets import opening

BYTES = 1_000_000
"""The most bytes of all items of a list; less than a response may have."""
READ_BYTES = 8 * (TEXT_CHARS + ATTRS_CHARS)
"""The most bytes of a response with one whole text, escaped twice."""
TEXTS = (
    "topic", "decision", "reasoning", "failure_reason", "edge_reason", "summary", "next_steps",
)  # fmt: skip
FILES = "open_files"
CUT = "truncated"
"""The field of an item that names the texts that were cut."""


def fitted(items: Sequence[dict[str, Any]], most: int = BYTES) -> list[dict[str, Any]]:
    """The items, with their texts cut so that all have at most `most` bytes together."""
    sizes = [_size(each) for each in items]
    if sum(sizes) <= most:
        return list(items)
    if any(FILES in each for each in items):
        items = [_cut_files(each, most // (2 * len(items))) for each in items]
        sizes = [_size(each) for each in items]
    texts = [
        _size(each[name]) for each in items for name in TEXTS if isinstance(each.get(name), str)
    ]
    share = _share(texts, most - (sum(sizes) - sum(texts)))
    return [_cut(each, share) for each in items]


def _size(value: Any) -> int:
    """The bytes of a value in a tool's result, which is JSON within JSON."""
    return len(as_json(as_json(value)).encode())


def _share(sizes: Sequence[int], room: int) -> int:
    """The most bytes that each text may have so that all fit."""
    left = len(sizes)
    for size in sorted(sizes):
        if size * left > room:
            return max(0, room // left)
        room -= size
        left -= 1
    return room


def _cut_files(item: dict[str, Any], share: int) -> dict[str, Any]:
    """The item with as many files as fit into its share."""
    kept: list[str] = []
    room = share
    for file in item.get(FILES, ()):
        room -= _size(file)
        if room < 0:
            return {**item, FILES: kept, CUT: [FILES]}
        kept.append(file)
    return item


def _cut(item: dict[str, Any], share: int) -> dict[str, Any]:
    whole = {name: item[name] for name in TEXTS if isinstance(item.get(name), str)}
    shown = {name: _within(text, share) for name, text in whole.items()}
    cut = [name for name, text in shown.items() if text != whole[name]]
    return {**item, **shown, CUT: [*item.get(CUT, ()), *cut]} if cut else item


def _within(text: str, share: int) -> str:
    """As much of a text as fits into its share."""
    if _size(text) <= share:
        return text
    least, most = 0, min(len(text), share)
    while least < most:
        middle = (least + most + 1) // 2
        if _size(opening(text, middle)) <= share:
            least = middle
        else:
            most = middle - 1
    return opening(text, least)
