"""The contract's HTTP routes: Health, Checkpoint, Memory and Graph, with their aliases."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from commonplace.access.caller import NotPermitted
from commonplace.dialects.mama import exporting, operations, platform
from commonplace.dialects.mama.platform import failures
from commonplace.dialects.mama.refusing import error_body
from commonplace.dialects.rest import (
    Exchange,
    OpenApi,
    Rejected,
    Reply,
    Rest,
    Route,
    status_of,
)
from commonplace.engine.model import iso
from commonplace.errors import CommonplaceError, InvalidInput, NotFound, StorageFull

# The error code of an internal error, by operation.
_FAILURE_CODES = {
    "http_save": "SAVE_FAILED", "http_save_checkpoint": "SAVE_FAILED",
    "http_load_checkpoint": "LOAD_FAILED", "http_checkpoints": "LOAD_FAILED",
    "http_search": "SEARCH_FAILED", "auto_recall": "SEARCH_FAILED",
    "http_similar": "SEARCH_FAILED", "http_update": "UPDATE_FAILED",
}  # fmt: skip


def _bad_request(code: str, message: str) -> Rejected:
    return Rejected(400, code, message)


async def _health(_: Exchange) -> Reply:
    return Reply({"status": "ok", "service": "MAMA Graph API"})


async def _decision_arguments(exchange: Exchange) -> dict[str, Any]:
    return await _body_fields(exchange, ("topic", "decision", "reasoning"), ("confidence",))


async def _checkpoint_arguments(exchange: Exchange) -> dict[str, Any]:
    return await _body_fields(exchange, ("summary",), ("next_steps", "open_files"))


async def _search_arguments(exchange: Exchange) -> dict[str, Any]:
    asked = exchange.request.query_params
    query = asked.get("query") or asked.get("q") or ""
    if not query.strip():
        raise _bad_request("MISSING_QUERY", "Missing required parameter: q")
    return {"query": query, "limit": _parse_limit(asked.get("limit"))}


async def _prompt_arguments(exchange: Exchange) -> dict[str, Any]:
    body = await _json_object(exchange)
    if not isinstance(body.get("prompt"), str):
        raise _bad_request("MISSING_FIELDS", "Missing required field: prompt")
    return _present_fields(body, ("prompt", "start", "tokens"))


async def _graph_arguments(exchange: Exchange) -> dict[str, Any]:
    asked = exchange.request.query_params
    cluster = (asked.get("cluster") or "false").strip().lower()
    if cluster not in ("true", "false"):
        raise _bad_request("INVALID_REQUEST", "cluster must be true or false")
    return {"topic": asked.get("topic") or "", "cluster": cluster == "true"}


def _with_latency(exchange: Exchange, value: Any) -> dict[str, Any]:
    return {**value, "latency": round((time.perf_counter() - exchange.started) * 1000)}


async def _similar_arguments(exchange: Exchange) -> dict[str, Any]:
    id = exchange.request.query_params.get("id") or ""
    if not id.strip():
        raise _bad_request("MISSING_ID", "Missing required parameter: id")
    return {"id": id}


async def _outcome_arguments(exchange: Exchange) -> dict[str, Any]:
    body = await _json_object(exchange)
    fields = {name: body[name] for name in ("id", "outcome") if body.get(name)}
    if len(fields) < 2:
        raise _bad_request("INVALID_REQUEST", "Missing required fields: id, outcome")
    return {**fields, **_present_fields(body, ("reason",))}


async def _send_export(exchange: Exchange) -> Reply:
    """Send all decisions as a file, in pieces."""
    format = (exchange.request.query_params.get("format") or "json").lower()
    if format not in ("json", "csv"):
        raise _bad_request("INVALID_REQUEST", "format must be csv or json")
    at = datetime.now(UTC)

    async def piece(offset: int, skip: int) -> Any:
        return await exchange.perform(
            {"format": format, "until": iso(at), "offset": offset, "skip": skip}
        )

    async def parts(current: dict[str, Any]) -> AsyncIterator[str]:
        yield exporting.export_head(format, at)
        yield current["text"]
        while current["offset"] is not None:
            current = await piece(current["offset"], current["skip"])
            yield current["text"]
        yield exporting.export_tail(format)

    name = f"mama-decisions-{at.date().isoformat()}.{format}"
    return Reply(
        # The first piece is read now, so that its error can set the HTTP status.
        parts(await piece(0, 0)),
        headers={"content-disposition": f'attachment; filename="{name}"'},
        media_type="text/csv; charset=utf-8" if format == "csv" else "application/json",
    )


async def _json_object(exchange: Exchange) -> dict[str, Any]:
    try:
        body: dict[str, Any] = await exchange.json_body(required=True)
    except InvalidInput as error:
        raise _bad_request("INVALID_REQUEST", error.message) from None
    return body


async def _body_fields(
    exchange: Exchange, needed: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, Any]:
    body = await _json_object(exchange)
    if any(not body.get(name) or not str(body[name]).strip() for name in needed):
        fields = "field" if len(needed) == 1 else "fields"
        raise _bad_request("MISSING_FIELDS", f"Missing required {fields}: {', '.join(needed)}")
    return _present_fields(body, (*needed, *optional))


def _present_fields(body: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: body[name] for name in names if body.get(name) is not None}


def _parse_limit(value: str | None) -> int:
    if not value:
        return operations.SEARCH_LIMIT
    if not (value.isascii() and value.isdigit() and len(value) < 10) or int(value) < 1:
        raise _bad_request("INVALID_REQUEST", "limit must be a whole number from 1")
    return min(int(value), operations.SEARCH_MAX)


def _format_rest_error(exchange: Exchange, error: CommonplaceError) -> Reply:
    """Return an error response with the contract's code and status."""
    if exchange.route in platform.ROUTES:
        return failures.format_error(exchange, error)
    operation = exchange.route.operation
    if isinstance(error, InvalidInput):
        status, code = 400, "INVALID_REQUEST"
    elif isinstance(error, NotFound):
        status, code = 404, "NOT_FOUND"
        if operation == "http_load_checkpoint":
            code = "NO_CHECKPOINT"
    elif isinstance(error, NotPermitted | StorageFull):
        status, code = status_of(error), error.code
    else:
        status, code = 500, _FAILURE_CODES.get(operation, "INTERNAL_ERROR")
    return Reply(error_body(status, code, str(error), ""), status)


REST = Rest(
    roots=("/api", "/graph", "/checkpoints"),
    format_error=_format_rest_error,
    openapi=OpenApi(
        path="/api/openapi.json",
        title="MAMA, beside memory",
        version="0.10.0",
        error=failures.SCHEMA,
        statuses=failures.STATUSES,
        routes=platform.ROUTES,
    ),
    routes=(
        Route("GET", "/api/health", public=True, answer=_health),
        Route("POST", "/api/checkpoint/save", "http_save_checkpoint", read=_checkpoint_arguments),
        Route("GET", "/api/checkpoint/load", "http_load_checkpoint"),
        Route("GET", "/checkpoints", "http_checkpoints", aliases=("/api/checkpoints",)),
        Route("GET", "/api/mama/search", "http_search", aliases=("/api/search",),
              read=_search_arguments),
        Route("POST", "/api/mama/save", "http_save", aliases=("/api/save",),
              read=_decision_arguments),
        Route("POST", "/api/mama/recall", "auto_recall", read=_prompt_arguments),
        Route("GET", "/api/memory/export", "http_export", answer=_send_export),
        Route("GET", "/graph", "http_graph", aliases=("/api/graph",), read=_graph_arguments,
              show=_with_latency),
        Route("GET", "/graph/similar", "http_similar", read=_similar_arguments),
        Route("POST", "/graph/update", "http_update", aliases=("/api/update",),
              read=_outcome_arguments),
        *platform.ROUTES,
    ),
)  # fmt: skip
