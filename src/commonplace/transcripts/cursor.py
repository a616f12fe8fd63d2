"""Cursor: chats in the table `cursorDiskKV` of `state.vscdb`, and the files of its agent,
`projects/*/agent-transcripts/*.jsonl` in `~/.cursor`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from commonplace.transcripts.lines import json_lines, size_if_unended
from commonplace.transcripts.noise import text_by_user, without_private_text
from commonplace.transcripts.record import (
    Reading,
    Record,
    Role,
    line_id,
    list_of,
    mapping_of,
    parse_time,
    text_of,
)

CLIENT = "cursor"
TABLE, COLUMNS = "cursorDiskKV", ("key", "value")
_ROLES: dict[int, Role] = {1: "user", 2: "assistant"}


def recognises(first: list[dict[str, Any]]) -> bool:
    """Return whether the first records of a file are those of Cursor's agent."""
    return bool(first) and all(
        record.get("role") in ("user", "assistant")
        and isinstance(mapping_of(record.get("message")).get("content"), list)
        for record in first
    )


def read(path: Path, offset: int = 0, most_bytes: int | None = None) -> Reading:
    """Read the records after an offset of an agent's file, whose lines have no times and ids."""
    session, records = path.stem, []
    unended = size_if_unended(path)  # a line has the same id before and after its line end
    for value, line, end in json_lines(path, offset, most_bytes):
        offset = end
        role = value.get("role")
        if role not in ("user", "assistant") or "subagents" in path.parts:
            continue
        content = list_of(mapping_of(value.get("message")).get("content"))
        parts = [text_of(mapping_of(part).get("text")) for part in content]
        text = text_by_user(*parts) if role == "user" else without_private_text(*parts)
        if text:
            identity = line_id(session, str(end + (end == unended)), line)
            records.append(Record(CLIENT, session, role, text, identity))
    return Reading(records, offset)


def records(rows: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
    """Yield the records of the chats in these rows, chat by chat."""
    chats: dict[str, dict[str, Any]] = {}
    bubbles: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        kind, _, rest = text_of(row.get("key")).partition(":")
        if kind == "composerData":
            chats[rest] = _parse_object(row.get("value"))
        elif kind == "bubbleId":
            chat, _, bubble = rest.partition(":")
            value = _parse_object(row.get("value"))
            if text_of(value.get("text")):  # most bubbles are tool calls
                kept = ("type", "text", "createdAt", "timingInfo")
                bubbles[chat, bubble] = {key: value[key] for key in kept if key in value}
    for chat, data in sorted(chats.items(), key=lambda each: _creation_time(each[1])):
        if not data.get("subagentInfo"):
            yield from _records_of_chat(chat, data, bubbles)


def _records_of_chat(
    chat: str, data: dict[str, Any], bubbles: Mapping[tuple[str, str], dict[str, Any]]
) -> Iterator[Record]:
    place = mapping_of(mapping_of(data.get("workspaceIdentifier")).get("uri"))
    headers = list_of(data.get("fullConversationHeadersOnly")) or list_of(data.get("conversation"))
    for header in map(mapping_of, headers):
        identity = text_of(header.get("bubbleId"))
        bubble = bubbles.get((chat, identity)) or header
        kind = bubble.get("type")
        role = _ROLES.get(kind) if isinstance(kind, int) else None
        text = text_of(bubble.get("text"))
        text = text_by_user(text) if role == "user" else without_private_text(text)
        if role is None or not text:
            continue
        timing = mapping_of(bubble.get("timingInfo"))
        at = parse_time(bubble.get("createdAt")) or parse_time(timing.get("clientStartTime"))
        yield Record(
            CLIENT, chat, role, text, f"{chat}:{identity or line_id(chat, text)}",
            at or parse_time(data.get("createdAt")), text_of(place.get("fsPath")),
        )  # fmt: skip


def _creation_time(data: dict[str, Any]) -> float:
    at = parse_time(data.get("createdAt"))
    return at.timestamp() if at else 0.0


def _parse_object(value: Any) -> dict[str, Any]:
    try:
        return mapping_of(json.loads(value))
    except (TypeError, ValueError, RecursionError):
        return {}
