"""Clients that others wrote, each in a process of its own, against the real server."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from clients import programs
from clients.conftest import Reachable
from commonplace.dialects.being.dialect import DIALECT as BEING
from commonplace.dialects.commonplace.dialect import DIALECT

TOOLS = [tool.name for tool in DIALECT.tools if not tool.hidden]
HANDSHAKE, NEWEST = "2025-11-25", "2026-07-28"
HERON = "The heron nests by the weir."


Found = dict[str, Any]


@pytest.fixture(scope="module")
def typescript(server: Reachable, shared_data: Path) -> dict[str, Found]:
    """What the clients of `clients.ts` found, each by its name."""
    where = {
        "address": server.address,
        "token": server.token,
        "being": {"id": server.being, "token": server.being_token},
        "command": stdio(shared_data / "stdio"),
    }
    script = str(programs.HERE / "clients.ts")
    found: dict[str, Found] = json.loads(programs.run(programs.node(), script, json.dumps(where)))
    return found


def is_whole(found: Found, protocol: str | None = None) -> bool:
    """Everything that a client tries worked."""
    assert "failed" not in found, found
    assert found["tools"] == TOOLS
    assert found["stored"]
    assert found["found"] == HERON
    assert found["refused"] is True
    assert protocol is None or found["protocol"] == protocol
    return True


def test_the_beings_typescript_client_connects_where_its_contract_says(
    typescript: dict[str, Found],
) -> None:
    found = typescript["cowork /mcp/"]
    assert is_whole(found, HANDSHAKE)
    assert found["server"] == DIALECT.server


@pytest.mark.parametrize("how", ["cowork /mcp/ as a being", "cowork /mcp/{id}", "older /mcp/{id}"])
def test_a_being_is_spoken_to_as_one_where_its_contract_says(
    server: Reachable, typescript: dict[str, Found], how: str
) -> None:
    found = typescript[how]
    assert "failed" not in found, found
    assert found["server"] == BEING.server
    assert found["tools"] == [tool.name for tool in BEING.tools]
    assert server.being in found["context"]


def test_the_typescript_client_is_turned_away_with_a_wrong_token(
    typescript: dict[str, Found],
) -> None:
    assert re.search(
        r"401|Unauthorized|not accepted", typescript["cowork with a wrong token"]["failed"]
    )


def test_the_older_typescript_transport_still_works(typescript: dict[str, Found]) -> None:
    assert is_whole(typescript["older"])


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize(("asked", "spoken"), [("legacy", HANDSHAKE), (NEWEST, NEWEST)])
def test_the_newest_typescript_client_speaks_both_eras(
    typescript: dict[str, Found], asked: str, spoken: str, transport: str
) -> None:
    assert is_whole(typescript[f"newest {asked} {transport}"], spoken)


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
