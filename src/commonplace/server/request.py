"""HTTP requests that `Door` checks: Host and Origin, the declared path, headers and body."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import socket
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope

from commonplace.access.browser import FORM_TYPE
from commonplace.access.caller import Caller, request_id
from commonplace.access.declarations import DEFAULT_TOKEN_FORMATS
from commonplace.access.rates import network_of
from commonplace.dialects.contract import Dialect, RequestInfo
from commonplace.dialects.rest import Rejected, Rest
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.server.calls import parse_message, tool_and_arguments
from commonplace.server.refusals import CalledTool
from commonplace.server.settings import Settings, is_loopback

DEFAULT_MCP_PATH = (
    "/mcp"  # serves the default dialect, or the dialect of the subject that the caller acts as
)
JSON_TYPE = "application/json"
BODILESS = ("GET", "HEAD", "DELETE", "OPTIONS")  # methods whose body is ignored
METHODS = frozenset((*BODILESS, "POST", "PUT", "PATCH"))
MOST_DEPTH = 64
# most arrays and objects in a body: json.loads holds the GIL while it creates them
MOST_CONTAINERS = 100_000
BODY_SECONDS = 30.0  # time limit for receiving a body
INLINE_BYTES = 65_536  # larger bodies are checked and parsed in a worker
# bytes of bodies in memory at the same time, for all requests
MOST_BUFFERED_BYTES = 128 * 1024 * 1024
# bytes of bodies for one address; handling them needs several times as much memory
MOST_ADDRESS_BYTES = 48 * 1024 * 1024
RECHECK = "commonplace.recheck"  # scope key: the function that verifies the credential again
# request headers that are passed on to dialects
DIALECT_HEADERS = ("x-conversation-id", "x-llm-api-key")
# Headers that proxies, tunnels and gateways add to forwarded requests, and prefixes of such
# headers.
FORWARDED_HEADERS = frozenset((
    b"forwarded", b"via", b"client-ip", b"true-client-ip", b"x-client-ip", b"x-cluster-client-ip",
    b"x-proxyuser-ip", b"x-proxy-id", b"cdn-loop", b"remote-user", b"x-remote-user",
    b"x-webauth-user",
))  # fmt: skip
FORWARDED_PREFIXES = (
    b"x-forwarded", b"x-real-", b"x-original-", b"x-envoy-", b"x-auth-request-", b"x-authentik-",
    b"cf-", b"tailscale-", b"ngrok-", b"fastly-", b"fly-", b"akamai-", b"x-akamai-", b"x-amz-cf-",
    b"x-amzn-", b"x-appengine-", b"x-goog-iap-", b"x-goog-authenticated-", b"x-azure-", b"x-arr-",
    b"x-ms-client-principal", b"x-vercel-", b"x-nf-",
)  # fmt: skip
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# The last `"?` lets an unterminated string match to the end, which avoids quadratic time.
_STRINGS_AND_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_NOT_JSON = "The body must be application/json."
_HOST = re.compile(
    r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}))(?::(?P<port>[0-9]{1,5}))?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_NOT_OURS = "{} name not allowed. Add it to `allow_hosts`."
# Connecting a UDP socket sends no packet, but selects the local address for this destination.
_DISTANT_HOSTS = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class PathRules:
    """The properties of a path; `Door` checks them before it reads the request."""

    route: str
    """The declared path with its placeholders, for the metrics and the audit."""
    dialect: Dialect | None = None
    is_public: bool = False
    mcp: bool = False
    upload_bytes: int = 0
    """The size limit of an uploaded file; 0 if the path takes none."""
    body_bytes: int = 0
    """The size limit of a body, if it is larger than that of the settings."""
    named_subject: str = ""
    """The subject in the path."""
    subject_dialect: Dialect | None = None
    """The dialect that answers callers who act as one of its subjects."""
    websocket: bool = False
    accepts_forms: bool = False
    """Whether pages of this server may post a form to the path."""
    is_linkable: bool = False
    """Whether a person may open the path by a link on another site."""


class Paths:
    """Every path of the server."""

    def __init__(
        self,
        dialects: Mapping[str, Dialect],
        default: str,
        *,
        public_paths: Collection[str],
        form_paths: Collection[str] = (),
        linkable_paths: Collection[str] = (),
    ) -> None:
        self._default = dialects[default]
        self.mcp: dict[str, str] = {}
        """The fixed paths of MCP, and the dialect that each serves by default."""
        self.subject_path = ""
        """The MCP path with a subject in it."""
        self._subject_dialect: Dialect | None = None
        self._exact: dict[str, PathRules] = {
            path: PathRules(path, is_public=True, is_linkable=path in linkable_paths)
            for path in public_paths
            if "{" not in path
        }
        self._exact |= {path: PathRules(path, accepts_forms=True) for path in form_paths}
        self._patterns: list[tuple[re.Pattern[str], PathRules]] = []
        self._below: list[tuple[str, PathRules]] = [
            ("/.well-known/", PathRules("/.well-known", is_public=True)),
            *(
                (
                    path.partition("{")[0],
                    PathRules(path, is_public=True, is_linkable=path in linkable_paths),
                )
                for path in public_paths
                if "{" in path
            ),
        ]
        for dialect in dialects.values():
            if DEFAULT_MCP_PATH in dialect.paths:
                self._subject_dialect = dialect
        for path in (DEFAULT_MCP_PATH, f"{DEFAULT_MCP_PATH}/"):
            self._add_mcp(path, self._default, self._subject_dialect)
        for dialect in dialects.values():
            for path in dialect.paths:
                if "{" in path:
                    self.subject_path = path
                elif path != DEFAULT_MCP_PATH:
                    self._add_mcp(path, dialect)
                    self._add_mcp(f"{path}/", dialect)
            if dialect.rest is not None:
                self._add_rest(dialect, dialect.rest)
        # If one root contains another, the inner root takes precedence.
        self._below.sort(key=lambda each: len(each[0]), reverse=True)

    def _add_mcp(self, path: str, dialect: Dialect, subject_dialect: Dialect | None = None) -> None:
        self.mcp[path] = dialect.name
        self._add(PathRules(path, dialect, mcp=True, subject_dialect=subject_dialect))

    def _add(self, rules: PathRules) -> None:
        if self._exact.setdefault(rules.route, rules) is not rules:
            raise ValueError(f"two dialects are served at {rules.route}")

    def _add_rest(self, dialect: Dialect, rest: Rest) -> None:
        for path in dict.fromkeys(path for route in rest.routes for path in route.paths):
            routes = [route for route in rest.routes if path in route.paths]
            rules = PathRules(
                path, dialect, all(route.public for route in routes),
                upload_bytes=max(route.upload_bytes for route in routes),
                body_bytes=max(route.body_bytes for route in routes),
                websocket=any(route.method == "WEBSOCKET" for route in routes),
            )  # fmt: skip
            if "{" in path:
                self._patterns.append((compile_path(path)[0], rules))
                self._below.append((path.partition("{")[0], PathRules(path, dialect)))
            else:
                self._add(rules)
        if rest.openapi is not None:
            self._add(PathRules(rest.openapi.path, dialect, is_public=True))
        for root in rest.roots:
            nothing = PathRules(f"{root}/…", dialect)
            self._below.append((f"{root}/", nothing))
            self._exact.setdefault(root, nothing)

    def dialects_at(self, path: str) -> set[str]:
        """Return the dialects that may answer at an MCP path."""
        also = self._exact[path].subject_dialect
        return {self.mcp[path]} | ({also.name} if also is not None else set())

    def rules_of(self, path: str) -> PathRules:
        """Return what is served at a URL path, and who may call it."""
        found = self._exact.get(path)
        if found is not None:
            return found
        above, _, named = path.rpartition("/")
        if self.subject_path and above == DEFAULT_MCP_PATH:
            return PathRules(
                self.subject_path, self._default, mcp=True, named_subject=named,
                subject_dialect=self._subject_dialect,
            )  # fmt: skip
        for pattern, rules in self._patterns:
            if pattern.match(path):
                return rules
        for above, rules in self._below:
            if path.startswith(above):
                return rules
        return PathRules("unknown")

    def describe_mcp_paths(self) -> str:
        """Return a sentence with the MCP paths, for requests to an unknown path."""
        paths = ", ".join(path for path in self.mcp if not path.endswith("/"))
        if self._subject_dialect is not None and self._subject_dialect.subject is not None:
            title = self._subject_dialect.subject.title
            paths += f", and at {self.subject_path} for a {title} of yours"
        return f"MCP is served at {paths}."


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host with its port."""

    name: str
    port: int


class Addresses:
    """The allowed Host names and Origins."""

    def __init__(self, settings: Settings) -> None:
        base = urlsplit(settings.base_url)
        names = {HostPort(name, settings.port) for name in own_host_names(settings)}
        origins = {("http", place) for place in names}
        if settings.public_url:
            place = HostPort(
                _bracket_ipv6(base.hostname or ""), base.port or _DEFAULT_PORTS[base.scheme]
            )
            names.add(place)
            origins.add((base.scheme, place))
        default_port = _DEFAULT_PORTS[base.scheme] if settings.public_url else settings.port
        for host in settings.allow_hosts:
            parsed = parse_host(host, default_port)
            if parsed is None:
                raise InvalidInput(
                    f"{host!r} in allow_hosts is not a host.",
                    hint="Write each like memory.lan:3847.",
                    field="allow_hosts",
                )
            names.add(parsed)
        for origin in settings.allow_origins:
            parsed_origin = parse_origin(origin)
            if parsed_origin is None:
                raise InvalidInput(
                    f"{origin!r} in allow_origins is not an origin.",
                    hint="Write each like https://app.example.",
                    field="allow_origins",
                )
            origins.add(parsed_origin)
        self._hosts = frozenset(names)
        self._origins = frozenset(origins)
        self._default_port = _DEFAULT_PORTS[base.scheme]

    def check(self, headers: Headers, *, linkable: bool = False) -> None:
        """Reject a request whose Host or Origin is not allowed.

        A page that is `linkable` may be opened by a link on another site.
        """
        hosts = _header_values(headers, b"host")
        forwarded = _header_values(headers, b"x-forwarded-host")
        if len(hosts) != 1 or not self._are_all_ours(hosts):
            raise Rejected(421, "ADDRESS", _NOT_OURS.format("Host"))
        if not self._are_all_ours(forwarded):
            raise Rejected(421, "ADDRESS", _NOT_OURS.format("X-Forwarded-Host"))
        origins = _header_values(headers, b"origin")
        if not origins:
            sites = _header_values(headers, b"sec-fetch-site")
            ours = all(site in ("same-origin", "none") for site in sites)
            if not ours and not (linkable and _is_navigation(headers)):
                raise Rejected(403, "ADDRESS", "Requests from other sites' pages are not accepted.")
            return
        origin = parse_origin(origins[0]) if len(origins) == 1 else None
        if origin is None or origin not in self._origins:
            raise Rejected(403, "ADDRESS", "Requests from that Origin are not accepted.")

    def _are_all_ours(self, hosts: Sequence[str]) -> bool:
        return all(parse_host(host, self._default_port) in self._hosts for host in hosts)


def own_host_names(settings: Settings) -> list[str]:
    """Return the host names that are allowed by default: the address that the server listens on.

    If it listens on all addresses, these are the machine's network addresses, its host name and the
    names of loopback.
    """
    if settings.on_every_address:
        return [*_network_addresses(), *LOOPBACK_NAMES]
    bound = _bracket_ipv6(settings.host)
    more = LOOPBACK_NAMES if is_loopback(settings.host) else ()
    return [bound, *(name for name in more if name != bound)]


def _network_addresses() -> list[str]:
    """Return this machine's network addresses and its host name."""
    found: list[str] = []
    for family, elsewhere in _DISTANT_HOSTS:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((elsewhere, 9))
            found.append(_bracket_ipv6(asking.getsockname()[0]))
    found.append(socket.gethostname().lower())
    return [name for name in dict.fromkeys(found) if parse_host(name, 80) is not None]


def _is_navigation(headers: Headers) -> bool:
    """Return whether the request is a top-level navigation."""
    return _header_values(headers, b"sec-fetch-mode") == ["navigate"] and _header_values(
        headers, b"sec-fetch-dest"
    ) == ["document"]


def client_address(scope: Scope, proxies: Collection[str]) -> str:
    """Return the client's address; X-Forwarded-For is trusted only from a configured proxy."""
    address: str = scope["client"][0] if scope.get("client") else ""
    # Dual-stack sockets show IPv4 addresses as ::ffff:a.b.c.d.
    address = address.removeprefix("::ffff:") if "." in address else address
    if address in proxies:
        hops = ",".join(_header_values(scope["headers"], b"x-forwarded-for")).split(",")
        for hop in reversed([hop.strip() for hop in hops if hop.strip()]):
            if hop not in proxies:
                return hop[:64]
    return address


def _header_values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


@functools.lru_cache(256)  # parsing one takes longer than any other check of its header
def parse_host(text: str, default_port: int) -> HostPort | None:
    """Return a Host header as name and port, or None if it is not valid."""
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else default_port
    if not 0 < port < 65_536 or (match["port"] or "").startswith("0"):
        return None
    return HostPort(match["name"].lower(), port)


def parse_origin(text: str) -> tuple[str, HostPort] | None:
    """Parse an Origin header into scheme, host and port; return None for `null` and for a path."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        return None
    place = parse_host(rest, _DEFAULT_PORTS[scheme])
    return None if place is None else (scheme, place)


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


class HttpRequest:
    """A request, or the opening handshake of a WebSocket, while `Door` checks it."""

    def __init__(self, scope: Scope, rules: PathRules, address: str) -> None:
        self.scope = scope
        self.rules = rules
        self.method: str = scope.get("method", "GET")
        self.status = 0
        """The status of the response; 0 until it is sent."""
        self.address_allowed = False
        """Whether the Host and Origin headers are allowed."""
        self.message: Any = None
        self.calls: list[dict[str, Any]] | None = None
        """The calls of an MCP message; None until the body has been read successfully."""
        self.buffered = 0
        """Bytes of the body that are held in memory."""
        self.caller: Caller | None = None
        self.cookie = ""
        """The session cookie that identified the caller."""
        self.refused: CommonplaceError | None = None
        self.audited: list[str] = []
        """Not empty if an audit entry for this request has been written."""
        self.address = address
        self.sender = network_of(address)
        given = self.header("x-request-id")
        self.id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex

    def header(self, name: str) -> str:
        """Return the header's value; empty when it is missing."""
        wanted = name.encode()
        for key, value in self.scope["headers"]:
            if key == wanted:
                found: str = value.decode("latin-1")
                return found
        return ""

    def authorization_values(self) -> list[bytes]:
        """Return the Authorization headers, or the token in the query of a WebSocket request."""
        found = [value for key, value in self.scope["headers"] if key == b"authorization"]
        if not found and self.scope["type"] == "websocket":
            token = next((value for key, value in self._query_parameters() if key == "token"), "")
            formats = (
                self.rules.dialect.tokens
                if self.rules.dialect is not None
                else DEFAULT_TOKEN_FORMATS
            )
            known = formats.environment is not None or token.startswith(formats.personal.prefix)
            if token and formats.in_websocket_query and known:
                found = [b"Bearer " + token.encode("latin-1", "replace")]
        return found

    def format_errors_as_documented(self) -> None:
        """Format errors to an unknown caller as the dialect that documents this path does."""
        if self.rules.subject_dialect is not None:
            self.rules = replace(self.rules, dialect=self.rules.subject_dialect)

    @property
    def is_forwarded(self) -> bool:
        """Whether a proxy has forwarded the request."""
        return any(
            name in FORWARDED_HEADERS or name.startswith(FORWARDED_PREFIXES)
            for name, _ in self.scope["headers"]
        )

    @property
    def known_method(self) -> str:
        """The method, or `other` for an unknown one."""
        return self.method if self.method in METHODS else "other"

    @property
    def name(self) -> str:
        """The method and the route."""
        return f"{self.known_method} {self.rules.route}"

    def called_tools(self) -> list[CalledTool]:
        """Return the called tools with their arguments, or the route if no tool is known."""
        if not self.rules.mcp:
            return [(self.name, {})]
        if self.calls is None:
            return [(self.name, {})] if self.method == "POST" else []
        return [tool_and_arguments(call.get("params")) for call in self.calls]

    def request_info(self) -> RequestInfo:
        """Return the request's data for the audit and for the origin of memories."""
        return RequestInfo(
            request=self.id,
            client=self.header("user-agent")[:200],
            session=self.header("mcp-session-id")[:200],
            address=self.address,
            idempotency_key=self.header("idempotency-key"),
            headers={name: value for name in DIALECT_HEADERS if (value := self.header(name))},
        )

    def _query_parameters(self) -> list[tuple[str, str]]:
        return parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)

    def named_subjects(self) -> list[str]:
        """Return the subjects in the path and the query."""
        rules = self.rules
        dialect = rules.subject_dialect or rules.dialect
        if not rules.mcp or dialect is None or dialect.subject is None:
            return []
        parameter = dialect.subject.parameter
        in_query = [value for name, value in self._query_parameters() if name == parameter]
        return [rules.named_subject, *in_query] if rules.named_subject else in_query

    def is_for_subjects(self, caller: Caller) -> bool:
        """Return whether a credential is for a subject, or for the dialect with subjects."""
        dialect = self.rules.subject_dialect or self.rules.dialect
        return bool(caller.subject) or (
            dialect is not None
            and dialect.subject is not None
            and caller.dialects is not None
            and dialect.name in caller.dialects
        )

    @property
    def content_type(self) -> str:
        """The media type that the headers declare, without parameters."""
        return self.header("content-type").split(";")[0].strip().lower()

    @property
    def declared_bytes(self) -> int:
        """The Content-Length; 0 if there is none."""
        declared = self.header("content-length")
        return int(declared) if declared.isdecimal() else 0

    def body_limit(self, most: int) -> int:
        """Return the size limit of the body; raise Rejected if the headers already exceed it."""
        if self.method in BODILESS:
            return 0
        limit = max(most, self.rules.body_bytes)
        kind, declared = self.content_type, self.header("content-length")
        if self.rules.upload_bytes and kind == "multipart/form-data":
            limit = self.rules.upload_bytes
        elif self.rules.accepts_forms and kind == FORM_TYPE:
            limit = min(most, INLINE_BYTES)
        elif kind != JSON_TYPE and (kind or declared not in ("", "0")):
            raise Rejected(415, "CONTENT_TYPE", _NOT_JSON)
        if self.header("content-encoding") not in ("", "identity"):
            raise Rejected(415, "CONTENT_ENCODING", "The body must not be compressed.")
        if self.declared_bytes > limit:
            raise _too_large_error(limit)
        return limit


class Buffers:
    """Counts the bytes of bodies held in memory. Use it on the event loop only."""

    def __init__(self) -> None:
        self._total = 0
        self._of: dict[str, int] = {}

    def take(self, sender: str, size: int) -> bool:
        """Count bytes of an address; return False, and count nothing, if they exceed a limit."""
        held = self._of.get(sender, 0)
        if self._total + size > MOST_BUFFERED_BYTES or held + size > MOST_ADDRESS_BYTES:
            return False
        self._total += size
        self._of[sender] = held + size
        return True

    def give_back(self, sender: str, size: int) -> None:
        """Subtract the bytes of a request."""
        self._total -= size
        left = self._of.get(sender, 0) - size
        if left > 0:
            self._of[sender] = left
        else:
            self._of.pop(sender, None)


async def read_body(
    receive: Receive, limit: int, *, declared: int, has_type: bool, take: Callable[[int], bool]
) -> bytes:
    """Read the whole body; raise ClientDisconnect if the client disconnects.

    `take` reserves memory for a number of bytes, or returns False. The declared length is reserved
    at once, so that concurrent large bodies cannot block each other halfway. If the headers
    declare no content type (`has_type` is False), the body must be empty.
    """
    parts, size = [], 0
    if not take(declared):
        raise _no_room_error()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise _too_large_error(limit)
                if size > declared and not take(len(part)):
                    raise _no_room_error()
                parts.append(part)
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise Rejected(408, "TOO_SLOW", "The body was not received in time.") from None
    if size and not has_type:
        raise Rejected(415, "CONTENT_TYPE", _NOT_JSON)
    return b"".join(parts)


def parse_body(body: bytes) -> Any:
    """Return the JSON of a body, or UNREADABLE. Raise Rejected if it is nested too deep or has too
    many containers.
    """
    check_nesting(body)
    return parse_message(body)


def check_nesting(body: bytes) -> None:
    """Reject JSON that is nested too deep, or has too many arrays and objects.

    Brackets inside strings do not count.
    """
    if body.count(b"[") + body.count(b"{") <= MOST_DEPTH:
        return
    level = opened = 0
    for mark in _STRINGS_AND_BRACKETS.finditer(body):
        sign = mark[0]
        if sign in (b"[", b"{"):
            level += 1
            opened += 1
            if level > MOST_DEPTH:
                raise Rejected(400, "TOO_DEEP", f"JSON may be at most {MOST_DEPTH} levels deep.")
            if opened > MOST_CONTAINERS:
                raise Rejected(
                    413,
                    "TOO_LARGE",
                    f"JSON may have at most {MOST_CONTAINERS:,} arrays and objects.",
                )
        elif sign in (b"]", b"}"):
            level -= 1


def with_time_limit(receive: Receive) -> Receive:
    """Wrap `receive` of a streamed body: a client that sends too slowly counts as disconnected."""
    until = asyncio.get_running_loop().time() + BODY_SECONDS
    whole = False

    async def timely() -> Message:
        nonlocal whole
        try:
            async with asyncio.timeout_at(None if whole else until):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        whole = whole or not message.get("more_body")
        return message

    return timely


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that passes the body to the application.

    It passes the body in pieces, lets other requests run between them, and then frees it.
    """
    at = 0
    done = False

    async def again() -> Message:
        nonlocal at, body, done
        if done:
            return await receive()
        if at:
            await asyncio.sleep(0)
        piece = body[at : at + INLINE_BYTES]
        at += len(piece)
        done = at >= len(body)
        if done:
            body = b""
        return {"type": "http.request", "body": piece, "more_body": not done}

    return again


def refusal_response(status: int, code: str, message: str, dialect: Dialect | None) -> Response:
    """Return the response to a refused request, in the dialect's own format."""
    if dialect is not None and dialect.format_refusal is not None:
        body = dialect.format_refusal(status, code, message, request_id.get())
    else:
        body = {"error": {"code": code, "message": message, "request": request_id.get()}}
    if isinstance(body, str):
        return Response(body, status, media_type="text/plain")
    return Response(json.dumps(body), status, media_type=JSON_TYPE)


def _no_room_error() -> Rejected:
    return Rejected(503, "BUSY", "Too many large requests are open. Try again in a moment.")


def _too_large_error(limit: int) -> Rejected:
    return Rejected(
        413, "TOO_LARGE",
        f"The body is larger than {limit:,} bytes. Send less at a time,"
        " or let the operator set body_bytes.",
    )  # fmt: skip
