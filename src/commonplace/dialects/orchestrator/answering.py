"""How a function becomes a tool, and how what it gives, or what went wrong, goes over the wire.

A tool's parameters, their defaults and which are required are those of its function; what it gives
is declared with the values that mean nothing (`""`, `0`, `[]`), so that every answer has all of its
keys. A tool whose answer has `info` or `error` tells there what was wrong with the input, as the
contract has it; the others fail.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from commonplace.access.caller import Scope
from commonplace.dialects.contract import Call, Tool, Wire, as_json
from commonplace.dialects.tool_schemas import held, takes
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound

CAPTION = "description"
CAPTION_CHARS = 80
_TYPES: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_NOTHING: Mapping[str, Any] = {
    "string": "", "integer": 0, "number": 0.0, "boolean": False, "array": [], "object": {},
}  # fmt: skip
_CAPTION: Mapping[str, Any] = {
    "type": "string",
    "description": f"What to show the user while it runs; at most {CAPTION_CHARS} characters.",
}

Answer = dict[str, Any]


class Unsuccessful(CommonplaceError):
    """What was asked for was tried and did not succeed; `told` is known all the same."""

    code = "UNSUCCESSFUL"

    def __init__(self, message: str, **told: Any) -> None:
        super().__init__(message)
        self.told = told


Function = Callable[..., Answer]


def tool(
    scope: Scope,
    gives: Mapping[str, Any],
    *,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
    stepwise: bool = False,
    lists: bool = True,
    response_bytes: int | None = None,
    session: Callable[[Call], str] | None = None,
) -> Callable[[Function], Function]:
    """Make a tool of a function; without `lists`, an operation that only REST routes use."""

    def mark(function: Function) -> Function:
        required, properties = _parameters(function)
        own_caption = CAPTION in properties

        def handler(call: Call, **given: Any) -> Answer:
            if not own_caption:
                given.pop(CAPTION, None)
            if any(not _says_something(given.get(name)) for name in required):
                raise InvalidInput(needed(required))
            return {**answer_of(output), **function(call, **given)}

        output = held(
            list(gives), **{name: {"type": _type_of(value)} for name, value in gives.items()}
        )
        if not own_caption and lists:
            properties[CAPTION] = _CAPTION
        made = Tool(
            name=function.__name__,
            title=function.__name__.replace("_", " ").capitalize(),
            description=inspect.getdoc(function) or "",
            scope=scope,
            handler=handler,
            input=takes(required, **properties),
            output=output,
            destructive=destructive,
            idempotent=idempotent,
            open_world=open_world,
            stepwise=stepwise,
            response_bytes=response_bytes,
            session=session,
        )
        function.__dict__["tool" if lists else "operation"] = made
        return function

    return mark


def operation(scope: Scope, gives: Mapping[str, Any]) -> Callable[[Function], Function]:
    """Make an operation of a function: what a REST route does, not listed over MCP."""
    return tool(scope, gives, lists=False)


def _parameters(function: Function) -> tuple[list[str], dict[str, Any]]:
    hints = get_type_hints(function, include_extras=True)
    required: list[str] = []
    properties: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue  # the call itself
        properties[name] = _schema(hints[name])
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            properties[name]["default"] = parameter.default
    return required, properties


def _schema(hint: Any) -> dict[str, Any]:
    """The schema of an annotation: a type, with a description or a schema of its own beside it."""
    schema: dict[str, Any] = {}
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        for note in notes:
            schema |= {"description": note} if isinstance(note, str) else note
    return schema if "type" in schema else {"type": _TYPES[hint], **schema}


def _type_of(value: Any) -> str:
    return next(name for name, nothing in _NOTHING.items() if type(nothing) is type(value))


def _says_something(value: Any) -> bool:
    return bool(value.strip()) if isinstance(value, str) else value is not None


def needed(names: Sequence[str]) -> str:
    """What is said when any of the required parameters is missing or empty."""
    if len(names) == 1:
        return f"{names[0]} is required"
    if len(names) == 2:
        return f"{names[0]} and {names[1]} are required"
    return f"{', '.join(names[:-1])}, and {names[-1]} are required"


def answer_of(output: Any) -> Answer:
    """An answer in which nothing is said yet."""
    return {name: type(_NOTHING[schema["type"]])() for name, schema in output["properties"].items()}


def found_in(package: ModuleType) -> tuple[tuple[Tool, ...], tuple[Tool, ...]]:
    """(tools, operations) of all modules of a package, in the order of their names and lines."""
    tools: list[Tool] = []
    operations: list[Tool] = []
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        members = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        tools += _marked(members.values(), "tool", module.name, package.__name__)
        operations += _marked(members.values(), "operation", module.name, package.__name__)
    return tuple(tools), tuple(operations)


def _marked(members: Iterable[Any], mark: str, module: str, package: str) -> list[Tool]:
    """The tools that functions defined in a module carry, and not those it only imports."""
    return [
        member.__dict__[mark]
        for member in members
        if inspect.isfunction(member)
        and mark in member.__dict__
        and member.__module__ == f"{package}.{module}"
    ]


def fail(tool: Tool, error: CommonplaceError) -> Wire:
    """A failure where the tool's contract tells it."""
    answer = answer_of(tool.output)
    text = _told(tool, error)
    known = isinstance(error, InvalidInput | NotFound | Conflict | Unsuccessful)
    if isinstance(error, Unsuccessful):
        answer |= error.told
    if "info" in answer and known:
        answer["info"] = text
    elif "info" not in answer and "error" in answer:  # never an error of the protocol
        answer["error"] = text
    else:
        return {"content": [{"type": "text", "text": text}], "isError": True}
    return {
        "content": [{"type": "text", "text": as_json(answer)}],
        "structuredContent": answer,
        "isError": False,
    }


def _told(tool: Tool, error: CommonplaceError) -> str:
    required = tool.input.get("required", [])
    if error.field in required and error.message.startswith(f"{error.field} is required"):
        return needed(required)
    # The contract's own sentences have no full stop, and nothing is said after them.
    return str(error) if error.message.endswith(".") else error.message


def refuse(status: int, code: str, message: str, request: str) -> dict[str, Any] | str:
    """What the door says: plain text where the contract has it."""
    if status == 401:
        missing = message.startswith("No token")
        return "missing authorization" if missing else "invalid token"
    return {"error": {"code": code, "message": message, "request": request}}


def stamp(at: datetime | None) -> str:
    """A moment as RFC 3339, in seconds."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def clamped(value: int, usual: int, most: int) -> int:
    """A number of results: the usual one for none, never more than the most."""
    return min(value, most) if value > 0 else usual
