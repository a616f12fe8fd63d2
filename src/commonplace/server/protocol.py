"""Serves a dialect as an MCP server of the SDK."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from commonplace.access.caller import NotPermitted
from commonplace.dialects.contract import Dialect
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.server.calls import (
    ADMITTED,
    COMPLETE,
    FAULT_MESSAGE,
    FORBIDDEN,
    AdmittedRequest,
    Workers,
    client_name,
    perform_if_permitted,
    tool_and_arguments,
    with_message_details,
)
from commonplace.server.quotas import Quota

LIST_MILLISECONDS = 300_000
_calling_request: ContextVar[AdmittedRequest] = ContextVar("calling")

log = logging.getLogger(__name__)


def build_server(dialect: Dialect, workers: Workers, quota: Quota | None = None) -> Server:
    """Build the MCP server of a dialect; it finds the caller in the ASGI scope of the request."""

    async def list_tools(
        ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams
    ) -> dict[str, Any]:
        del params
        try:
            tools = await workers.visible_tools(_admitted_request(ctx).caller, dialect)
        except MCPError:
            raise
        except Exception as error:
            raise _error_without_text(error) from error
        return {**COMPLETE, "tools": [tool.list_entry() for tool in tools]}

    async def call_tool(
        _: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        who, given = _calling_request.get(), params.arguments or {}
        try:
            return {
                **COMPLETE,
                **await perform_if_permitted(dialect, workers, quota, who, params.name, given),
            }
        except NotFound as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from error
        except NotPermitted as error:
            raise MCPError(code=FORBIDDEN, message=str(error)) from error
        except MCPError:
            raise
        except Exception as error:
            raise _error_without_text(error) from error

    async def audit_invalid(
        ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Audit calls that the SDK rejects before they reach `call_tool`."""
        if ctx.method != "tools/call":
            return await call_next(ctx)
        who = _admitted_request(ctx)
        _calling_request.set(who)
        try:
            return await call_next(ctx)
        finally:
            if not who.audited:
                wrong = InvalidInput("Invalid tools/call request.")
                await workers.refuse(who, dialect, *tool_and_arguments(ctx.params), wrong)

    lasts = 0 if dialect.dynamic_tools is not None else LIST_MILLISECONDS
    server: Server[Any] = Server(
        dialect.server,
        version=dialect.version,
        instructions=dialect.instructions,
        # The SDK needs schemas only for arguments in headers, and no tool has such arguments.
        get_tool_input_schema=lambda _: None,
        # The list depends on the caller's scope; without dynamic tools it does not change while
        # the server runs.
        cache_hints={"tools/list": CacheHint(ttl_ms=lasts, scope="private")},
    )
    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    server.middleware.append(audit_invalid)
    return server


def _admitted_request(ctx: ServerRequestContext[Any, Any]) -> AdmittedRequest:
    found = None if ctx.request is None else ctx.request.scope.get(ADMITTED)
    if found is None:
        raise MCPError(code=FORBIDDEN, message="The caller is unknown.")
    meta = (ctx.params or {}).get("_meta")
    return with_message_details(found, meta, _client_name(ctx, meta))


def _error_without_text(error: Exception) -> MCPError:
    """Return an error without the exception's text, which the SDK would send."""
    log.error("a request failed", exc_info=error)
    message = error.message if isinstance(error, CommonplaceError) else FAULT_MESSAGE
    return MCPError(code=types.INTERNAL_ERROR, message=message)


def _client_name(ctx: ServerRequestContext[Any, Any], meta: object) -> str:
    if isinstance(meta, Mapping):
        info = meta.get(types.CLIENT_INFO_META_KEY)
        if isinstance(info, Mapping):
            return client_name(info.get("name"), info.get("version"))
    params = ctx.session.client_params
    if params is not None:
        return client_name(params.client_info.name, params.client_info.version)
    return ""
