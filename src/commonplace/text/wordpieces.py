"""Estimate the number of wordpieces of a text without the model's tokenizer."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from commonplace.text.stopwords import STOP_WORDS

# A block of this many characters is English if a fifth of its words are function words.
_STRETCH = 1_000
_ENGLISH_SHARE = 0.2
_ENGLISH_WORDS = re.compile(r"[A-Za-z]+")

_SPACE, _LETTER, _DIGIT, _SINGLE = 0, 1, 2, 3


def wordpieces_before(text: str) -> NDArray[np.float64]:
    """Return the estimated number of wordpieces before each position of the text."""
    spent = np.zeros(len(text) + 1)
    np.cumsum(_costs(text), out=spent[1:])
    return spent


def _code_points(text: str) -> NDArray[np.uint32]:
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


def word_starts(text: str) -> list[int]:
    """Return the positions after white space where a word begins."""
    space = _is_space(_code_points(text))
    starts: list[int] = (np.flatnonzero(space[:-1] & ~space[1:]) + 1).tolist()
    return starts


def _character_classes(points: NDArray[np.uint32]) -> NDArray[np.uint8]:
    folded = points | 0x20
    latin = (folded >= ord("a")) & (folded <= ord("z"))
    latin |= (points >= 0xC0) & (points <= 0x24F) & (points != 0xD7) & (points != 0xF7)
    latin |= (points >= 0x1E00) & (points <= 0x1EFF)
    classes = np.full(len(points), _SINGLE, dtype=np.uint8)
    classes[latin] = _LETTER
    classes[(points >= ord("0")) & (points <= ord("9"))] = _DIGIT
    classes[_is_space(points)] = _SPACE
    return classes


def _costs(text: str) -> NDArray[np.float64]:
    """Return the estimated wordpieces of each character; those of a word are spread over its
    letters.

    The figures come from the tokenizer of all-MiniLM-L6-v2. It has most English words as a whole,
    and splits other Latin words every two or three letters, numbers every two digits, and other
    scripts into letters (Hangul into its jamo).
    """
    points = _code_points(text)
    classes = _character_classes(points)
    costs: NDArray[np.float64] = (classes == _SINGLE).astype(np.float64)
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
