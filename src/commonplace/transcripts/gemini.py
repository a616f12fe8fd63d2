"""Gemini CLI: `tmp/PROJECT/chats/session-*.jsonl`, in older releases `.json`, in `~/.gemini`.

The newer file is a log: a line adds a message, replaces the message with its id, or changes others.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from commonplace.transcripts.lines import first_objects, json_document, json_lines
from commonplace.transcripts.noise import text_by_user, without_private_text
from commonplace.transcripts.record import (
    Reading,
    Record,
    Role,
    list_of,
    mapping_of,
    parse_time,
    text_of,
)

CLIENT = "gemini"
_ROLES: dict[str, Role] = {"user": "user", "gemini": "assistant"}
_DETECTION_BYTES = 4_096

# Commands of the client, which it does not send to the model.
_CLIENT_COMMAND = re.compile(r"[/?][a-z]*(?: .*)?")


def recognises(first: list[dict[str, Any]]) -> bool:
    """Return whether the first records of a file are of this format."""
    return any("sessionId" in record and "projectHash" in record for record in first)


def is_document(path: Path) -> bool:
    """Return whether a file is one JSON document of the older format; it may have many lines."""
    if path.suffix != ".json":
        return False
    with path.open("rb") as stream:
        first = stream.read(_DETECTION_BYTES)
    return b'"sessionId"' in first and b'"projectHash"' in first


def read(path: Path, offset: int = 0, most_bytes: int | None = None) -> Reading:
    """Read the records after an offset of a session's file, each in its newest version.

    Messages that the user later discarded by going back are included.
    """
    if path.suffix == ".json":
        return _read_document(path)
    meta = next(iter(first_objects(path, 1)), {})
    found: dict[str, Record] = {}
    for value, _, end in json_lines(path, offset, most_bytes):
        offset = end
        changed = list_of(mapping_of(value.get("$set")).get("messages"))
        for message in [value, *map(mapping_of, changed)]:
            if record := _record(message, meta, path):
                found[record.id] = record
    return Reading([] if meta.get("kind") == "subagent" else list(found.values()), offset)


def _read_document(path: Path) -> Reading:
    with path.open("rb") as stream:
        whole = mapping_of(json_document(stream))
        end = stream.tell()
    messages = map(mapping_of, list_of(whole.get("messages")))
    records = [record for each in messages if (record := _record(each, whole, path))]
    return Reading([] if whole.get("kind") == "subagent" else records, end if whole else 0)


def _record(value: dict[str, Any], meta: dict[str, Any], path: Path) -> Record | None:
    role, identity = _ROLES.get(text_of(value.get("type"))), text_of(value.get("id"))
    if role is None or not identity:
        return None
    content = value.get("displayContent") or value.get("content")
    parts = [content] if isinstance(content, str) else _texts(content)
    text = text_by_user(*parts) if role == "user" else without_private_text(*parts)
    if not text or (role == "user" and _CLIENT_COMMAND.fullmatch(text)):
        return None
    session = text_of(meta.get("sessionId")) or path.stem
    at = parse_time(value.get("timestamp"))
    return Record(
        CLIENT, session, role, text, f"{session}:{identity}", at, _project_directory(meta, path)
    )


def _texts(content: Any) -> list[str]:
    parts = [content] if isinstance(content, dict) else list_of(content)
    return [
        part if isinstance(part, str) else text_of(mapping_of(part).get("text"))
        for part in parts
        if not mapping_of(part).get("thought")
    ]


def _project_directory(meta: dict[str, Any], path: Path) -> str:
    """Return the project's directory, which the client stores next to the chats."""
    try:
        return (path.parent.parent / ".project_root").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return next((text_of(each) for each in list_of(meta.get("directories"))), "")
