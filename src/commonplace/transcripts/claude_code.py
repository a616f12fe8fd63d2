"""Claude Code: `projects/*/SESSION.jsonl` in its configuration directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commonplace.transcripts.lines import json_lines
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

CLIENT = "claude-code"
# Keys of lines that the client wrote itself, or that repeat other lines.
_SKIPPED_KEYS = (
    "isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly", "isVirtual",
    "isApiErrorMessage", "agentId", "toolUseResult",
)  # fmt: skip
# Sources of a prompt other than a person.
_NON_HUMAN_SOURCES = ("sdk", "system", "loop_wakeup", "schedule_wakeup", "poll_event")


def recognises(first: list[dict[str, Any]]) -> bool:
    """Return whether the first records of a file are of this format."""
    return any(
        "sessionId" in record and "type" in record and ("uuid" in record or "leafUuid" in record)
        for record in first
    )


def is_subagent(path: Path) -> bool:
    """Return whether a file is the transcript of a sub-agent, by its path."""
    return "subagents" in path.parts or path.name.startswith("agent-")


def read(path: Path, offset: int = 0, most_bytes: int | None = None) -> Reading:
    """Read the records after an offset of a session's file; none for a sub-agent's file."""
    records: list[Record] = []
    for value, line, end in json_lines(path, offset, most_bytes):
        offset = end
        if value and not is_subagent(path) and (record := record_of(value, line)):
            records.append(record)
    return Reading(records, offset)


def record_of(value: dict[str, Any], line: bytes) -> Record | None:
    """Return the record of a line; None if it is not a message of the user or the assistant."""
    role = value.get("type")
    if role not in ("user", "assistant") or any(value.get(flag) for flag in _SKIPPED_KEYS):
        return None
    message = mapping_of(value.get("message"))
    if message.get("model") == "<synthetic>" or not _is_from_person(value):
        return None
    content = message.get("content")
    parts = [content] if isinstance(content, str) else _texts(content)
    text = text_by_user(*parts) if role == "user" else without_private_text(*parts)
    if not text:
        return None
    # a forked session copies lines, with a reference to the original
    copied = mapping_of(value.get("forkedFrom"))
    session = text_of(copied.get("sessionId")) or text_of(value.get("sessionId"))
    known = text_of(copied.get("messageUuid")) or text_of(value.get("uuid"))
    identity, at = known or line_id(session, line), parse_time(value.get("timestamp"))
    branch = text_of(value.get("gitBranch"))
    if branch == "HEAD":  # Git's name for a detached HEAD
        branch = ""
    return Record(CLIENT, session, role, text, identity, at, text_of(value.get("cwd")), branch)


def _is_from_person(value: dict[str, Any]) -> bool:
    origin = mapping_of(value.get("origin")).get("kind", "human")
    return origin == "human" and value.get("promptSource") not in _NON_HUMAN_SOURCES


def _texts(content: Any) -> list[str]:
    parts = [mapping_of(part) for part in list_of(content)]
    return [text_of(part.get("text")) for part in parts if part.get("type") == "text"]
