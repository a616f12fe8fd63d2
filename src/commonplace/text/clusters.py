"""Find positions where a cut does not split a grapheme cluster (one visible character)."""

from __future__ import annotations

from unicodedata import category

_JOINER = "\u200d"
# Longer sequences of marks are not natural text, and may be cut anywhere.
_FARTHEST = 64


def splits_cluster(text: str, at: int) -> bool:
    """Return whether a cut before position `at` would split a visible character."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if after < "\u0300":
        return before == "\r" and after == "\n"
    if before == _JOINER or after == _JOINER or category(after) in ("Mn", "Mc", "Me"):
        return True
    if "\u1160" <= after <= "\u11ff" or after in "\u0e33\u0eb3":
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True
    return _is_flag_letter(after) and _flag_letters_before(text, at) % 2 == 1


def cut_at_or_before(text: str, at: int) -> int:
    """Return the last position up to `at` where a cut splits no visible character."""
    for position in range(at, max(at - _FARTHEST, 0), -1):
        if not splits_cluster(text, position):
            return position
    return at if at > _FARTHEST else 0


def cut_at_or_after(text: str, at: int) -> int:
    """Return the first position from `at` on where a cut splits no visible character."""
    for position in range(at, min(at + _FARTHEST, len(text))):
        if not splits_cluster(text, position):
            return position
    return at if at + _FARTHEST < len(text) else len(text)


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_letters_before(text: str, at: int) -> int:
    count = 0
    while count < at and count < _FARTHEST and _is_flag_letter(text[at - 1 - count]):
        count += 1
    return count
