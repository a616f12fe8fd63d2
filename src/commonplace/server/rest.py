"""Serves the REST routes of dialects: reads the request, calls `Gate`, formats the response."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from commonplace.access.caller import Caller, NotPermitted, Session, request_id
from commonplace.access.sessions import Sessions
from commonplace.dialects.contract import Dialect, RequestInfo, Schema, Tool
from commonplace.dialects.rest import Exchange, Rejected, Reply, Rest, Route
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.server.calls import ADMITTED, JSON_BODY, UNREADABLE, AdmittedRequest, Workers
from commonplace.server.connections import RECHECK_SECONDS
from commonplace.server.openapi import openapi_document
from commonplace.server.quotas import Quota, RemainingRequests
from commonplace.server.request import RECHECK, parse_body, refusal_response

PUBLIC_BODY_BYTES = 16_384  # largest body that is read before the caller is authenticated
WITH_BODY = ("POST", "PUT", "PATCH")
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,3})?")
_WHOLE = re.compile(r"-?\d{1,18}")
_ABSENT = object()
_NO_ARGUMENTS: Schema = {"type": "object", "properties": {}}


def routes_of(
    dialect: Dialect, workers: Workers, sessions: Sessions | None, quota: Quota | None
) -> list[BaseRoute]:
    """Return the routes of a dialect, for the HTTP application."""
    if dialect.rest is None:
        return []
    adapter = _Adapter(dialect, dialect.rest, workers, sessions, quota)
    by_path: dict[str, dict[str, Route]] = {}
    made: list[BaseRoute] = []
    for route in dialect.rest.routes:
        if route.operation and route.operation not in adapter.operations:
            raise ValueError(f"{dialect.name}: {route.path} names no operation of the dialect")
        for path in route.paths:
            if route.method == "WEBSOCKET":
                made.append(WebSocketRoute(path, adapter.socket_endpoint(route)))
            elif by_path.setdefault(path, {}).setdefault(route.method, route) is not route:
                raise ValueError(f"{dialect.name}: {route.method} {path} is declared twice")
    if dialect.rest.openapi is not None:
        described = JSONResponse(openapi_document(dialect, dialect.rest, dialect.rest.openapi))
        made.append(StarletteRoute(dialect.rest.openapi.path, lambda _: described))
    return [
        *made,
        *(StarletteRoute(path, _PathApplication(adapter, rows)) for path, rows in by_path.items()),
    ]


class _Adapter:
    """Answers the requests of one dialect."""

    def __init__(
        self,
        dialect: Dialect,
        rest: Rest,
        workers: Workers,
        sessions: Sessions | None,
        quota: Quota | None,
    ) -> None:
        self.dialect = dialect
        self.rest = rest
        self.workers = workers
        self.sessions = sessions
        self.operations = {tool.name: tool for tool in dialect.operations}
        self._quota = quota

    def socket_endpoint(self, route: Route) -> Any:
        """Return the endpoint of a WebSocket."""

        async def endpoint(socket: WebSocket) -> None:
            if route.answer is not None:
                await route.answer(_Exchange(self, route, socket))

        return endpoint

    async def respond(self, route: Route, request: Request) -> Response:
        """Return the answer to a request, within the quota of its space."""
        exchange = _Exchange(self, route, request)
        left: RemainingRequests | None = None
        if self._quota is not None:
            host = request.client.host if request.client else ""
            left = self._quota.count_request(
                f"address {host}" if route.public else exchange.caller.space
            )
        try:
            if left is not None and left.error is not None:
                raise left.error
            response = _starlette_response(await self._answer(exchange))
        except Rejected as error:
            response = refusal_response(error.status, error.code, error.message, self.dialect)
        except HTTPException as error:  # raised by Starlette for a malformed form
            unread = "The form cannot be read, or has too many parts."
            response = refusal_response(error.status_code, "BAD_REQUEST", unread, self.dialect)
        except CommonplaceError as error:
            reply = self.rest.format_error(exchange, error)
            if isinstance(error, NotPermitted):
                needed = f'Bearer error="insufficient_scope", scope="{exchange.scope}"'
                headers = {"www-authenticate": needed, **reply.headers}
                reply = Reply(reply.body, reply.status, headers, reply.media_type)
            response = _starlette_response(reply)
        if left is not None:
            response.headers.update(left.headers())
        return response

    async def _answer(self, exchange: _Exchange) -> Reply:
        route = exchange.route
        if route.answer is not None:
            return await route.answer(exchange) or Reply()
        exchange.arguments |= await (
            route.read(exchange) if route.read else exchange.request_arguments()
        )
        value = await exchange.perform(exchange.arguments)
        if route.status == 204:
            return Reply(status=204)
        shown = (route.show or self.rest.format_result)(exchange, value)
        return shown if isinstance(shown, Reply) else Reply(shown, route.status)


class _PathApplication:
    """An ASGI application for one path: chooses the route by the method."""

    def __init__(self, adapter: _Adapter, routes: Mapping[str, Route]) -> None:
        self._adapter = adapter
        self._routes = dict(routes)
        if "GET" in routes:
            self._routes["HEAD"] = routes["GET"]
        self._allowed = ", ".join([*self._routes, "OPTIONS"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        route = self._routes.get(request.method)
        if route is not None:
            response = await self._adapter.respond(route, request)
        elif request.method == "OPTIONS":
            response = Response(status_code=204, headers={"allow": self._allowed})
        else:
            use = f"Use {self._allowed}."
            response = refusal_response(405, "METHOD_NOT_ALLOWED", use, self._adapter.dialect)
            response.headers["allow"] = self._allowed
        await response(scope, receive, send)


class _Exchange(Exchange):
    """One request on its way through the adapter."""

    def __init__(self, adapter: _Adapter, route: Route, request: HTTPConnection) -> None:
        self._adapter = adapter
        self._request = request
        self._tool: Tool | None = adapter.operations.get(route.operation)
        self.route = route
        self.arguments: dict[str, Any] = {}
        self.started = self._recognised = time.perf_counter()

    @property
    def request(self) -> HTTPConnection:
        return self._request

    @property
    def caller(self) -> Caller:
        admitted: AdmittedRequest = self._request.scope[ADMITTED]
        return admitted.caller

    @property
    def request_id(self) -> str:
        return request_id.get()

    @property
    def scope(self) -> str:
        return self._tool.scope if self._tool else ""

    @property
    def input(self) -> Schema:
        return self._tool.input if self._tool else _NO_ARGUMENTS

    async def request_arguments(self) -> dict[str, Any]:
        if self.route.method in WITH_BODY:
            given = await self.json_body()
        else:
            given = self._query_arguments()
        return {**given, **self._request.path_params}

    def _query_arguments(self) -> dict[str, Any]:
        inside, properties = dict(self.route.names), self.input.get("properties", {})
        given = {
            inside.get(name, name): value
            for name, value in self._request.query_params.multi_items()
        }
        return {
            name: _convert(value, properties.get(name, {}).get("type"))
            for name, value in given.items()
        }

    async def json_body(self, kind: type = dict, *, required: bool = False) -> Any:
        value = await self._parsed_body()
        if value is _ABSENT and kind is dict and not required:
            return {}
        if value is _ABSENT or value is UNREADABLE:
            raise InvalidInput("The body is not valid JSON.")
        if not isinstance(value, kind):
            raise InvalidInput(f"The body must be a JSON {'list' if kind is list else 'object'}.")
        return value

    async def _parsed_body(self) -> Any:
        """Return the body as parsed by `Door`; read it here for a public route."""
        if not self.route.public:
            return self._request.scope.get(JSON_BODY, _ABSENT)
        assert isinstance(self._request, Request)
        body = b""
        try:
            async for part in self._request.stream():
                body += part
                if len(body) > PUBLIC_BODY_BYTES:
                    message = f"The body is larger than {PUBLIC_BODY_BYTES:,} bytes."
                    raise Rejected(413, "TOO_LARGE", message)
        except ClientDisconnect:
            raise Rejected(408, "TOO_SLOW", "The body was not received in time.") from None
        return parse_body(body) if body else _ABSENT

    async def parse_json(self, text: str) -> Any:
        value = await self._adapter.workers.run(parse_body, text.encode(errors="replace"))
        if value is UNREADABLE:
            raise InvalidInput("This is not valid JSON.")
        return value

    async def perform(self, arguments: Mapping[str, Any], operation: str = "") -> Any:
        recheck = self._request.scope.get(RECHECK)
        if recheck is not None and time.perf_counter() - self._recognised > RECHECK_SECONDS:
            await recheck()  # the credential may end during a long response
            self._recognised = time.perf_counter()
        outcome = await self._adapter.workers.perform_for_outcome(
            self._request.scope[ADMITTED], self._adapter.dialect,
            operation or self.route.operation, arguments,
        )  # fmt: skip
        if outcome.error is not None:
            raise outcome.error
        return outcome.wire["value"]

    @property
    def _sessions(self) -> Sessions:
        sessions = self._adapter.sessions
        if sessions is None:
            raise TypeError("a dialect with sessions declares JWTs in its token formats")
        return sessions

    async def open_session(self) -> Session:
        given = self._request.headers.get("authorization", "").strip()
        key = given.rpartition(" ")[2]  # `Door` has checked that there is a single bearer token
        await self.perform({})
        session: Session = await self._adapter.workers.run(self._sessions.open, key)
        return session

    async def renew_session(self, token: str) -> Session:
        renewed = await self._adapter.workers.run(self._sessions.renew, token)
        caller, session = renewed
        client = self._request.client
        info = RequestInfo(
            request=request_id.get(),
            client=self._request.headers.get("user-agent", "")[:200],
            address=client.host if client else "",
        )
        self._request.scope[ADMITTED] = AdmittedRequest(caller, info)
        await self.perform({})
        made: Session = session
        return made


def _convert(text: str, kind: Any) -> Any:
    """Return a query parameter converted to the schema's type; unchanged if that is impossible."""
    if kind == "integer" and _WHOLE.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        return float(text)
    if kind == "boolean" and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    return text


def _starlette_response(reply: Reply) -> Response:
    headers = dict(reply.headers)
    if isinstance(reply.body, AsyncIterator):
        return StreamingResponse(reply.body, reply.status, headers, reply.media_type)
    if reply.body is None and reply.status in (204, 304):
        return Response(None, reply.status, headers)
    if isinstance(reply.body, bytes) or reply.media_type != "application/json":
        return Response(reply.body, reply.status, headers, reply.media_type)
    return JSONResponse(reply.body, reply.status, headers)
