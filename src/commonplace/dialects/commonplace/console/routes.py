"""All REST routes of the console, and their OpenAPI document."""

from __future__ import annotations

from commonplace import __version__
from commonplace.dialects.commonplace.console import (
    audit,
    graph,
    history,
    imports,
    inbox,
    memories,
    overview,
    secrets,
)
from commonplace.dialects.contract import Tool
from commonplace.dialects.rest import OpenApi, Rest
from commonplace.dialects.tool_schemas import OBJECT, TEXT, output_schema

CONSOLE_MODULES = (overview, memories, inbox, history, imports, secrets, audit, graph)
"""The modules of the console; each defines `OPERATIONS` and `ROUTES`."""
OPERATIONS: tuple[Tool, ...] = tuple(tool for part in CONSOLE_MODULES for tool in part.OPERATIONS)
REST = Rest(
    roots=("/api/console",),
    routes=tuple(route for part in CONSOLE_MODULES for route in part.ROUTES),
    openapi=OpenApi(
        path="/api/console/openapi.json",
        title="Commonplace, the console",
        version=__version__,
        error=output_schema(error={**OBJECT, "properties": {"code": TEXT, "message": TEXT}}),
        statuses={
            400: "The request is not valid", 401: "No valid credential",
            403: "The credential lacks the scope", 404: "Not found",
            409: "Another caller has changed it", 413: "The request is too large",
            415: "The body is not JSON", 429: "Too many requests", 503: "Try again",
            507: "The disk is full",
        },
    ),
)  # fmt: skip
