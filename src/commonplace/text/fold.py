"""One spelling for every text that a reader would call the same, for substring search."""

from __future__ import annotations

from unicodedata import normalize


def fold(text: str) -> str:
    """The text without differences of case, width or composition. Folding twice changes nothing."""
    if text.isascii():
        return text.lower()
    # Case folding can undo a composition and composing can undo a folding: twice settles both.
    once = normalize("NFKC", normalize("NFD", text).casefold())
    return normalize("NFKC", once.casefold())


def trigrams(folded: str) -> list[str]:
    """Every distinct run of three characters, in order of first appearance.

    Whatever contains a text has all of that text's trigrams; a text of one or two
    characters has none, and has to be searched for without them.
    """
    return list(dict.fromkeys(folded[at : at + 3] for at in range(len(folded) - 2)))
