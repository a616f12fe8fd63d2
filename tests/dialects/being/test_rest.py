"""Beings over REST, and the key to the model that they think with."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from commonplace.engine.history import audit

from .conftest import Served, scene


@pytest.fixture
def at(served: Served) -> Any:
    """Requests as an owner with a being of their own."""
    space = f"r{uuid.uuid4().hex[:12]}"
    token = served.token(space=space)
    being = served.request("POST", "/v1/beings", token, {"name": "Aria"}).json()["id"]

    class At:
        id = being

        def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
            base = f"/v1/beings/{being}" if not path.startswith("/v1") else ""
            return served.request(method, base + path, token, body, **headers)

        def good(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
            answer = self(method, path, body)
            assert answer.status_code == status, answer.text
            return answer.json() if answer.content else None

    return At()


def test_beings_are_made_listed_shown_and_deleted(at: Any) -> None:
    made = at.good("POST", "/v1/beings", {"name": "Brin"}, 201)
    assert {"id", "name", "patrol_marker", "created_at", "updated_at"} == set(made)
    assert [each["name"] for each in at.good("GET", "/v1/beings")] == ["Aria", "Brin"]
    assert at.good("GET", f"/v1/beings/{made['id']}")["name"] == "Brin"
    at.good("DELETE", f"/v1/beings/{made['id']}", status=204)
    assert at("GET", f"/v1/beings/{made['id']}").status_code == 404
    assert [each["name"] for each in at.good("GET", "/v1/beings")] == ["Aria"]


@pytest.mark.parametrize("name", ["", "   ", "x" * 201])
def test_a_being_needs_a_name_of_1_to_200_characters(at: Any, name: str) -> None:
    assert at("POST", "/v1/beings", {"name": name}).status_code == 400
    at.good("POST", "/v1/beings", {"name": "x" * 200}, 201)


def test_a_deleted_beings_rows_are_gone_and_the_shared_ones_stay(at: Any) -> None:
    other = at.good("POST", "/v1/beings", {"name": "Brin"}, 201)["id"]
    update = f"/v1/beings/{other}/memory/update"
    at.good("POST", update, {"target": "knowledge", "action": "append", "content": "Shared.",
                             "key": "k"})  # fmt: skip
    at.good("POST", update, {"target": "preferences", "action": "append", "content": "Own."})
    at.good("DELETE", f"/v1/beings/{other}", status=204)
    shared = at.good("POST", "/memory/update", {"target": "knowledge", "action": "get", "key": "k"})
    assert shared == {"success": True, "message": "Shared."}


def test_the_soul_is_read_and_written(at: Any) -> None:
    put = at.good("PUT", "/soul", {"personality": "kind", "user_call_name": "Captain"})
    assert (put["personality"], put["name"]) == ("kind", "Aria")
    assert at.good("GET", "/soul")["user_call_name"] == "Captain"
    assert at("PUT", "/soul", {}).status_code == 400
    prompt = at.good("GET", "/context")["system_prompt"]
    assert "kind" in prompt and "Captain" in prompt


def test_preferences_relationships_and_rules(at: Any) -> None:
    at.good("PUT", "/preferences", {"key": "tea", "description": "green"})
    assert at.good("GET", "/preferences")[0]["content"] == "green"
    at.good("POST", "/memory/update", {"target": "relationship", "action": "append",
                                       "key": "Mika", "content": "a friend"})  # fmt: skip
    (mika,) = at.good("GET", "/relationships")
    at.good("PUT", f"/relationships/{mika['id']}", {"description": "a best friend"})
    assert at.good("GET", "/relationships")[0]["description"] == "a best friend"
    assert at("PUT", f"/relationships/{uuid.uuid4()}", {"description": "x"}).status_code == 404
    rule = at.good("PUT", "/rules", {"title": "Be brief", "content": "Short.", "category": "style"})
    assert rule["sort_order"] == 100 and rule["enabled"] is True
    at.good("PUT", "/rules", {"id": rule["id"], "title": "Be brief", "content": "Shorter."})
    assert [each["content"] for each in at.good("GET", "/rules")] == ["Shorter."]
    assert at("PUT", "/rules", {"id": "no", "title": "a", "content": "b"}).status_code == 404
    told = at.good("POST", "/relationships/update", {
        "entity_name": "Lamp", "relation_type": "device", "action": "upsert", "content": "bright",
    })  # fmt: skip
    assert told["success"]


def test_notes_and_context(at: Any) -> None:
    note = at.good("POST", "/notes", {"content": "buy soil"}, 201)
    assert at.good("GET", "/notes")[0]["id"] == note["id"]
    context = at.good("GET", "/context")
    assert {"system_prompt", "snapshot", "metadata", "capability_tools", "pinned_context", "notes",
            "tools"} <= set(context)  # fmt: skip
    assert len(context["tools"]) == 11
    assert "cache_hint" in context["metadata"] and "user_info" in context["metadata"]


def test_memory_routes(at: Any) -> None:
    scenes = [scene("Planted tomatoes"), scene("Planted onions")]
    assert at.good("POST", "/memory/conclude", {"scenes": scenes})["result"].startswith("ok")
    done = at.good("POST", "/patrol/trigger", {"messages": [{"role": "user", "content": "hi"}]})
    assert done["nodes_created"] == 2
    found = at.good("POST", "/memory/search-nodes", {"query": "Planted"})
    assert found["count"] == 2
    ids = ",".join(node["id"] for node in found["nodes"])
    merged = at.good("POST", "/memory/merge", {"node_ids": ids, "summary": "Gardened"})
    assert merged["result"].startswith("2 nodes merged. new id: ")
    listed = at.good("POST", "/memory/recall", {})["result"]
    cluster = listed.split("[")[1].split("]")[0]
    assert "Gardened" in at.good("POST", "/memory/recall", {"cluster_id": cluster})["result"]
    history = at.good("POST", "/memory/search-history", {"query": "hi"})
    assert "user: hi" in history["result"]
    assert at("POST", "/memory/search-history", {}).status_code == 400


def test_clusters_have_the_number_of_their_nodes(at: Any) -> None:
    made = [scene("Fed the cat."), scene("Repaired the bike.")]
    at.good("POST", "/memory/conclude", {"scenes": made})
    at.good("POST", "/patrol/trigger", {"messages": []})
    assert [(each["name"], each["nodes"]) for each in at.good("GET", "/clusters")] == [
        ("Business", 2)
    ]


def test_patrol_needs_messages(at: Any) -> None:
    assert at("POST", "/patrol/trigger", {}).status_code == 400


def test_messages_are_added_for_search(at: Any) -> None:
    dated = {"role": "assistant", "content": "Noted.", "created_at": "2026-01-02T10:00:00Z"}
    lines = [{"role": "user", "content": "The boat is red."}, dated]
    assert at.good("POST", "/messages", {"messages": lines}, 201)["added"] == 2
    found = at.good("POST", "/memory/search-history", {"query": "BOAT"})["result"]
    assert "user: The boat is red." in found
    for bad in ([], [{"role": "nobody", "content": "x"}], [{"role": "user"}], "text"):
        assert at("POST", "/messages", {"messages": bad}).status_code == 400


def test_an_error_is_one_text(at: Any) -> None:
    assert at("GET", "/v1/beings/not-there").json() == {"error": "Not found"}
    assert set(at("POST", "/v1/beings", {"nome": "x"}).json()) == {"error"}
    assert at("POST", "/notes", ["a list"]).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/notes", {"content": " "}, "content"),
        ("PUT", "/preferences", {"key": "k", "description": " "}, "description"),
        ("PUT", "/relationships/no", {"description": " "}, "description"),
        ("PUT", "/rules", {"title": " ", "content": "c"}, "title"),
        ("PUT", "/rules", {"title": "t", "content": " "}, "content"),
        ("PUT", "/soul", {"voice": "x" * 1_000_001}, "voice"),
    ],
)
def test_a_refusal_names_the_field_that_was_sent(
    at: Any, method: str, path: str, body: Any, field: str
) -> None:
    refused = at(method, path, body)
    assert refused.status_code == 400 and f"'{field}'" in refused.json()["error"]


def test_the_key_of_a_preference_has_no_blanks_around_it(at: Any) -> None:
    assert at.good("PUT", "/preferences", {"key": " tea ", "description": "green"})["key"] == "tea"
    given = {"target": "preferences", "action": "delete", "key": " tea "}
    assert at.good("POST", "/memory/update", given)["success"]
    assert at.good("GET", "/preferences") == []


def test_a_field_that_is_not_known_is_ignored(at: Any) -> None:
    for method, path in (("POST", "/memory/recall"), ("PUT", "/soul"), ("POST", "/notes")):
        plain, answer = at(method, path, {}), at(method, path, {"nonsense": 1})
        assert answer.status_code == plain.status_code
        assert "nonsense" not in answer.text


@pytest.mark.parametrize("path", [
    "/identity", "/identity/chain", "/identity/verify", "/extensions", "/extensions/x/install",
    "/tool-loop",
])  # fmt: skip
def test_identity_extensions_and_the_tool_loop_are_not_there(at: Any, path: str) -> None:
    for method in ("GET", "POST"):
        answer = at(method, path, {} if method == "POST" else None)
        assert (answer.status_code, answer.json()) == (404, {"error": "Not found"})


def test_the_owners_key_goes_in_by_a_header_and_never_comes_out(at: Any, served: Served) -> None:
    assert at.good("GET", "/v1/llm-key")["configured"] is False
    missing = at("PUT", "/v1/llm-key", {"provider": "openai"})
    assert missing.status_code == 400 and "X-LLM-API-Key" in missing.text
    put = at("PUT", "/v1/llm-key", {"provider": "openai"}, x_llm_api_key="sk-secret-12345678")
    assert put.status_code == 200, put.text
    assert put.json()["provider"] == "openai" and "secret" not in put.text
    assert "secret" not in at("GET", "/v1/llm-key").text
    for file in served.made.settings.data.rglob("*"):
        if file.is_file():
            assert b"sk-secret-12345678" not in file.read_bytes()
    at.good("DELETE", "/v1/llm-key", status=204)
    assert at("DELETE", "/v1/llm-key").status_code == 404
    assert at("PUT", "/v1/llm-key", {}).status_code == 400


def test_a_rule_that_is_changed_keeps_what_is_not_named(at: Any) -> None:
    first = {"title": "t", "content": "c", "category": "care", "sort_order": 3, "enabled": False}
    made = at.good("PUT", "/rules", first)
    changed = at.good("PUT", "/rules", {"id": made["id"], "title": "t2", "content": "c2"})
    assert changed == {**made, "title": "t2", "content": "c2"}
    on = {"id": made["id"], "title": "t2", "content": "c2", "enabled": True, "category": ""}
    assert at.good("PUT", "/rules", on) == {**changed, "enabled": True, "category": ""}
    plain = at.good("PUT", "/rules", {"title": "p", "content": "q"})
    assert (plain["category"], plain["sort_order"], plain["enabled"]) == ("", 100, True)


@pytest.mark.parametrize("limit", ["9" * 19, "9" * 5_000, "-1", "0", "", "1.5", "²", "x"])
def test_a_limit_that_is_no_number_is_refused(at: Any, limit: str) -> None:
    assert at("GET", f"/sense/history?limit={limit}").status_code == 400
    assert at("GET", "/sense/history?limit=101").status_code == 200


@pytest.mark.parametrize("body", [
    {"key": "sk-astray-12345678"}, {"provider": "sk-astray-12345678"},
    {"model": ["sk-astray-12345678"]}, {"sk-astray-12345678": ""},
    {"model": "m", "api_key": {"value": "sk-astray-12345678"}},
])  # fmt: skip
@pytest.mark.parametrize("read_only", [False, True])
def test_a_key_that_is_sent_in_the_body_is_written_down_nowhere(
    served: Served, body: dict[str, Any], read_only: bool
) -> None:
    space = f"r{uuid.uuid4().hex[:12]}"
    token = served.token(space=space, read_only=read_only)
    headers = {"idempotency_key": uuid.uuid4().hex}
    for _ in range(2):
        refused = served.request("PUT", "/v1/llm-key", token, body, **headers)
        assert refused.status_code == (403 if read_only else 400)
    for file in served.made.settings.data.rglob("*"):
        if file.is_file():
            assert b"sk-astray" not in file.read_bytes(), file
    with served.made.parts.library.lease(space) as opened:
        rows = [row for row in audit.listing(opened.store, limit=9) if row.tool == "put_llm_key"]
    assert [row.success for row in rows] == [False, False]
    known = sorted(body.keys() & {"provider", "model"})
    told = {"_withheld": True, "_named": known, "_others": len(body) - len(known)}
    assert [row.arguments for row in rows] == [told, told]


def test_a_token_for_one_being_reaches_no_other_and_not_the_owners_key(
    at: Any, served: Served
) -> None:
    mine, theirs = served.being("Mine"), served.being("Theirs")
    token = served.token(being=mine)
    assert served.request("GET", f"/v1/beings/{mine}", token).status_code == 200
    assert served.request("GET", f"/v1/beings/{theirs}", token).status_code == 404
    assert [e["id"] for e in served.request("GET", "/v1/beings", token).json()] == [mine]
    assert served.request("POST", "/v1/beings", token, {"name": "x"}).status_code == 404
    put = served.request("PUT", "/v1/llm-key", token, {}, x_llm_api_key="sk-ant-12345678")
    assert put.status_code == 404
