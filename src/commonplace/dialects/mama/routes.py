"""The contract's HTTP routes: Health, Checkpoint, Memory and Graph, with their aliases.

A route reads the request, lets one operation of the gate act, and shapes what went wrong.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from commonplace.access.caller import NotPermitted
from commonplace.dialects.contract import Rest
from commonplace.dialects.mama import exporting, operations
from commonplace.dialects.mama.refusing import refusal
from commonplace.engine.model import iso
from commonplace.errors import CommonplaceError, InvalidInput, NotFound

Handler = Callable[[Request], Awaitable[Response]]
SCOPES = {operation.name: operation.scope for operation in operations.OPERATIONS}
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Refused(Exception):
    """A request that is answered without asking the memory."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def routes(rest: Rest) -> list[BaseRoute]:
    """Every path with its methods."""
    paths = Paths(rest)
    table: Mapping[str, Mapping[str, Handler]] = {
        "/api/health": {"GET": paths.health},
        "/api/checkpoint/save": {"POST": paths.save_checkpoint},
        "/api/checkpoint/load": {"GET": paths.load_checkpoint},
        "/checkpoints": {"GET": paths.checkpoints},
        "/api/checkpoints": {"GET": paths.checkpoints},
        "/api/mama/search": {"GET": paths.search},
        "/api/search": {"GET": paths.search},
        "/api/mama/save": {"POST": paths.save},
        "/api/save": {"POST": paths.save},
        "/api/mama/recall": {"POST": paths.recall},
        "/api/memory/export": {"GET": paths.export},
        "/graph": {"GET": paths.graph},
        "/api/graph": {"GET": paths.graph},
        "/graph/similar": {"GET": paths.similar},
        "/graph/update": {"POST": paths.update},
        "/api/update": {"POST": paths.update},
    }
    return [Route(path, _by_method(handlers), methods=METHODS) for path, handlers in table.items()]


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    """The handler of a request's method, behind one place where failures get their shape."""
    allowed = ", ".join([*handlers, *(["HEAD"] if "GET" in handlers else []), "OPTIONS"])

    async def endpoint(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": allowed})
        handler = handlers.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            body = refusal(405, "METHOD_NOT_ALLOWED", f"Use {allowed}.", "")
            return JSONResponse(body, 405, {"allow": allowed})
        try:
            return await handler(request)
        except Refused as error:
            return JSONResponse(refusal(400, error.code, error.message, ""), 400)

    return endpoint


class Paths:
    """What each path does."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def health(self, _: Request) -> Response:
        """Say that it is there."""
        return JSONResponse({"status": "ok", "service": "MAMA Graph API"})

    async def save(self, request: Request) -> Response:
        """Save a decision."""
        body = _object(self._rest, request)
        fields = _needed(body, "topic", "decision", "reasoning")
        if body.get("confidence") is not None:
            fields["confidence"] = body["confidence"]
        return await self._act(request, "http_save", fields, "SAVE_FAILED")

    async def save_checkpoint(self, request: Request) -> Response:
        """Save a checkpoint."""
        body = _object(self._rest, request)
        fields = _needed(body, "summary")
        for name in ("next_steps", "open_files"):
            if body.get(name) is not None:
                fields[name] = body[name]
        return await self._act(request, "http_save_checkpoint", fields, "SAVE_FAILED")

    async def load_checkpoint(self, request: Request) -> Response:
        """Load the latest checkpoint."""
        return await self._act(
            request, "http_load_checkpoint", {}, "LOAD_FAILED", missing="NO_CHECKPOINT"
        )

    async def checkpoints(self, request: Request) -> Response:
        """List the checkpoints."""
        return await self._act(request, "http_checkpoints", {}, "LOAD_FAILED")

    async def search(self, request: Request) -> Response:
        """Search; the alias calls the query by its name."""
        asked = request.query_params
        query = asked.get("query") or asked.get("q") or ""
        if not query.strip():
            raise Refused("MISSING_QUERY", "Missing required parameter: q")
        arguments = {"query": query, "limit": _limit(asked.get("limit"))}
        return await self._act(request, "http_search", arguments, "SEARCH_FAILED")

    async def recall(self, request: Request) -> Response:
        """Auto-recall, as a plugin asks for it before an agent starts."""
        body = _object(self._rest, request)
        if not isinstance(body.get("prompt"), str):
            raise Refused("MISSING_FIELDS", "Missing required field: prompt")
        names = ("prompt", "start", "tokens")
        arguments = {name: body[name] for name in names if body.get(name) is not None}
        return await self._act(request, "auto_recall", arguments, "SEARCH_FAILED")

    async def graph(self, request: Request) -> Response:
        """Nodes and edges, with how long it took in milliseconds."""
        begun = time.perf_counter()
        asked = request.query_params
        cluster = (asked.get("cluster") or "false").strip().lower()
        if cluster not in ("true", "false"):
            raise Refused("INVALID_REQUEST", "cluster must be true or false")
        arguments = {"topic": asked.get("topic") or "", "cluster": cluster == "true"}
        return await self._act(
            request, "http_graph", arguments, "INTERNAL_ERROR",
            adding=lambda: {"latency": round((time.perf_counter() - begun) * 1000)},
        )  # fmt: skip

    async def similar(self, request: Request) -> Response:
        """What is like one decision."""
        id = request.query_params.get("id") or ""
        if not id.strip():
            raise Refused("MISSING_ID", "Missing required parameter: id")
        return await self._act(request, "http_similar", {"id": id}, "SEARCH_FAILED")

    async def update(self, request: Request) -> Response:
        """Update an outcome."""
        body = _object(self._rest, request)
        fields = {name: body[name] for name in ("id", "outcome") if body.get(name)}
        if len(fields) < 2:
            raise Refused("INVALID_REQUEST", "Missing required fields: id, outcome")
        if body.get("reason") is not None:
            fields["reason"] = body["reason"]
        return await self._act(request, "http_update", fields, "UPDATE_FAILED")

    async def export(self, request: Request) -> Response:
        """Every decision as a file."""
        format = (request.query_params.get("format") or "json").lower()
        if format not in ("json", "csv"):
            raise Refused("INVALID_REQUEST", "format must be csv or json")
        at = datetime.now(UTC)

        async def piece(offset: int, skip: int) -> Any:
            arguments = {"format": format, "until": iso(at), "offset": offset, "skip": skip}
            return await self._rest.perform(request, "http_export", arguments)

        try:
            first = await piece(0, 0)
        except CommonplaceError as error:
            return failure(error, "http_export", "INTERNAL_ERROR")
        name = f"mama-decisions-{at.date().isoformat()}.{format}"
        return StreamingResponse(
            _pieces(format, at, first, piece),
            media_type="text/csv; charset=utf-8" if format == "csv" else "application/json",
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )

    async def _act(
        self,
        request: Request,
        operation: str,
        arguments: Mapping[str, Any],
        failed: str,
        *,
        missing: str = "NOT_FOUND",
        adding: Callable[[], dict[str, Any]] | None = None,
    ) -> Response:
        try:
            value = await self._rest.perform(request, operation, arguments)
        except CommonplaceError as error:
            return failure(error, operation, failed, missing)
        return JSONResponse({**value, **(adding() if adding else {})})


async def _pieces(
    format: str,
    at: datetime,
    first: dict[str, Any],
    following: Callable[[int, int], Awaitable[Any]],
) -> AsyncIterator[str]:
    """The file; the comma behind the last decision is held back until there is another."""
    yield exporting.head(format, at)
    comma = ""
    piece = first
    while True:
        text = comma + piece["text"]
        comma = "," if format == "json" and text.endswith(",") else ""
        if text:
            yield text.removesuffix(comma)
        if piece["offset"] is None:
            break
        piece = await following(piece["offset"], piece["skip"])
    yield exporting.tail(format)


def failure(
    error: CommonplaceError, operation: str, failed: str, missing: str = "NOT_FOUND"
) -> Response:
    """What went wrong, with the contract's code and status."""
    headers = {}
    if isinstance(error, InvalidInput):
        status, code = 400, "INVALID_REQUEST"
    elif isinstance(error, NotFound):
        status, code = 404, missing
    elif isinstance(error, NotPermitted):
        status, code = 403, error.code
        needed = f'Bearer error="insufficient_scope", scope="{SCOPES[operation]}"'
        headers["www-authenticate"] = needed
    else:
        status, code = 500, failed
    return JSONResponse(refusal(status, code, str(error), ""), status, headers)


def _object(rest: Rest, request: Request) -> dict[str, Any]:
    try:
        body = rest.json(request)
    except ValueError:
        raise Refused("INVALID_REQUEST", "The body must be JSON") from None
    if not isinstance(body, dict):
        raise Refused("INVALID_REQUEST", "The body must be a JSON object")
    return body


def _needed(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    missing = [name for name in names if not body.get(name) or not str(body[name]).strip()]
    if missing:
        fields = "field" if len(names) == 1 else "fields"
        raise Refused("MISSING_FIELDS", f"Missing required {fields}: {', '.join(names)}")
    return {name: body[name] for name in names}


def _limit(value: str | None) -> int:
    if not value:
        return operations.SEARCH_LIMIT
    if not (value.isascii() and value.isdigit() and len(value) < 10) or int(value) < 1:
        raise Refused("INVALID_REQUEST", "limit must be a whole number from 1")
    return min(int(value), operations.SEARCH_MOST)
