"""Tests a configured server as an MCP client: connect, initialize, call a tool."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from commonplace.cli.clients import Http, Stdio

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, Tool

TOOL = "context"
_ERROR_LINES = 5
_STATUS_REASONS = {
    401: ": the token is missing or not accepted",
    403: ": the token lacks rights",
    404: ": not found",
}
_ANSWER_CHARS = 400


@dataclass
class ProbeResult:
    """The result of a test."""

    ok: bool = False
    server: str = ""
    protocol: str = ""
    status: int | None = None  # the last HTTP status
    tools: int = 0
    called: str = ""
    answer: str = ""
    seconds: float = 0.0
    error: str = ""
    stderr: list[str] = field(default_factory=list)


def probe(server: Stdio | Http, seconds: float) -> ProbeResult:
    """Test the server within a time limit; errors are in the result."""
    found = ProbeResult()
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        with _unparsed_lines() as garbage:
            try:
                asyncio.run(_run_with_timeout(seconds, server, found, errors))
            except TimeoutError:
                found.error = f"no complete response within {seconds:g} seconds"
            except Exception as error:  # any error becomes part of the result
                found.error = _error_text(error)
        errors.seek(0)
        lines = [line.rstrip() for line in errors.read().splitlines() if line.strip()]
    found.seconds = round(time.monotonic() - begun, 2)
    found.ok = not found.error
    if not found.ok:
        found.stderr = lines[-_ERROR_LINES:]
        if found.status is not None and found.status >= 400:
            found.error += f" (HTTP {found.status}{_STATUS_REASONS.get(found.status, '')})"
        if garbage:
            found.error += f"; {len(garbage)} lines on its standard output were not MCP messages"
    return found


async def _run_with_timeout(
    seconds: float, server: Stdio | Http, found: ProbeResult, errors: IO[str]
) -> None:
    async with asyncio.timeout(seconds), _connect(server, found, errors) as client:
        info = client.server_info
        found.server = f"{info.name} {info.version}".strip() if info else ""
        found.protocol = client.protocol_version
        tools = (await client.list_tools()).tools
        found.tools = len(tools)
        if not tools:
            found.error = "it answers, but lists no tools; is the token for another dialect?"
        found.called = _safe_tool(tools)
        if found.called:
            answer = await client.call_tool(found.called, {})
            found.answer = _result_text(answer)
            if answer.is_error:
                found.error = f"the tool {found.called} failed: {found.answer}"


@contextlib.asynccontextmanager
async def _connect(
    server: Stdio | Http, found: ProbeResult, errors: IO[str]
) -> AsyncIterator[Client]:
    import httpx2
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    if isinstance(server, Stdio):
        started = StdioServerParameters(
            command=server.command, args=list(server.args), env=dict(server.env), cwd=server.cwd
        )
        async with Client(stdio_client(started, errlog=errors)) as client:  # type: ignore[arg-type]
            yield client
        return

    async def note_status(response: httpx2.Response) -> None:
        found.status = response.status_code

    watching: Any = {"response": [note_status]}
    async with (
        httpx2.AsyncClient(
            headers=dict(server.headers), timeout=None, event_hooks=watching
        ) as http,
        Client(streamable_http_client(server.url, http_client=http)) as client,
    ):
        yield client


def _safe_tool(tools: list[Tool]) -> str:
    """Return a tool that is safe to call: one of ours, or a read-only tool."""
    for tool in tools:
        if tool.name == TOOL and not tool.input_schema.get("required"):
            return tool.name
    for tool in tools:
        reads = tool.annotations is not None and tool.annotations.read_only_hint is True
        if reads and not tool.input_schema.get("required"):
            return tool.name
    return ""


def _result_text(result: CallToolResult) -> str:
    texts = [str(getattr(part, "text", "")) for part in result.content]
    joined = " ".join(" ".join(texts).split())
    return joined if len(joined) <= _ANSWER_CHARS else joined[: _ANSWER_CHARS - 1] + "…"


def _error_text(error: BaseException) -> str:
    """Return the first error in nested exception groups, on one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"program not found: {error.filename}"
    if isinstance(error, PermissionError):
        return f"not allowed to run {error.filename}"
    text = " ".join(str(error).split())
    return text or type(error).__name__


@contextlib.contextmanager
def _unparsed_lines() -> Iterator[list[str]]:
    """Collect the parse errors that the MCP SDK logs, instead of printing them."""
    complaints: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "parse" in record.getMessage().lower():
                complaints.append(record.getMessage())

    logger, handler = logging.getLogger("mcp"), Collect()
    propagated = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield complaints
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)
