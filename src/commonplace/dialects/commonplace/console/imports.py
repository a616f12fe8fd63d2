"""The imports page of the console."""

from __future__ import annotations

from typing import Any

from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import input_schema, integer
from commonplace.engine.binding import engine_call
from commonplace.engine.history import imports as history
from commonplace.engine.model import iso

PAGE = 20


def imports(call: Call, *, limit: int, before: int | None = None) -> dict[str, Any]:
    """Return a page of imports, newest first. Undoing `operation` undoes the whole import."""
    found = engine_call(call.memory, history.imports, limit=limit, before=before)
    return {
        "imports": [
            {
                "operation": one.last.id, "seq": one.last.seq, "began": iso(one.first.at),
                "ended": iso(one.last.at), "sources": list(one.sources), "memories": one.memories,
                "undone_by": one.undone_by,
            }
            for one in found
        ]
    }  # fmt: skip


OPERATIONS = (
    Tool(
        name="console_imports", title="Imports", scope="read", handler=imports,
        description="List imports, newest first.",
        input=input_schema(limit=integer(1, 100, PAGE), before=integer(0)),
    ),
)  # fmt: skip
ROUTES = (Route("GET", "/api/console/imports", "console_imports", summary="List imports"),)
