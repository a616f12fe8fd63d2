"""Turn functions into tools, and return their answers and errors in the contract's format.

A tool's parameters, defaults and required arguments are those of its function. The keys of its
answer are declared with empty values (`""`, `0`, `[]`), so that every answer has all keys. A tool
whose answer has the key `info` or `error` reports invalid input there, as the contract defines.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from commonplace.access.caller import Scope
from commonplace.dialects.contract import Call, Tool, Wire, as_json
from commonplace.dialects.tool_schemas import input_schema, object_of
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound

CAPTION = "description"
CAPTION_CHARS = 80
LARGE_BYTES = 48 * 1024 * 1024
"""The maximum size of a response that no argument of its tool makes smaller."""
_TYPES: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_EMPTY: Mapping[str, Any] = {
    "string": "", "integer": 0, "number": 0.0, "boolean": False, "array": [], "object": {},
}  # fmt: skip
_CAPTION: Mapping[str, Any] = {
    "type": "string",
    "description": f"What to show the user while it runs; at most {CAPTION_CHARS} characters.",
}

Answer = dict[str, Any]


class Unsuccessful(CommonplaceError):
    """A valid request has failed; `answer` contains the known keys of the answer."""

    code = "UNSUCCESSFUL"

    def __init__(self, message: str, **answer: Any) -> None:
        super().__init__(message)
        self.answer = answer


ToolFunction = Callable[..., Answer]


def tool(
    scope: Scope,
    empty_values: Mapping[str, Any],
    *,
    over_mcp: bool = True,
    **options: Any,
) -> Callable[[ToolFunction], ToolFunction]:
    """Return a decorator that makes a function a tool.

    `empty_values` are the keys of the answer with their empty values. Without `over_mcp` the tool
    is an operation of a REST route only, and MCP does not list it.
    """

    def mark(function: ToolFunction) -> ToolFunction:
        required, properties = _parameter_schemas(function)
        own_caption = CAPTION in properties

        def handler(call: Call, **arguments: Any) -> Answer:
            if not own_caption:
                arguments.pop(CAPTION, None)
            if any(_is_blank(arguments.get(name)) for name in required):
                raise InvalidInput(required_message(required))
            return {**empty_answer(output), **function(call, **arguments)}

        output = object_of(
            list(empty_values),
            **{name: {"type": _json_type(value)} for name, value in empty_values.items()},
        )
        if not own_caption and over_mcp:
            properties[CAPTION] = _CAPTION
        declared = Tool(
            name=function.__name__,
            title=function.__name__.replace("_", " ").capitalize(),
            description=inspect.getdoc(function) or "",
            scope=scope,
            handler=handler,
            input=input_schema(required, **properties),
            output=output,
            **options,
        )
        function.__dict__["tool" if over_mcp else "operation"] = declared
        return function

    return mark


def operation(
    scope: Scope, empty_values: Mapping[str, Any], **options: Any
) -> Callable[[ToolFunction], ToolFunction]:
    """Return a decorator that makes a function an operation of a REST route."""
    return tool(scope, empty_values, over_mcp=False, **options)


def _parameter_schemas(function: ToolFunction) -> tuple[list[str], dict[str, Any]]:
    hints = get_type_hints(function, include_extras=True)
    required: list[str] = []
    properties: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue  # skip the positional parameter `call`
        properties[name] = _annotation_schema(hints[name])
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            properties[name]["default"] = parameter.default
    return required, properties


def _annotation_schema(hint: Any) -> dict[str, Any]:
    """Return the schema of an annotation: a type, optionally with a description or a schema."""
    schema: dict[str, Any] = {}
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        for note in notes:
            schema |= {"description": note} if isinstance(note, str) else note
    return schema if "type" in schema else {"type": _TYPES[hint], **schema}


def _json_type(value: Any) -> str:
    return next(name for name, empty in _EMPTY.items() if type(empty) is type(value))


def _is_blank(value: Any) -> bool:
    return not value.strip() if isinstance(value, str) else value is None


def required_message(names: Sequence[str]) -> str:
    """Return the error message for missing or empty required parameters."""
    if len(names) == 1:
        return f"{names[0]} is required"
    if len(names) == 2:
        return f"{names[0]} and {names[1]} are required"
    return f"{', '.join(names[:-1])}, and {names[-1]} are required"


def empty_answer(output: Any) -> Answer:
    """Return an answer with an empty value for each key."""
    return {name: type(_EMPTY[schema["type"]])() for name, schema in output["properties"].items()}


def tools_defined_in(*modules: ModuleType) -> tuple[tuple[Tool, ...], tuple[Tool, ...]]:
    """Return (tools, operations) of some modules, in the order of their definition."""
    marks = [
        member.__dict__
        for module in modules
        for member in vars(module).values()
        if inspect.isfunction(member) and member.__module__ == module.__name__
    ]
    return (
        tuple(each["tool"] for each in marks if "tool" in each),
        tuple(each["operation"] for each in marks if "operation" in each),
    )


def format_error(tool: Tool, error: CommonplaceError) -> Wire:
    """Return an error result; the message is in the key that the contract defines."""
    answer = empty_answer(tool.output)
    text = _error_message(tool, error)
    known = isinstance(error, InvalidInput | NotFound | Conflict | Unsuccessful)
    if isinstance(error, Unsuccessful):
        answer |= error.answer
    if "info" in answer and known:
        answer["info"] = text
    # The tool has failed; this is not an error of the protocol.
    elif "info" not in answer and "error" in answer:
        answer["error"] = text
    else:
        return {"content": [{"type": "text", "text": text}], "isError": True}
    return {
        "content": [{"type": "text", "text": as_json(answer)}],
        "structuredContent": answer,
        "isError": False,
    }


def _error_message(tool: Tool, error: CommonplaceError) -> str:
    required = tool.input.get("required", [])
    if error.field in required and error.message.startswith(f"{error.field} is required"):
        return required_message(required)
    # Messages of the contract have no full stop and no hint.
    return str(error) if error.message.endswith(".") else error.message


def format_refusal(status: int, code: str, message: str, request: str) -> dict[str, Any] | str:
    """Return the body of an HTTP error, as JSON or as plain text, as the contract defines."""
    if status == 401:
        missing = message.startswith("No token")
        return "missing authorization" if missing else "invalid token"
    return {"error": {"code": code, "message": message, "request": request}}


def stamp(at: datetime | None) -> str:
    """Format a time as RFC 3339, in seconds."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def clamp_limit(value: int, default: int, most: int) -> int:
    """Return the number of results: the default for 0, and at most `most`."""
    return min(value, most) if value > 0 else default
