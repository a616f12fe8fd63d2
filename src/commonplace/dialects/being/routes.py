"""The REST routes, the WebSocket route of bridges, and the format of errors."""

from __future__ import annotations

import re
from typing import Any

from commonplace.access.caller import NotPermitted
from commonplace.dialects.being.sockets import connect
from commonplace.dialects.contract import ReadOnly, Tool, Wire
from commonplace.dialects.rest import Exchange, Reply, Rest, Route, status_of
from commonplace.errors import CommonplaceError, NotFound

NO_ACTION = "Read-only token cannot perform this action"
NO_TOOL = "Read-only token cannot call write tools"
READ_ONLY = ReadOnly(
    methods=frozenset(
        {"initialize", "notifications/initialized", "tools/list", "tools/call", "resources/list"}
        | {"resources/read", "prompts/list", "prompts/get", "ping"}
        # Clients of newer MCP versions send the first at the start, the second to cancel a request.
        | {"server/discover", "notifications/cancelled"}
    ),
    method_error=NO_ACTION,
    tool_error=NO_TOOL,
)
_NUMBER = re.compile(r"\d+")


def format_error(tool: Tool, error: CommonplaceError) -> Wire:
    """Return an error result as text; for recall, a result that is not marked as an error."""
    if tool.name == "recall":
        text = f"The memory could not be searched ({error.message}) Continue without it."
        return {"content": [{"type": "text", "text": text}], "isError": False}
    return {"content": [{"type": "text", "text": f"error: {error}"}], "isError": True}


def format_refusal(status: int, code: str, message: str, request: str) -> dict[str, Any]:
    """Return the body of an HTTP error."""
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


def _format_rest_error(exchange: Exchange, error: CommonplaceError) -> Reply:
    status = status_of(error, otherwise=500)
    if isinstance(error, NotFound):
        message = "Not found"
    elif isinstance(error, NotPermitted):
        message = NO_ACTION
    elif status == 500 and exchange.route.operation == "patrol_trigger":
        message = "Patrol failed"
    else:
        message = str(error)
    return Reply({"error": message}, status)


_ONE = "/v1/beings/{being_id}"
_ROUTES = (
    Route("WEBSOCKET", f"{_ONE}/bridge/ws", "bridge_connect", answer=connect),
    Route("GET", "/v1/beings", "list_beings"),
    Route("POST", "/v1/beings", "create_being", 201),
    Route("GET", _ONE, "show_being"),
    Route("DELETE", _ONE, "delete_being", 204),
    Route("GET", f"{_ONE}/soul", "get_soul"),
    Route("PUT", f"{_ONE}/soul", "put_soul"),
    Route("GET", f"{_ONE}/preferences", "get_preferences"),
    Route("PUT", f"{_ONE}/preferences", "put_preference"),
    Route("GET", f"{_ONE}/relationships", "get_relationships"),
    Route("POST", f"{_ONE}/relationships/update", "relationships_update"),
    Route("PUT", f"{_ONE}/relationships/{{id}}", "put_relationship"),
    Route("GET", f"{_ONE}/rules", "get_rules"),
    Route("PUT", f"{_ONE}/rules", "put_rule"),
    Route("GET", f"{_ONE}/notes", "get_notes"),
    Route("POST", f"{_ONE}/notes", "post_note", 201),
    Route("GET", f"{_ONE}/clusters", "get_clusters"),
    Route("GET", f"{_ONE}/diary", "get_diary"),
    Route("POST", f"{_ONE}/talk", "talk"),
    Route("GET", f"{_ONE}/context", "rest_context"),
    Route("POST", f"{_ONE}/memory/recall", "memory_recall"),
    Route("POST", f"{_ONE}/memory/merge", "memory_merge"),
    Route("POST", f"{_ONE}/memory/update", "memory_update"),
    Route("POST", f"{_ONE}/memory/conclude", "memory_conclude"),
    Route("POST", f"{_ONE}/memory/search-history", "memory_search_history"),
    Route("POST", f"{_ONE}/memory/search-nodes", "memory_search_nodes"),
    Route("POST", f"{_ONE}/memory/auto-recall", "memory_auto_recall"),
    Route("POST", f"{_ONE}/patrol/trigger", "patrol_trigger"),
    Route("POST", f"{_ONE}/messages", "add_messages", 201),
    Route("GET", f"{_ONE}/capabilities", "list_capabilities"),
    Route("POST", f"{_ONE}/capabilities/register", "register_capabilities", 201),
    Route("DELETE", f"{_ONE}/capabilities/{{id}}", "delete_capability", 204),
    Route("GET", f"{_ONE}/act/pending", "pending_acts"),
    Route("POST", f"{_ONE}/act/pending/approve", "approve_act"),
    Route("POST", f"{_ONE}/act/pending/reject", "reject_act"),
    Route("POST", f"{_ONE}/sense", "bridge_sense", 201),
    Route("GET", f"{_ONE}/sense/history", "sense_history"),
    Route("GET", "/v1/llm-key", "about_llm_key"),
    Route("PUT", "/v1/llm-key", "put_llm_key"),
    Route("DELETE", "/v1/llm-key", "delete_llm_key", 204),
)

REST = Rest(routes=_ROUTES, format_error=_format_rest_error)
