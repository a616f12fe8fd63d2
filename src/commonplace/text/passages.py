"""Cutting a text into passages that fit the embedding model's window."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from commonplace.text.clusters import cut_at_or_before
from commonplace.text.stopwords import STOP_WORDS

_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE = re.compile(r"""[.!?…]["'”’)\]»]{0,3}\s+|[。！？．｡]["'”’」』）]{0,3}\s*|\n\s*""")
_ENGLISH_WORDS = re.compile(r"[A-Za-z]+")

# A stretch of this many characters is English if a fifth of its words are function words.
_STRETCH = 1_000
_ENGLISH_SHARE = 0.2
# A Hangul syllable is up to three wordpieces, any other character at most one.
_HANGUL = re.compile("[\uac00-\ud7a3]")
_MOST_PER_CHARACTER = 3

_SPACE, _LETTER, _DIGIT, _ALONE = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a text: text[start:stop]."""

    start: int
    stop: int


def estimate_tokens(text: str) -> int:
    """About how many wordpieces the built-in model sees; rather too many than too few."""
    return ceil(_costs(text).sum() - 1e-6) if text else 0


def split(text: str, *, budget: int = 240, overlap: int = 24) -> list[Span]:
    """Passages in order, each of at most `budget` estimated wordpieces, missing no character.

    Cut after a paragraph where there is one in the second half, else after a sentence, else
    between words. Neighbours share about `overlap` wordpieces unless a paragraph parts them.
    """
    length = len(text)
    if length * _MOST_PER_CHARACTER <= budget:
        return [Span(0, length)]
    if length <= budget and not _HANGUL.search(text):
        return [Span(0, length)]
    spent = np.concatenate(([0.0], np.cumsum(_costs(text))))
    if spent[-1] <= budget:
        return [Span(0, length)]
    overlap = max(0, min(overlap, budget // 2))
    paragraphs = [match.end() for match in _PARAGRAPH.finditer(text)]
    sentences = [match.end() for match in _SENTENCE.finditer(text)]
    words = _word_starts(text)

    def reach(start: int, amount: float) -> int:
        """How far one gets from `start` on this many wordpieces."""
        return int(np.searchsorted(spent, spent[start] + amount + 1e-6, side="right")) - 1

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
            # What is shared left no room for anything new: begin after it.
            start = spans[-1].stop
            continue
        spans.append(Span(start, stop))
        start = stop if ends_paragraph else _shared_start(spent, words, start, stop, overlap)
    spans.append(Span(start, length))
    return spans


def _shared_start(
    spent: NDArray[np.float64], words: list[int], start: int, stop: int, overlap: int
) -> int:
    """Where the next passage begins: at a word, at most `overlap` wordpieces before `stop`."""
    earliest = int(np.searchsorted(spent, spent[stop] - overlap - 1e-6))
    at = bisect_left(words, max(earliest, start + 1))
    return words[at] if at < len(words) and words[at] < stop else stop


def _points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _is_space(points: NDArray[np.uint32]) -> NDArray[np.bool_]:
    space: NDArray[np.bool_] = (
        (points == 0x20)
        | ((points >= 0x09) & (points <= 0x0D))
        | (points == 0xA0)
        | (points == 0x3000)
        | ((points >= 0x2000) & (points <= 0x200A))
    )
    return space


def _word_starts(text: str) -> list[int]:
    space = _is_space(_points(text))
    starts: list[int] = (np.flatnonzero(space[:-1] & ~space[1:]) + 1).tolist()
    return starts


def _classes(points: NDArray[np.uint32]) -> NDArray[np.uint8]:
    folded = points | 0x20
    latin = (folded >= ord("a")) & (folded <= ord("z"))
    latin |= (points >= 0xC0) & (points <= 0x24F) & (points != 0xD7) & (points != 0xF7)
    latin |= (points >= 0x1E00) & (points <= 0x1EFF)
    classes = np.full(len(points), _ALONE, dtype=np.uint8)
    classes[latin] = _LETTER
    classes[(points >= ord("0")) & (points <= ord("9"))] = _DIGIT
    classes[_is_space(points)] = _SPACE
    return classes


def _costs(text: str) -> NDArray[np.float64]:
    """Estimated wordpieces of each character; a word's are spread over its letters.

    The figures come from the tokenizer of all-MiniLM-L6-v2: it knows most English words
    whole, breaks other Latin words every two or three letters, numbers every two digits,
    and knows other scripts letter by letter (Hangul by its jamo).
    """
    points = _points(text)
    classes = _classes(points)
    costs: NDArray[np.float64] = (classes == _ALONE).astype(np.float64)
    costs[(points >= 0x0300) & (points <= 0x036F)] = 0.0
    hangul = (points >= 0xAC00) & (points <= 0xD7A3)
    if hangul.any():
        costs[hangul] = np.where((points[hangul] - 0xAC00) % 28 == 0, 2.0, 3.0)

    wordy = np.concatenate(([False], (classes == _LETTER) | (classes == _DIGIT), [False]))
    edges = np.flatnonzero(wordy[1:] != wordy[:-1])
    starts, stops = edges[::2], edges[1::2]
    if not len(starts):
        return costs
    lengths = stops - starts
    digits = np.concatenate(([0], np.cumsum(classes == _DIGIT)))
    digits_in = digits[stops] - digits[starts]
    pure = lengths.astype(np.float64)
    foreign = np.where(pure <= 3, 1.1, 0.4 + pure / 2.5)
    english = np.where(pure <= 6, 1.05, np.minimum(1.05 + (pure - 6) * 0.25, foreign))
    words = np.where(_english_stretches(text)[starts // _STRETCH], english, foreign)
    words = np.where(digits_in > 0, np.maximum(1.0, pure * 0.75), words)
    words = np.where(digits_in == lengths, np.maximum(1.0, pure * 0.6), words)
    costs[wordy[1:-1]] = np.repeat(words / pure, lengths)
    return costs


def _english_stretches(text: str) -> NDArray[np.bool_]:
    function_words = STOP_WORDS["english"]
    verdicts = []
    for start in range(0, len(text), _STRETCH):
        words = _ENGLISH_WORDS.findall(text[start : start + _STRETCH].lower())
        known = sum(map(function_words.__contains__, words))
        verdicts.append(known > len(words) * _ENGLISH_SHARE)
    return np.array(verdicts, dtype=np.bool_)
