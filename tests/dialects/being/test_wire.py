"""Beings over HTTP: who answers at /mcp, as whom, and what a token may do."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from .conftest import Served, scene, serving

pytestmark = pytest.mark.anyio
ELEVEN = [
    "recall", "get_context", "recall_memory", "search_memory", "merge_nodes", "update_memory",
    "update_notes", "search_history", "update_relation", "trigger_patrol", "get_current_time",
]  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def space() -> str:
    return f"s{uuid.uuid4().hex[:12]}"


def said(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    text: str = response.json()["result"]["content"][0]["text"]
    return text


def names(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [tool["name"] for tool in response.json()["result"]["tools"]]


def test_the_eleven_tools_are_listed_at_the_beings_path(served: Served, space: str) -> None:
    being = served.being(space=space)
    token = served.token(space=space)
    assert names(served.rpc(f"/mcp/{being}", token, "tools/list")) == ELEVEN
    assert names(served.rpc(f"/mcp?being_id={being}", token, "tools/list")) == ELEVEN


def test_the_server_is_called_being(served: Served, space: str) -> None:
    served.being(space=space)
    answer = served.rpc(
        "/mcp", served.token(space=space), "initialize", protocolVersion="2025-11-25",
        capabilities={}, clientInfo={"name": "t", "version": "1"},
    )  # fmt: skip
    info = answer.json()["result"]["serverInfo"]
    assert (info["name"], info["version"]) == ("being", "1.0.0")


def test_bare_mcp_is_the_only_being_of_a_brt_tokens_owner(served: Served, space: str) -> None:
    being = served.being(space=space)
    token = served.token(space=space)
    assert token.startswith("brt_")
    assert (
        json.loads(said(served.call("/mcp", token, "get_context")))["metadata"]["being_id"] == being
    )


def test_with_several_beings_the_error_says_to_name_one(served: Served, space: str) -> None:
    served.being(space=space)
    served.being("Brin", space)
    answer = served.call("/mcp", served.token(space=space), "get_context")
    assert answer.status_code == 400
    assert "Say which one to use" in answer.json()["error"]


def test_without_any_being_the_error_says_to_make_one(served: Served, space: str) -> None:
    answer = served.call("/mcp", served.token(space=space), "get_context")
    assert answer.status_code == 400
    assert "commonplace being create" in answer.json()["error"]


def test_a_bto_token_carries_its_being(served: Served) -> None:
    one, two = served.being("One"), served.being("Two")
    token = served.bto(two)
    assert token.startswith("bto_")
    assert (
        json.loads(said(served.call("/mcp", token, "get_context")))["metadata"]["being_id"] == two
    )
    refused = served.call(f"/mcp?being_id={one}", token, "get_context")
    assert (refused.status_code, refused.json()) == (401, {"error": "Unauthorized"})


def test_a_being_of_another_owner_is_as_if_it_did_not_exist(served: Served, space: str) -> None:
    theirs = served.being(space=f"{space}-theirs")
    served.being(space=space)
    token = served.token(space=space)
    for named in (theirs, str(uuid.uuid4()), "no-uuid", "../x"):
        answer = served.call(f"/mcp?being_id={named}", token, "get_context")
        assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})
        assert answer.headers["www-authenticate"].startswith("Bearer")
    rest = served.request("GET", f"/v1/beings/{theirs}", token)
    assert (rest.status_code, rest.json()) == (404, {"error": "Not found"})


def test_path_and_query_that_disagree_let_nobody_in(served: Served, space: str) -> None:
    one, two = served.being(space=space), served.being("Two", space)
    answer = served.call(f"/mcp/{one}?being_id={two}", served.token(space=space), "get_context")
    assert answer.status_code == 401


@pytest.mark.parametrize("token", ["", "brt_nonsense", "bto_nonsense"])
def test_without_a_good_token_it_is_401_in_the_contracts_words(served: Served, token: str) -> None:
    answer = served.call("/mcp", token, "get_context")
    assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_on_rest_the_challenge_names_the_realm_and_the_way_to_a_token(served: Served) -> None:
    for path in ("/v1/beings", f"/v1/beings/{uuid.uuid4()}/soul", "/v1/llm-key"):
        answer = served.request("GET", path, "brt_nonsense")
        assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})
        assert answer.headers["www-authenticate"] == (
            'Bearer realm="being-api",'
            f' resource_metadata="{served.base}/.well-known/oauth-protected-resource"'
        )


def test_too_many_requests_are_answered_in_the_contracts_words(tmp_path: Path) -> None:
    with serving(tmp_path, rate=0.1, burst=3) as slow:
        being, token = slow.being(), slow.token()
        paths = ["/v1/beings", f"/v1/beings/{being}", f"/mcp/{being}"]
        first = [slow.request("GET", path, token).status_code for path in paths]
        assert 429 not in first
        for path in paths:
            answer = slow.request("GET", path, token)
            seconds = int(answer.headers["retry-after"])
            assert (answer.status_code, seconds > 0) == (429, True)
            assert answer.json() == {
                "statusCode": 429,
                "error": "Too Many Requests",
                "message": f"Rate limit exceeded. Try again in {seconds} seconds.",
                "Retry-After": seconds,
            }


def test_other_credentials_are_spoken_to_in_the_default_dialect(served: Served, space: str) -> None:
    from commonplace.access.credentials import Grant

    grant = Grant(space=space, dialects=frozenset({"commonplace"}))
    token = served.made.parts.tokens.credentials.create(grant).token
    assert "remember" in names(served.rpc("/mcp", token, "tools/list"))


def test_delete_closes_a_session_and_get_opens_no_stream(served: Served, space: str) -> None:
    being = served.being(space=space)
    token = served.token(space=space)
    assert served.request("DELETE", f"/mcp/{being}", token).status_code == 200
    assert served.request("GET", f"/mcp/{being}", token).status_code == 405


READS: list[tuple[str, dict[str, Any]]] = [
    ("recall", {"user_message": "hello"}),
    ("get_context", {}),
    ("recall_memory", {}),
    ("search_memory", {"query": "hello"}),
    ("search_history", {}),
    ("get_current_time", {}),
]
WRITES: list[tuple[str, dict[str, Any]]] = [
    ("update_memory", {"target": "notes", "action": "get"}),
    ("update_notes", {"notes": ["x"]}),
    ("merge_nodes", {"node_ids": "a,b", "summary": "c"}),
    ("update_relation", {"entity_name": "a", "relation_type": "b", "action": "delete"}),
    ("trigger_patrol", {"messages": []}),
]
NO_TOOL = {"error": "Read-only token cannot call write tools"}
NO_ACTION = {"error": "Read-only token cannot perform this action"}


@pytest.mark.parametrize(("tool", "arguments"), READS)
def test_a_read_only_token_may_read(
    served: Served, space: str, tool: str, arguments: dict[str, Any]
) -> None:
    served.being(space=space)
    token = served.token(space=space, read_only=True)
    assert said(served.call("/mcp", token, tool, **arguments))


@pytest.mark.parametrize(("tool", "arguments"), WRITES)
def test_a_read_only_token_may_not_write(
    served: Served, space: str, tool: str, arguments: dict[str, Any]
) -> None:
    served.being(space=space)
    answer = served.call("/mcp", served.token(space=space, read_only=True), tool, **arguments)
    assert (answer.status_code, answer.json()) == (403, NO_TOOL)


def test_a_batch_is_checked_item_by_item(served: Served, space: str) -> None:
    served.being(space=space)
    token = served.token(space=space, read_only=True)

    def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call",
                "params": {"name": tool, "arguments": arguments}}  # fmt: skip

    batch = [call(1, "get_current_time"), call(2, "update_notes", notes=["sneaked in"])]
    answer = served.send("/mcp", token, batch)
    assert (answer.status_code, answer.json()) == (403, NO_TOOL)
    full = served.token(space=space)
    assert "sneaked" not in said(served.call("/mcp", full, "get_context"))


@pytest.mark.parametrize("method", ["logging/setLevel", "completion/complete", "roots/list"])
def test_a_read_only_token_may_use_no_other_method(served: Served, space: str, method: str) -> None:
    served.being(space=space)
    answer = served.rpc("/mcp", served.token(space=space, read_only=True), method)
    assert (answer.status_code, answer.json()) == (403, NO_ACTION)


def test_on_rest_a_read_only_token_may_only_get(served: Served, space: str) -> None:
    being = served.being(space=space)
    token = served.token(space=space, read_only=True)
    assert served.request("GET", f"/v1/beings/{being}", token).status_code == 200
    for method, path, body in (
        ("POST", "/v1/beings", {"name": "x"}),
        ("PUT", f"/v1/beings/{being}/soul", {"voice": "x"}),
        ("DELETE", f"/v1/beings/{being}", None),
        ("POST", f"/v1/beings/{being}/patrol/trigger", {"messages": []}),
    ):
        answer = served.request(method, path, token, body)
        assert (answer.status_code, answer.json()) == (403, NO_ACTION)


def test_every_call_leaves_a_line_in_the_audit(served: Served, space: str) -> None:
    from commonplace.engine.history import audit

    served.being(space=space)
    token = served.token(space=space)
    served.call("/mcp", token, "trigger_patrol", messages=[])
    served.call("/mcp", token, "recall", user_message="x")
    with served.made.parts.library.lease(space) as opened:
        tools = [each.tool for each in audit.listing(opened.store, limit=10)]
    assert tools == ["recall", "trigger_patrol"]


async def test_the_seeds_example_against_a_real_being(served: Served, space: str) -> None:
    """get_context, recall, update_notes, ten scenes, and the patrol seen in recall_memory."""
    being = served.being(space=space)
    headers = {"Authorization": f"Bearer {served.token(space=space)}"}
    async with (
        create_mcp_http_client(headers=headers) as client,
        streamable_http_client(f"{served.base}/mcp/{being}", http_client=client) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()

        async def call(tool: str, **arguments: Any) -> str:
            result = await session.call_tool(tool, arguments)
            assert isinstance(result, types.CallToolResult)
            assert not result.is_error, result
            (item,) = result.content
            assert isinstance(item, types.TextContent)
            return item.text

        context = json.loads(await call("get_context"))
        assert context["metadata"]["soul_name"] == "Aria"
        assert "No related" in await call("recall", user_message="what about the garden?")
        told = await call("update_notes", scenes=[scene("Planted tomatoes in the garden")])
        assert told.startswith("ok")
        for number in range(9):
            await call("update_notes", scenes=[scene(f"Watered the garden, time {number}")])
        for _ in range(200):
            if "Business" in (clusters := await call("recall_memory")):
                break
        assert "- [" in clusters
        assert "tomatoes" in await call("search_memory", query="tomatoes")
