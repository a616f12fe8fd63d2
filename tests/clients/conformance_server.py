"""The real program, with one more dialect: the tools that the conformance suite calls by name.

The suite can only see a result, an error or content of some kind if a tool gives it, so these are
registered here through the same table, gate and protocol code as any other dialect. They are no
part of the product.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

from commonplace.cli import main
from commonplace.dialects import registry
from commonplace.dialects.contract import Call, Dialect, Tool, Wire
from commonplace.errors import InvalidInput

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

TEXT = {"type": "text", "text": "This is a simple text response for testing."}
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
RESOURCE = {
    "type": "resource",
    "resource": {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    },
}
MIXED = [
    {"type": "text", "text": "Multiple content types test:"},
    IMAGE,
    {
        "type": "resource",
        "resource": {
            "uri": "test://mixed-content-resource",
            "mimeType": "application/json",
            "text": '{"test":"data","value":123}',
        },
    },
]


def always(*content: dict[str, Any]) -> Callable[[Call], Any]:
    """A handler that gives the same content every time."""
    return lambda call: list(content)


def fails(call: Call) -> Any:
    """A handler that never succeeds."""
    raise InvalidInput("This tool intentionally returns an error for testing")


def succeed(tool: Tool, value: Any) -> Wire:
    """Content goes over the wire as it is."""
    return {"content": value, "isError": False}


def tool(name: str, handler: Callable[[Call], Any]) -> Tool:
    """A tool that takes nothing."""
    return Tool(
        name=name, title=name, description="For the conformance suite.", scope="read",
        handler=handler, input={"type": "object", "additionalProperties": False},
    )  # fmt: skip


DIALECT = Dialect(
    name="conformance",
    title="Conformance",
    paths=("/mcp/conformance",),
    server="commonplace",
    version="0",
    instructions="",
    tools=(
        tool("test_simple_text", always(TEXT)),
        tool("test_image_content", always(IMAGE)),
        tool("test_audio_content", always(AUDIO)),
        tool("test_embedded_resource", always(RESOURCE)),
        tool("test_multiple_content_types", always(*MIXED)),
        tool("test_error_handling", fails),
    ),
    format_result=succeed,
)

if __name__ == "__main__":
    package = types.ModuleType("conformance")
    sys.modules |= {"conformance": package, "conformance.dialect": sys.modules["__main__"]}
    found = EntryPoint("conformance", "conformance", registry.ENTRY_POINT_GROUP)
    registry._entry_points()["conformance"] = found
    main(sys.argv[1:])
