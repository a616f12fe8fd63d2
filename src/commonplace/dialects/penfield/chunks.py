"""Split the text of a document into chunks."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

TARGET_CHARS, MAX_CHARS, OVERLAP_CHARS = 400, 450, 50
_HEADING = re.compile(r"^(?:#{1,6} |[A-Z0-9][^\n]{0,80}\n[=-]{3,}$)", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"""[.!?…]["'”’)\]]{0,2}\s|[。！？]|\n""")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document: text[start:stop]."""

    start: int
    stop: int
    text: str


def split_text(text: str) -> list[Chunk]:
    """Split a text into chunks of about 400, at most 450 characters, which overlap by about 50.

    A chunk ends before a heading, or else after a paragraph, a sentence, or a word. Chunks on both
    sides of a heading do not overlap. Blank chunks are omitted.
    """
    headings = [found.start() for found in _HEADING.finditer(text)]
    found: list[Chunk] = []
    start, length = 0, len(text)
    while start < length:
        following = bisect_right(headings, start)
        heading = headings[following] if following < len(headings) else length
        if heading <= start + MAX_CHARS and heading < length and text[start:heading].strip():
            stop, shared = heading, 0
        elif length - start <= MAX_CHARS:
            stop, shared = length, 0
        else:
            stop, shared = _chunk_end(text, start), OVERLAP_CHARS
        if text[start:stop].strip():
            found.append(Chunk(start, stop, text[start:stop]))
        start = stop if not shared or stop >= length else _next_start(text, start, stop, shared)
    return found


def _chunk_end(text: str, start: int) -> int:
    """Return the end of a chunk: after a paragraph, a sentence or a word."""
    window = text[start : start + MAX_CHARS]
    for pattern, least in ((_PARAGRAPH, TARGET_CHARS // 2), (_SENTENCE, TARGET_CHARS // 2)):
        ends = [found.end() for found in pattern.finditer(window) if found.end() >= least]
        if ends:
            return start + ends[-1]
    blank = max(window.rfind(" ", TARGET_CHARS // 2), window.rfind("\t", TARGET_CHARS // 2))
    return start + (blank + 1 if blank > 0 else TARGET_CHARS)


def _next_start(text: str, start: int, stop: int, shared: int) -> int:
    """Return the start of the next chunk: a word shortly before `stop`, but after `start`."""
    at = max(start + 1, stop - shared)
    blank = text.find(" ", at, stop)
    return blank + 1 if blank >= 0 and blank + 1 < stop else at
