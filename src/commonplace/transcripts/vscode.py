"""VS Code: the transcripts of its chat, JSON lines of events such as `user.message`.

Copilot CLI writes the same events. The format is not documented and may change; files in another
format are not recognised and not captured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commonplace.transcripts.lines import first_objects, json_lines, size_if_unended
from commonplace.transcripts.noise import text_by_user, without_private_text
from commonplace.transcripts.record import (
    Reading,
    Record,
    Role,
    line_id,
    mapping_of,
    parse_time,
    text_of,
)

CLIENT = "vscode"
_ROLES: dict[str, Role] = {"user.message": "user", "assistant.message": "assistant"}
_START_EVENT = "session.start"


def recognises(first: list[dict[str, Any]]) -> bool:
    """Return whether the first records of a file are of this format."""
    return any(
        record.get("type") in (_START_EVENT, *_ROLES) and isinstance(record.get("data"), dict)
        for record in first
    )


def read(path: Path, offset: int = 0, most_bytes: int | None = None) -> Reading:
    """Read the records after an offset of a session's file."""
    first = next(iter(first_objects(path, 1)), {})
    start = mapping_of(first.get("data")) if first.get("type") == _START_EVENT else {}
    place = mapping_of(start.get("context"))
    session = text_of(start.get("sessionId")) or path.stem
    found, unended = [], size_if_unended(path)
    for value, line, end in json_lines(path, offset, most_bytes):
        offset = end
        role = _ROLES.get(text_of(value.get("type")))
        if role is None:
            continue
        content = text_of(mapping_of(value.get("data")).get("content"))
        text = text_by_user(content) if role == "user" else without_private_text(content)
        if text:
            identity = text_of(value.get("id")) or line_id(
                session, str(end + (end == unended)), line
            )
            found.append(Record(
                CLIENT, session, role, text, f"{session}:{identity}",
                parse_time(value.get("timestamp")), text_of(place.get("cwd")),
                text_of(place.get("branch")),
            ))  # fmt: skip
    return Reading(found, offset)
