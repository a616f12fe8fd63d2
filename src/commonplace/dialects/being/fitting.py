"""Fit lists into the answers of tools: shorten the long texts in them, or list fewer entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from commonplace.dialects.contract import as_json
from commonplace.engine.checks import TEXT_CHARS
from commonplace.text.snippets import opening

LIST_BYTES = 300_000
"""The maximum size of a list; a response may have it twice, as a value and as text."""
MIN_CHARS = 100  # shorter texts of a list stay whole

Entry = TypeVar("Entry")


def fit_texts(entries: Sequence[dict[str, Any]], name: str) -> Sequence[dict[str, Any]]:
    """Return a list; if it is too large, shorten the long texts that its entries have as `name`."""
    chars = TEXT_CHARS
    while chars > MIN_CHARS and _size(entries) > LIST_BYTES:
        chars //= 2
        entries = [{**each, name: opening(each[name], chars)} for each in entries]
    return entries


def first_entries(entries: Sequence[Entry], show: Callable[[Entry], Any]) -> Sequence[Entry]:
    """Return the first entries that together are not too large, and at least one."""
    room = LIST_BYTES
    for count, each in enumerate(entries):
        room -= _size(show(each))
        if room < 0:
            return entries[: max(1, count)]
    return entries


def _size(value: Any) -> int:
    return len(as_json(value).encode())
