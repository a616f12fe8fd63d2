"""The workspace over HTTP: `/v1/workspaces/…`, each route an operation through the gate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from commonplace.access.caller import NotPermitted
from commonplace.dialects.contract import Rest
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound

_STATUS: Mapping[type[CommonplaceError], int] = {
    InvalidInput: 400, NotFound: 404, Conflict: 409, NotPermitted: 403,
}  # fmt: skip
_ROOT = "/v1/workspaces"
OWN = "current"
"""What the caller's own workspace can be called, whatever its id."""
_HERE = _ROOT + "/{workspace}"

# (method, path, operation, status when it went well)
_ROUTES: tuple[tuple[str, str, str, int], ...] = (
    ("GET", _ROOT, "list_workspaces", 200),
    ("POST", _ROOT, "create_workspace", 201),
    ("GET", _HERE, "show_workspace", 200),
    ("GET", _HERE + "/wake-up", "show_wake_up", 200),
    ("GET", _HERE + "/agents", "list_agents", 200),
    ("POST", _HERE + "/agents", "create_agent", 201),
    ("GET", _HERE + "/users", "list_users", 200),
    ("POST", _HERE + "/users", "create_user", 201),
    ("GET", _HERE + "/conversations", "all_conversations", 200),
    ("POST", _HERE + "/conversations", "create_conversation", 201),
    ("GET", _HERE + "/conversations/{conversation_id}/messages", "list_messages", 200),
    ("POST", _HERE + "/conversations/{conversation_id}/messages", "add_message", 201),
    ("GET", _HERE + "/history", "show_history", 200),
    ("GET", _HERE + "/agents/{agent_slug}/history", "show_history", 200),
    ("GET", _HERE + "/push-key", "show_push_key", 200),
    ("POST", _HERE + "/push-subscriptions", "register_subscription", 201),
    ("POST", _HERE + "/push-subscriptions/forget", "forget_subscription", 200),
    ("PATCH", _HERE + "/workflows/{workflow_id}", "change_workflow", 200),
    ("GET", _HERE + "/executions/{execution_id}", "show_execution", 200),
    ("POST", _HERE + "/executions/{execution_id}/approve", "approve_execution", 200),
    ("POST", _HERE + "/executions/{execution_id}/cancel", "cancel_execution", 200),
)
_NUMBERS = ("limit", "before")


def routes(rest: Rest) -> list[BaseRoute]:
    """All routes; one that names another workspace than the caller's finds nothing."""
    by_path: dict[str, dict[str, tuple[str, int]]] = {}
    for method, path, operation, status in _ROUTES:
        by_path.setdefault(path, {})[method] = (operation, status)
    return [
        Route(path, _endpoint(rest, methods), methods=list(methods))
        for path, methods in by_path.items()
    ]


def _endpoint(
    rest: Rest, methods: Mapping[str, tuple[str, int]]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        operation, status = methods["GET" if request.method == "HEAD" else request.method]
        try:
            arguments = {**_given(rest, request), **request.path_params}
            workspace = arguments.pop("workspace", None)
            if workspace not in (None, OWN, rest.caller(request).space):
                shown = await rest.perform(request, "show_workspace", {})
                if workspace != shown["id"]:
                    raise NotFound("There is no such workspace.")
            return JSONResponse(await rest.perform(request, operation, arguments), status)
        except CommonplaceError as error:
            return _failed(error)

    return endpoint


def _given(rest: Rest, request: Request) -> dict[str, Any]:
    if request.method in ("GET", "HEAD"):
        return {name: _value(name, value) for name, value in request.query_params.items()}
    try:
        given = rest.json(request, {})
    except ValueError:
        raise InvalidInput("The body is not valid JSON.") from None
    if not isinstance(given, dict):
        raise InvalidInput("The body must be a JSON object.")
    return given


def _value(name: str, value: str) -> Any:
    return int(value) if name in _NUMBERS and value.isascii() and value.isdigit() else value


def _failed(error: CommonplaceError) -> Response:
    found = (status for kind, status in _STATUS.items() if isinstance(error, kind))
    answer = JSONResponse({"error": error.as_dict()}, next(found, 503))
    if isinstance(error, NotPermitted):
        answer.headers["www-authenticate"] = 'Bearer error="insufficient_scope"'
    return answer
