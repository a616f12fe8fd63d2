"""Sessions of chat: engine conversations named `mama:<source>:<channel>:<id>`."""

from __future__ import annotations

from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform.service import operation
from commonplace.dialects.rest import Route
from commonplace.engine.commonplace import Commonplace

PREFIX = "mama"
SOURCES = ("viewer", "mobile", "discord", "telegram", "slack", "cron")
LISTED_SOURCES = ("viewer", "discord", "telegram", "slack")
"""The groups of the list, by source; mobile sessions are in the viewer's group."""


def conversation_name(source: str, channel: str, id: str) -> str:
    """Return the name of a session's conversation."""
    return f"{PREFIX}:{source}:{channel}:{id}"


def all_sessions(memory: Commonplace) -> list[dict[str, Any]]:
    """Return all sessions, the last active one first."""
    found = []
    for name, count in memory.conversations.names():
        parts = name.split(":", 3)
        if len(parts) == 4 and parts[0] == PREFIX and parts[1] in SOURCES:
            found.append(_session_to_dict(memory, name, count))
    return sorted(found, key=lambda each: (-each["lastActive"], each["id"]))


def _session_to_dict(memory: Commonplace, name: str, count: int) -> dict[str, Any]:
    _, source, channel, id = name.split(":", 3)
    last = memory.conversations.history(name, limit=1)
    first = memory.conversations.history(name, limit=1, before=2) or last
    return {
        "id": id,
        "source": source,
        "channelId": channel,
        "channelName": None,
        "userId": None,
        "createdAt": _milliseconds(first[0].memory.created_at) if first else 0,
        "lastActive": _milliseconds(last[0].memory.created_at) if last else 0,
        "messageCount": count,
    }


def _milliseconds(at: Any) -> int:
    return int(at.timestamp() * 1000)


def list_sessions(call: Call) -> Any:
    """List sessions by their source, newest first."""
    groups: dict[str, list[dict[str, Any]]] = {name: [] for name in LISTED_SOURCES}
    for session in all_sessions(call.memory):
        source = "viewer" if session["source"] == "mobile" else session["source"]
        if source in groups:
            groups[source].append(session)
    return groups


def last_active(call: Call) -> Any:
    """Return the session that was last active, or null."""
    found = all_sessions(call.memory)
    return {"session": found[0] if found else None}


OPERATIONS = (
    operation("list_sessions", "List sessions", "read", list_sessions),
    operation("last_session", "Last active session", "read", last_active),
)
ROUTES = (
    Route("GET", "/api/sessions", "list_sessions"),
    Route("GET", "/api/sessions/last-active", "last_session"),
)
