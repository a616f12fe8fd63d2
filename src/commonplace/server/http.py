"""The HTTP application: MCP and REST of every dialect, pages and sign-in.

MCP is served by streamable HTTP and by the older protocol, HTTP with SSE.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace import __version__
from commonplace.access.accounts import Accounts
from commonplace.access.browser import SIGN_OUT, BrowserSessions
from commonplace.access.browser import routes as browser_routes
from commonplace.access.caller import Caller
from commonplace.access.credentials import Credentials
from commonplace.access.oauth import OAuth, SignIn
from commonplace.access.oauth import routes as oauth_routes
from commonplace.access.oauth.endpoints import client_address as client_address
from commonplace.access.sessions import Sessions
from commonplace.access.signed import Tokens
from commonplace.access.vault import Vault
from commonplace.dialects import registry
from commonplace.dialects.contract import Call, Dialect, Setting, Tool
from commonplace.dialects.rest import Exchange, Rejected, Reply, Rest, Route, status_of
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.history import audit
from commonplace.engine.library import Library
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.server import console
from commonplace.server.calls import (
    ADMITTED,
    DIALECT,
    VERSION_HEADER,
    Workers,
    usual_call_application,
)
from commonplace.server.connections import Streams, receive_until
from commonplace.server.door import Door
from commonplace.server.gate import Gate
from commonplace.server.observing import Metrics, log_formatter
from commonplace.server.pipes import Pipes
from commonplace.server.protocol import build_server
from commonplace.server.quotas import quota_of
from commonplace.server.refusals import Refusals
from commonplace.server.request import RECHECK, Paths, refusal_response
from commonplace.server.rest import routes_of
from commonplace.server.settings import Settings
from commonplace.storage.ports import Store
from commonplace.web import pages as web

STORE_USE_SECONDS = 60.0
PRUNE_AUDIT_SECONDS = 6 * 3600.0  # interval between deletions of old audit entries
# Paths that a person may open by a link on another site, such as a client's site or a device.
LINKABLE_PATHS = ("/oauth/authorize", "/oauth/device", *web.LINKABLE_PATHS)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ApplicationParts:
    """The objects that the HTTP application uses."""

    settings: Settings
    library: Library
    system: Store
    tokens: Tokens
    accounts: Accounts
    vault: Vault
    restart: Callable[[], None] | None = None
    """Restarts the server; None if it cannot be restarted."""


class Endpoint:
    """The dialects of one path: streamable HTTP, and the older handshake on the same path.

    `Door` chooses the dialect by the caller and puts its name into the scope.
    """

    def __init__(
        self,
        path: str,
        dialects: Mapping[str, Dialect],
        servers: Mapping[str, Server[Any]],
        streams: Streams,
        refusals: Refusals,
        body_bytes: int,
        answers: Callable[[str, ASGIApp], ASGIApp],
    ) -> None:
        self.path = path
        self._dialects = dialects
        self._servers = servers
        self._streams = streams
        self._refusals = refusals
        self.managers = {
            name: StreamableHTTPSessionManager(
                server, stateless=True, json_response=True, max_request_body_size=body_bytes
            )
            for name, server in self._servers.items()
        }
        self.post_applications = {
            name: answers(name, manager.asgi_app) for name, manager in self.managers.items()
        }
        """The application that answers a POST, for each dialect."""
        self._sse = SseServerTransport(path, max_request_body_size=body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by method, and by whether the client speaks the older protocol."""
        method = scope["method"]
        if method == "DELETE":
            await JSONResponse({})(scope, receive, send)  # there is no session to end
        elif method == "GET":
            await self._open_event_stream(scope, receive, send)
        elif method == "POST" and b"session_id=" in scope["query_string"]:
            scope["user"] = _sdk_user(scope[ADMITTED].caller)
            await self._sse.handle_post_message(scope, receive, send)
        elif method == "POST":
            await self.post_applications[scope[DIALECT]](scope, receive, send)
        else:
            await _answer_not_allowed(scope, receive, send)

    async def _open_event_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if VERSION_HEADER in headers or b"text/event-stream" not in headers.get(b"accept", b""):
            # A stateless server offers no event stream.
            await _answer_not_allowed(scope, receive, send)
            return
        dialect = self._dialects[scope[DIALECT]]
        scope["user"] = _sdk_user(scope[ADMITTED].caller)
        try:
            async with self._streams.count_while_open(
                scope[ADMITTED].caller, scope.get(RECHECK)
            ) as ended:
                receive = receive_until(ended, receive, {"type": "http.disconnect"})
                sending = self._with_endpoint(scope, send)
                async with self._sse.connect_sse(scope, receive, sending) as (source, sink):
                    pipes = Pipes(source, sink, dialect, self._refusals)
                    await pipes.serve(self._servers[dialect.name])
        except Rejected as error:
            response = refusal_response(error.status, error.code, error.message, dialect)
            response.headers["retry-after"] = "10"
            await response(scope, receive, send)
            return
        # End the stream, unless it has ended or the client has disconnected.
        with contextlib.suppress(RuntimeError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _with_endpoint(self, scope: Scope, send: Send) -> Send:
        """Put the path and the subject of this request into the first event, the endpoint.

        The transport knows one path only; a message posted there would reach another subject.
        """
        subject = self._dialects[scope[DIALECT]].subject
        parameter = subject.parameter if subject is not None else ""
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        named = urlencode([(name, value) for name, value in query if name == parameter])
        endpoint = f"data: {quote(scope['path'])}?{named}{'&' if named else ''}".encode()
        first = True

        async def sending(message: Message) -> None:
            nonlocal first
            if first and message.get("body"):
                first = False
                body = message["body"].replace(f"data: {self.path}?".encode(), endpoint, 1)
                message = {**message, "body": body}
            await send(message)

        return sending


async def _answer_not_allowed(scope: Scope, receive: Receive, send: Send) -> None:
    response = refusal_response(405, "METHOD_NOT_ALLOWED", "Use POST.", None)
    response.headers["allow"] = "POST, DELETE"
    await response(scope, receive, send)


def _sdk_user(caller: Caller) -> AuthenticatedUser:
    """Return the caller as the SDK's user type.

    If a message for an event stream comes from another user or credential than the one that opened
    the stream, the SDK answers it with 404.
    """
    return AuthenticatedUser(
        AccessToken(
            token="", client_id=caller.credential or "local", scopes=[],
            subject=f"{caller.space}/{caller.user}",
        )
    )  # fmt: skip


def build_application(parts: ApplicationParts) -> Door:
    """Build the HTTP application, wrapped in `Door`."""
    settings = parts.settings
    registry.checked_name(settings.dialect)
    dialects = registry.load_all()
    metrics = Metrics()
    everything = {**dialects, "server": _own_operations(parts, metrics)}
    gate = Gate(parts.library, parts.system, everything.values(), metrics.calls)
    workers = Workers(gate, settings.call_seconds)
    refusals = Refusals(gate, workers)
    streams = Streams("event streams", metrics.open_streams)
    sockets = Streams("WebSockets", metrics.open_sockets)
    oauth = _build_oauth(parts, dialects)
    browsers = BrowserSessions(parts.tokens, _origin_of(settings.base_url))
    signing_in = oauth or SignIn(parts.system, parts.accounts)
    pages = [*web.routes(), *browser_routes(signing_in, browsers, client_address)]
    pages += oauth_routes(oauth) if oauth is not None else []
    paths = Paths(
        everything, settings.dialect,
        public_paths={"/health", *(route.path for route in pages)} - {SIGN_OUT},
        form_paths=[SIGN_OUT],
        linkable_paths=LINKABLE_PATHS,
    )  # fmt: skip
    quotas = {name: quota_of(dialect.rate, os.environ) for name, dialect in dialects.items()}
    servers = {
        name: build_server(dialect, workers, quotas[name]) for name, dialect in dialects.items()
    }

    def answers(name: str, otherwise: ASGIApp) -> ASGIApp:
        return usual_call_application(dialects[name], workers, quotas[name], otherwise)

    endpoints = {
        path: Endpoint(
            path, dialects, {name: servers[name] for name in paths.dialects_at(path)}, streams,
            refusals, settings.body_bytes, answers,
        )
        for path in paths.mcp
    }  # fmt: skip
    sessions = {name: Sessions(parts.tokens, name) for name in parts.tokens.jwt}
    routes: list[BaseRoute] = [
        StarletteRoute("/health", _health),
        *pages,
        *(
            route
            for name, dialect in everything.items()
            for route in routes_of(dialect, workers, sessions.get(name), quotas.get(name))
        ),
        *(StarletteRoute(path, endpoint) for path, endpoint in endpoints.items()),
        *([StarletteRoute(paths.subject_path, endpoints["/mcp"])] if paths.subject_path else ()),
    ]
    app = Starlette(
        routes=routes,
        lifespan=_lifespan(parts, gate, workers, refusals, dialects.values(), endpoints.values()),
        exception_handlers=_error_handlers(paths, dialects),
    )
    app.router.redirect_slashes = False
    straight = {
        (path, name): post
        for path, endpoint in endpoints.items()
        for name, post in endpoint.post_applications.items()
    }
    return Door(
        app, straight=straight, settings=settings, paths=paths, gate=gate, workers=workers,
        refusals=refusals, tokens=parts.tokens, metrics=metrics, oauth=oauth, sessions=browsers,
        streams=streams, sockets=sockets,
    )  # fmt: skip


def _lifespan(
    parts: ApplicationParts,
    gate: Gate,
    workers: Workers,
    refusals: Refusals,
    dialects: Collection[Dialect],
    endpoints: Collection[Endpoint],
) -> Any:
    """Return the lifespan handler, which starts and stops the background tasks."""
    setting = Setting(
        library=parts.library,
        system=parts.system,
        environ=os.environ,
        perform=gate.perform,
        vault=lambda: parts.vault,
        restart=parts.restart,
        log_formatter=log_formatter(),
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for dialect in dialects:
                if dialect.background_work is not None:
                    await stack.enter_async_context(
                        _entered_in_thread(dialect.background_work(setting))
                    )
            for endpoint in endpoints:
                for manager in endpoint.managers.values():
                    await stack.enter_async_context(manager.run())
            tasks = [_store_last_use(parts.tokens.credentials, workers), refusals.run()]
            if parts.settings.audit_days:
                tasks.append(_prune_audit(parts, workers))
            for task in tasks:
                stack.callback(asyncio.create_task(task).cancel)
            yield
            await refusals.flush()
        await asyncio.to_thread(workers.close)

    return lifespan


@contextlib.asynccontextmanager
async def _entered_in_thread(
    context: contextlib.AbstractContextManager[None],
) -> AsyncIterator[None]:
    """Enter and leave a blocking context manager in worker threads."""
    await asyncio.to_thread(context.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


async def _prune_audit(parts: ApplicationParts, workers: Workers) -> None:
    """Delete audit entries older than `audit_days` at regular intervals."""

    def cut(space: str | None) -> int:
        before = datetime.now(UTC) - timedelta(days=parts.settings.audit_days)
        if space is None:
            return audit.remove_before(parts.system, before)
        with parts.library.lease(space) as opened:
            return audit.remove_before(opened.store, before)

    async def spaces() -> list[str]:
        try:
            found: list[str] = await workers.run(parts.library.spaces)
        except CommonplaceError as error:
            log.warning("the spaces could not be listed", extra={"why": error.message})
            return []
        return found

    while True:
        for space in (None, *await spaces()):
            try:
                if removed := await workers.run(cut, space):
                    told = {"space": space or "system", "removed": removed}
                    log.info("old audit entries were removed", extra=told)
            except CommonplaceError as error:
                told = {"space": space or "system", "why": error.message}
                log.warning("old audit entries could not be removed", extra=told)
        await asyncio.sleep(PRUNE_AUDIT_SECONDS)


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok", "timestamp": int(time.time())})


def _build_oauth(parts: ApplicationParts, dialects: Mapping[str, Dialect]) -> OAuth | None:
    """Build the authorization server; return None if the base URL cannot be an issuer."""
    settings = parts.settings
    try:
        return OAuth(
            parts.system, parts.tokens.credentials, parts.accounts,
            vault=parts.vault, issuer=settings.base_url,
            resources=registry.resources_by_path(dialects.values(), settings.dialect),
            has_subject=lambda dialect, space, subject: _has_subject(
                parts.library, dialects[dialect], space, subject
            ),
        )  # fmt: skip
    except ValueError as error:
        log.warning("serving without OAuth; people sign in to the console without it",
                    extra={"why": str(error)})  # fmt: skip
        return None


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _has_subject(library: Library, dialect: Dialect, space: str, subject: str) -> bool:
    """Return whether the space has that subject."""
    memory, caller = Commonplace(space=space, library=library), Caller(space=space)
    try:
        return dialect.subject is not None and bool(
            dialect.subject.identify(memory, caller, [subject])
        )
    except (NotFound, InvalidInput):
        return False


async def _store_last_use(credentials: Credentials, workers: Workers) -> None:
    """Every minute, store the time of last use of tokens, and delete tokens that ended long ago."""
    while True:
        await asyncio.sleep(STORE_USE_SECONDS)
        try:
            await workers.run(credentials.store_last_use)
            await workers.run(credentials.prune)
        except CommonplaceError as error:
            log.warning("the last use of tokens could not be stored", extra={"why": error.message})


def _error_handlers(paths: Paths, dialects: Mapping[str, Dialect]) -> Any:
    """Return the error handlers for unknown paths and methods."""

    def dialect_of(request: Request) -> Dialect | None:
        return dialects.get(request.scope.get(DIALECT, ""))

    async def no_such_page(request: Request, _: Exception) -> Response:
        message = "There is no such path."
        if request.scope["path"].startswith("/mcp"):
            message += f" {paths.describe_mcp_paths()}"
        return refusal_response(404, "NOT_FOUND", message, dialect_of(request))

    async def wrong_method(request: Request, _: Exception) -> Response:
        return refusal_response(
            405,
            "METHOD_NOT_ALLOWED",
            "This path does not support the request's method.",
            dialect_of(request),
        )

    return {404: no_such_page, 405: wrong_method}


def _own_operations(parts: ApplicationParts, metrics: Metrics) -> Dialect:
    """Return the server's own operations, which `Gate` runs like those of a dialect."""
    started = time.time()

    def health_details(call: Call, **_: Any) -> dict[str, Any]:
        waiting, age = call.memory.backlog()
        return {
            "status": "ok",
            "version": __version__,
            "uptime_seconds": int(time.time() - started),
            "spaces": len(parts.library.spaces()),
            "embedding": parts.library.embedder.id if parts.library.embedder else None,
            "backlog": {"memories": waiting, "oldest_seconds": age},
        }

    def show_metrics(call: Call, **_: Any) -> str:
        del call
        return metrics.text()

    anything = {"type": "object"}  # unknown query parameters are accepted
    return Dialect(
        name="server",
        title="Commonplace",
        server="commonplace",
        version=__version__,
        instructions="",
        tools=(),
        rest=Rest(
            routes=(
                Route("GET", "/health/details", "health_details"),
                Route("GET", "/metrics", "metrics", show=_text_reply),
                *console.ROUTES,
            ),
            format_error=_error_reply,
        ),
        operations=(
            Tool(
                name="health_details", title="Health", description="Show the state of the server.",
                scope="admin", handler=health_details, input=anything,
            ),
            Tool(
                name="metrics", title="Metrics", description="Show counters for Prometheus.",
                scope="admin", handler=show_metrics, input=anything,
            ),
            *console.operations(parts.tokens.credentials, parts.library),
        ),
    )  # fmt: skip


def _text_reply(_: Exchange, value: str) -> Reply:
    return Reply(value, media_type="text/plain")


def _error_reply(_: Exchange, error: CommonplaceError) -> Reply:
    return Reply({"error": {"code": error.code, "message": str(error)}}, status_of(error))
