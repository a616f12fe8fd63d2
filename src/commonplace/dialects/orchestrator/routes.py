"""The REST routes of workspaces: `/v1/workspaces/…`."""

from __future__ import annotations

from typing import Any

from commonplace.dialects.rest import Exchange, Method, Rest, Route
from commonplace.errors import NotFound

_ROOT = "/v1/workspaces"
OWN_WORKSPACE = "current"
"""An alias of the caller's own workspace in paths."""
_HERE = _ROOT + "/{workspace}"


async def _workspace_arguments(exchange: Exchange) -> dict[str, Any]:
    """Return the arguments; raise NotFound if the path has a workspace other than the caller's."""
    arguments = await exchange.request_arguments()
    workspace = arguments.pop("workspace", None)
    if workspace not in (None, OWN_WORKSPACE, exchange.caller.space):
        shown = await exchange.perform({}, "show_workspace")
        if workspace != shown["id"]:
            raise NotFound("There is no such workspace.")
    return arguments


def _route(method: Method, path: str, operation: str, status: int = 200) -> Route:
    return Route(method, path, operation, status, read=_workspace_arguments)


_ROUTES = (
    _route("GET", _ROOT, "list_workspaces"),
    _route("POST", _ROOT, "create_workspace", 201),
    _route("GET", _HERE, "show_workspace"),
    _route("GET", _HERE + "/wake-up", "show_wake_up"),
    _route("GET", _HERE + "/agents", "list_agents"),
    _route("POST", _HERE + "/agents", "create_agent", 201),
    _route("GET", _HERE + "/users", "list_users"),
    _route("POST", _HERE + "/users", "create_user", 201),
    _route("GET", _HERE + "/conversations", "all_conversations"),
    _route("POST", _HERE + "/conversations", "create_conversation", 201),
    _route("GET", _HERE + "/conversations/{conversation_id}/messages", "list_messages"),
    _route("POST", _HERE + "/conversations/{conversation_id}/messages", "add_message", 201),
    _route("GET", _HERE + "/history", "show_history"),
    _route("GET", _HERE + "/agents/{agent_slug}/history", "show_history"),
    _route("GET", _HERE + "/push-key", "show_push_key"),
    _route("POST", _HERE + "/push-subscriptions", "register_subscription", 201),
    _route("POST", _HERE + "/push-subscriptions/forget", "forget_subscription"),
    _route("POST", _HERE + "/agents/{agent_slug}/messages", "message_agent"),
    _route("GET", _HERE + "/workflows", "all_workflows"),
    _route("PATCH", _HERE + "/workflows/{workflow_id}", "change_workflow"),
    _route("GET", _HERE + "/executions", "list_executions"),
    _route("GET", _HERE + "/executions/{execution_id}", "show_execution"),
    _route("POST", _HERE + "/executions/{execution_id}/approve", "approve_execution"),
    _route("POST", _HERE + "/executions/{execution_id}/cancel", "cancel_execution"),
)

REST = Rest(routes=_ROUTES)
