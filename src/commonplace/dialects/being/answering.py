"""How the contract answers: failures, refusals, and what a read-only token may not do."""

from __future__ import annotations

import re
from typing import Any

from commonplace.dialects.contract import ReadOnly, Tool, Wire
from commonplace.errors import CommonplaceError

NO_ACTION = "Read-only token cannot perform this action"
NO_TOOL = "Read-only token cannot call write tools"
READ_ONLY = ReadOnly(
    methods=frozenset(
        {"initialize", "notifications/initialized", "tools/list", "tools/call", "resources/list"}
        | {"resources/read", "prompts/list", "prompts/get", "ping"}
        # Clients of the newer protocol send these before the first request, and to cancel one.
        | {"server/discover", "notifications/cancelled"}
    ),
    other_method=NO_ACTION,
    other_tool=NO_TOOL,
)
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
