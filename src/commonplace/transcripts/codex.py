"""Codex: `sessions/YYYY/MM/DD/rollout-*.jsonl` in its home directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commonplace.transcripts.lines import first_objects, json_lines, size_if_unended
from commonplace.transcripts.noise import text_by_user, without_private_text
from commonplace.transcripts.record import (
    Reading,
    Record,
    line_id,
    list_of,
    mapping_of,
    parse_time,
    text_of,
)

CLIENT = "codex"
_RECORD_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
# Keys of the first record in the oldest releases.
_OLD_META_KEYS = {"id", "timestamp", "instructions", "git", "cwd", "originator", "cli_version"}


def recognises(first: list[dict[str, Any]]) -> bool:
    """Return whether the first records of a file are of this format."""
    return any(
        (record.get("type") in _RECORD_TYPES and isinstance(record.get("payload"), dict))
        or ("id" in record and "instructions" in record and record.keys() <= _OLD_META_KEYS)
        for record in first
    )


def read(path: Path, offset: int = 0, most_bytes: int | None = None) -> Reading:
    """Read the records after an offset of a session's file; none for a sub-agent's session."""
    meta = _session_meta(path)
    source = meta.get("source")
    skipped = isinstance(source, dict) and ("subagent" in source or "subAgent" in source)
    records: list[Record] = []
    unended = size_if_unended(path)
    for value, line, end in json_lines(path, offset, most_bytes):
        offset = end
        place = end + (end == unended)  # the same before and after the line's end is written
        if value and not skipped and (record := _record(value, line, place, meta, path)):
            records.append(record)
    return Reading(records, offset)


def _session_meta(path: Path) -> dict[str, Any]:
    """Return the session's metadata in the file's first record; the oldest releases have no
    payload."""
    for first in first_objects(path, 1):
        return mapping_of(first.get("payload")) if "payload" in first else first
    return {}


def _record(
    value: dict[str, Any], line: bytes, place: int, meta: dict[str, Any], path: Path
) -> Record | None:
    item = mapping_of(value.get("payload")) if value.get("type") == "response_item" else value
    role = item.get("role")
    if item.get("type") != "message" or role not in ("user", "assistant"):
        return None
    parts = [text_of(mapping_of(part).get("text")) for part in list_of(item.get("content"))]
    text = text_by_user(*parts) if role == "user" else without_private_text(*parts)
    if not text:
        return None
    session = text_of(meta.get("session_id")) or text_of(meta.get("id")) or path.stem
    at = parse_time(value.get("timestamp"))
    # without a time, two equal lines are told apart by their offsets, which never change
    known = line_id(session, line) if at else line_id(session, str(place), line)
    branch = text_of(mapping_of(meta.get("git")).get("branch"))
    return Record(
        CLIENT, session, role, text, known, at or parse_time(meta.get("timestamp")),
        text_of(meta.get("cwd")), branch,
    )  # fmt: skip
