"""Split a text into passages that fit the embedding model's window."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from commonplace.text.clusters import cut_at_or_before

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(r"""[.!?…]["'”’)\]»]{0,3}\s+|[。！？．｡]["'”’」』）]{0,3}\s*|\n\s*""")
# A Hangul syllable has up to three wordpieces, any other character at most one.
_HANGUL = re.compile("[\uac00-\ud7a3]")
_MOST_PER_CHARACTER = 3
_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = b"0123456789"
_SPACES = b" \t\n\v\f\r"
_LETTER_BY_DIGIT = re.compile("[A-Za-z][0-9]|[0-9][A-Za-z]")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a text: text[start:stop]."""

    start: int
    stop: int


def split_passages(text: str, *, budget: int = 240, overlap: int = 24) -> list[Span]:
    """Return passages that cover the text in order, each of at most `budget` wordpieces.

    A passage ends after a paragraph if one ends in its second half, else after a sentence, else
    between words. Neighbours overlap by about `overlap` wordpieces, except between paragraphs. The
    numbers of wordpieces are estimates.
    """
    length = len(text)
    if length <= 3 * budget and _fits(text, budget):
        return [_whole_span(length)]
    # numpy is imported here, so that short memories are stored without loading it.
    from commonplace.text.wordpieces import word_starts, wordpieces_before

    spent = wordpieces_before(text)
    if spent[-1] <= budget:
        return [Span(0, length)]
    overlap = max(0, min(overlap, budget // 2))
    paragraphs = [match.end() for match in _PARAGRAPH.finditer(text)]
    sentences = [match.end() for match in _SENTENCE.finditer(text)]
    words = word_starts(text)

    def reach(start: int, amount: float) -> int:
        """Return the position that is this many wordpieces after `start`."""
        return int(spent.searchsorted(spent[start] + amount + 1e-6, side="right")) - 1

    spans: list[Span] = []
    start = 0
    while (farthest := reach(start, budget)) < length:
        middle = max(reach(start, budget / 2), start + 1)
        borders = ((paragraphs, middle), (sentences, middle), (words, reach(start, budget / 4) + 1))
        stop, ends_paragraph = 0, False
        for positions, nearest in borders:
            at = bisect_right(positions, farthest) - 1
            if at >= 0 and positions[at] >= nearest:
                stop, ends_paragraph = positions[at], positions is paragraphs
                break
        if stop <= start:
            stop = max(cut_at_or_before(text, farthest), start + 1)
        if spans and stop <= spans[-1].stop:
            # The overlap would fill the whole budget: start without an overlap.
            start = spans[-1].stop
            continue
        spans.append(Span(start, stop))
        start = stop if ends_paragraph else _next_start(spent, words, start, stop, overlap)
    spans.append(Span(start, length))
    return spans


@lru_cache(maxsize=1024)
def _whole_span(length: int) -> Span:
    return Span(0, length)


def _fits(text: str, budget: int) -> bool:
    """Return whether a text fits into one passage, by a fast upper bound."""
    if text.isascii():
        return len(text) <= budget or _most_wordpieces(text) <= budget
    most = _MOST_PER_CHARACTER if _HANGUL.search(text) else 1
    return len(text) * most <= budget


def _most_wordpieces(text: str) -> float:
    """Return an upper bound of the estimated wordpieces of an ASCII text."""
    raw = text.encode()
    others = raw.translate(None, _LETTERS)
    rest = others.translate(None, _SPACES)
    if len(rest.translate(None, _DIGITS)) < len(rest) and _LETTER_BY_DIGIT.search(text):
        return float("inf")
    words = len(others) + 1
    return 0.7 * words + (len(raw) - len(others)) / 2.5 + len(rest)


def _next_start(
    spent: NDArray[np.float64], words: list[int], start: int, stop: int, overlap: int
) -> int:
    """Return the start of the next passage: a word, at most `overlap` wordpieces before `stop`."""
    earliest = int(spent.searchsorted(spent[stop] - overlap - 1e-6))
    at = bisect_left(words, max(earliest, start + 1))
    return words[at] if at < len(words) and words[at] < stop else stop
