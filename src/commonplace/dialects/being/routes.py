"""The REST routes of beings, and the WebSocket of their bridges."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from commonplace.access.caller import NotPermitted
from commonplace.dialects.being import bridges
from commonplace.dialects.being.operations import OPERATIONS
from commonplace.dialects.contract import Rest
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound

PING_SECONDS = 30.0
UNSEEN_PINGS = 3
DIGITS = 18
_FORBIDDEN = "Read-only token cannot perform this action"

_SCOPES = {operation.name: operation.scope for operation in OPERATIONS}

Handler = Callable[[Request], Awaitable[Response]]


_ONE = "/v1/beings/{being_id}"
TABLE: tuple[tuple[str, str, str, int], ...] = (
    ("GET", "/v1/beings", "list_beings", 200),
    ("POST", "/v1/beings", "create_being", 201),
    ("GET", _ONE, "show_being", 200),
    ("DELETE", _ONE, "delete_being", 204),
    ("GET", f"{_ONE}/soul", "get_soul", 200),
    ("PUT", f"{_ONE}/soul", "put_soul", 200),
    ("GET", f"{_ONE}/preferences", "get_preferences", 200),
    ("PUT", f"{_ONE}/preferences", "put_preference", 200),
    ("GET", f"{_ONE}/relationships", "get_relationships", 200),
    ("POST", f"{_ONE}/relationships/update", "relationships_update", 200),
    ("PUT", f"{_ONE}/relationships/{{id}}", "put_relationship", 200),
    ("GET", f"{_ONE}/rules", "get_rules", 200),
    ("PUT", f"{_ONE}/rules", "put_rule", 200),
    ("GET", f"{_ONE}/notes", "get_notes", 200),
    ("POST", f"{_ONE}/notes", "post_note", 201),
    ("GET", f"{_ONE}/context", "rest_context", 200),
    ("POST", f"{_ONE}/memory/recall", "memory_recall", 200),
    ("POST", f"{_ONE}/memory/merge", "memory_merge", 200),
    ("POST", f"{_ONE}/memory/update", "memory_update", 200),
    ("POST", f"{_ONE}/memory/conclude", "memory_conclude", 200),
    ("POST", f"{_ONE}/memory/search-history", "memory_search_history", 200),
    ("POST", f"{_ONE}/memory/search-nodes", "memory_search_nodes", 200),
    ("POST", f"{_ONE}/memory/auto-recall", "memory_auto_recall", 200),
    ("POST", f"{_ONE}/patrol/trigger", "patrol_trigger", 200),
    ("POST", f"{_ONE}/messages", "add_messages", 201),
    ("GET", f"{_ONE}/capabilities", "list_capabilities", 200),
    ("POST", f"{_ONE}/capabilities/register", "register_capabilities", 201),
    ("DELETE", f"{_ONE}/capabilities/{{id}}", "delete_capability", 204),
    ("GET", f"{_ONE}/act/pending", "pending_acts", 200),
    ("POST", f"{_ONE}/act/pending/approve", "approve_act", 200),
    ("POST", f"{_ONE}/act/pending/reject", "reject_act", 200),
    ("POST", f"{_ONE}/sense", "bridge_sense", 201),
    ("GET", f"{_ONE}/sense/history", "sense_history", 200),
    ("GET", "/v1/llm-key", "about_llm_key", 200),
    ("PUT", "/v1/llm-key", "put_llm_key", 200),
    ("DELETE", "/v1/llm-key", "delete_llm_key", 204),
)
"""Method and path, the operation that they do, and the status when it went well."""


def routes(rest: Rest) -> list[BaseRoute]:
    """Every route of the dialect."""
    by_path: dict[str, dict[str, tuple[str, int]]] = {}
    for method, path, operation, status in TABLE:
        by_path.setdefault(path, {})[method] = (operation, status)
    return [
        WebSocketRoute(f"{_ONE}/bridge/ws", _bridge(rest)),
        *(
            Route(path, _answering(rest, methods), methods=list(methods))
            for path, methods in by_path.items()
        ),
    ]


def _answering(rest: Rest, methods: dict[str, tuple[str, int]]) -> Handler:
    async def answer(request: Request) -> Response:
        operation, status = methods["GET" if request.method == "HEAD" else request.method]
        try:
            arguments = {**_given(rest, request), **request.path_params}
            value = await rest.perform(request, operation, arguments)
        except NotFound:
            return _error("Not found", 404)
        except NotPermitted:
            refused = _error(_FORBIDDEN, 403)
            needed = f'Bearer error="insufficient_scope", scope="{_SCOPES[operation]}"'
            refused.headers["www-authenticate"] = needed
            return refused
        except InvalidInput as error:
            return _error(str(error), 400)
        except Conflict as error:
            return _error(str(error), 409)
        except CommonplaceError as error:
            said = "Patrol failed" if operation == "patrol_trigger" else str(error)
            return _error(said, 500)
        return Response(status_code=204) if status == 204 else JSONResponse(value, status)

    return answer


def _given(rest: Rest, request: Request) -> dict[str, Any]:
    """The arguments of a request: of its query, or of its body."""
    if request.method in ("GET", "HEAD", "DELETE"):
        return {
            name: _number(value) if name == "limit" else value
            for name, value in request.query_params.items()
            if name in ("limit", "capability_id")
        }
    try:
        value = rest.json(request, {})
    except ValueError:
        raise InvalidInput("The body is not JSON.") from None
    if not isinstance(value, dict):
        raise InvalidInput("The body must be a JSON object.")
    return value


def _number(value: str) -> int | str:
    """A number of an address; what is none stays as it is, and is refused by its schema."""
    return int(value) if value.isdecimal() and len(value) <= DIGITS else value


def _error(text: str, status: int) -> Response:
    return JSONResponse({"error": text}, status)


# --- bridges -------------------------------------------------------------------------------------


def _bridge(rest: Rest) -> Callable[[WebSocket], Awaitable[None]]:
    async def endpoint(socket: WebSocket) -> None:
        await socket.accept()
        try:
            let_in = await rest.perform(
                socket, "bridge_connect", {"being_id": socket.path_params["being_id"]}
            )
        except CommonplaceError:
            await _refuse(socket, "Unauthorized")
            return
        await _Conversation(rest, socket, let_in["space"], let_in["being"]).run()

    return endpoint


async def _refuse(socket: WebSocket, message: str) -> None:
    await socket.send_json({"type": "error", "message": message})
    await socket.close(1008)


class _Conversation:
    """With one bridge, from its connection to its end."""

    def __init__(self, rest: Rest, socket: WebSocket, space: str, being: str) -> None:
        self._rest = rest
        self._socket = socket
        self._space = space
        self._being = being
        self._bridge: bridges.Bridge | None = None
        self._loop = asyncio.get_running_loop()
        self._unseen = 0

    async def run(self) -> None:
        """Until either side ends it."""
        await self._say({"type": "connected", "being_id": self._being})
        pinging = asyncio.create_task(self._ping())
        try:
            while True:
                try:
                    message = json.loads(await self._socket.receive_text())
                except (ValueError, KeyError):
                    await self._complain("A message must be a JSON object as text.")
                    continue
                if not isinstance(message, dict):
                    await self._complain("A message must be a JSON object.")
                    continue
                if message.get("type") == "disconnect":
                    await self._socket.close(1000)
                    return
                await self._hear(message)
        except WebSocketDisconnect:
            pass
        finally:
            pinging.cancel()
            self._let_go()

    async def _hear(self, message: dict[str, Any]) -> None:
        self._unseen = 0
        kind = message.get("type")
        if kind == "register":
            await self._register(message)
        elif kind == "pong":
            pass
        elif kind not in ("sense", "act_result"):
            await self._complain("There is no such message.")
        elif self._bridge is None:
            await self._complain("Register first.")
        elif kind == "sense":
            await self._sense(message)
        else:
            status = message.get("status")
            if status not in ("completed", "failed"):
                await self._complain("status must be completed or failed.")
            elif not self._bridge.answer(str(message.get("act_id")), status, message.get("result")):
                await self._complain("No act of that id waits.")

    async def _register(self, message: dict[str, Any]) -> None:
        given = message.get("capabilities")
        try:
            if not isinstance(given, list) or len(given) > bridges.CAPABILITIES:
                raise InvalidInput(
                    f"capabilities must be a list of at most {bridges.CAPABILITIES}."
                )
            bridge = bridges.Bridge(
                str(message.get("bridge_id") or uuid.uuid4())[:200],
                str(message.get("bridge_name") or "")[:200],
                tuple(bridges.capability(each) for each in given),
                self._send,
            )
            known = {"being_id": self._being, "bridge_id": bridge.id, "bridge_name": bridge.name,
                     "capabilities": [each.as_dict() for each in bridge.capabilities]}  # fmt: skip
            await self._rest.perform(self._socket, "register_capabilities", known)
            self._let_go()
            bridges.connect(self._space, self._being, bridge)
        except CommonplaceError as error:
            await self._complain(str(error))
            return
        self._bridge = bridge
        await self._say(
            {"type": "registered", "bridge_id": bridge.id, "capabilities_count": len(given)}
        )

    async def _sense(self, message: dict[str, Any]) -> None:
        arguments = {
            "being_id": self._being,
            "capability_id": str(message.get("capability_id")),
            "data": message.get("data"),
        }
        try:
            taken = await self._rest.perform(self._socket, "bridge_sense", arguments)
        except CommonplaceError as error:
            await self._complain(str(error))
            return
        await self._say({"type": "sense_ack", "sense_id": taken["sense_id"]})

    def _send(self, message: dict[str, Any]) -> None:
        """From any thread: an act is asked for by a call's worker."""
        self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._say(message)))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            self._unseen += 1
            if self._unseen > UNSEEN_PINGS:
                await self._socket.close(1001)
                return
            await self._say({"type": "ping"})

    async def _complain(self, message: str) -> None:
        await self._say({"type": "error", "message": message})

    async def _say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it has just gone
            await self._socket.send_json(message)

    def _let_go(self) -> None:
        if self._bridge is not None:
            bridges.disconnect(self._space, self._being, self._bridge)
            self._bridge = None
