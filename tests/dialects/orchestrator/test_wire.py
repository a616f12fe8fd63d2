"""The dialect over the wire: tokens, refusals, both transports, and what is written down."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import sys
import time
from pathlib import Path

import httpx
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from commonplace.dialects.orchestrator import answering
from commonplace.dialects.orchestrator.dialect import DIALECT
from commonplace.engine.history import audit

from .conftest import Server

KEY = b"a key that the runtime shares with us"
PALACE = {
    "memory_status", "memory_list_wings", "memory_list_rooms", "memory_get_taxonomy",
    "memory_search", "memory_check_duplicate", "memory_traverse", "memory_find_tunnels",
    "memory_graph_stats", "memory_add_drawer", "memory_delete_drawer", "memory_set_identity",
    "memory_kg_query", "memory_kg_add", "memory_kg_invalidate", "memory_kg_timeline",
    "memory_kg_stats", "memory_diary_write", "memory_diary_read",
}  # fmt: skip


def signed(payload: str, key: bytes = KEY) -> str:
    """A token as the seed describes it, made without our code."""
    first = base64.urlsafe_b64encode(payload.encode()).decode().rstrip("=")
    return f"{first}.{hmac.new(key, first.encode(), hashlib.sha256).hexdigest()}"


def refused(server: Server, token: str | None) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with server.client(token) as client:
        return client.post("/mcp/v1", json=body)


def test_a_token_of_a_shared_key_lets_its_user_into_its_workspace(server: Server) -> None:
    server.made.parts.tokens.keys.rotate("orchestrator", secret=KEY)
    for payload in ("anna:acme", f"anna:acme:{int(time.time())}"):
        answer = server.call(signed(payload), "memory_status", {})
        assert answer.value["total_drawers"] == 0
    with server.made.parts.library.lease("acme") as space:
        (newest, _) = audit.listing(space.store)
    assert (newest.caller, newest.tool, newest.dialect) == ("anna", "memory_status", "orchestrator")


@pytest.mark.parametrize(
    "payload",
    ["", "anna", ":acme", "anna:", "anna:acme:1:2", "anna:acme:soon", "anna:acme:100",
     "a:b:99999999999"],
)  # fmt: skip
def test_a_malformed_or_expired_payload_is_refused(server: Server, payload: str) -> None:
    server.made.parts.tokens.keys.rotate("orchestrator", secret=KEY)
    answer = refused(server, signed(payload))
    assert (answer.status_code, answer.text) == (401, "invalid token")
    assert answer.headers["content-type"].startswith("text/plain")


def test_five_minutes_are_how_long_a_dated_token_lives(server: Server) -> None:
    server.made.parts.tokens.keys.rotate("orchestrator", secret=KEY)
    now = int(time.time())
    assert refused(server, signed(f"anna:acme:{now - 290}")).status_code == 200
    assert refused(server, signed(f"anna:acme:{now - 310}")).text == "invalid token"
    assert refused(server, signed(f"anna:acme:{now + 310}")).text == "invalid token"


def test_no_token_and_a_wrong_signature_are_told_apart(server: Server) -> None:
    server.made.parts.tokens.keys.rotate("orchestrator", secret=KEY)
    answer = refused(server, None)
    assert (answer.status_code, answer.text) == (401, "missing authorization")
    wrong = refused(server, signed("anna:acme", b"another key, not the shared one"))
    assert (wrong.status_code, wrong.text) == (401, "invalid token")
    assert refused(server, signed("anna:acme")[:-1] + "x").text == "invalid token"


def test_workspaces_do_not_see_each_other(server: Server) -> None:
    content = "A drawer of acme that nobody else may see."
    acme, other = server.token("anna", "acme"), server.token("anna", "other")
    server.call(acme, "memory_add_drawer", {"wing": "w", "room": "r", "content": content})
    assert server.call(acme, "memory_status", {}).value["total_drawers"] == 1
    assert server.call(other, "memory_status", {}).value["total_drawers"] == 0
    assert server.call(other, "memory_search", {"query": "drawer"}).value["count"] == 0


def test_the_real_client_discovers_and_calls_the_tools(server: Server) -> None:
    async def go() -> None:
        token = server.token()
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx.AsyncClient(headers=headers) as http,
            streamable_http_client(f"{server.url}/mcp/v1", http_client=http) as (reads, writes, *_),
            ClientSession(reads, writes) as session,
        ):
            begun = await session.initialize()
            assert (begun.server_info.name, begun.server_info.version) == (
                "crawbl-orchestrator", "1.0.0",
            )  # fmt: skip
            listed = (await session.list_tools()).tools
            assert {tool.name for tool in listed} >= PALACE
            for tool in listed:
                assert tool.title and tool.description and tool.annotations
                assert tool.output_schema is not None
                assert "description" in tool.input_schema["properties"]
            given = {"wing": "w", "room": "r", "content": "The harbour closes at nine."}
            added = await session.call_tool("memory_add_drawer", given)
            assert added.structured_content is not None
            assert added.structured_content["info"] == "drawer added"
            failed = await session.call_tool("memory_traverse", {"start_room": "nowhere"})
            assert failed.is_error

    asyncio.run(go())


def test_stdio_serves_one_workspace(tmp_path: Path) -> None:
    async def go() -> None:
        command = ["-m", "commonplace.cli", "mcp", "--dialect", "orchestrator", "--space", "acme"]
        parameters = StdioServerParameters(
            command=sys.executable,
            args=[*command, "--data", str(tmp_path), "--embedding", "none"],
        )
        async with (
            stdio_client(parameters) as (reads, writes),
            ClientSession(reads, writes) as session,
        ):
            await session.initialize()
            names = {tool.name for tool in (await session.list_tools()).tools}
            assert names == {tool.name for tool in DIALECT.tools}
            given = {"wing": "w", "room": "r", "content": "The harbour closes at nine."}
            await session.call_tool("memory_add_drawer", given)
            found = await session.call_tool("memory_search", {"query": "harbour"})
            assert found.structured_content is not None
            assert found.structured_content["count"] == 1

    asyncio.run(go())


def test_every_call_is_written_down_as_the_seed_lists_it(server: Server) -> None:
    token = server.token()
    content = "x" * 9_000
    server.call(
        token, "memory_add_drawer", {"wing": "w", "room": "r", "content": content},
        **{"mcp-session-id": "conversation:wally"},
    )  # fmt: skip
    server.call(token, "memory_search", {})
    server.call(token, "memory_add_drawer", {"wing": "w"})
    with server.made.parts.library.lease("acme") as space:
        told, failed, added = audit.listing(space.store)
    assert (added.tool, added.caller, added.success) == ("memory_add_drawer", "anna", True)
    assert added.session == "conversation:wally"
    assert added.milliseconds >= 0
    assert added.arguments["_truncated"] is True
    assert (added.arguments["_limit"], added.arguments["_original_size"] > 9_000) == (4096, True)
    assert added.result["structuredContent"]["info"] == "drawer added"
    assert (failed.success, "query is required" in failed.error) == (False, True)
    assert (told.success, told.result["structuredContent"]["info"]) == (
        False, "wing, room, and content are required",
    )  # fmt: skip


def test_a_tool_is_one_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weather.py").write_text(
        "from commonplace.dialects.contract import Call\n"
        "from commonplace.dialects.orchestrator.answering import Answer, tool\n"
        "@tool('read', {'degrees': 0})\n"
        "def get_weather(call: Call, *, town: str, days: int = 1) -> Answer:\n"
        "    '''Get the weather of a town.'''\n"
        "    return {'degrees': len(town) * days}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import importlib

    (found,), operations = answering.tools_defined_in(importlib.import_module("weather"))
    assert operations == ()
    assert (found.name, found.description) == ("get_weather", "Get the weather of a town.")
    assert found.input["required"] == ["town"]
    assert found.input["properties"]["days"] == {"type": "integer", "default": 1}
    assert found.handler(None, town="Rome", days=2) == {"degrees": 8}


def test_the_readme_shows_how_to_add_a_tool() -> None:
    readme = Path(answering.__file__).with_name("README.md").read_text()
    example = readme.split("```python\n")[1].split("```")[0]
    assert len(example.strip().splitlines()) <= 10
    namespace: dict[str, object] = {"__name__": "example"}
    exec(example, namespace)
    assert any("tool" in getattr(each, "__dict__", {}) for each in namespace.values())
