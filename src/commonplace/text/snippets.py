"""Snippets: the part of a text that contains most terms of a query."""

from __future__ import annotations

from collections import Counter, deque
from unicodedata import category

from commonplace.text.analysis import analyse_query, token_spans
from commonplace.text.clusters import cut_at_or_after, cut_at_or_before
from commonplace.text.scripts import script_of

_ELLIPSIS = "…"
# How far to search for a word boundary; a longer word is cut.
_LONGEST_WORD = 48
_UNSPACED = frozenset(("han", "kana", "hangul", "thai"))
_IN_WORDS = frozenset("_'’-")


def opening(text: str, width: int) -> str:
    """Return the text, or its first `width` characters and an ellipsis if it is longer."""
    return text if len(text) <= width else f"{text[: cut_at_or_before(text, width)]}{_ELLIPSIS}"


def snippet(text: str, query: str, width: int = 200) -> str:
    """Return at most `width` characters of the text, around most of the query's terms.

    The text is cut between words, with an ellipsis at each cut. If nothing matches, return the
    start of the text; if the text fits, return all of it.
    """
    width = max(width, 1)
    if len(text) <= width:
        return text
    first, last = _densest_range(text, set(analyse_query(query)), width)
    lead = (width - (last - first)) // 3
    start = max(0, min(first - lead, len(text) - width))
    if start > 0:
        start = _word_start(text, start, first)
    stop = min(len(text), start + width)
    if stop < len(text):
        stop = _word_stop(text, max(start + 1, last), stop)
    head = _ELLIPSIS if start > 0 else ""
    tail = _ELLIPSIS if stop < len(text) else ""
    return f"{head}{text[start:stop].strip()}{tail}"


def _densest_range(text: str, wanted: set[str], width: int) -> tuple[int, int]:
    """Return the range of at most `width` characters with the most distinct wanted terms."""
    best, most = (0, 0), 0
    window: deque[tuple[int, set[str]]] = deque()
    inside: Counter[str] = Counter()
    for start, end, tokens in token_spans(text) if wanted else ():
        found = wanted.intersection(tokens)
        if not found:
            continue
        stop = min(end, start + width)
        window.append((start, found))
        inside.update(found)
        while stop - window[0][0] > width:
            for term in window.popleft()[1]:
                inside[term] -= 1
                if not inside[term]:
                    del inside[term]
        if len(inside) > most:
            best, most = (window[0][0], stop), len(inside)
            if most == len(wanted):
                break
    return best


def _is_border(text: str, at: int) -> bool:
    """Return whether a word ends or begins at this position."""
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if not (_is_in_word(before) and _is_in_word(after)):
        return True
    return after.isalpha() and script_of(after) in _UNSPACED


def _is_in_word(character: str) -> bool:
    if character.isalnum() or character in _IN_WORDS:
        return True
    return character >= "\u0300" and category(character).startswith("M")


def _word_start(text: str, start: int, first: int) -> int:
    for at in range(start, min(start + _LONGEST_WORD, first) + 1):
        if _is_border(text, at) and at == cut_at_or_before(text, at):
            return at
    return min(cut_at_or_after(text, start), first)


def _word_stop(text: str, last: int, stop: int) -> int:
    for at in range(stop, max(stop - _LONGEST_WORD, last) - 1, -1):
        if _is_border(text, at) and at == cut_at_or_before(text, at):
            return at
    return max(cut_at_or_before(text, stop), last)
