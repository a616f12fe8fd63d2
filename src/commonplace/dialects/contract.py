"""What a dialect declares, who may call it, and what its handlers are given."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

Scope = Literal["read", "write", "delete", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "delete", "admin")
FULL: frozenset[Scope] = frozenset({"read", "write", "delete"})
READ_ONLY: frozenset[Scope] = frozenset({"read"})
EVERYTHING: frozenset[Scope] = frozenset(SCOPES)

Schema = Mapping[str, Any]
Wire = dict[str, Any]
"""The result of a `tools/call` as it goes over the wire."""


class NotPermitted(CommonplaceError):
    """The credential does not allow this operation; nothing was done."""

    code = "FORBIDDEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls: what a credential says, and nothing that a caller could choose."""

    space: str = "default"
    user: str = "local"
    scopes: frozenset[Scope] = EVERYTHING
    credential: str = ""
    """The credential's id; empty for the person at this machine."""
    dialects: frozenset[str] | None = None
    """The dialects that the credential is for; None for any."""
    being: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What is known of one request beside its arguments; only for origin and audit."""

    request: str = ""
    client: str = ""
    session: str = ""
    address: str = ""
    idempotency_key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a handler is given: the caller's memory and nobody else's."""

    memory: Commonplace
    caller: Caller
    circumstances: Circumstances
    origin: Origin


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
    """A result as text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A contract: its name, its tools, and how it shapes what went well and what did not."""

    name: str
    server: str
    version: str
    instructions: str
    tools: tuple[Tool, ...]
    succeed: Callable[[Tool, Any], Wire] = succeed
    fail: Callable[[Tool, CommonplaceError], Wire] = fail

    def tool(self, name: str) -> Tool | None:
        """The tool of that name."""
        return next((tool for tool in self.tools if tool.name == name), None)
