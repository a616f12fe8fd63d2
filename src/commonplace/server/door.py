"""Checks every HTTP request before it is handled (`Door`).

`Door` checks Host and Origin, the rate limit of the address, the credential, the size and nesting
of the body, the rate limit of the credential, and the credential's scope, in this order; it reads
no body of an unknown caller. It puts the caller and, for a tool, the decision of `Gate.decide` into
the ASGI scope; later code identifies callers by the ASGI scope alone. Nothing here reads a database
on the event loop.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcp_types import INVALID_REQUEST
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.access.browser import SAFE_METHODS, BrowserSessions, CsrfRefused
from commonplace.access.caller import Caller, NotPermitted, TokenExpired, request_id
from commonplace.access.credentials import Expired, Unauthenticated
from commonplace.access.oauth import OAuth
from commonplace.access.rates import RateLimiter
from commonplace.access.signed import Tokens
from commonplace.dialects.contract import TooManyCalls
from commonplace.dialects.rest import Rejected
from commonplace.errors import CommonplaceError, InvalidInput, NotFound, StorageUnavailable
from commonplace.server.calls import (
    ADMITTED,
    DIALECT,
    FORBIDDEN,
    JSON_BODY,
    MOST_CALLS,
    UNREADABLE,
    AdmittedRequest,
    Workers,
    calls_in,
    fault_of,
    identity_of,
    messages_of,
    sdk_reads_alike,
)
from commonplace.server.connections import Streams, receive_until
from commonplace.server.gate import Decision, Gate
from commonplace.server.observing import Metrics
from commonplace.server.refusals import Refusals
from commonplace.server.request import (
    BODILESS,
    INLINE_BYTES,
    JSON_TYPE,
    RECHECK,
    Addresses,
    Buffers,
    HttpRequest,
    Paths,
    check_nesting,
    client_address,
    parse_body,
    read_body,
    refusal_response,
    replay_body,
    with_time_limit,
)
from commonplace.server.settings import Settings, is_loopback

FAILURES_A_MINUTE = 30
_FORWARDED_MESSAGE = (
    "This request was forwarded by a proxy, and a server without tokens answers only to programs on"
    " this machine. Create a token with 'commonplace token create', and send it; set public_url to"
    " the address that the proxy has."
)
_OTHER_CALL_MESSAGE = (
    "Not carried out: the credential's scope does not allow all calls of this message."
)
_CODES_OF_STATUS = {
    401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT", 413: "TOO_LARGE", 429: "RATE_LIMITED",
}  # fmt: skip
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)

log = logging.getLogger(__name__)


class _JsonRpcRefusal(CommonplaceError):
    """A refused MCP message; the response body is a JSON-RPC error, or a list of them for a
    batch."""

    code = "INVALID_INPUT"

    def __init__(self, message: str, status: int, body: Any, challenge: str = "") -> None:
        super().__init__(message)
        headers = {"www-authenticate": challenge} if challenge else None
        self.response = Response(json.dumps(body), status, headers, media_type=JSON_TYPE)


class Door:
    """The ASGI middleware that admits or refuses requests."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        straight: Mapping[tuple[str, str], ASGIApp],
        settings: Settings,
        paths: Paths,
        gate: Gate,
        workers: Workers,
        refusals: Refusals,
        tokens: Tokens,
        metrics: Metrics,
        oauth: OAuth | None,
        sessions: BrowserSessions,
        streams: Streams,
        sockets: Streams,
    ) -> None:
        self._app = app
        self._straight = straight
        self._settings = settings
        self._paths = paths
        self._gate = gate
        self._workers = workers
        self._refusals = refusals
        self._tokens = tokens
        self._metrics = metrics
        self._resources = oauth.resources if oauth is not None else None
        self._sessions = sessions
        self._streams = streams
        self._sockets = sockets
        self.proxies = settings.proxies
        self._secure = settings.base_url.startswith("https://")
        self._tokenless = settings.is_local and not settings.require_token
        self._addresses = Addresses(settings)
        self._buffers = Buffers()
        self._rates = RateLimiter(settings.rate, settings.burst)
        self._failures = RateLimiter(FAILURES_A_MINUTE / 60, FAILURES_A_MINUTE)

    def end_streams(self) -> None:
        """Close event streams and WebSockets, because the server stops."""
        self._streams.close()
        self._sockets.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        address = client_address(scope, self.proxies)
        scope["client"] = (address, 0)  # later rate limits use the same address
        request = HttpRequest(scope, self._paths.rules_of(scope["path"]), address)
        if scope["type"] == "websocket":
            await self._open_socket(request, receive, send)
            return
        token = request_id.set(request.id)
        begun = time.perf_counter()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
                if request.status >= 400 and not request.audited:
                    await self._audit_refusal(request)
                message = {**message, "headers": self._with_headers(message["headers"], request)}
            await send(message)

        try:
            await self._answer(request, receive, sending)
        except Exception:
            log.exception("the request failed")
            if request.status == 0:
                fault = refusal_response(
                    500, "INTERNAL_ERROR", "Something went wrong.", request.rules.dialect
                )
                await fault(scope, receive, sending)
        finally:
            request_id.reset(token)
            self._buffers.give_back(request.sender, request.buffered)
            self._log_and_count(request, time.perf_counter() - begun)

    async def _answer(self, request: HttpRequest, receive: Receive, send: Send) -> None:
        try:
            receive = await self._admit(request, receive)
            app = self._app_of(request.scope)
        except ClientDisconnect:
            return
        except CommonplaceError as error:
            app = self._refusal_response(request, error)
        await app(request.scope, receive, send)

    def _app_of(self, scope: Scope) -> ASGIApp:
        """Return the application that answers a request; tool calls skip the router, which would
        take a tenth of the time of a small call.
        """
        if scope["method"] == "POST" and not scope["query_string"]:
            return self._straight.get((scope["path"], scope.get(DIALECT, "")), self._app)
        return self._app

    def _with_headers(self, headers: Any, request: HttpRequest) -> list[tuple[bytes, bytes]]:
        """Add the headers that every response has."""
        all_headers = list(headers)
        given = {name.lower() for name, _ in all_headers}
        all_headers += [header for header in _HEADERS if header[0] not in given]
        if self._secure:
            all_headers.append((b"strict-transport-security", b"max-age=31536000"))
        all_headers.append((b"x-request-id", request.id.encode()))
        return all_headers

    def _log_and_count(self, request: HttpRequest, seconds: float) -> None:
        route, method = request.rules.route, request.known_method
        self._metrics.requests.labels(route, method, str(request.status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        log.info(
            "request",
            extra={
                "request": request.id, "route": route, "method": method,
                "status": request.status, "ms": round(seconds * 1000, 1),
                "address": request.address,
            },
        )  # fmt: skip

    async def _audit_refusal(self, request: HttpRequest) -> None:
        """Write an audit entry for a refused request."""
        dialect = request.rules.dialect
        if dialect is None:  # a page or an unknown path has no call to audit
            return
        request.audited.append(request.id)
        error = request.refused or _error_of_status(request.status)
        calls, info = request.called_tools(), request.request_info()
        # `_identify_within_limit` limits how many of these errors an address can cause.
        if isinstance(error, Unauthenticated):
            await self._refusals.audit(None, info, dialect.name, calls, error)
        elif (caller := request.caller or await self._caller_if_known(request)) is not None:
            await self._refusals.audit(caller, info, dialect.name, calls, error)
        elif calls:
            await self._refusals.audit_unknown(info, dialect.name, request.name, error)

    async def _admit(self, request: HttpRequest, receive: Receive) -> Receive:
        """Run the checks in order and raise the first error; return the `receive` for the
        application.
        """
        scope = request.scope
        linkable = request.method in ("GET", "HEAD") and request.rules.is_linkable
        self._addresses.check(scope["headers"], linkable=linkable)
        request.address_allowed = True
        wait = self._rates.take(f"address {request.sender}")
        if wait:
            request.caller = (
                None if request.rules.is_public else await self._caller_if_known(request)
            )
            if request.caller is None or request.is_for_subjects(request.caller):
                request.format_errors_as_documented()
            # The body has the names of the tools, for the audit entries of a known caller.
            if request.caller is not None:
                await self._read_body(request, receive)
            raise _too_many_calls(wait)
        if request.rules.is_public:
            return with_time_limit(receive)
        request.body_limit(self._settings.body_bytes)
        request.caller = await self._identify_within_limit(request)
        body = await self._read_body(request, receive)
        if request.cookie and request.method not in SAFE_METHODS:
            try:
                self._sessions.check_change(request.cookie, scope["headers"], body)
            except CsrfRefused as error:
                raise Rejected(403, error.code, str(error)) from None
        request.caller = await self._as_subject(request, request.caller)
        if wait := self._take_from_rate(request.caller):
            raise _too_many_calls(wait)
        scope[ADMITTED] = await self._with_decision(request, request.caller, body)
        if request.rules.mcp and request.method == "POST":
            wrong = fault_of(request.message)
            if wrong:
                answer = _json_rpc_error(identity_of(request.message), INVALID_REQUEST, wrong)
                raise _JsonRpcRefusal(wrong, 400, answer)
        scope[DIALECT] = request.rules.dialect.name if request.rules.dialect else ""
        return replay_body(body, receive)

    async def _as_subject(self, request: HttpRequest, caller: Caller) -> Caller:
        """Return the caller, acting as the subject that the path, the query or the token names.

        If there is one, the request is answered in the dialect of subjects from here on.
        """
        original = rules = request.rules
        subjects, for_subjects = request.named_subjects(), request.is_for_subjects(caller)
        if rules.subject_dialect is not None and (subjects or for_subjects):
            if caller.dialects is not None and not for_subjects:
                raise self._subject_not_found(request)
            request.rules = rules = replace(rules, dialect=rules.subject_dialect)
        dialect = rules.dialect
        if not rules.mcp or dialect is None or dialect.subject is None:
            return caller
        try:
            found: Caller = await self._workers.run(
                self._gate.caller_as_subject, dialect, caller, subjects
            )
        except NotFound as error:
            if not for_subjects:  # the credential is valid for every dialect
                request.rules = original
                raise self._subject_not_found(request) from None
            # Another owner's subject gets the same answer as a missing one, so that it stays
            # hidden.
            log.warning("not recognised", extra={"why": error.message, "address": request.address})
            request.caller = None
            raise Unauthenticated(error.message) from None
        except InvalidInput as error:
            raise Rejected(400, error.code, str(error)) from None
        return found

    def _subject_not_found(self, request: HttpRequest) -> Rejected:
        other = request.rules.subject_dialect
        title = other.subject.title if other is not None and other.subject is not None else "one"
        message = f"No {title} of yours has that id. {self._paths.describe_mcp_paths()}"
        return Rejected(404, "NOT_FOUND", message)

    def _take_from_rate(self, caller: Caller) -> int:
        """Take from the rate limit of the caller's credential; return the seconds to wait, or 0."""
        return self._rates.take(f"credential {caller.credential}") if caller.credential else 0

    async def _open_socket(self, request: HttpRequest, receive: Receive, send: Send) -> None:
        """Admit or refuse a WebSocket, by the same rules as a request."""
        scope = request.scope
        async with contextlib.AsyncExitStack() as stack:
            try:
                if not request.rules.websocket:
                    raise NotFound("No WebSocket is served at this path.")
                self._addresses.check(scope["headers"])
                request.address_allowed = True
                if wait := self._rates.take(f"address {request.sender}"):
                    raise _too_many_calls(wait)
                request.caller = caller = await self._identify_within_limit(request)
                ended = await stack.enter_async_context(
                    self._sockets.count_while_open(caller, scope.get(RECHECK))
                )
            except CommonplaceError as error:
                await self._refuse_socket(request, error, receive, send)
                return
            scope[ADMITTED] = AdmittedRequest(caller, request.request_info())
            gone = {"type": "websocket.disconnect", "code": 1008}
            accepted = self._accepted_frames(request, receive_until(ended, receive, gone), send)
            await self._app(scope, accepted, send)
            if ended.is_set():
                with contextlib.suppress(RuntimeError, OSError):  # the socket is already closed
                    await _end_socket(request, send, Unauthenticated("ended"))

    async def _refuse_socket(
        self, request: HttpRequest, error: CommonplaceError, receive: Receive, send: Send
    ) -> None:
        """Refuse a WebSocket; send an error message only if its Host and Origin are allowed."""
        if (await receive())["type"] != "websocket.connect":
            return
        if not isinstance(error, NotFound):
            request.refused = error
            await self._audit_refusal(request)
        if not request.address_allowed:
            await send({"type": "websocket.close", "code": 1008})
            return
        self._metrics.refused.labels("websocket").inc()
        await send({"type": "websocket.accept"})
        await _end_socket(request, send, error)

    def _accepted_frames(self, request: HttpRequest, receive: Receive, send: Send) -> Receive:
        """Return a `receive` for the frames that are within the rate limit and not nested too deep.

        Other frames are answered with an error, and audited like a refused request.
        """
        caller = request.caller
        assert caller is not None

        async def accepted() -> Message:
            while (message := await receive())["type"] == "websocket.receive":
                try:
                    wait = self._rates.take(f"address {request.sender}") or self._take_from_rate(
                        caller
                    )
                    if wait:
                        raise _too_many_calls(wait)
                    text = (message.get("text") or "").encode(errors="replace")
                    await self._run_off_loop(check_nesting, text)
                    break
                except CommonplaceError as error:
                    self._metrics.refused.labels("websocket").inc()
                    request.refused = error
                    await self._audit_refusal(request)
                    await send(_socket_error(request, error)[0])
            return message

        return accepted

    async def _caller_if_known(self, request: HttpRequest) -> Caller | None:
        """Find the caller of a request that was refused before authentication, for the audit."""
        try:
            return await self._identify(request)
        except CommonplaceError:  # the request stays refused if the lookup fails
            return None

    async def _read_body(self, request: HttpRequest, receive: Receive) -> bytes:
        """Read the body, within its limits.

        Store the calls of an MCP message in the request, and the parsed JSON in the scope.
        """
        if request.method in BODILESS:
            return b""

        def take(size: int) -> bool:
            taken = self._buffers.take(request.sender, size)
            request.buffered += size if taken else 0
            return taken

        kind, limit = request.content_type, request.body_limit(self._settings.body_bytes)
        declared = request.declared_bytes
        body = await read_body(receive, limit, declared=declared, has_type=bool(kind), take=take)
        if not body or kind != JSON_TYPE:
            return body
        parsed = await self._run_off_loop(parse_body, body)
        if not request.rules.mcp:
            request.scope[JSON_BODY] = parsed
            return body
        request.message = parsed
        calls = calls_in(parsed)
        if len(calls) > MOST_CALLS:
            raise Rejected(413, "TOO_LARGE", f"A batch may have at most {MOST_CALLS} calls.")
        request.calls = None if parsed is UNREADABLE else calls
        if calls and sdk_reads_alike(body):
            request.scope[JSON_BODY] = parsed
        return body

    async def _run_off_loop(self, function: Callable[[bytes], Any], body: bytes) -> Any:
        """Run the function on a body, in a worker thread if the body is large."""
        if len(body) <= INLINE_BYTES:
            return function(body)
        return await self._workers.run(function, body)

    async def _identify_within_limit(self, request: HttpRequest) -> Caller:
        """Return the caller. Raise Unauthenticated, or TooManyCalls after too many failures of an
        address."""
        try:
            return await self._identify(request)
        except Unauthenticated as error:
            log.warning("not recognised", extra={"why": error.reason, "address": request.address})
            # Valid tokens are accepted even then: behind a proxy, all callers have one address.
            wait = self._failures.take(request.sender)
            if wait:
                request.format_errors_as_documented()
                raise _too_many_calls(wait) from None
            raise

    async def _identify(self, request: HttpRequest) -> Caller:
        """Identify the caller by a token, a cookie, or a connection from this machine."""
        given = request.authorization_values()
        if not given and request.address_allowed:
            if (caller := await self._caller_of_cookie(request)) is not None:
                return caller
            if self._tokenless and is_loopback(request.address):
                if request.is_forwarded:
                    raise Rejected(403, "FORWARDED", _FORWARDED_MESSAGE)
                return Caller(space="default")
        return await self._caller_of_token(given, request)

    async def _caller_of_cookie(self, request: HttpRequest) -> Caller | None:
        """Return the caller of a session cookie; None without a valid cookie.

        Cookies are accepted for pages, REST and the WebSockets of pages; MCP needs a token. A
        request with a safe method, such as GET, does not get the scopes to write and delete.
        """
        scope = request.scope
        if request.rules.mcp:
            return None
        cookie = self._sessions.cookie_of(scope["headers"])
        if not cookie:
            return None
        is_socket = scope["type"] == "websocket"
        if is_socket:  # any site's page can open a WebSocket, and the browser adds the cookie
            self._sessions.check_origin(scope["headers"])
        sessions, safe = self._sessions, not is_socket and request.method in SAFE_METHODS

        async def recognise() -> Caller:
            caller = await self._workers.run_lookup(lambda: sessions.find(cookie).caller)
            return replace(caller, scopes=caller.scopes - {"write", "delete"}) if safe else caller

        try:
            caller = await recognise()
        except Unauthenticated as error:
            log.info("session not recognised", extra={"why": error.reason})
            return None
        request.cookie, scope[RECHECK] = cookie, recognise
        return caller

    async def _caller_of_token(self, given: list[bytes], request: HttpRequest) -> Caller:
        if len(given) != 1:
            raise Unauthenticated("no token" if not given else "several tokens")
        scheme, blank, token = given[0].decode("latin-1").strip().partition(" ")
        if not blank:
            token = scheme  # some clients send the token without "Bearer"
        elif scheme.lower() != "bearer":
            raise Unauthenticated("not a bearer token")
        path = request.scope["path"].rstrip("/")
        resource = self._resources.resource_url_at(path) if self._resources else None
        resource = resource or self._settings.base_url + path

        async def recognise() -> Caller:
            return await self._workers.run_lookup(
                lambda: self._tokens.recognise(token.strip(), resource=resource)
            )

        request.scope[RECHECK] = recognise
        return await recognise()

    async def _with_decision(
        self, request: HttpRequest, caller: Caller, body: bytes
    ) -> AdmittedRequest:
        """Return the caller with the decision of `Gate` on the called tool.

        If the scope does not allow one call of a message, the whole message is refused.
        """
        dialect = request.rules.dialect
        admitted = AdmittedRequest(caller, request.request_info(), request.audited)
        if dialect is None or not request.rules.mcp or not body:
            return admitted
        if dialect.read_only is not None and "write" not in caller.scopes:
            forbidden = dialect.read_only.refusal(dialect, messages_of(request.message))
            if forbidden is not None:
                raise Rejected(403, "FORBIDDEN", forbidden)
        # A batch is always refused, so its dynamic tools are not looked up.
        batch = isinstance(request.message, list)
        decisions = [
            None
            if batch and not self._gate.is_known_without_lookup(dialect.name, name)
            else await self._workers.decide(caller, dialect.name, name, tools_only=True)
            for name, _ in (request.called_tools() if request.calls else ())
        ]
        if any(each and isinstance(each.refusal, NotPermitted) for each in decisions):
            raise await self._refuse_out_of_scope(request, admitted, decisions)
        return replace(admitted, decision=decisions[0] if len(decisions) == 1 else None)

    async def _refuse_out_of_scope(
        self, request: HttpRequest, admitted: AdmittedRequest, decisions: Sequence[Decision | None]
    ) -> _JsonRpcRefusal:
        """Audit the calls of a message, of which the caller's scopes do not allow all; return its
        refusal."""
        dialect, caller = request.rules.dialect, admitted.caller
        assert dialect is not None
        needed: set[str] = set()
        answers = []
        for call, called, each in zip(
            request.calls or (), request.called_tools(), decisions, strict=True
        ):
            error: CommonplaceError = NotPermitted(_OTHER_CALL_MESSAGE)
            if each is not None and each.operation and isinstance(each.refusal, NotPermitted):
                needed.add(each.operation.tool.scope)
                error = each.refusal
            request.audited.append(request.id)
            await self._refusals.audit(caller, admitted.request_info, dialect.name, [called], error)
            data = error.as_dict()
            answers.append(_json_rpc_error(call.get("id"), FORBIDDEN, str(error), data=data))
        self._metrics.refused.labels("scope").inc()
        if self._resources is not None:
            challenge = self._resources.insufficient_scope_challenge(
                request.scope["path"], needed, caller.scopes
            )
        else:
            scopes = " ".join(sorted(needed | caller.scopes))
            challenge = f'Bearer error="insufficient_scope", scope="{scopes}"'
        batch = isinstance(request.message, list)
        return _JsonRpcRefusal(
            _OTHER_CALL_MESSAGE, 403, answers if batch else answers[0], challenge
        )

    def _refusal_response(self, request: HttpRequest, error: CommonplaceError) -> Response:
        """Return the response to a refused request; raise unexpected errors again."""
        request.refused = error
        if isinstance(error, _JsonRpcRefusal):
            return error.response
        if isinstance(error, Unauthenticated):
            return self._unauthenticated_response(request, error)
        dialect = request.rules.dialect
        if isinstance(error, TooManyCalls):
            self._metrics.refused.labels("rate").inc()
            response = refusal_response(429, error.code, error.message, dialect)
            response.headers["retry-after"] = str(error.wait)
            return response
        if isinstance(error, StorageUnavailable):
            # The error's own text is only logged: it may contain the database's host name.
            log.warning("the caller cannot be looked up", extra={"why": str(error)})
            error = Rejected(503, error.code, "The database cannot be reached now; try again.")
        if not isinstance(error, Rejected):
            raise error
        self._metrics.refused.labels(error.code.lower()).inc()
        response = refusal_response(error.status, error.code, error.message, dialect)
        if error.status == 503:
            response.headers["retry-after"] = "1"
        return response

    def _unauthenticated_response(self, request: HttpRequest, error: Unauthenticated) -> Response:
        """Return the 401 response, with a WWW-Authenticate challenge."""
        request.format_errors_as_documented()
        self._metrics.refused.labels("unauthorized").inc()
        dialect = request.rules.dialect
        tells_expiry = dialect is not None and dialect.tokens.tells_expiry
        expired = TokenExpired() if tells_expiry and isinstance(error, Expired) else None
        shown = expired or error
        path, wrong = request.scope["path"], "invalid_token" if expired else ""
        signs_in = dialect is not None and path == dialect.sign_in_path and not expired
        code = "INVALID_CREDENTIALS" if signs_in else shown.code
        response = refusal_response(401, code, str(shown), dialect)
        challenge = self._resources.challenge(path, error=wrong) if self._resources else "Bearer"
        if dialect is not None and dialect.tokens.realm and not request.rules.mcp:
            parameters = challenge.removeprefix("Bearer").strip()
            named = f'Bearer realm="{dialect.tokens.realm}"'
            challenge = f"{named}, {parameters}" if parameters else named
        response.headers["www-authenticate"] = challenge
        return response


def _json_rpc_error(id: Any, code: int, message: str, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, **more}}


def _too_many_calls(wait: int) -> TooManyCalls:
    return TooManyCalls(f"Too many requests; wait {wait} s.", wait=wait)


def _socket_error(request: HttpRequest, error: CommonplaceError) -> tuple[Message, int]:
    """Return the error message for a WebSocket, and its close code."""
    dialect, code = request.rules.dialect, 1008
    text = "Unauthorized" if isinstance(error, Unauthenticated) else error.message
    body: Any = {"type": "error", "message": text}
    if dialect is not None and dialect.format_socket_refusal is not None:
        body, code = dialect.format_socket_refusal(error)
    return {"type": "websocket.send", "text": json.dumps(body)}, code


async def _end_socket(request: HttpRequest, send: Send, error: CommonplaceError) -> None:
    message, code = _socket_error(request, error)
    await send(message)
    await send({"type": "websocket.close", "code": code})


def _error_of_status(status: int) -> Rejected:
    """Return an error for the HTTP status of a response, for the audit."""
    code = "INTERNAL_ERROR" if status >= 500 else _CODES_OF_STATUS.get(status, "INVALID_INPUT")
    return Rejected(status, code, f"Answered with HTTP status {status}.")
