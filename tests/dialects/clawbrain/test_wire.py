"""The contract over the wire: a real client over standard input and output, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

SERVER = [sys.executable, "-m", "commonplace.cli"]
TOOLS = [
    "memory_store", "memory_retrieve", "memory_search", "memory_update", "memory_delete",
    "credit_report", "memory_compact",
]  # fmt: skip


@asynccontextmanager
async def stdio(tmp_path: Path, **environ: str) -> AsyncIterator[ClientSession]:
    arguments = ["-m", "commonplace.cli", "mcp", "--dialect", "clawbrain", "--embedding", "none"]
    parameters = StdioServerParameters(
        command=sys.executable,
        args=[*arguments, "--data", str(tmp_path / "data")],
        env={**os.environ, **environ},
    )
    async with stdio_client(parameters) as streams, ClientSession(*streams[:2]) as session:
        yield session


async def said(session: ClientSession, tool: str, **arguments: Any) -> Any:
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert [part.type for part in result.content] == ["text"]
    return json.loads(result.content[0].text)  # type: ignore[union-attr]


async def play(session: ClientSession) -> None:
    """The examples of the contract, one after another."""
    greeting = await session.initialize()
    assert (greeting.server_info.name, greeting.server_info.version) == ("clawbrain", "0.1.0")
    listed = (await session.list_tools()).tools
    assert [tool.name for tool in listed] == TOOLS
    assert all(tool.annotations is not None and tool.title for tool in listed)
    stored = await said(
        session, "memory_store", type="entity", category="people", name="alice-chen",
        content="# Alice Chen\n\n- ML engineer", tags=["colleague", "ml-team"], pinned=False,
    )  # fmt: skip
    assert stored["path"] == "entities/people/alice-chen.md"
    found = await said(session, "memory_search", query="ml engineer", type=None, limit=5)
    assert found["results"][0]["id"] == stored["id"] == "entity-people-alice-chen"
    again = await session.call_tool(
        "memory_store",
        {"type": "entity", "category": "people", "name": "alice-chen", "content": "x"},
    )
    assert again.is_error
    assert "memory_update" in again.content[0].text  # type: ignore[union-attr]
    changed = await said(session, "memory_update", id=stored["id"], content="# Alice\n\n- lead")
    assert changed["updated"] is True
    assert (await said(session, "memory_retrieve", id=stored["id"]))["content"].endswith("- lead")
    assert (await said(session, "credit_report", top_n=10))["total_memories"] == 1
    assert (await said(session, "memory_compact"))["pruned"] == 0
    deleted = await said(session, "memory_delete", id=stored["id"])
    assert deleted["archive_path"] == "archive/entities/people/alice-chen.md"


def test_every_tool_over_standard_input_and_output(tmp_path: Path) -> None:
    files = tmp_path / "memory"

    async def run() -> None:
        async with stdio(tmp_path, MEMORY_DIR=str(files), SESSION_ID="mine") as session:
            await play(session)

    asyncio.run(run())
    assert (files / "archive/entities/people/alice-chen.md").exists()
    judged = subprocess.run(
        [*SERVER, "credit", "good", "--data", str(tmp_path / "data"), "--session", "mine"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert judged.returncode == 1, "what was retrieved is archived: nothing is left to judge"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    command = ["serve", "--port", "0", "--embedding", "none", "--data", str(tmp_path / "data")]
    with subprocess.Popen([*SERVER, *command], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[4]
        finally:
            server.terminate()
            server.communicate(timeout=20)


def test_every_tool_over_http_with_a_directory_for_the_space(served: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            streamable_http_client(f"{served}/mcp/clawbrain") as streams,
            ClientSession(*streams[:2]) as session,
        ):
            await play(session)
            await said(
                session, "memory_store", type="entity", category="people", name="bob", content="Bob"
            )
            assert (await said(session, "memory_search", query="bob"))["total_matches"] == 1

    asyncio.run(run())
    check_outcomes(f"{served}/v1/clawbrain/outcomes")
    archived = tmp_path / "data/clawbrain/default/archive/entities/people/alice-chen.md"
    assert archived.exists()
    # A call with a wrong argument is a result, not a fault of the protocol.
    body = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "memory_store", "arguments": {"type": "entity"}},
    }  # fmt: skip
    headers = {"accept": "application/json, text/event-stream"}
    answer = httpx.post(f"{served}/mcp/clawbrain", json=body, headers=headers).json()
    assert answer["result"]["isError"] is True
    assert "name" in answer["result"]["content"][0]["text"]


def check_outcomes(hook: str) -> None:
    """A host tells of outcomes; what it says wrongly changes nothing."""
    for wrong in ({}, {"signal": "fine"}, {"signal": "tool_success", "session": ""}, [], {"x": 1}):
        refused = httpx.post(hook, json=wrong)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"]
    as_json = {"content-type": "application/json"}
    assert httpx.post(hook, content=b"{", headers=as_json).status_code == 400
    assert httpx.get(hook).status_code == 405
    elsewhere = httpx.post(hook, json={"signal": "user_correction", "session": "another"}).json()
    assert elsewhere == {"signal": "user_correction", "judged": []}

    judged = httpx.post(hook, json={"signal": "positive_feedback"})

    assert judged.status_code == 200
    assert judged.json() == {
        "signal": "positive_feedback",
        "judged": [{"id": "entity-people-bob", "before": 0.5, "after": 0.48}],
    }
