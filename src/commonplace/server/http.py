"""The HTTP application: every dialect at its paths, in both protocol eras and the oldest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from commonplace import __version__
from commonplace.dialects.contract import (
    Call,
    Caller,
    Circumstances,
    Dialect,
    NotPermitted,
    Session,
    Setting,
    Tool,
)
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.library import Library
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.server import served
from commonplace.server.accounts import Accounts
from commonplace.server.addresses import peer
from commonplace.server.credentials import Credentials, Unauthenticated
from commonplace.server.door import STILL, Door, Entrance
from commonplace.server.gate import Gate
from commonplace.server.oauth import OAuth, resources_of
from commonplace.server.oauth import routes as oauth_routes
from commonplace.server.observing import Metrics, request_id
from commonplace.server.protocol import ADMITTED, SPOKEN, Admitted, Workers, build
from commonplace.server.sessions import Sessions
from commonplace.server.settings import Settings
from commonplace.server.signed import Tokens
from commonplace.server.vault import Vault
from commonplace.storage.sqlite import Store

STREAMS = 256  # event streams open at the same time
NOTE_SECONDS = 60.0
WATCH_SECONDS = 2.0  # how often an open stream asks whether its credential still stands
VERSION_HEADER = b"mcp-protocol-version"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the application is made of."""

    settings: Settings
    library: Library
    system: Store
    tokens: Tokens
    accounts: Accounts
    vault: Vault


class Endpoint:
    """The dialects of one path: streamable HTTP, and the older handshake on the same path.

    Which of them answers depends on who calls; the door has decided it.
    """

    def __init__(self, path: str, servers: Mapping[str, Server[Any]], door: Streams) -> None:
        self.path = path
        self._servers = servers
        self._streams = door
        self.managers = {
            name: StreamableHTTPSessionManager(server, stateless=True, json_response=True)
            for name, server in servers.items()
        }
        self._older = SseServerTransport(path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by method, and by whether the client speaks the older protocol."""
        admitted: Admitted = scope[ADMITTED]
        scope["user"] = _user(admitted.caller)
        method = scope["method"]
        if method == "DELETE":
            await JSONResponse({})(scope, receive, send)  # there is no session to end
        elif method == "GET":
            await self._get(scope, receive, send)
        elif method == "POST" and b"session_id=" in scope["query_string"]:
            await self._older.handle_post_message(scope, receive, send)
        elif method == "POST":
            await self.managers[scope[SPOKEN]].asgi_app(scope, receive, send)
        else:
            await _not_allowed(scope, receive, send)

    async def _get(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if VERSION_HEADER in headers or b"text/event-stream" not in headers.get(b"accept", b""):
            await _not_allowed(scope, receive, send)  # a stateless server opens no stream
            return
        async with self._streams.opened(scope.get(STILL)) as there_is_room:
            if not there_is_room:
                busy = {"error": {"code": "BUSY", "message": "Too many streams are open."}}
                await JSONResponse(busy, 503, {"retry-after": "10"})(scope, receive, send)
                return
            async with self._older.connect_sse(scope, receive, send) as (incoming, outgoing):
                server = self._servers[scope[SPOKEN]]
                options = server.create_initialization_options()
                await server.run(incoming, outgoing, options)
            return
        # It was ended from here: the client is told that there is no more, unless it has been.
        with contextlib.suppress(RuntimeError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class Streams:
    """The open event streams: not too many, and none for a credential that has ended."""

    def __init__(self, metrics: Metrics) -> None:
        self._gauge = metrics.open_streams
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()

    @contextlib.asynccontextmanager
    async def opened(self, still: Callable[[], Caller] | None) -> AsyncIterator[bool]:
        """Hold a place while the stream lives; False when there is none left.

        The block is left quietly when the stream is ended from here.
        """
        task = asyncio.current_task()
        if len(self._tasks) >= STREAMS or task is None:
            yield False
            return
        self._tasks.add(task)
        self._gauge.inc()
        watching = asyncio.create_task(self._watch(still, task))
        try:
            yield True
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
        finally:
            watching.cancel()
            self._tasks.discard(task)
            self._ended.discard(task)
            self._gauge.dec()

    async def _watch(self, still: Callable[[], Caller] | None, task: asyncio.Task[Any]) -> None:
        while still is not None:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                still()
            except Unauthenticated:
                self._end(task)
                return
            except CommonplaceError as error:
                log.warning(
                    "a stream's credential could not be asked for", extra={"why": error.code}
                )

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._ended.add(task)
        task.cancel()

    def close(self) -> None:
        """End them all: the server stops."""
        for task in list(self._tasks):
            self._end(task)


async def _not_allowed(scope: Scope, receive: Receive, send: Send) -> None:
    allow = {"allow": "POST, DELETE"}
    body = {"error": {"code": "METHOD_NOT_ALLOWED", "message": "Use POST."}}
    await JSONResponse(body, 405, allow)(scope, receive, send)


def _user(caller: Caller) -> AuthenticatedUser:
    """The caller as the SDK binds an event stream to it: another's is as if it did not exist."""
    return AuthenticatedUser(
        AccessToken(
            token="", client_id=caller.credential or "local", scopes=[],
            subject=f"{caller.space}/{caller.user}",
        )
    )  # fmt: skip


def application(parts: Parts) -> ASGIApp:
    """The whole application behind its door."""
    settings = parts.settings
    default = served.load(settings.dialect)
    oauth = _oauth(parts)
    extra: list[Route] = []
    if oauth is not None:
        extra = oauth_routes(oauth, lambda request: peer(request.scope, settings.proxies))
    metrics = Metrics()
    dialects = {name: served.load(name) for name in served.DIALECTS}
    own = _own_operations(parts, metrics)
    gate = Gate(parts.library, parts.system, [*dialects.values(), own], metrics.calls)
    workers = Workers(gate, settings.call_seconds)
    streams = Streams(metrics)
    sessions = Sessions(parts.tokens)
    setting = Setting(
        library=parts.library,
        system=parts.system,
        environ=os.environ,
        perform=gate.perform,
        vault=lambda: parts.vault,
    )
    servers = {name: build(dialect, gate, workers) for name, dialect in dialects.items()}

    beings = dialects.get("being")
    paths: dict[str, str] = {"/mcp": default.name, "/mcp/": default.name}
    for name, where in served.DIALECTS.items():
        for path in where.paths:
            paths[path] = paths[f"{path}/"] = name
    open_paths = ("/mcp", "/mcp/")  # where a Being is spoken to as one
    endpoints = {}
    for path, name in paths.items():
        also = {beings.name} if beings is not None and path in open_paths else set()
        answering = {each: servers[each] for each in {name, *also}}
        endpoints[path] = Endpoint(path, answering, streams)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for dialect in dialects.values():
                if dialect.running is not None:
                    stack.enter_context(dialect.running(setting))
            for endpoint in endpoints.values():
                for manager in endpoint.managers.values():
                    await stack.enter_async_context(manager.run())
            noting = asyncio.create_task(_note_use(parts.tokens.credentials, workers))
            stack.callback(noting.cancel)
            yield
            streams.close()
        await asyncio.to_thread(workers.close)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "timestamp": int(time.time())})

    def operation(name: str) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            admitted: Admitted = request.scope[ADMITTED]
            try:
                wire = await workers.perform(admitted, own, name, {})
            except NotPermitted as error:
                body = {"error": {"code": error.code, "message": str(error)}}
                needed = 'Bearer error="insufficient_scope", scope="admin"'
                return JSONResponse(body, 403, {"www-authenticate": needed})
            if wire["isError"]:
                code, _, message = wire["content"][0]["text"].partition(": ")
                return JSONResponse({"error": {"code": code, "message": message}}, 503)
            if "structuredContent" in wire:
                return JSONResponse(wire["structuredContent"])
            return PlainTextResponse(wire["content"][0]["text"])

        return endpoint

    routes: list[BaseRoute] = [
        Route("/health", health),
        Route("/health/details", operation("health_details")),
        Route("/metrics", operation("metrics")),
        *extra,
        *(
            route
            for name in served.DIALECTS
            for route in served.routes(name, _ThroughGate(workers, dialects[name], sessions))
        ),
        *(Route(path, endpoint) for path, endpoint in endpoints.items()),
        Route("/mcp/{being_id}", endpoints["/mcp"]),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=_HANDLERS)
    app.router.redirect_slashes = False
    public = {"/health", *(route.path for route in extra if isinstance(route, Route))}

    def entrance(path: str) -> Entrance:
        if path in paths:
            also = beings if path in open_paths else None
            return Entrance(path, dialects[paths[path]], mcp=True, beings=also)
        if path in public or path.startswith("/.well-known/"):
            return Entrance(path if path in public else "/.well-known", public=True)
        if path.startswith("/mcp/") and path.count("/") == 2:
            being = path.removeprefix("/mcp/")
            return Entrance("/mcp/{being_id}", default, mcp=True, being=being, beings=beings)
        for name, where in served.DIALECTS.items():
            for rest in where.rest:
                if rest.matches(path):
                    return Entrance(
                        rest.path, dialects[name], rest.public, uploads=rest.uploads,
                        body=rest.body, websocket=rest.websocket,
                    )  # fmt: skip
        return (
            Entrance(path, own) if path in ("/health/details", "/metrics") else Entrance("unknown")
        )

    return Door(
        app,
        straight=endpoints,
        settings=settings,
        entrance=entrance,
        gate=gate,
        workers=workers,
        tokens=parts.tokens,
        metrics=metrics,
        oauth=oauth,
    )


def _oauth(parts: Parts) -> OAuth | None:
    """The authorization server, where an address that can be one is known."""
    settings = parts.settings
    try:
        return OAuth(
            parts.system, parts.tokens.credentials, parts.accounts,
            vault=parts.vault, issuer=settings.base_url,
            resources=resources_of(served.DIALECTS, settings.dialect),
            has_being=lambda space, being: _has_being(parts.library, space, being),
        )  # fmt: skip
    except ValueError as error:
        log.warning("serving without OAuth", extra={"why": str(error)})
        return None


def _has_being(library: Library, space: str, being: str) -> bool:
    """Whether a token for that being would let anybody in."""
    identify = served.load("being").identify
    try:
        return identify is not None and bool(
            identify(Commonplace(space=space, library=library), Caller(space=space), [being])
        )
    except (NotFound, InvalidInput):
        return False


async def _note_use(credentials: Credentials, workers: Workers) -> None:
    """Write down now and then which tokens were used, and forget those that ended long ago."""
    while True:
        await asyncio.sleep(NOTE_SECONDS)
        try:
            await workers.run(credentials.flush)
            await workers.run(credentials.prune)
        except CommonplaceError as error:
            log.warning("the use of tokens could not be noted", extra={"why": error.message})


class _ThroughGate:
    """How the routes of dialects reach the memory."""

    def __init__(self, workers: Workers, dialect: Dialect, sessions: Sessions) -> None:
        self._workers = workers
        self._dialect = dialect
        self._sessions = sessions

    def request_id(self, request: HTTPConnection) -> str:
        del request
        return request_id.get()

    async def open_session(self, request: HTTPConnection, operation: str) -> Session:
        given = request.headers.get("authorization", "").strip()
        key = given.rpartition(" ")[2]  # the door has seen that it is one bearer token
        await self.perform(request, operation)
        session: Session = await self._workers.run(self._sessions.open, key)
        return session

    async def renew_session(self, request: HTTPConnection, operation: str, token: str) -> Session:
        caller, session = await self._workers.run(self._sessions.renew, token)
        request.scope[ADMITTED] = Admitted(
            caller,
            Circumstances(
                request=request_id.get(),
                client=request.headers.get("user-agent", "")[:200],
                address=request.client.host if request.client else "",
            ),
        )
        await self.perform(request, operation)
        renewed: Session = session
        return renewed

    def caller(self, request: HTTPConnection) -> Caller:
        admitted: Admitted = request.scope[ADMITTED]
        return admitted.caller

    async def perform(
        self, request: HTTPConnection, operation: str, arguments: Mapping[str, Any] | None = None
    ) -> Any:
        outcome = await self._workers.outcome(
            request.scope[ADMITTED], self._dialect, operation, arguments or {}
        )
        if outcome.error is not None:
            raise outcome.error
        return outcome.wire["value"]


async def _no_such_page(request: Request, __: Exception) -> Response:
    return _in_its_words(request, 404, "NOT_FOUND", "There is nothing here.")


async def _wrong_method(request: Request, __: Exception) -> Response:
    return _in_its_words(request, 405, "METHOD_NOT_ALLOWED", "Another method is needed.")


def _in_its_words(request: Request, status: int, code: str, message: str) -> Response:
    """An error in the words of the contract that the path belongs to, if it has its own."""
    name = request.scope.get(SPOKEN, "")
    refuse = served.load(name).refuse if name in served.DIALECTS else None
    if refuse is None:
        return JSONResponse({"error": {"code": code, "message": message}}, status)
    body = refuse(status, code, message, request_id.get())
    return PlainTextResponse(body, status) if isinstance(body, str) else JSONResponse(body, status)


_HANDLERS: Any = {404: _no_such_page, 405: _wrong_method}


def _own_operations(parts: Parts, metrics: Metrics) -> Dialect:
    """What the server itself can be asked, through the same gate as everything else."""
    started = time.time()

    def health_details(call: Call) -> dict[str, Any]:
        waiting, age = call.memory.backlog()
        return {
            "status": "ok",
            "version": __version__,
            "uptime_seconds": int(time.time() - started),
            "spaces": len(parts.library.spaces()),
            "embedding": parts.library.embedder.id if parts.library.embedder else None,
            "backlog": {"memories": waiting, "oldest_seconds": age},
        }

    def show_metrics(call: Call) -> str:
        del call
        return metrics.text()

    nothing = {"type": "object", "additionalProperties": False}
    return Dialect(
        name="server",
        server="commonplace",
        version=__version__,
        instructions="",
        tools=(
            Tool(
                name="health_details", title="Health", description="Show how the server is.",
                scope="admin", handler=health_details, input=nothing,
            ),
            Tool(
                name="metrics", title="Metrics", description="Show counters for Prometheus.",
                scope="admin", handler=show_metrics, input=nothing,
            ),
        ),
    )  # fmt: skip
