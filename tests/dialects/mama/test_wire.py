"""Over the wire: real MCP clients over stdio and HTTP, and a server as a user starts it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError, StdioServerParameters

from commonplace.access.caller import READ_ONLY_SCOPES, Caller
from commonplace.server.settings import Settings

from .conftest import SEED_CHECKPOINT, SEED_DECISION, Kept, Mama, Web, opened
from .original_database import build

TOOLS = ["save", "search", "update", "load_checkpoint"]


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "commonplace.cli", *arguments]


def told(result: Any) -> Any:
    """What a tool says to the client."""
    assert [part.type for part in result.content] == ["text"]
    return json.loads(result.content[0].text)


async def use_every_tool(client: Client, prefix: str = "") -> None:
    """The seed's own session, start to end."""
    listed = await client.list_tools()
    assert [tool.name for tool in listed.tools] == [prefix + name for name in TOOLS]
    for tool in listed.tools:
        assert tool.title and tool.annotations is not None
        assert tool.annotations.read_only_hint is (tool.name.removeprefix(prefix) in TOOLS[1::2])
        assert tool.input_schema["type"] == "object"
    saved = told(await client.call_tool(prefix + "save", SEED_DECISION))
    assert saved["message"] == "Decision saved: auth_strategy"
    query = {"query": "authentication approach", "limit": 5}
    found = told(await client.call_tool(prefix + "search", query))
    assert [each["id"] for each in found["results"]] == [saved["id"]]
    outcome = {"id": saved["id"], "outcome": "success"}
    assert told(await client.call_tool(prefix + "update", outcome)) == {
        "success": True,
        "message": f"Updated {saved['id']} -> success",
    }
    assert told(await client.call_tool(prefix + "save", SEED_CHECKPOINT))["id"] == "checkpoint_1"
    loaded = told(await client.call_tool(prefix + "load_checkpoint", {}))
    assert loaded["checkpoint"]["id"] == 1
    failed = await client.call_tool(prefix + "save", {"type": "decision", "topic": "x"})
    assert failed.is_error is True
    assert failed.content[0].text.startswith(
        "Error: Decision requires: topic, decision, reasoning."
    )


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_every_tool_over_http(real_web: Web, mode: Any) -> None:
    async def session() -> None:
        async with Client(f"{real_web.url}/mcp/mama", mode=mode) as client:
            await use_every_tool(client)
            assert client.server_info is not None
            assert client.server_info.name == "mama-server"

    asyncio.run(session())


def test_every_tool_over_stdio_with_the_plugins_names(tmp_path: Path) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=program("mcp", "--dialect", "mama", "--prefix", "mama_", "--data", str(tmp_path))[1:],
        env={**os.environ},
    )

    async def session() -> None:
        async with Client(server, read_timeout_seconds=60) as client:
            await use_every_tool(client, "mama_")
            with pytest.raises(MCPError):
                await client.call_tool("save", SEED_DECISION)

    asyncio.run(session())


def test_a_reader_is_shown_and_given_only_what_reads(tmp_path: Path, builtin_model: Any) -> None:
    from dataclasses import replace

    from commonplace.dialects import registry
    from commonplace.dialects.mama.platform import OPERATIONS as PLATFORM

    with opened(tmp_path, Kept(builtin_model)) as mama:
        reader = Caller(scopes=READ_ONLY_SCOPES)
        visible = mama.gate.visible_tools(reader, registry.load("mama"))
        assert [tool.name for tool in visible] == ["search", "load_checkpoint"]
        permitted = {
            name
            for dialect, tool in mama.gate.operations()
            if dialect == "mama"
            and mama.gate.decide(reader, "mama", name := tool.name).refusal is None
        }
        platform = {tool.name for tool in PLATFORM}
        assert permitted - platform == {
            "search", "load_checkpoint", "search_decisions_and_contracts", "http_load_checkpoint",
            "http_checkpoints", "http_search", "http_export", "http_graph", "http_similar",
            "auto_recall",
        }  # fmt: skip
        elsewhere: Mama = replace(mama, caller=Caller(space="other"))
        mine = mama.call("save", **SEED_DECISION)["id"]
        assert elsewhere.call("search")["count"] == 0
        assert elsewhere.failure("update", id=mine, outcome="success") == (
            f"Error: Decision not found: {mine}"
        )


def test_every_call_is_in_the_audit(mama: Mama) -> None:
    from commonplace.engine.history import audit

    mama.call("save", **SEED_DECISION)
    mama.failure("update", id="x", outcome="success")
    mama.operation("http_graph")
    with mama.library.lease("default") as space:
        calls = audit.listing(space.store, limit=10)
        assert not audit.verify(space.store).faults
    assert [(call.dialect, call.tool, call.success) for call in calls] == [
        ("mama", "http_graph", True), ("mama", "update", False), ("mama", "save", True),
    ]  # fmt: skip


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port: int = taken.getsockname()[1]
    return port


@contextlib.contextmanager
def started(data: Path, **environ: str) -> Iterator[str]:
    """A server as a user starts it; the address that it tells."""
    command = program("serve", "--data", str(data), "--embedding", "none")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAMA_", "COMMONPLACE_"))}
    process = subprocess.Popen(
        command, env={**clean, **environ}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://[0-9.]+:[0-9]+", line)
        assert address is not None, line
        until = time.monotonic() + 30
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{address[0]}/health").status_code == 200:
                    break
            assert time.monotonic() < until, "the server did not answer"
            time.sleep(0.05)
        yield address[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def test_a_server_honours_the_originals_environment(tmp_path: Path) -> None:
    port, embedding = free_port(), free_port()
    with contextlib.closing(build(tmp_path / "mama-memory.db")) as original:
        environ = {
            "MAMA_DB_PATH": str(original.path),
            "MAMA_SERVER_PORT": str(port),
            "MAMA_EMBEDDING_PORT": str(embedding),
            "MAMA_SERVER_TOKEN": "dev-token",
        }
        with started(tmp_path / "data", **environ) as url:
            assert url == f"http://127.0.0.1:{port}"
            assert len(httpx.get(f"{url}/graph").json()["nodes"]) == 4
            assert httpx.get(f"http://127.0.0.1:{embedding}/health").json()["status"] == "ok"
            for token, status in (("dev-token", 200), ("another", 401)):
                headers = {"authorization": f"Bearer {token}"}
                assert httpx.get(f"{url}/graph", headers=headers).status_code == status


def test_the_port_is_taken_from_the_nearest_setting(tmp_path: Path) -> None:
    def port(environ: dict[str, str], **options: Any) -> int:
        return Settings.load(environ, data=tmp_path, **options).port

    mama = {"MAMA_SERVER_PORT": "4001"}
    assert port({}) == 3847
    assert port(mama) == 4001
    assert port({**mama, "COMMONPLACE_PORT": "4002"}) == 4002
    assert port({**mama, "COMMONPLACE_PORT": "4002"}, port=4003) == 4003
    (tmp_path / "config.toml").write_text("port = 4000\n")
    assert port({}) == 4000
    assert port(mama) == 4001


def test_the_embedding_port_is_open_by_default(tmp_path: Path) -> None:
    with started(tmp_path / "data", MAMA_SERVER_PORT=str(free_port())) as url:
        with contextlib.closing(socket.socket()) as other:
            if other.connect_ex(("127.0.0.1", 3849)):  # somebody else's server may have it
                raise AssertionError("nobody listens on port 3849")
        assert httpx.get(f"{url}/health").status_code == 200


def test_an_embedding_port_that_is_taken_is_told_and_not_fatal(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        with started(
            tmp_path / "data", MAMA_SERVER_PORT=str(free_port()), MAMA_EMBEDDING_PORT=port
        ) as url:
            told = httpx.get(f"{url}/api/logs/daemon").json()["lines"]
    assert any("the embedding port cannot be used" in line and port in line for line in told), told


def test_a_stdio_client_has_the_http_routes_of_a_server_beside_it(web: Web) -> None:
    data = str(web.library.path)
    server = StdioServerParameters(
        command=sys.executable,
        args=program("mcp", "--dialect", "mama", "--embedding", "none", "--data", data)[1:],
        env={**os.environ},
    )

    async def session() -> str:
        async with Client(server, read_timeout_seconds=60) as client:
            identity: str = told(await client.call_tool("save", SEED_DECISION))["id"]
            return identity

    identity = asyncio.run(session())
    assert [node["id"] for node in web.get("/graph").json()["nodes"]] == [identity]
