"""OpenCode: the tables `session`, `message` and `part` of its SQLite file, `opencode.db`.

Our plugin (`cli/agent_plugins.py`) writes the messages of one session as JSON lines with the key
`transcript`; a message has the same id in the database and in the lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from commonplace.transcripts import plugin_lines
from commonplace.transcripts.noise import text_by_user, without_private_text
from commonplace.transcripts.record import Reading, Record, mapping_of, parse_time, text_of

CLIENT = "opencode"
TABLES: Mapping[str, Sequence[str]] = {
    "session": ("id", "parent_id", "directory"),
    "message": ("id", "session_id", "time_created", "data"),
    "part": ("id", "message_id", "data"),
}


def recognises(first: list[dict[str, Any]]) -> bool:
    """Return whether the first records of a file are those that our plugin writes."""
    return plugin_lines.are_plugin_records(CLIENT, first)


def read(path: Path, offset: int = 0, most_bytes: int | None = None) -> Reading:
    """Read the records after an offset of a file of our plugin."""
    return plugin_lines.read(CLIENT, path, offset, most_bytes)


def records(
    sessions: Iterable[Mapping[str, Any]],
    messages: Iterable[Mapping[str, Any]],
    parts: Iterable[Mapping[str, Any]],
) -> Iterator[Record]:
    """Yield the records of these rows, ordered by time, without those of sub-agents."""
    directories = {
        text_of(row["id"]): text_of(row.get("directory"))
        for row in sessions
        if not row.get("parent_id")
    }
    texts: dict[str, list[tuple[str, str]]] = {}
    for row in parts:
        part = _parse_object(row.get("data"))
        if part.get("type") == "text" and not part.get("synthetic") and not part.get("ignored"):
            found = texts.setdefault(text_of(row.get("message_id")), [])
            found.append((text_of(row.get("id")), text_of(part.get("text"))))
    for row in sorted(messages, key=lambda row: (_creation_time(row), text_of(row.get("id")))):
        identity, session = text_of(row.get("id")), text_of(row.get("session_id"))
        data = _parse_object(row.get("data"))
        role = data.get("role")
        if role not in ("user", "assistant") or data.get("summary") is True:
            continue
        if session not in directories:
            continue
        said_here = [text for _, text in sorted(texts.get(identity, ()))]
        text = text_by_user(*said_here) if role == "user" else without_private_text(*said_here)
        if text:
            at = parse_time(mapping_of(data.get("time")).get("created")) or parse_time(
                _creation_time(row)
            )
            cwd = directories[session] or text_of(mapping_of(data.get("path")).get("cwd"))
            yield Record(CLIENT, session, role, text, identity, at, cwd)


def _creation_time(row: Mapping[str, Any]) -> int:
    value = row.get("time_created")
    return value if isinstance(value, int) else 0


def _parse_object(value: Any) -> dict[str, Any]:
    try:
        return mapping_of(json.loads(value))
    except (TypeError, ValueError, RecursionError):
        return {}
