"""The types with which a dialect declares its REST routes; `server/rest.py` serves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from commonplace.access.caller import Caller, NotPermitted, Session
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound, StorageFull

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "WEBSOCKET"]
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response. Bytes and async iterators are sent unchanged, other bodies as JSON."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"


class Rejected(CommonplaceError):
    """An error that is sent with this status in the format of the dialect's `format_refusal`."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Exchange(Protocol):
    """One REST request, the argument of a route's functions."""

    route: Route
    arguments: dict[str, Any]
    """The arguments that were read from the request; they are not validated yet."""
    started: float
    """The start time by `time.perf_counter`."""

    @property
    def request(self) -> HTTPConnection:
        """Starlette's request or WebSocket."""

    @property
    def caller(self) -> Caller:
        """The authenticated caller; public routes have none."""

    @property
    def request_id(self) -> str:
        """The id of the request in the log and in the response."""

    @property
    def scope(self) -> str:
        """The scope that the route's operation needs."""

    @property
    def input(self) -> Schema:
        """The input schema of the route's operation."""

    async def request_arguments(self) -> dict[str, Any]:
        """Return the arguments from path, query and body; used if a route has no `read`."""

    async def json_body(self, kind: type = dict, *, required: bool = False) -> Any:
        """Return the body parsed as JSON; raise InvalidInput if it has another type.

        A missing body is an empty object, unless it is required.
        """

    async def parse_json(self, text: str) -> Any:
        """Parse the JSON in a form field; raise InvalidInput or, if nested too deep, Rejected."""

    async def perform(self, arguments: Mapping[str, Any], operation: str = "") -> Any:
        """Run the route's operation, or another of the dialect, through the gate.

        Returns the value of its handler; raises its CommonplaceError.
        """

    async def open_session(self) -> Session:
        """Issue tokens for the API key of the request, if it permits the route's operation."""

    async def renew_session(self, token: str) -> Session:
        """Issue new tokens for a refresh token, if it permits the route's operation."""


Read = Callable[[Exchange], Awaitable[Mapping[str, Any]]]
Answer = Callable[[Exchange], Awaitable["Reply | None"]]


@dataclass(frozen=True, slots=True)
class Route:
    """An HTTP method and a path, with the dialect's operation that they run."""

    method: Method
    path: str
    """The path; parameters in braces become arguments."""
    operation: str = ""
    """The name of the dialect's operation; empty for a route without an operation."""
    status: int = 200
    """The status on success; 204 sends no body."""
    _: KW_ONLY
    aliases: tuple[str, ...] = ()
    public: bool = False
    """Whether the route needs no credential. Other routes need the scope of their operation."""
    body_bytes: int = 0
    """The maximum size of a JSON body, if larger than the server's setting."""
    upload_bytes: int = 0
    """The maximum size of a multipart body; 0 means that only JSON is accepted."""
    read: Read | None = None
    """Reads the arguments, instead of `Exchange.request_arguments`."""
    show: Callable[[Exchange, Any], Any] | None = None
    """Formats the operation's value, instead of the dialect's `format_result`."""
    answer: Answer | None = None
    """Handles the whole request, for sessions, streams and WebSockets."""
    names: tuple[tuple[str, str], ...] = ()
    """Pairs (query parameter, argument) for names that differ."""
    summary: str = ""
    data: Schema | None = None
    """The schema of the value, for the OpenAPI document."""
    errors: tuple[int, ...] = ()
    """Further error statuses of this route, for the OpenAPI document."""
    request_body: Mapping[str, Any] | None = None
    """The OpenAPI description of a body that is not the operation's arguments as JSON."""
    media_type: str = "application/json"

    @property
    def paths(self) -> tuple[str, ...]:
        """The route's path and aliases."""
        return (self.path, *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApi:
    """The OpenAPI document of a dialect's routes, served at `path` without a credential."""

    path: str
    title: str
    version: str
    error: Schema
    statuses: Mapping[int, str]
    """The statuses that every route can return."""
    other_statuses: Mapping[int, str] = field(default_factory=dict)
    envelope: Callable[[Schema], Schema] = lambda data: data
    """Wraps the schema of a value in the schema of a successful response."""
    routes: tuple[Route, ...] = ()
    """The routes that the document describes; empty for all routes."""


def format_result(exchange: Exchange, value: Any) -> Any:
    """Return the default response: the operation's value."""
    del exchange
    return value


STATUSES: Mapping[type[CommonplaceError], int] = {
    InvalidInput: 400, NotFound: 404, Conflict: 409, NotPermitted: 403, StorageFull: 507,
}  # fmt: skip


def status_of(error: CommonplaceError, otherwise: int = 503) -> int:
    """Return the default HTTP status of an error."""
    found = (status for kind, status in STATUSES.items() if isinstance(error, kind))
    return next(found, otherwise)


def format_error(exchange: Exchange, error: CommonplaceError) -> Reply:
    """Return the default error response. The server adds the WWW-Authenticate header of a 403."""
    del exchange
    return Reply({"error": error.as_dict()}, status_of(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The REST interface of a dialect."""

    routes: tuple[Route, ...]
    roots: tuple[str, ...] = ()
    """Path prefixes of the dialect; unknown paths below them get the dialect's 404 response."""
    format_result: Callable[[Exchange, Any], Any] = format_result
    format_error: Callable[[Exchange, CommonplaceError], Reply] = format_error
    openapi: OpenApi | None = None
