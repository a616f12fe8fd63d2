"""What a dialect declares, and what its handlers are given."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from commonplace.access.caller import Caller, Scope
from commonplace.access.declarations import OURS, Resource, TokenForms
from commonplace.dialects.rest import Rest
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError
from commonplace.text.hidden import escape_json

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.library import Library
    from commonplace.storage.ports import Store

Schema = Mapping[str, Any]
Wire = dict[str, Any]
"""The result of a `tools/call` as it goes over the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """Metadata of one request beside its arguments. The headers are never stored."""

    request: str = ""
    client: str = ""
    session: str = ""
    address: str = ""
    idempotency_key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those that a contract goes by, in small letters; they may hold a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a handler is given: the caller's memory and nobody else's."""

    memory: Commonplace
    caller: Caller
    request_info: RequestInfo
    origin: Origin
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    """What the gate is to do once the call is stored: to begin what works on it."""
    retry_key: str = ""
    """The same for a call and its retries; empty for a call without an idempotency key."""
    reads: bool = False
    """As `Tool.reads`: what it notes on the way must not make it fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One operation of a dialect, as its contract names it."""

    name: str
    title: str
    description: str
    scope: Scope
    handler: Callable[..., Any]
    """Called with the `Call` and the checked arguments by name."""
    input: Schema
    output: Schema | None = None
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    response_bytes: int | None = None
    """The most that its answer may have, where that is not the usual."""
    stepwise: bool = False
    """It takes long and commits in steps of its own, the audit row with the last; it keeps to
    its own time, and is not given up."""
    hidden: bool = False
    """It can be called, but is not listed."""
    only_reads: bool = False
    """It is a read for the caller, although its contract demands another scope."""
    withheld: bool = False
    """What it is given may be a secret: the audit has which arguments came, and no value."""
    session: Callable[[Call], str] | None = None
    """The part of the MCP session that decides what it writes; an idempotency key is valid for
    that part only. None if a retry from another session would write the same."""

    @property
    def reads(self) -> bool:
        """Whether the caller asks to read; such a call goes on when the disk is full."""
        return self.scope == "read" or self.only_reads

    def named(self, name: str) -> Tool:
        """The same tool under another name."""
        return replace(self, name=name)

    def listed(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
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
    """A result as text, without blanks."""
    return json_text(value, separators=(",", ":"))


def json_text(value: Any, **layout: Any) -> str:
    """JSON in which hidden characters are escapes, since a model reads it as it stands.

    The parsed value is the same.
    """
    return escape_json(json.dumps(value, ensure_ascii=False, **layout))


def succeed(tool: Tool, value: Any) -> Wire:
    """The usual result: text for text; for anything else structured, and the same as JSON."""
    del tool
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": value}], "isError": False}
    if isinstance(value, Told):
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


def fail(tool: Tool, error: CommonplaceError) -> Wire:
    """The usual failure: what was wrong and what to do, as text."""
    del tool
    return {"content": [{"type": "text", "text": f"{error.code}: {error}"}], "isError": True}


@dataclass(frozen=True, slots=True)
class Told:
    """A structured result with a text for the model that says more than its JSON would."""

    value: dict[str, Any]
    text: str


class TooManyCalls(CommonplaceError):
    """More calls than a contract allows in a time; nothing was done."""

    code = "RATE_LIMITED"

    def __init__(self, message: str, *, limit: int = 0, wait: int = 0) -> None:
        super().__init__(message)
        self.limit = limit
        self.wait = wait


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Requests that a space may make in a minute, and the variable that sets another number."""

    a_minute: int
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a dialect runs: in a server of all spaces, or for one space and one client."""

    library: Library
    system: Store
    space: str | None = None
    """The one space of a stdio server; None for all that the library has."""
    environ: Mapping[str, str]
    perform: Callable[[Caller, RequestInfo, str, str, Mapping[str, Any]], Any] | None = None
    """The gate's own, for agents that are run here: as whom, how, of which dialect, which tool."""
    prefix: str = ""
    """What the tools' names begin with."""
    vault: Callable[[], Sealing] | None = None
    """What seals secrets at rest, opened when it is first asked for."""
    restart: Callable[[], None] | None = None
    """Stops the server in order and starts it anew; None where it cannot."""


class Sealing(Protocol):
    """Seals secrets, each bound to what it is for."""

    def seal(self, value: bytes, *aad: str) -> bytes:
        """The secret as it may be stored."""

    def open(self, sealed: bytes, *aad: str) -> bytes:
        """What was sealed as that."""


Refuse = Callable[[int, str, str, str], "dict[str, Any] | str"]
"""(status, code, message, request id) to the body of an answer that the door gives itself."""

Identify = Callable[["Commonplace", Caller, Sequence[str]], Caller]
"""(the caller's space, the caller, the names in the address) to the caller with its subject.
NotFound for a name that is not the caller's; InvalidInput when one is needed and was not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One of several things in a space that a call is for, such as a being.

    The address names it, by the parameter in a path of MCP or in the query; or the token, which can
    be for one subject. At `/mcp` those who come as a subject, by address or token, are answered in
    this dialect, and all others in the server's default one.
    """

    title: str
    parameter: str
    identify: Identify


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnly:
    """The MCP messages of a token without the scope `write`, and what any other is answered."""

    methods: frozenset[str]
    other_method: str
    other_tool: str
    """The answer to a call of a tool whose scope is not `read`."""

    def refusal(self, dialect: Dialect, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """Why none of these messages may pass; None if all may."""
        for message in messages:
            method = message.get("method")
            if method is None and ("result" in message or "error" in message):
                continue  # the answer to a request of the server
            if method not in self.methods:
                return self.other_method
            if method == "tools/call":
                params = message.get("params")
                name = params.get("name") if isinstance(params, Mapping) else None
                tool = dialect.tool(name) if isinstance(name, str) else None
                if tool is None or tool.scope != "read":
                    return self.other_tool
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Everything that server, command line, docs and tests know of a contract.

    `dialects/registry.py` finds it as `DIALECT` in the module `dialect` of the dialect's package.
    """

    name: str
    title: str
    """What people call it: on the pages of OAuth and in the docs."""
    contract: str = ""
    """The name of the contract in the docs; empty for one of our own."""
    server: str
    version: str
    instructions: str
    paths: tuple[str, ...] = ()
    """Where MCP is served."""
    tools: tuple[Tool, ...]
    operations: tuple[Tool, ...] = ()
    """What its REST routes do: in the gate's table as the tools are, but not listed over MCP."""
    rest: Rest | None = None
    tokens: TokenForms = OURS
    resources: Mapping[str, Resource] | None = None
    """OAuth resources by path; if None, one with the usual permissions for each path of MCP."""
    succeed: Callable[[Tool, Any], Wire] = succeed
    fail: Callable[[Tool, CommonplaceError], Wire] = fail
    refuse: Refuse | None = None
    refuse_socket: Callable[[CommonplaceError], tuple[dict[str, Any], int]] | None = None
    """The message and the close code of a WebSocket that the door refuses."""
    rate: RateLimit | None = None
    """How many calls a space may make, in a server for many."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """How it shows a memory of each kind that another dialect stored; `*` for any other."""
    running: Callable[[Setting], AbstractContextManager[None]] | None = None
    """What must run while it is served: watchers, imports."""
    call_wrapper: Callable[[Call, Mapping[str, Any]], AbstractContextManager[None]] | None = None
    """A context manager around each call, outside its unit of work. It is entered with the
    arguments before the unit begins, and left after the commit and before the answer. It must not
    fail after the commit of a call that reads, which is repeated on a full disk."""
    subject: Subject | None = None
    """What a call is for, where the contract has more than one such thing in a space."""
    read_only: ReadOnly | None = None
    """What a token that may only read can send, where the contract says how others are refused."""
    dynamic_tools: Callable[[Commonplace, Caller], tuple[Tool, ...]] | None = None
    """Tools that are registered at run time, as this caller has them now. It reads the memory."""

    def tool(self, name: str) -> Tool | None:
        """The tool of that name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def prefixed(self, prefix: str) -> Dialect:
        """The same dialect with every tool's name behind a prefix."""
        return replace(self, tools=tuple(tool.named(prefix + tool.name) for tool in self.tools))
