"""Clients that others wrote, each in a process of its own, against the real server."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from clients import programs
from clients.conftest import Reachable
from commonplace.dialects.commonplace import DIALECT

TOOLS = [tool.name for tool in DIALECT.tools]
HANDSHAKE, NEWEST = "2025-11-25", "2026-07-28"
HERON = "The heron nests by the weir."


def script(name: str, *arguments: str) -> Any:
    """What one of the scripts beside this file found."""
    return json.loads(programs.run(programs.node(), str(programs.HERE / name), *arguments))


def is_whole(found: Any, protocol: str | None = None) -> bool:
    """Everything that a client tries worked."""
    assert found["tools"] == TOOLS
    assert found["stored"]
    assert found["found"] == HERON
    assert found["refused"] is True
    assert protocol is None or found["protocol"] == protocol
    return True


@pytest.mark.parametrize("path", ["/mcp/", "/mcp/7c9e6679-7425-40de-944b-e07fc1f90ae7"])
def test_the_beings_typescript_client_connects_where_its_contract_says(
    server: Reachable, path: str
) -> None:
    found = script("cowork.ts", server.address + path, server.token)
    assert is_whole(found, HANDSHAKE)
    assert found["server"] == DIALECT.server


def test_the_typescript_client_is_turned_away_without_a_token(server: Reachable) -> None:
    with pytest.raises(AssertionError, match=r"401|Unauthorized|not accepted"):
        script("cowork.ts", f"{server.address}/mcp/", "cpt_nothing")


def test_the_older_typescript_transport_still_works(server: Reachable) -> None:
    assert is_whole(script("sse.ts", f"{server.address}/mcp", server.token))


@pytest.mark.parametrize(("asked", "spoken"), [("legacy", HANDSHAKE), (NEWEST, NEWEST)])
def test_the_newest_typescript_client_speaks_both_eras_over_http(
    server: Reachable, asked: str, spoken: str
) -> None:
    found = script("newest.ts", asked, f"{server.address}/mcp/commonplace", server.token)
    assert is_whole(found, spoken)


@pytest.mark.parametrize(("asked", "spoken"), [("legacy", HANDSHAKE), (NEWEST, NEWEST)])
def test_the_newest_typescript_client_speaks_both_eras_over_stdio(
    tmp_path: Path, asked: str, spoken: str
) -> None:
    found = script("newest.ts", asked, *stdio(tmp_path))
    assert is_whole(found, spoken)


def stdio(data: Path) -> list[str]:
    """The command that a client starts."""
    return [programs.COMMAND, "mcp", "--data", str(data), "--embedding", "none"]


# --- Python ---------------------------------------------------------------------------------------


async def try_out(client: Client) -> dict[str, Any]:
    """The same as the scripts do."""
    listed = await client.list_tools()
    stored = await client.call_tool("remember", {"text": HERON, "tags": ["birds"]})
    found = await client.call_tool("recall", {"query": "heron weir", "limit": 1})
    refused = await client.call_tool("recall", {"limit": 1})
    assert stored.structured_content is not None
    assert found.structured_content is not None
    return {
        "tools": [tool.name for tool in listed.tools],
        "stored": stored.structured_content["id"],
        "found": found.structured_content["memories"][0]["text"],
        "refused": refused.is_error,
        "protocol": client.protocol_version,
    }


@pytest.mark.parametrize(("mode", "spoken"), [("legacy", HANDSHAKE), (NEWEST, NEWEST)])
def test_the_python_client_speaks_both_eras_over_http(
    server: Reachable, mode: str, spoken: str
) -> None:
    async def connect() -> dict[str, Any]:
        headers = {"authorization": f"Bearer {server.token}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(f"{server.address}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                return await try_out(client)

    assert is_whole(asyncio.run(connect()), spoken)


def test_the_python_client_speaks_the_older_transport(server: Reachable) -> None:
    async def connect() -> dict[str, Any]:
        headers = {"authorization": f"Bearer {server.token}"}
        transport = sse_client(f"{server.address}/mcp/commonplace", headers=headers)
        async with Client(transport, mode="legacy") as client:
            return await try_out(client)

    assert is_whole(asyncio.run(connect()), HANDSHAKE)


@pytest.mark.parametrize(("mode", "spoken"), [("legacy", HANDSHAKE), (NEWEST, NEWEST)])
def test_the_python_client_speaks_both_eras_over_stdio(
    tmp_path: Path, mode: str, spoken: str
) -> None:
    command, *arguments = stdio(tmp_path)

    async def connect() -> dict[str, Any]:
        started = StdioServerParameters(command=command, args=arguments)
        async with Client(started, mode=mode) as client:
            return await try_out(client)

    assert is_whole(asyncio.run(connect()), spoken)


# --- MCP Inspector --------------------------------------------------------------------------------


def inspect(*arguments: str) -> Any:
    """What the Inspector's command line printed."""
    file = programs.package("@modelcontextprotocol/inspector", "clients/launcher/build/index.js")
    return json.loads(programs.run(programs.node(), file, "--cli", *arguments))


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_lists_and_calls_over_http(server: Reachable, era: str) -> None:
    there = [
        f"{server.address}/mcp", "--transport", "http", "--protocol-era", era,
        "--header", f"Authorization: Bearer {server.token}",
    ]  # fmt: skip
    assert listed(inspect(*there, "--method", "tools/list", "--strict")) == TOOLS
    assert "id" in stored(inspect(*there, *CALL))


def test_the_inspector_lists_and_calls_over_stdio(tmp_path: Path) -> None:
    there = stdio(tmp_path)
    assert listed(inspect(*there, "--method", "tools/list", "--strict")) == TOOLS
    assert "id" in stored(inspect(*there, *CALL))


CALL = ["--method", "tools/call", "--tool-name", "remember", "--tool-arg", f"text={HERON}"]


def listed(answer: Any) -> list[str]:
    return [tool["name"] for tool in answer["tools"]]


def stored(answer: Any) -> Any:
    return answer["structuredContent"]


# --- a client that does not close its end ---------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_stdio_server_while_its_client_says_nothing(
    tmp_path: Path, number: int
) -> None:
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": HANDSHAKE, "capabilities": {},
            "clientInfo": {"name": "quiet", "version": "1"},
        },
    }  # fmt: skip
    with subprocess.Popen(
        stdio(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(hello) + "\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(number)
        assert process.wait(programs.SECONDS) == 0
