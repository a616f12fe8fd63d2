"""How a dialect declares its REST operations; `server/rest.py` serves them."""

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
    """An HTTP answer. A body of bytes, or an async iterator, is sent as it is; others as JSON."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"


class Rejected(CommonplaceError):
    """A request that is answered with this status in the dialect's `refuse` format."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Exchange(Protocol):
    """One REST request, as the functions of a route get it."""

    route: Route
    arguments: dict[str, Any]
    """What was read of the request so far; the gate has not checked it."""
    started: float
    """By `time.perf_counter`."""

    @property
    def request(self) -> HTTPConnection:
        """Starlette's request or WebSocket."""

    @property
    def caller(self) -> Caller:
        """Who was let in; not for public routes."""

    @property
    def request_id(self) -> str:
        """The id of the request in the log and in the answer."""

    @property
    def scope(self) -> str:
        """The scope that the route's operation needs."""

    @property
    def input(self) -> Schema:
        """The input schema of the route's operation."""

    async def given(self) -> dict[str, Any]:
        """The arguments of path, query and body: how a route without `read` reads them."""

    async def json(self, kind: type = dict, *, required: bool = False) -> Any:
        """The body as JSON of this type; InvalidInput otherwise.

        No body is an empty object, unless one is required.
        """

    async def perform(self, arguments: Mapping[str, Any], operation: str = "") -> Any:
        """Run the route's operation, or another of the dialect, through the gate.

        Returns the value of its handler; raises its CommonplaceError.
        """

    async def open_session(self) -> Session:
        """Tokens for the API key of the request, if the route's operation is permitted."""

    async def renew_session(self, token: str) -> Session:
        """New tokens for a refresh token, if the route's operation is permitted."""


Read = Callable[[Exchange], Awaitable[Mapping[str, Any]]]
Answer = Callable[[Exchange], Awaitable["Reply | None"]]


@dataclass(frozen=True, slots=True)
class Route:
    """One REST operation: a method and a path, and the operation of the gate behind it."""

    method: Method
    path: str
    """With parameters in braces, which become arguments."""
    operation: str = ""
    """Its name among the dialect's operations; empty for a route that does not use the gate."""
    status: int = 200
    """The status of a success; 204 has no body."""
    _: KW_ONLY
    aliases: tuple[str, ...] = ()
    public: bool = False
    """Whether it answers without a credential. Otherwise the operation's scope is needed."""
    body_bytes: int = 0
    """The largest JSON body, where that is more than the settings allow."""
    uploads: int = 0
    """The largest multipart body; 0 for JSON only."""
    read: Read | None = None
    """Reads the arguments, where they are not simply those of path, query and body."""
    show: Callable[[Exchange, Any], Any] | None = None
    """Shapes the operation's value, where the dialect's `succeed` does not."""
    answer: Answer | None = None
    """Does everything itself: sessions, streams, WebSockets."""
    names: tuple[tuple[str, str], ...] = ()
    """(name of a query parameter, name of the argument), where they differ."""
    summary: str = ""
    data: Schema | None = None
    """The schema of the value, for the OpenAPI document."""
    errors: tuple[int, ...] = ()
    """Statuses beside those that every route can answer with, for the OpenAPI document."""
    request_body: Mapping[str, Any] | None = None
    """The OpenAPI description of a body that is not the operation's arguments as JSON."""
    media_type: str = "application/json"

    @property
    def paths(self) -> tuple[str, ...]:
        """Its path and its aliases."""
        return (self.path, *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApi:
    """The OpenAPI document of a dialect's routes, and where it is served to anybody."""

    path: str
    title: str
    version: str
    error: Schema
    statuses: Mapping[int, str]
    """What any route can answer with."""
    other_statuses: Mapping[int, str] = field(default_factory=dict)
    envelope: Callable[[Schema], Schema] = lambda data: data
    """The schema of a success around the schema of the value."""


def succeed(exchange: Exchange, value: Any) -> Any:
    """The usual answer: the operation's value."""
    del exchange
    return value


STATUSES: Mapping[type[CommonplaceError], int] = {
    InvalidInput: 400, NotFound: 404, Conflict: 409, NotPermitted: 403, StorageFull: 507,
}  # fmt: skip


def status_of(error: CommonplaceError, otherwise: int = 503) -> int:
    """The usual HTTP status of an error."""
    found = (status for kind, status in STATUSES.items() if isinstance(error, kind))
    return next(found, otherwise)


def fail(exchange: Exchange, error: CommonplaceError) -> Reply:
    """The usual failure. The adapter adds the challenge of a 403."""
    del exchange
    return Reply({"error": error.as_dict()}, status_of(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The REST interface of a dialect."""

    routes: tuple[Route, ...]
    roots: tuple[str, ...] = ()
    """Every path below one of these is the dialect's, and unknown ones get its 404."""
    succeed: Callable[[Exchange, Any], Any] = succeed
    fail: Callable[[Exchange, CommonplaceError], Reply] = fail
    openapi: OpenApi | None = None
