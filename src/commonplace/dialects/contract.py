"""The types with which a dialect declares itself, and the arguments of its handlers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from commonplace.access.caller import Caller, Scope
from commonplace.access.declarations import DEFAULT_TOKEN_FORMATS, Resource, TokenFormats
from commonplace.dialects.rest import Rest
from commonplace.engine.checks import ATTRS_CHARS, TEXT_CHARS
from commonplace.engine.model import Memory, Origin
from commonplace.errors import CommonplaceError
from commonplace.text.hidden import escape_json

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.content.projects import Project
    from commonplace.engine.library import Library
    from commonplace.platform.sealed import Sealing
    from commonplace.storage.ports import Store

Schema = Mapping[str, Any]
Wire = dict[str, Any]
"""The result of a `tools/call` as MCP sends it."""

WHOLE_TEXT_BYTES = 8 * (TEXT_CHARS + ATTRS_CHARS)
"""The maximum size of a response with one whole text and its attributes, escaped twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """Metadata of one request. The headers are never stored."""

    request: str = ""
    client: str = ""
    session: str = ""
    address: str = ""
    idempotency_key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The headers that a contract uses, with lowercase names; their values may be secrets."""
    project: Project | None = None
    """The project directory in which a client on this machine was started."""
    environ: Mapping[str, str] | None = None
    """Environment variables of a stdio client that contracts read; None for other clients."""
    confirmed_keys: Sequence[str] = ()
    """Idempotency keys whose answers a stdio client has received; they can be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The first argument of a handler: the request, and the memory of the caller's space."""

    memory: Commonplace
    caller: Caller
    request_info: RequestInfo
    origin: Origin
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    """Callbacks that the gate runs after the commit, such as starting a background job."""
    retry_key: str = ""
    """Equal for a call and its retries; empty for a call without an idempotency key."""
    reads: bool = False
    """Whether the tool is a read (`Tool.reads`): the call must succeed even if the write of usage
    or credit fails.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool or REST operation of a dialect."""

    name: str
    title: str
    description: str
    scope: Scope
    handler: Callable[..., Any]
    """Called with the `Call` and the validated arguments by name."""
    input: Schema
    output: Schema | None = None
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    response_bytes: int | None = None
    """The maximum size of a response, if it differs from the default."""
    stepwise: bool = False
    """Whether the tool is a long operation with several commits; the last one includes the audit
    entry. Such a tool sets its own time limit, and the gate does not cancel it."""
    hidden: bool = False
    """Whether `tools/list` omits the tool, although it can be called."""
    only_reads: bool = False
    """Whether the tool is treated as a read although its contract requires another scope."""
    only_reads_with: Callable[[Mapping[str, Any]], bool] | None = None
    """Returns whether a call with these arguments only reads, for a tool that may also write."""
    embeds_later: bool = False
    """Whether stored texts are embedded after the answer and not before it. Tools whose contract
    answers or acts by similarity must embed first."""
    has_secret_arguments: bool = False
    """Whether arguments may be secrets: audit entries then contain their names without values."""
    secret_results: tuple[str, ...] = ()
    """Fields of the result that are secrets. The caller gets them once: audit entries, and the
    answer that is stored for retries, have null instead."""
    session_part: Callable[[Call], str] | None = None
    """Returns the part of the MCP session on which the writes depend; an idempotency key is valid
    within this part only. None if the writes do not depend on the session."""

    @property
    def reads(self) -> bool:
        """Whether the call is a read; a read succeeds even if the disk is full."""
        return self.scope == "read" or self.only_reads

    def without_secrets(self, value: Any) -> Any:
        """Return a result of the tool with null in place of secrets."""
        return {**value, **dict.fromkeys(self.secret_results)} if self.secret_results else value

    def renamed(self, name: str) -> Tool:
        """Return the same tool under another name."""
        return replace(self, name=name)

    def list_entry(self) -> dict[str, Any]:
        """Return the tool as `tools/list` shows it."""
        shown: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": dict(self.input),
        }
        if self.output is not None:
            shown["outputSchema"] = dict(self.output)
        shown["annotations"] = {
            "readOnlyHint": self.scope == "read",
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent or self.scope == "read",
            "openWorldHint": self.open_world,
        }
        return shown


def as_json(value: Any) -> str:
    """Return a value as compact JSON."""
    return json_text(value, separators=(",", ":"))


def json_text(value: Any, **layout: Any) -> str:
    """Return JSON in which invisible characters are escaped, so that a model sees them."""
    written = json.dumps(value, ensure_ascii=False, **layout)
    # The JSON encoder already escapes the ASCII control characters, except for DEL.
    return written if written.isascii() and "\x7f" not in written else escape_json(written)


def format_result(tool: Tool, value: Any) -> Wire:
    """Return the default result: a string as text, other values as structured content and JSON."""
    del tool
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": value}], "isError": False}
    if isinstance(value, ResultWithText):
        return {
            "content": [{"type": "text", "text": value.text}],
            "structuredContent": value.value,
            "isError": False,
        }
    return {
        "content": [{"type": "text", "text": as_json(value)}],
        "structuredContent": value,
        "isError": False,
    }


def format_error(tool: Tool, error: CommonplaceError) -> Wire:
    """Return the default error result: the code, the message and the hint as text."""
    del tool
    return {"content": [{"type": "text", "text": f"{error.code}: {error}"}], "isError": True}


@dataclass(frozen=True, slots=True)
class ResultWithText:
    """A structured result with a separate text for the model."""

    value: dict[str, Any]
    text: str


class TooManyCalls(CommonplaceError):
    """The call was refused, because the rate limit of the contract is exceeded."""

    code = "RATE_LIMITED"

    def __init__(self, message: str, *, limit: int = 0, wait: int = 0) -> None:
        super().__init__(message)
        self.limit = limit
        self.wait = wait


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The maximum requests per minute of a space, and the environment variable to change it."""

    per_minute: int
    variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The environment of a dialect in an HTTP server (all spaces) or a stdio server (one space)."""

    library: Library
    system: Store
    space: str | None = None
    """The space of a stdio server; None for all spaces of the library."""
    environ: Mapping[str, str]
    perform: Callable[[Caller, RequestInfo, str, str, Mapping[str, Any]], Any] | None = None
    """`Gate.perform`, with which agents of the server call tools."""
    prefix: str = ""
    """The prefix of the tools' names."""
    vault: Callable[[], Sealing] | None = None
    """Returns the vault that encrypts stored secrets; opened on first use."""
    restart: Callable[[], None] | None = None
    """Restarts the server gracefully; None if this server cannot be restarted."""
    log_formatter: logging.Formatter | None = None
    """The format of the server's log, which omits the messages of exceptions."""


FormatRefusal = Callable[[int, str, str, str], "dict[str, Any] | str"]
"""A function from (status, code, message, request id) to the body of a server error."""

Identify = Callable[["Commonplace", Caller, Sequence[str]], Caller]
"""A function from (the caller's space, the caller, the names in the URL) to the caller with its
subject. It raises NotFound for a name that is not the caller's, InvalidInput if one is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """How a dialect names and finds the subject of a call.

    The subject is the part of a space that the call is about, such as a being.

    The URL names the subject (by a parameter in an MCP path or in the query), or the token is
    bound to it. At `/mcp`, requests with a subject are answered in this dialect, all others in the
    server's default dialect.
    """

    title: str
    parameter: str
    identify: Identify
    find_named: Callable[[Commonplace, str], Memory]
    """Finds the subject that a person names: by its id, the first characters of it, or its name.
    Raises NotFound if there is none, or several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnly:
    """The MCP methods that a token without the scope `write` may use, and the error messages."""

    methods: frozenset[str]
    method_error: str
    """The error message for any other method."""
    tool_error: str
    """The error message for a call of a tool whose scope is not `read`."""

    def refusal(self, dialect: Dialect, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """Return the error for the first message that is not allowed, or None."""
        for message in messages:
            method = message.get("method")
            if method is None and ("result" in message or "error" in message):
                continue  # a response to a request that the server sent
            if method not in self.methods:
                return self.method_error
            if method == "tools/call":
                params = message.get("params")
                name = params.get("name") if isinstance(params, Mapping) else None
                tool = dialect.tool(name) if isinstance(name, str) else None
                if tool is None or tool.scope != "read":
                    return self.tool_error
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The declaration of a dialect; the server, the command line, the docs and tests use it.

    `dialects/registry.py` loads `DIALECT` from the module `dialect` of the dialect's package.
    """

    name: str
    title: str
    """The display name on OAuth pages and in the docs."""
    contract: str = ""
    """The name of the contract in the docs; empty for Commonplace's own dialect. Only its tools
    see the project of a client."""
    server: str
    version: str
    instructions: str
    paths: tuple[str, ...] = ()
    """The URL paths of the MCP endpoints."""
    tools: tuple[Tool, ...]
    operations: tuple[Tool, ...] = ()
    """The operations of the REST routes. The gate runs them like tools; MCP does not list them."""
    rest: Rest | None = None
    tokens: TokenFormats = DEFAULT_TOKEN_FORMATS
    resources: Mapping[str, Resource] | None = None
    """OAuth resources by path; None for one with default permissions for each MCP path."""
    format_result: Callable[[Tool, Any], Wire] = format_result
    format_error: Callable[[Tool, CommonplaceError], Wire] = format_error
    format_refusal: FormatRefusal | None = None
    sign_in_path: str = ""
    """The REST path that exchanges a credential; a wrong one there is INVALID_CREDENTIALS."""
    format_socket_refusal: Callable[[CommonplaceError], tuple[dict[str, Any], int]] | None = None
    """The message and the close code for a WebSocket that the server refuses."""
    rate: RateLimit | None = None
    """The rate limit of each space in an HTTP server."""
    shown_types: Mapping[str, str] = field(default_factory=dict)
    """The type under which memories of other dialects are shown, by kind; `*` is the default."""
    background_work: Callable[[Setting], AbstractContextManager[None]] | None = None
    """A context manager that runs background work, such as file watchers, with the server."""
    stdio_connection: Callable[[Setting], AbstractContextManager[None]] | None = None
    """A context manager for each stdio client of a background server, with the client's space and
    environment. If a client has its own server process, `background_work` is used instead."""
    call_wrapper: Callable[[Call, Mapping[str, Any]], AbstractContextManager[None]] | None = None
    """A context manager around each call and its transaction: entered with the arguments before
    the transaction begins, left after the commit and before the response. After the commit of a
    read it must not fail, since reads are repeated when the disk is full."""
    subject: Subject | None = None
    """How calls name their subject, if the contract divides spaces into parts."""
    read_only: ReadOnly | None = None
    """The methods of read-only tokens, if the contract defines the errors for all others."""
    dynamic_tools: Callable[[Commonplace, Caller], tuple[Tool, ...]] | None = None
    """Returns the tools that are registered at run time for a caller; it reads the database."""

    def tool(self, name: str) -> Tool | None:
        """Return the tool with this name, or None."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def prefixed(self, prefix: str) -> Dialect:
        """Return the same dialect with a prefix before every tool's name."""
        return replace(self, tools=tuple(tool.renamed(prefix + tool.name) for tool in self.tools))
