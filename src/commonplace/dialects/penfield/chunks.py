"""Cutting a document's text into chunks."""

from __future__ import annotations

import re
from dataclasses import dataclass

TARGET, MOST, OVERLAP = 400, 450, 50
_HEADING = re.compile(r"^(?:#{1,6} |[A-Z0-9][^\n]{0,80}\n[=-]{3,}$)", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"""[.!?…]["'”’)\]]{0,2}\s|[。！？]|\n""")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a document: text[start:stop]."""

    start: int
    stop: int
    text: str


def chunked(text: str) -> list[Chunk]:
    """Chunks of about 400 characters, at most 450, that share about 50 with the one before.

    Cut before a heading, else after a paragraph, a sentence, or a word. Chunks on both sides of a
    heading share nothing. Chunks that would hold no character but blanks are left out.
    """
    headings = [found.start() for found in _HEADING.finditer(text)]
    found: list[Chunk] = []
    start, length = 0, len(text)
    while start < length:
        heading = next((at for at in headings if start + 1 <= at <= start + MOST), None)
        if heading is not None and text[start:heading].strip():
            stop, shared = heading, 0
        elif length - start <= MOST:
            stop, shared = length, 0
        else:
            stop, shared = _border(text, start), OVERLAP
        if text[start:stop].strip():
            found.append(Chunk(start, stop, text[start:stop]))
        start = stop if not shared or stop >= length else _shared_start(text, start, stop, shared)
    return found


def _border(text: str, start: int) -> int:
    """The end of a chunk: after the last paragraph, sentence or word that is not too early."""
    window = text[start : start + MOST]
    for pattern, least in ((_PARAGRAPH, TARGET // 2), (_SENTENCE, TARGET // 2)):
        ends = [found.end() for found in pattern.finditer(window) if found.end() >= least]
        if ends:
            return start + ends[-1]
    blank = max(window.rfind(" ", TARGET // 2), window.rfind("\t", TARGET // 2))
    return start + (blank + 1 if blank > 0 else TARGET)


def _shared_start(text: str, start: int, stop: int, shared: int) -> int:
    """The start of the next chunk: at a word a little before `stop`, but after `start`."""
    at = max(start + 1, stop - shared)
    blank = text.find(" ", at, stop)
    return blank + 1 if blank >= 0 and blank + 1 < stop else at
