"""How the contract answers: failures, refusals, and what a read-only token may not do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from commonplace.access.caller import Caller
from commonplace.dialects.contract import Tool, Wire
from commonplace.errors import CommonplaceError

READ_TOOLS = frozenset(
    {"recall_memory", "search_history", "get_context", "get_current_time", "recall"}
    | {"search_memory"}  # in neither of the contract's lists, and a read
)
READ_METHODS = frozenset(
    {"initialize", "notifications/initialized", "tools/list", "tools/call", "resources/list"}
    | {"resources/read", "prompts/list", "prompts/get", "ping"}
    # What clients of the newer protocol say before they ask for anything, and to stop asking.
    | {"server/discover", "notifications/cancelled"}
)
NO_ACTION = "Read-only token cannot perform this action"
NO_TOOL = "Read-only token cannot call write tools"
_NUMBER = re.compile(r"\d+")


def fail(tool: Tool, error: CommonplaceError) -> Wire:
    """A failure as text; recall never fails, it only remembers nothing."""
    if tool.name == "recall":
        said = f"Memory could not be searched just now ({error.message}) Go on without it."
        return {"content": [{"type": "text", "text": said}], "isError": False}
    return {"content": [{"type": "text", "text": f"error: {error}"}], "isError": True}


def refuse(status: int, code: str, message: str, request: str) -> dict[str, Any]:
    """What the door answers itself."""
    del code, request
    if status == 401:
        return {"error": "Unauthorized"}
    if status == 404:
        return {"error": "Not found"}
    if status == 429:
        seconds = int(found[0]) if (found := _NUMBER.search(message)) else 1
        return {
            "statusCode": 429,
            "error": "Too Many Requests",
            "message": f"Rate limit exceeded. Try again in {seconds} seconds.",
            "Retry-After": seconds,
        }
    if status == 500:
        return {"error": "Internal MCP error"}
    return {"error": message}


def forbid(caller: Caller, messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Why a read-only token may not send these messages, each looked at by itself."""
    if "write" in caller.scopes:
        return None
    for message in messages:
        method = message.get("method")
        if method is None and ("result" in message or "error" in message):
            continue  # an answer to what the server asked
        if method not in READ_METHODS:
            return NO_ACTION
        if method == "tools/call":
            params = message.get("params")
            name = params.get("name") if isinstance(params, Mapping) else None
            if name not in READ_TOOLS:
                return NO_TOOL
    return None
