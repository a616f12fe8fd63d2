"""Unknown arguments are ignored and named in the dialects of other systems, and refused in ours."""

from __future__ import annotations

from typing import Any

import pytest

from commonplace.dialects import registry
from commonplace.dialects.being import beings
from commonplace.engine.commonplace import Commonplace
from server.harness import Running, matrix

FOREIGN = [name for name in registry.names() if registry.load(name).contract]
MORE = {"zz_scopes": ["all"], "zz_threshold": 0.5, "zz_nested": {"a": {"b": None}}}
META = "commonplace/ignored-arguments"


def called(server: Running, name: str, more: dict[str, Any]) -> dict[str, Any]:
    """The result of every tool of a dialect, in a space of its own."""
    memory = Commonplace(library=server.parts.library, space=f"{name}-{len(more)}")
    own = {
        "own": memory.remember("own kettle", kind="entity").id,
        "other": memory.remember("other").id,
        "kept": memory.remember("kept", kind="decision").id,
        "checkpoint": memory.remember("half way", kind="checkpoint").id,
        "being": beings.create(memory, "Aria").id,
    }
    own["relationship"] = own["other"]
    dialect, rows = registry.load(name), matrix("operations")[name]
    grant = {"dialects": frozenset({"being"})} if name == "being" else {}
    client = server.client(server.token(memory.name, **grant))
    path = f"/mcp/{own['being']}" if name == "being" else dialect.paths[0]
    results = {}
    for tool in dialect.tools:
        arguments = {
            key: own[one[1:]] if isinstance(one, str) and one[:1] == "$" else one
            for key, one in rows[tool.name]["arguments"].items()
        }
        answer = client.call(tool.name, {**arguments, **more}, path=path)
        results[tool.name] = answer.json["result"]
    return results


@pytest.mark.parametrize("name", FOREIGN)
def test_every_tool_of_another_system_ignores_and_names_them(server: Running, name: str) -> None:
    plain, more = called(server, name, {}), called(server, name, MORE)
    assert {tool: one.get("isError", False) for tool, one in more.items()} == {
        tool: one.get("isError", False) for tool, one in plain.items()
    }
    for tool, result in more.items():
        assert "_meta" not in plain[tool]
        declared = registry.load(name).tool(tool)
        assert declared is not None
        closed = declared.input.get("additionalProperties") is False
        if closed and not declared.has_secret_arguments and not result.get("isError"):
            assert result["_meta"] == {META: list(MORE)}, tool
            assert result["content"], tool
    log = server.log.getvalue()
    assert "unknown arguments are ignored" in log
    assert "zz_scopes, zz_threshold, zz_nested" in log


def test_tools_that_answer_softly_act_in_spite_of_them(server: Running) -> None:
    client = server.client(server.token("soft"))
    path = registry.load("orchestrator").paths[0]
    drawer = {"wing": "kitchen", "room": "kettles", "content": "The kettle is copper", "zz": 1}
    answer = client.call("memory_add_drawer", drawer, path=path).result
    assert answer["drawer_id"], answer
    found = client.call("memory_search", {"query": "copper", "zz": 1}, path=path).result
    assert "copper" in str(found)


def test_a_being_recalls_in_spite_of_them(server: Running) -> None:
    memory = Commonplace(library=server.parts.library, space="soft-being")
    being = beings.create(memory, "Aria").id
    client = server.client(server.token("soft-being", dialects=frozenset({"being"})))
    asked = {"user_message": "What about the kettle?"}
    results = [
        client.call("recall", {**asked, **more}, path=f"/mcp/{being}").json["result"]
        for more in ({}, {"min_score": 0.1, "scopes": ["x"]})
    ]
    assert results[0]["content"] == results[1]["content"]
    assert "could not be searched" not in results[1]["content"][0]["text"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/mama/save", {"topic": "tea", "decision": "Green", "reasoning": "Taste"}),
        ("/v1/beings", {"name": "Ben"}),
        ("/v1/clawbrain/outcomes", {"signal": "tool_success"}),
        ("/api/v2/memories", {"content": "A kettle"}),
    ],
)
def test_routes_of_other_systems_ignore_them(server: Running, path: str, body: Any) -> None:
    client = server.client(server.token("routes"))
    plain, more = client.request("POST", path, body), client.request("POST", path, {**body, **MORE})
    assert plain.status == more.status < 300, more.body
    assert client.request("GET", "/v1/beings?zz=1&_=2").status == 200


def test_our_own_dialect_refuses_them(server: Running) -> None:
    client = server.client(server.token("own"))
    error = client.call("remember", {"text": "A kettle", "importence": 1}).error
    assert "importence" in error and "importance" in error
    assert client.call("recall", {"query": "kettle"}).result["memories"] == []


def test_a_secret_sent_as_a_name_is_not_named(server: Running) -> None:
    client = server.client(server.token("secretive"))
    secret = "sk-ant-zz-not-for-the-log"
    client.request("PUT", "/v1/llm-key", {"api_key": "sk-ant-nobody", secret: 1})
    assert secret not in server.log.getvalue()
    assert secret not in str(server.calls("secretive"))
