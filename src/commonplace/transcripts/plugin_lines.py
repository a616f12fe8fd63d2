"""Transcripts that our plugins write for agents without transcript files.

Each line has the client's name in `transcript`; a message always gets the same id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commonplace.transcripts.lines import json_lines
from commonplace.transcripts.noise import text_by_user, without_private_text
from commonplace.transcripts.record import Reading, Record, parse_time, text_of


def are_plugin_records(client: str, first: list[dict[str, Any]]) -> bool:
    """Return whether the first records of a file are those of a client's plugin."""
    return bool(first) and all(record.get("transcript") == client for record in first)


def read(client: str, path: Path, offset: int, most_bytes: int | None) -> Reading:
    """Read the records after an offset of a plugin's file."""
    found = []
    for value, _, end in json_lines(path, offset, most_bytes):
        offset = end
        role, text = value.get("role"), text_of(value.get("text"))
        if role not in ("user", "assistant"):
            continue
        text = text_by_user(text) if role == "user" else without_private_text(text)
        session, identity = text_of(value.get("session")), text_of(value.get("id"))
        if text and session and identity:
            at, cwd = parse_time(value.get("at")), text_of(value.get("cwd"))
            found.append(Record(client, session, role, text, identity, at, cwd))
    return Reading(found, offset)
