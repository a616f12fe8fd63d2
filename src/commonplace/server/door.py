"""The door: decides whether a request is let in, before anything acts on it.

Host and Origin, who calls, how often, size and depth, and whether their scope reaches, in this
order: nobody's body is read before it is known who calls. What passes carries its caller, and for a
tool the gate's decision, in the ASGI scope; nothing behind the door looks at a header to learn who
calls. Nothing here reads a database on the event loop.
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
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commonplace.access.browser import SAFE_METHODS, BrowserSessions, CsrfRefused
from commonplace.access.caller import Caller, NotPermitted, TokenExpired, request_id
from commonplace.access.credentials import Expired, Unauthenticated
from commonplace.access.oauth import OAuth
from commonplace.access.rates import Rates
from commonplace.access.signed import Tokens
from commonplace.dialects.contract import TooManyCalls
from commonplace.dialects.rest import Rejected
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.server import bodies
from commonplace.server.addresses import Addresses, peer
from commonplace.server.connections import Streams, until
from commonplace.server.gate import Decision, Gate
from commonplace.server.observing import Metrics
from commonplace.server.paths import Paths
from commonplace.server.protocol import (
    ADMITTED,
    DIALECT,
    FORBIDDEN,
    JSON_BODY,
    MOST_CALLS,
    UNREADABLE,
    Admitted,
    Workers,
    calls_in,
    identity_of,
    messages_of,
    wrong_with,
)
from commonplace.server.refusals import Refusals, Refused
from commonplace.server.settings import Settings, is_loopback
from commonplace.server.visits import RECHECK, Visit, refusal

# Where a person arrives from a client's own site, or by a link that a device shows.
VISITED = ("/oauth/authorize", "/oauth/device")
FAILURES_A_MINUTE = 30
BODILESS = ("GET", "HEAD", "DELETE", "OPTIONS")  # methods whose body is not looked at
_FORWARDED = (
    "This request was forwarded by a proxy, and a server without tokens answers only to programs on"
    " this machine. Create a token with 'commonplace token create', and send it; set public_url to"
    " the address that the proxy has."
)
_BESIDE = "Not carried out: another call of this message is beyond the credential's scope."
_CODES = {
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


class Door:
    """An ASGI application that wraps another one."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        straight: Mapping[str, ASGIApp],
        settings: Settings,
        paths: Paths,
        gate: Gate,
        workers: Workers,
        refusals: Refusals,
        tokens: Tokens,
        metrics: Metrics,
        oauth: OAuth | None,
        sessions: BrowserSessions | None,
        streams: Streams,
        sockets: Streams,
    ) -> None:
        self._app = app
        # Paths that need no routing, which would cost a tenth of a small call.
        self._straight = straight
        self._settings = settings
        self._paths = paths
        self._gate = gate
        self._workers = workers
        self._refusals = refusals
        self._tokens = tokens
        self._metrics = metrics
        self._oauth = oauth
        self._sessions = sessions
        self._streams = streams
        self._sockets = sockets
        self.proxies = settings.proxies
        self._secure = settings.base_url.startswith("https://")
        self._tokenless = settings.local and not settings.require_token
        self._addresses = Addresses(settings)
        self._buffers = bodies.Buffers()
        self._rates = Rates(settings.rate, settings.burst)
        self._failures = Rates(FAILURES_A_MINUTE / 60, FAILURES_A_MINUTE)

    def end_streams(self) -> None:
        """End event streams and WebSockets, because the server stops."""
        self._streams.close()
        self._sockets.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        address = peer(scope, self._settings.proxies)
        if scope["type"] == "websocket":
            await self._open(
                Visit(scope, self._paths.entrance(scope["path"]), address), receive, send
            )
            return
        visit = Visit(scope, self._paths.entrance(scope["path"]), address)
        token = request_id.set(visit.id)
        begun = time.perf_counter()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                visit.status = message["status"]
                if visit.status >= 400 and not visit.audited:
                    await self._note(visit)
                message = {**message, "headers": self._dressed(message["headers"], visit)}
            await send(message)

        try:
            await self._admit(visit, receive, sending)
        except Exception:
            log.exception("the request failed")
            if visit.status == 0:
                await refusal(
                    500, "INTERNAL_ERROR", "Something went wrong.", visit.entrance.dialect
                )(scope, receive, sending)
        finally:
            request_id.reset(token)
            self._buffers.give_back(visit.sender, visit.buffered)
            self._observe(visit, time.perf_counter() - begun)

    def _dressed(self, headers: Any, visit: Visit) -> list[tuple[bytes, bytes]]:
        dressed = list(headers)
        there = {name.lower() for name, _ in dressed}
        dressed += [header for header in _HEADERS if header[0] not in there]
        if self._secure:
            dressed.append((b"strict-transport-security", b"max-age=31536000"))
        dressed.append((b"x-request-id", visit.id.encode()))
        return dressed

    def _observe(self, visit: Visit, seconds: float) -> None:
        route, method = visit.entrance.route, visit.known_method
        self._metrics.requests.labels(route, method, str(visit.status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        log.info(
            "request",
            extra={
                "request": visit.id, "route": route, "method": method, "status": visit.status,
                "ms": round(seconds * 1000, 1), "address": visit.address,
            },
        )  # fmt: skip

    async def _note(self, visit: Visit) -> None:
        """Audit a request that was refused before the gate."""
        dialect = visit.entrance.dialect
        if dialect is None:  # a page, or nothing at all: no call
            return
        visit.audited.append(visit.id)
        error = visit.refused or Refused(*_meaning(visit.status))
        calls, request_info = visit.called(), visit.request_info()
        if isinstance(error, Unauthenticated):  # which has its rate
            await self._refusals.note(None, request_info, dialect.name, calls, error)
        elif (caller := visit.caller or await self._known(visit)) is not None:
            await self._refusals.note(caller, request_info, dialect.name, calls, error)
        elif calls:
            await self._refusals.note_nobody(request_info, dialect.name, visit.request, error)

    async def _admit(self, visit: Visit, receive: Receive, send: Send) -> None:
        """Run the checks in order; the first refusal is the answer."""
        visited = visit.method in ("GET", "HEAD") and visit.scope["path"] in VISITED
        refused = self._addresses.refusal(visit.scope["headers"], visited=visited)
        if refused is not None:
            await self._turn_away(visit, receive, send, refused.status, "ADDRESS", refused.message)
            return
        visit.ours = True
        wait = self._rates.take(f"address {visit.sender}")
        if wait:
            visit.caller = None if visit.entrance.public else await self._known(visit)
            if visit.caller is None or visit.as_subject(visit.caller):
                visit.as_documented()
            # What somebody known calls is written down, each by its name.
            if visit.caller is None or await self._body(visit, receive, send) is not None:
                await self._slow_down(visit, receive, send, wait)
            return
        if visit.entrance.public:
            await self._app(visit.scope, bodies.in_time(receive), send)
            return
        try:
            self._limit(visit)
        except Rejected as error:
            await self._turn_away(visit, receive, send, error.status, error.code, error.message)
            return
        visit.caller = await self._caller(visit, receive, send)
        if visit.caller is None:
            return
        body = await self._body(visit, receive, send)
        if body is None:
            return
        if visit.cookie and visit.method not in SAFE_METHODS:
            assert self._sessions is not None
            try:
                self._sessions.check_change(visit.cookie, visit.scope["headers"], body)
            except CsrfRefused as error:
                await self._turn_away(visit, receive, send, 403, error.code, str(error))
                return
        caller = await self._as_whom(visit, visit.caller, receive, send)
        if caller is None:
            return
        visit.caller = caller
        wait = self._wait_of(caller)
        if wait:
            await self._slow_down(visit, receive, send, wait)
            return
        admitted = await self._decided(visit, caller, body, receive, send)
        if admitted is None:
            return
        if visit.entrance.mcp and visit.method == "POST":
            wrong = wrong_with(visit.message)
            if wrong:
                visit.refused = Refused("INVALID_INPUT", wrong)
                await _no_message(visit, wrong)(visit.scope, receive, send)
                return
        visit.scope[ADMITTED] = admitted
        visit.scope[DIALECT] = visit.entrance.dialect.name if visit.entrance.dialect else ""
        app = self._straight.get(visit.scope["path"], self._app)
        await app(visit.scope, bodies.replayed(body, receive), send)

    async def _as_whom(
        self, visit: Visit, caller: Caller, receive: Receive, send: Send
    ) -> Caller | None:
        """The caller with the subject that the address names; None if that was refused."""
        came_to = entrance = visit.entrance
        named, as_subject = visit.named(), visit.as_subject(caller)
        if entrance.of_subjects is not None and (named or as_subject):
            if caller.dialects is not None and not as_subject:
                await self._not_there(visit, receive, send)
                return None
            visit.entrance = entrance = replace(entrance, dialect=entrance.of_subjects)
        dialect = entrance.dialect
        if not entrance.mcp or dialect is None or dialect.subject is None:
            return caller
        try:
            found: Caller = await self._workers.run(self._gate.identify, dialect, caller, named)
        except NotFound as error:
            if not as_subject:  # the credential is for any dialect, and the name is nobody's
                visit.entrance = came_to
                await self._not_there(visit, receive, send)
                return None
            # A subject of another owner is as if it did not exist: neither lets anybody in.
            log.warning("not recognised", extra={"why": error.message, "address": visit.address})
            unknown = Unauthenticated(error.message)
            visit.caller = None
            await self._not_recognised(visit, unknown, receive, send)
            return None
        except InvalidInput as error:
            await self._turn_away(visit, receive, send, 400, error.code, str(error))
            return None
        return found

    async def _not_there(self, visit: Visit, receive: Receive, send: Send) -> None:
        """No subject of the caller has the name in the address."""
        other = visit.entrance.of_subjects
        title = other.subject.title if other is not None and other.subject is not None else "one"
        told = f"No {title} of yours has that id. {self._paths.told()}"
        await self._turn_away(visit, receive, send, 404, "NOT_FOUND", told)

    def _wait_of(self, caller: Caller) -> int:
        """Take from the rate of the caller's credential; the seconds to wait if nothing is left."""
        return self._rates.take(f"credential {caller.credential}") if caller.credential else 0

    async def _open(self, visit: Visit, receive: Receive, send: Send) -> None:
        """Pass on or refuse a WebSocket, by the same rules as a request."""

        async def close(error: CommonplaceError, message: str) -> None:
            if (await receive())["type"] != "websocket.connect":
                return
            self._metrics.refused.labels("websocket").inc()
            visit.refused = error
            await self._note(visit)
            await send({"type": "websocket.accept"})
            await _end_socket(send, message)

        refused = self._addresses.refusal(visit.scope["headers"], visited=False)
        if not visit.entrance.websocket or refused is not None:
            await receive()
            if refused is not None:
                visit.refused = Refused("ADDRESS", refused.message)
                await self._note(visit)
            await send({"type": "websocket.close", "code": 1008})
            return
        visit.ours = True
        if wait := self._rates.take(f"address {visit.sender}"):
            error = _too_many(wait)
            await close(error, error.message)
            return
        given = visit.given()
        if self._forwarded_without_token(visit, given):
            await close(Refused("FORWARDED", _FORWARDED), _FORWARDED)
            return
        try:
            if not given and self._open_to(visit):
                caller = Caller(space="default")
            else:
                caller = await self._recognised(given, visit)
        except Unauthenticated as unknown:
            log.warning("not recognised", extra={"why": unknown.reason, "address": visit.address})
            if wait := self._failures.take(visit.sender):
                await close(_too_many(wait), _too_many(wait).message)
            else:
                await close(unknown, "Unauthorized")
            return
        visit.caller = caller
        visit.scope[ADMITTED] = Admitted(caller, visit.request_info())
        try:
            async with self._sockets.opened(caller, visit.scope.get(RECHECK)) as ended:
                gone = {"type": "websocket.disconnect", "code": 1008}
                accepted = self._accepted_frames(visit, caller, until(ended, receive, gone), send)
                await self._app(visit.scope, accepted, send)
                if ended.is_set():
                    with contextlib.suppress(RuntimeError, OSError):  # it is closed already
                        await _end_socket(send, "Unauthorized")
        except Rejected as error:
            await close(error, error.message)

    def _accepted_frames(
        self, visit: Visit, caller: Caller, receive: Receive, send: Send
    ) -> Receive:
        """The frames of a WebSocket that are within the rate and not nested too deep.

        The others are answered with an error, and audited like a refused request.
        """

        async def accepted() -> Message:
            while (message := await receive())["type"] == "websocket.receive":
                try:
                    wait = self._rates.take(f"address {visit.sender}") or self._wait_of(caller)
                    if wait:
                        raise _too_many(wait)
                    frame = (message.get("text") or "").encode(errors="replace")
                    await self._off_loop(bodies.check_nesting, frame)
                except CommonplaceError as error:
                    self._metrics.refused.labels("websocket").inc()
                    visit.refused = error
                    await self._note(visit)
                    await send(_socket_error(error.message))
                else:
                    break
            return message

        return accepted

    async def _known(self, visit: Visit) -> Caller | None:
        """The caller of a request that was refused before authentication; for the audit."""
        given = visit.given()
        try:
            if not given and (caller := await self._signed_in(visit)) is not None:
                return caller
            if not given:
                return Caller(space="default") if visit.ours and self._open_to(visit) else None
            return await self._recognised(given, visit)
        except CommonplaceError:  # the refusal stands, though the lookup failed
            return None

    def _open_to(self, visit: Visit) -> bool:
        """Whether a caller without a token is the person at this machine."""
        return self._tokenless and is_loopback(visit.address) and not visit.forwarded

    def _forwarded_without_token(self, visit: Visit, given: list[bytes]) -> bool:
        """Whether a proxy on this machine forwarded the request of somebody without a token."""
        return not given and self._tokenless and is_loopback(visit.address) and visit.forwarded

    async def _body(self, visit: Visit, receive: Receive, send: Send) -> bytes | None:
        """The body, within its limits; None if it was refused or the client disconnected.

        What a message of MCP calls is then known, and JSON for a route is parsed.
        """
        if visit.method in BODILESS:
            return b""

        def take(size: int) -> bool:
            taken = self._buffers.take(visit.sender, size)
            visit.buffered += size if taken else 0
            return taken

        kind = bodies.content_type(visit.header)
        try:
            body = await bodies.read(receive, self._limit(visit), typed=bool(kind), take=take)
            if body and kind == bodies.JSON:
                await self._parse(visit, body)
        except Rejected as error:
            await self._turn_away(visit, receive, send, error.status, error.code, error.message)
            return None
        return body

    def _limit(self, visit: Visit) -> int:
        """How large the body may be; BodyRefused if its headers alone rule it out."""
        if visit.method in BODILESS:
            return 0
        return bodies.limit_of(visit.header, visit.entrance, self._settings.body_bytes)

    async def _parse(self, visit: Visit, body: bytes) -> None:
        parsed = await self._off_loop(bodies.parse, body)
        if not visit.entrance.mcp:
            visit.scope[JSON_BODY] = parsed
            return
        visit.message = parsed
        calls = calls_in(parsed)
        if len(calls) > MOST_CALLS:
            raise Rejected(413, "TOO_LARGE", f"A batch may have {MOST_CALLS} calls.")
        visit.calls = None if parsed is UNREADABLE else calls

    async def _off_loop(self, function: Callable[[bytes], Any], body: bytes) -> Any:
        """Run the function on a body: in a worker if the body is large."""
        if len(body) <= bodies.INLINE_BYTES:
            return function(body)
        return await self._workers.run(function, body)

    async def _caller(self, visit: Visit, receive: Receive, send: Send) -> Caller | None:
        """The caller; None if authentication failed, which is then answered."""
        given = visit.given()
        if not given and (caller := await self._signed_in(visit)) is not None:
            return caller
        if not given and self._open_to(visit):
            return Caller(space="default")
        if self._forwarded_without_token(visit, given):
            await self._turn_away(visit, receive, send, 403, "FORWARDED", _FORWARDED)
            return None
        try:
            caller = await self._recognised(given, visit)
        except Unauthenticated as error:
            # Those whose token is good are let in: behind a proxy, all have one address.
            wait = self._failures.take(visit.sender)
            if wait:
                visit.as_documented()
                await self._slow_down(visit, receive, send, wait)
                return None
            log.warning("not recognised", extra={"why": error.reason, "address": visit.address})
            await self._not_recognised(visit, error, receive, send)
            return None
        return caller

    async def _signed_in(self, visit: Visit) -> Caller | None:
        """The caller of a session cookie; None if there is no valid one.

        Cookies are for pages and REST: a client of MCP has a token. A request that must not change
        anything has no right to.
        """
        if self._sessions is None or visit.entrance.mcp or not visit.ours:
            return None
        cookie = self._sessions.given(visit.scope["headers"])
        if not cookie:
            return None
        sessions, safe = self._sessions, visit.method in SAFE_METHODS

        async def recognise() -> Caller:
            caller = await self._workers.recognise(lambda: sessions.find(cookie).caller)
            kept = caller.scopes - {"write", "delete"} if safe else caller.scopes
            return replace(caller, scopes=kept)

        try:
            caller = await recognise()
        except Unauthenticated as error:
            log.info("session not recognised", extra={"why": error.reason})
            return None
        visit.cookie, visit.scope[RECHECK] = cookie, recognise
        return caller

    async def _recognised(self, given: list[bytes], visit: Visit) -> Caller:
        if len(given) != 1:
            raise Unauthenticated("no token" if not given else "several tokens")
        scheme, blank, token = given[0].decode("latin-1").strip().partition(" ")
        if not blank:
            token = scheme  # some clients send it bare
        elif scheme.lower() != "bearer":
            raise Unauthenticated("not a bearer token")
        path = visit.scope["path"].rstrip("/")
        resource = self._oauth.resources.resource_at(path) if self._oauth else None
        resource = resource or self._settings.base_url + path

        async def recognise() -> Caller:
            return await self._workers.recognise(
                lambda: self._tokens.recognise(token.strip(), resource=resource)
            )

        visit.scope[RECHECK] = recognise
        return await recognise()

    async def _not_recognised(
        self,
        visit: Visit,
        error: Unauthenticated,
        receive: Receive,
        send: Send,
    ) -> None:
        visit.as_documented()
        visit.refused = error
        self._metrics.refused.labels("unauthorized").inc()
        spoken = visit.entrance.dialect
        told = spoken is not None and spoken.tokens.tells_expiry
        expired = TokenExpired() if told and isinstance(error, Expired) else None
        shown = expired or error
        response = refusal(401, shown.code, str(shown), spoken)
        path, wrong = visit.scope["path"], "invalid_token" if expired else ""
        challenge = self._oauth.resources.challenge(path, error=wrong) if self._oauth else "Bearer"
        if spoken is not None and spoken.tokens.realm and not visit.entrance.mcp:
            parameters = challenge.removeprefix("Bearer").strip()
            named = f'Bearer realm="{spoken.tokens.realm}"'
            challenge = f"{named}, {parameters}" if parameters else named
        response.headers["www-authenticate"] = challenge
        await response(visit.scope, receive, send)

    async def _decided(
        self, visit: Visit, caller: Caller, body: bytes, receive: Receive, send: Send
    ) -> Admitted | None:
        """The caller with the gate's decision on what they call; None when it was refused.

        A message in which any call is beyond the caller's scope is refused: nothing of it runs.
        """
        dialect = visit.entrance.dialect
        admitted = Admitted(caller, visit.request_info(), visit.audited)
        if dialect is None or not visit.entrance.mcp or not body:
            return admitted
        if dialect.read_only is not None and "write" not in caller.scopes:
            forbidden = dialect.read_only.refusal(dialect, messages_of(visit.message))
            if forbidden is not None:
                await self._turn_away(visit, receive, send, 403, "FORBIDDEN", forbidden)
                return None
        decisions = await self._decisions(visit, caller, dialect.name)
        denied = [each for each in decisions if each and isinstance(each.refusal, NotPermitted)]
        if not denied:
            return replace(admitted, decision=decisions[0] if len(decisions) == 1 else None)
        await self._out_of_scope(visit, admitted, decisions, receive, send)
        return None

    async def _decisions(self, visit: Visit, caller: Caller, dialect: str) -> list[Decision | None]:
        """What the gate decides on each call; None for a call of a batch that is no declared tool.

        A batch is refused in any case, so that its dynamic tools need not be looked up.
        """
        batch = isinstance(visit.message, list)
        names = [name for name, _ in visit.called()] if visit.calls else []
        return [
            None
            if batch and not self._gate.declared(dialect, name)
            else await self._workers.decide(caller, dialect, name, tools_only=True)
            for name in names
        ]

    async def _out_of_scope(
        self,
        visit: Visit,
        admitted: Admitted,
        decisions: Sequence[Decision | None],
        receive: Receive,
        send: Send,
    ) -> None:
        """Refuse a message for the scope of some of its calls; each has its audit entry."""
        dialect, calls = visit.entrance.dialect, visit.calls or ()
        assert dialect is not None
        needed: set[str] = set()
        refused: list[CommonplaceError] = []
        for each in decisions:
            if each is not None and each.operation and isinstance(each.refusal, NotPermitted):
                needed.add(each.operation.tool.scope)
                refused.append(each.refusal)
            else:
                refused.append(Refused("FORBIDDEN", _BESIDE))
        for called, error in zip(visit.called(), refused, strict=True):
            visit.audited.append(visit.id)
            await self._refusals.note(
                admitted.caller, admitted.request_info, dialect.name, [called], error
            )
        self._metrics.refused.labels("scope").inc()
        errors = [
            {
                "jsonrpc": "2.0",
                "id": call.get("id"),
                "error": {"code": FORBIDDEN, "message": str(error), "data": error.as_dict()},
            }
            for call, error in zip(calls, refused, strict=True)
        ]
        batch = isinstance(visit.message, list)
        response = Response(
            json.dumps(errors if batch else errors[0]), 403, media_type="application/json"
        )
        if self._oauth is not None:
            challenge = self._oauth.resources.insufficient(
                visit.scope["path"], needed, admitted.caller.scopes
            )
        else:
            named = " ".join(sorted(needed | admitted.caller.scopes))
            challenge = f'Bearer error="insufficient_scope", scope="{named}"'
        response.headers["www-authenticate"] = challenge
        await response(visit.scope, receive, send)

    async def _slow_down(self, visit: Visit, receive: Receive, send: Send, wait: int) -> None:
        self._metrics.refused.labels("rate").inc()
        visit.refused = error = _too_many(wait)
        response = refusal(429, error.code, error.message, visit.entrance.dialect)
        response.headers["retry-after"] = str(wait)
        await response(visit.scope, receive, send)

    async def _turn_away(
        self, visit: Visit, receive: Receive, send: Send, status: int, code: str, message: str
    ) -> None:
        self._metrics.refused.labels(code.lower()).inc()
        visit.refused = Refused(code, message)
        response = refusal(status, code, message, visit.entrance.dialect)
        if status == 503:
            response.headers["retry-after"] = "1"
        await response(visit.scope, receive, send)


def _too_many(wait: int) -> TooManyCalls:
    return TooManyCalls(f"Too many requests; wait {wait} s.")


def _socket_error(message: str) -> Message:
    return {"type": "websocket.send", "text": json.dumps({"type": "error", "message": message})}


async def _end_socket(send: Send, message: str) -> None:
    await send(_socket_error(message))
    await send({"type": "websocket.close", "code": 1008})


def _meaning(status: int) -> tuple[str, str]:
    """The error code and message of a refusal, by its status."""
    told = f"Answered with HTTP status {status}."
    if status >= 500:
        return "INTERNAL_ERROR", told
    return _CODES.get(status, "INVALID_INPUT"), told


def _no_message(visit: Visit, wrong: str) -> Response:
    error = {"code": INVALID_REQUEST, "message": wrong}
    told = {"jsonrpc": "2.0", "id": identity_of(visit.message), "error": error}
    return Response(json.dumps(told), 400, media_type="application/json")
