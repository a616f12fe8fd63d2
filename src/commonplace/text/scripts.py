"""Detect the writing system of a text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter

# The first code point of each range and its script; a range ends where the next one begins. Only
# letters are looked up, so punctuation inside a range does not matter.
_STARTS: tuple[tuple[int, str], ...] = (
    (0x0000, "latin"),
    (0x0370, "greek"),
    (0x0400, "cyrillic"),
    (0x0530, "other"),
    (0x0590, "hebrew"),
    (0x0600, "arabic"),
    (0x0700, "other"),
    (0x0750, "arabic"),
    (0x0780, "other"),
    (0x0870, "arabic"),
    (0x0900, "devanagari"),
    (0x0980, "other"),
    (0x0E00, "thai"),
    (0x0E80, "other"),
    (0x1100, "hangul"),
    (0x1200, "other"),
    (0x1C80, "cyrillic"),
    (0x1C90, "other"),
    (0x1D00, "latin"),
    (0x1D26, "greek"),
    (0x1D2B, "latin"),
    (0x1F00, "greek"),
    (0x2000, "other"),
    (0x2C60, "latin"),
    (0x2C80, "other"),
    (0x2DE0, "cyrillic"),
    (0x2E00, "other"),
    (0x2E80, "han"),
    (0x3040, "kana"),
    (0x3100, "other"),
    (0x3130, "hangul"),
    (0x3190, "other"),
    (0x31F0, "kana"),
    (0x3200, "other"),
    (0x3400, "han"),
    (0xA000, "other"),
    (0xA640, "cyrillic"),
    (0xA6A0, "other"),
    (0xA720, "latin"),
    (0xA800, "other"),
    (0xA8E0, "devanagari"),
    (0xA900, "other"),
    (0xA960, "hangul"),
    (0xA980, "other"),
    (0xAB30, "latin"),
    (0xAB70, "other"),
    (0xAC00, "hangul"),
    (0xD800, "other"),
    (0xF900, "han"),
    (0xFB00, "latin"),
    (0xFB13, "other"),
    (0xFB1D, "hebrew"),
    (0xFB50, "arabic"),
    (0xFE00, "other"),
    (0xFE70, "arabic"),
    (0xFEFF, "other"),
    (0xFF21, "latin"),
    (0xFF5B, "other"),
    (0xFF66, "kana"),
    (0xFFA0, "hangul"),
    (0xFFE0, "other"),
    (0x1AFF0, "kana"),
    (0x1B170, "other"),
    (0x20000, "han"),
    (0x323B0, "other"),
)
_POINTS = [start for start, _ in _STARTS]
_NAMES = [name for _, name in _STARTS]

_ASCII_LETTER = re.compile("[A-Za-z]")
_SAMPLE_CHARS = 2_000
# One ideograph or syllable carries about as much information as two or three letters, so that a
# Japanese sentence with an English product name still counts as Japanese.
_WEIGHTS = {"han": 2, "kana": 2, "hangul": 2}
# Chinese uses a lone の on shop signs; Japanese prose has far more kana than this.
_KANA_SHARE = 20


def script_of(character: str) -> str:
    """Return the script of one letter. The result is meaningless for any other character."""
    return _NAMES[bisect_right(_POINTS, ord(character)) - 1]


def dominant_script(text: str) -> str:
    """Return the script of most letters, judged by the start of a text: at least 1,000 letters.

    The result is latin, cyrillic, han, kana, hangul, greek, arabic, hebrew, thai, devanagari,
    other, or none if there is no letter. Kana means Japanese, including its ideographs.
    """
    if text.isascii():
        return "latin" if _ASCII_LETTER.search(text) else "none"
    counts: Counter[str] = Counter()
    letters = 0
    for start in range(0, len(text), _SAMPLE_CHARS):
        for character, times in Counter(text[start : start + _SAMPLE_CHARS]).items():
            if character.isalpha():
                script = script_of(character)
                counts[script] += times * _WEIGHTS.get(script, 1)
                letters += times
        if letters >= _SAMPLE_CHARS // 2:
            break
    if not letters:
        return "none"
    if counts["kana"] * _KANA_SHARE >= counts["kana"] + counts["han"]:
        counts["kana"] += counts.pop("han", 0)
    return max(counts, key=counts.__getitem__)
