"""The tools as a real client has them: over stdio, and over HTTP with a token."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import time_machine
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from penfield.conftest import Server, running

SAVED = "[Session] Found the bug in auth flow. Key discovery in memory_id: {}. Next: test fix."


@asynccontextmanager
async def over_stdio(data: Path) -> AsyncIterator[Client]:
    arguments = ["-m", "commonplace.cli", "mcp", "--dialect", "penfield", "--data", str(data)]
    started = StdioServerParameters(command=sys.executable, args=arguments)
    async with Client(stdio_client(started)) as client:
        yield client


@asynccontextmanager
async def over_http(server: Server, token: str) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(f"{server.url}/mcp/penfield", http_client=http)) as client,
    ):
        yield client


async def work(client: Client) -> dict[str, Any]:
    """A short session: store, connect, recall, save, restore; each answer as its schema says."""
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    seen: dict[str, Any] = {}

    async def call(name: str, /, **arguments: Any) -> dict[str, Any]:
        answer = await client.call_tool(name, arguments)
        assert not answer.is_error, answer
        (part,) = answer.content
        value: dict[str, Any] = json.loads(part.text)  # type: ignore[union-attr]
        assert value == answer.structured_content
        schema = listed[name].output_schema
        if schema is not None:
            Draft202012Validator(schema).validate(value)
        seen[name] = value
        return value

    await call("awaken")
    one = await call("store", content="Python async uses asyncio for concurrent operations",
                     tags=["python", "async"], importance=0.8)  # fmt: skip
    two = await call("store", content="We decided to test the fix on Friday")
    await call("connect", from_memory=one["id"], to_memory=two["id"],
               relationship_type="supports", strength=0.8)  # fmt: skip
    await call("recall", query="async programming patterns", limit=20, source_type="memory",
               tags=["python"], start_date="2025-01-01", end_date="2099-01-31")  # fmt: skip
    await call("search", query="async programming", limit=10)
    await call("fetch", id=one["id"])
    await call("update_memory", memory_id=one["id"], content="Updated content...",
               importance=0.9, tags=["updated", "important"])  # fmt: skip
    await call("explore", start_memory=one["id"], max_depth=3,
               relationship_types=["supports", "references"])  # fmt: skip
    await call("reflect", time_window="week", include_documents=False)
    await call("save_context", name="API Investigation", description=SAVED.format(one["id"]))
    await call("restore_context", name="API Investigation", limit=20)
    await call("list_contexts", limit=20, name_pattern="investigation", include_descriptions=True)
    await call("save_artifact", content="# Notes\n\nContent here...", path="/project/notes.md")
    await call("retrieve_artifact", path="/project/notes.md")
    await call("list_artifacts", path_prefix="/project/")
    await call("delete_artifact", path="/project/notes.md")
    missing = await client.call_tool("fetch", {"id": "550e8400-e29b-41d4-a716-446655440000"})
    assert missing.is_error and missing.structured_content == {
        "success": False,
        "error": "Memory not found",
        "error_code": "NOT_FOUND",
        "operation": "fetch",
    }
    parted = await client.call_tool("disconnect", {"from_memory": one["id"],
                                                   "to_memory": two["id"]})  # fmt: skip
    seen["disconnect"] = (parted.is_error, parted.structured_content)
    seen["listed"] = list(listed)
    return seen


def check(seen: dict[str, Any]) -> None:
    assert len(seen["listed"]) == 19 and "disconnect" in seen["listed"]
    assert seen["recall"]["items"][0]["tags"] == ["python", "async"]
    assert seen["search"]["results"][0].keys() == {"id", "title", "url", "text"}
    assert seen["save_context"]["references_resolved"] == 1
    assert seen["restore_context"]["memories_restored"] >= 1
    assert seen["list_contexts"]["contexts"][0]["name"] == "API Investigation"


def test_a_session_over_stdio(tmp_path: Path) -> None:
    async def session() -> dict[str, Any]:
        async with over_stdio(tmp_path / "data") as client:
            return await work(client)

    seen = asyncio.run(session())
    check(seen)
    assert seen["disconnect"][0] is False  # the person at this machine may


def test_a_session_over_http_with_a_standard_token(server: Server) -> None:
    token = server.key("read", "write", space="wired")

    async def session() -> dict[str, Any]:
        async with over_http(server, token) as client:
            return await work(client)

    seen = asyncio.run(session())
    check(seen)
    assert seen["disconnect"] == (True, {"error": "Forbidden", "status_code": 403})


def test_what_tools_store_rest_shows(server: Server) -> None:
    token = server.key("read", "write", space="both-ways")

    async def session() -> str:
        async with over_http(server, token) as client:
            answer = await client.call_tool("store", {"content": "by a tool"})
            assert answer.structured_content is not None
            return str(answer.structured_content["id"])

    identity = asyncio.run(session())
    with server.client(token) as rest:
        assert rest.get(f"/memories/{identity}").json()["data"]["content"] == "by a tool"


def test_beyond_the_rate_a_tool_answers_so_for_that_tenant_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_PENFIELD_RATE", "3")

    async def session(server: Server, token: str, calls: int) -> list[Any]:
        async with over_http(server, token) as client:
            return [await client.call_tool("awaken", {}) for _ in range(calls)]

    start = "2027-01-01T00:00:05Z"  # a minute of the clock that will not end meanwhile
    with running(tmp_path / "data") as server, time_machine.travel(start):
        one, other = server.key("read", space="one"), server.key("read", space="other")
        answers = asyncio.run(session(server, one, 5))
        assert [answer.is_error for answer in answers] == [False, False, False, True, True]
        body = answers[-1].structured_content
        assert body.pop("error").startswith("More than 3 requests in a minute; wait ")
        assert body == {"success": False, "error_code": "RATE_LIMITED", "operation": "awaken"}
        with server.client(one) as rest:  # the same minute counts for both
            assert rest.get("/tags").status_code == 429
        assert not asyncio.run(session(server, other, 1))[0].is_error
        with server.parts.library.lease("one") as space, space.store.read() as connection:
            rows = connection.execute("SELECT success, error FROM audit ORDER BY num").fetchall()
        noted = [(success, error.partition(":")[0]) for success, error in rows]
        assert noted == [(1, "")] * 3 + [(0, "RATE_LIMITED")] * 3, "refused calls are noted too"


def test_a_read_token_sees_and_may_call_only_what_reads(server: Server) -> None:
    token = server.key("read", space="reading")

    async def session() -> set[str]:
        async with over_http(server, token) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert asyncio.run(session()) == {
        "awaken", "recall", "search", "fetch", "explore", "reflect", "restore_context",
        "list_contexts", "retrieve_artifact", "list_artifacts", "summarize", "get_storage_access",
    }  # fmt: skip
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
               "params": {"name": "store", "arguments": {"content": "x"}}}  # fmt: skip
    response = httpx.post(f"{server.url}/mcp/penfield", json=message,
                          headers={"authorization": f"Bearer {token}",
                                   "accept": "application/json, text/event-stream"})  # fmt: skip
    assert response.status_code == 403


def test_the_door_answers_in_the_contracts_shape(server: Server) -> None:
    response = httpx.get(f"{server.url}/api/v2/memories", headers={"authorization": "Bearer x"})
    assert response.json()["error"]["code"] == "AUTH_TOKEN_INVALID"
    assert response.json()["meta"]["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize("heavy", ["fastapi", "pypdf", "lxml", "docx", "multipart", "numpy"])
def test_a_stdio_start_does_not_pay_for_what_it_does_not_use(heavy: str) -> None:
    code = (
        "import sys; from commonplace.dialects import registry; registry.load('penfield');"
        f" sys.exit({heavy!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
