"""The formats of line-based transcripts, by the name of their client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from commonplace.transcripts import claude_code, codex, cursor, gemini, openclaw, opencode, vscode
from commonplace.transcripts.lines import first_objects
from commonplace.transcripts.record import Reading

_DETECTION_RECORDS = 20  # records that are read to detect a file's format


class _Reader(Protocol):
    def __call__(self, path: Path, offset: int = 0, most_bytes: int | None = None) -> Reading: ...


@dataclass(frozen=True, slots=True)
class TranscriptFormat:
    """The functions that recognise and read the files of a client."""

    recognises: Callable[[list[dict[str, Any]]], bool]
    read: _Reader


FORMATS: Mapping[str, TranscriptFormat] = {
    module.CLIENT: TranscriptFormat(module.recognises, module.read)
    for module in (opencode, openclaw, vscode, claude_code, codex, gemini, cursor)
}


def client_of(path: Path) -> str | None:
    """Return the client that wrote a transcript, by its content; None if it is unknown."""
    first = first_objects(path, _DETECTION_RECORDS)
    for client, known in FORMATS.items():
        if known.recognises(first):
            return client
    return gemini.CLIENT if gemini.is_document(path) else None
