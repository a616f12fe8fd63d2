"""Every endpoint over real HTTP: its documented keys, its status, its errors."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import time_machine

from commonplace import Commonplace
from commonplace.dialects.penfield.routes import OPERATIONS, REST, ROOT
from commonplace.engine.content.memories import Draft
from penfield.conftest import Server, running

MISSING = "550e8400-e29b-41d4-a716-446655440000"


def data(response: httpx.Response, status: int = 200) -> Any:
    """The data of an answer that must be a success."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"status", "data", "meta"} and body["status"] == "success"
    assert body["meta"]["version"] == "2.0.0"
    assert body["meta"]["request_id"] == response.headers["x-request-id"]
    datetime.strptime(body["meta"]["timestamp"], "%Y-%m-%dT%H:%M:%S.%fZ")
    return body["data"]


def failure(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error of an answer that must be that failure."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"status", "error", "meta"} and body["status"] == "error"
    found: dict[str, Any] = body["error"]
    assert found.keys() == {"code", "message", "details", "field_errors"}
    assert found["code"] == code and found["message"], found
    return found


def store(rest: httpx.Client, content: str, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = data(rest.post("/memories", json={"content": content, **more}), 201)
    return made


def relate(rest: httpx.Client, one: str, other: str, kind: str = "supports", **more: Any) -> Any:
    body = {"from_id": one, "to_id": other, "relationship_type": kind, **more}
    return data(rest.post("/relationships", json=body), 201)


# --- envelope, limits, errors --------------------------------------------------------------------


def test_every_answer_tells_the_rate(rest: httpx.Client) -> None:
    for response in (rest.get("/tags"), rest.get(f"/memories/{MISSING}")):
        assert int(response.headers["x-ratelimit-limit"]) == 1_000_000
        assert int(response.headers["x-ratelimit-remaining"]) < 1_000_000
        assert int(response.headers["x-ratelimit-reset"]) > 0


def test_beyond_the_rate_is_429_for_that_tenant_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_PENFIELD_RATE", "3")
    with running(tmp_path / "data") as server:
        one, other = server.key("read", space="one"), server.key("read", space="other")
        with server.client(one) as client:
            seen = [client.get("/tags") for _ in range(7)]
        # A minute of the clock may end in between; then as many again may pass.
        assert [response.status_code for response in seen].count(200) in (3, 4, 5, 6)
        refused = next(r for r in seen if r.status_code == 429)
        failure(refused, 429, "BIZ_RATE_LIMIT_EXCEEDED")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-ratelimit-remaining"] == "0"
        with server.client(other) as client:
            assert client.get("/tags").status_code == 200


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "VAL_FIELD_REQUIRED", "content"),
        ({"content": "x" * 10_001}, "VAL_FIELD_TOO_LONG", "content"),
        ({"content": ""}, "VAL_FIELD_INVALID", "content"),
        ({"content": 7}, "VAL_FIELD_INVALID", "content"),
        ({"content": "a", "memory_type": "dream"}, "VAL_ENUM_INVALID", "memory_type"),
        ({"content": "a", "importance": 2}, "VAL_FIELD_INVALID", "importance"),
        ({"content": "a", "tags": [1]}, "VAL_VALIDATION_FAILED", "tags[0]"),
    ],
)
def test_what_is_not_valid_is_422_with_its_field(
    rest: httpx.Client, body: dict[str, Any], code: str, field: str
) -> None:
    error = failure(rest.post("/memories", json=body), 422, code)
    assert list(error["field_errors"]) == [field]
    assert error["details"]["field"] == field


def test_a_text_that_is_too_long_says_how_long(rest: httpx.Client) -> None:
    error = failure(rest.post("/memories", json={"content": "x" * 10_002}), 422,
                    "VAL_FIELD_TOO_LONG")  # fmt: skip
    assert error["details"] == {"field": "content", "max_length": 10_000, "actual_length": 10_002}


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'"text"'])
def test_a_body_that_is_no_object_is_422(rest: httpx.Client, body: bytes) -> None:
    response = rest.post("/memories", content=body, headers={"content-type": "application/json"})
    failure(response, 422, "VAL_VALIDATION_FAILED")


def test_names_that_are_not_known_are_let_pass(rest: httpx.Client) -> None:
    assert store(rest, "a text", colour="blue")["content"] == "a text"
    data(rest.get("/memories", params={"colour": "blue"}))


def test_unknown_paths_and_methods_have_the_same_shape(rest: httpx.Client) -> None:
    told = failure(rest.get("/nothing"), 404, "RES_NOT_FOUND")
    assert "see GET /api/v2/openapi.json" in told["message"]
    told = failure(rest.patch("/memories"), 405, "VAL_VALIDATION_FAILED")
    assert "This method is not allowed" in told["message"]
    response = rest.post("/memories", content=b"a=1",
                         headers={"content-type": "application/x-www-form-urlencoded"})  # fmt: skip
    failure(response, 415, "VAL_VALIDATION_FAILED")


def test_a_bad_id_is_told_apart_from_a_missing_one(rest: httpx.Client) -> None:
    failure(rest.get("/memories/not-an-id"), 422, "VAL_UUID_INVALID")
    failure(rest.get(f"/memories/{MISSING}"), 404, "RES_MEMORY_NOT_FOUND")


def test_an_unknown_token_is_401(server: Server) -> None:
    with server.client("tm_default_ak_wrong") as client:
        response = client.get("/memories")
    failure(response, 401, "AUTH_TOKEN_INVALID")
    assert "www-authenticate" in response.headers


def test_scopes_hold_for_every_endpoint(server: Server) -> None:
    with server.client(server.key("read", space="scoped")) as client:
        scopes = {tool.name: tool.scope for tool in OPERATIONS}
        for endpoint in REST.routes:
            if scopes[endpoint.operation] == "read" or endpoint.operation == "upload_document":
                continue
            path = endpoint.path.removeprefix(ROOT).replace("{id}", MISSING)
            response = client.request(endpoint.method, path, json=_any_body(endpoint.operation))
            failure(response, 403, "AUTH_INSUFFICIENT_PERMISSIONS")
            assert "insufficient_scope" in response.headers["www-authenticate"]
        response = client.post("/documents/upload", files={"file": ("a.txt", b"text")})
        failure(response, 403, "AUTH_INSUFFICIENT_PERMISSIONS")


def _any_body(operation: str) -> Any:
    return [{}] if operation == "create_relationships" else {}


def test_write_may_delete_over_rest(server: Server) -> None:
    with server.client(server.key("read", "write", space="deleting")) as client:
        one, two = store(client, "one")["id"], store(client, "two")["id"]
        link = relate(client, one, two)["id"]
        assert client.delete(f"/relationships/{link}").status_code == 204
        assert client.delete(f"/memories/{one}").status_code == 204
        trait = data(client.post("/personality/traits", json={"content": "Be brief."}), 201)
        refused = client.delete(f"/personality/traits/{trait['id']}")
        failure(refused, 403, "AUTH_INSUFFICIENT_PERMISSIONS")


def test_another_tenants_things_are_as_if_they_did_not_exist(
    server: Server, rest: httpx.Client
) -> None:
    one, two = store(rest, "canary one")["id"], store(rest, "canary two")["id"]
    link = relate(rest, one, two)["id"]
    document = data(rest.post("/documents/upload", files={"file": ("a.txt", b"canary")}), 201)
    trait = data(rest.post("/personality/traits", json={"content": "canary"}), 201)["id"]
    data(rest.post("/artifacts", json={"path": "/canary.txt", "content": "canary"}), 201)
    with server.client(server.key("read", "write", "delete", space="elsewhere")) as other:
        for there, missing in (
            (f"/memories/{one}", f"/memories/{MISSING}"),
            (f"/memories/{one}/history", f"/memories/{MISSING}/history"),
            (f"/memories/{one}/tags", f"/memories/{MISSING}/tags"),
            (f"/relationships/{link}", f"/relationships/{MISSING}"),
            (f"/documents/{document['id']}", f"/documents/{MISSING}"),
            (f"/documents/{document['id']}/download", f"/documents/{MISSING}/download"),
        ):
            foreign, absent = other.get(there), other.get(missing)
            assert foreign.status_code == absent.status_code == 404
            assert foreign.json()["error"] == absent.json()["error"]
        for method, path in (
            ("DELETE", f"/memories/{one}"), ("DELETE", f"/relationships/{link}"),
            ("DELETE", f"/documents/{document['id']}"), ("DELETE", f"/personality/traits/{trait}"),
            ("DELETE", "/artifacts?path=/canary.txt"),
        ):  # fmt: skip
            assert other.request(method, path).status_code == 404
        body = {"start_memory_id": one}
        assert other.post("/relationships/traverse", json=body).status_code == 404
        assert data(other.post("/search/hybrid", json={"query": "canary"}))["items"] == []
        assert "canary" not in other.get("/personality/awakening").text
    assert data(rest.get(f"/memories/{one}"))["content"] == "canary one"


# --- memories ------------------------------------------------------------------------------------


def test_a_memory_has_every_documented_key(rest: httpx.Client) -> None:
    made = store(rest, "The harbour closes", memory_type="insight", importance=0.7, confidence=0.9,
                 tags=["Sea Port"], source_type="import", metadata={"page": 3})  # fmt: skip
    assert made.keys() >= {
        "id", "content", "memory_type", "importance", "confidence", "surprise_score",
        "source_type", "user_id", "access_count", "last_accessed", "created_at", "updated_at",
        "metadata", "embedding_status", "relationships",
    }  # fmt: skip
    assert (made["memory_type"], made["importance"], made["confidence"]) == ("insight", 0.7, 0.9)
    assert (made["source_type"], made["metadata"]) == ("import", {"page": 3})
    assert (made["tags"], made["user_id"]) == (["sea-port"], "ann")
    assert uuid.UUID(made["id"]).version == 4
    other = store(rest, "another")
    relate(rest, made["id"], other["id"])
    read = data(rest.get(f"/memories/{made['id']}"))
    assert read["access_count"] == 1
    assert [link["to_id"] for link in read["relationships"]] == [other["id"]]


@pytest.mark.parametrize("kind", ["identity_core", "personality_trait"])
def test_protected_types_are_for_the_personality_endpoints(rest: httpx.Client, kind: str) -> None:
    error = failure(rest.post("/memories", json={"content": "x", "memory_type": kind}), 403,
                    "AUTH_FORBIDDEN")  # fmt: skip
    assert error["message"] == (
        f"Cannot create {kind} memories via this endpoint. Use /personality endpoints instead."
    )
    plain = store(rest, "a text")["id"]
    response = rest.put(f"/memories/{plain}", json={"memory_type": kind})
    failure(response, 403, "AUTH_FORBIDDEN")
    data(rest.post("/personality", json={"persona_id": "teacher"}))
    data(rest.post("/personality/traits", json={"content": "Be brief."}), 201)
    listed = data(rest.get("/memories", params={"memory_type": kind}))["items"]
    for memory in listed:
        path = f"/memories/{memory['id']}"
        failure(rest.put(path, json={"content": "changed"}), 403, "AUTH_FORBIDDEN")
        failure(rest.delete(path), 403, "AUTH_FORBIDDEN")
        evolved = {"new_content": "changed", "evolution_type": "update"}
        failure(rest.post(f"{path}/evolve", json=evolved), 403, "AUTH_FORBIDDEN")
    assert len(listed) == 1


def test_put_replaces_and_null_leaves(rest: httpx.Client) -> None:
    made = store(rest, "first", tags=["a"], metadata={"x": 1})
    path = f"/memories/{made['id']}"
    changed = data(rest.put(path, json={"content": "second", "metadata": {"y": 2}, "tags": None,
                                        "memory_type": "task", "confidence": 0.1}))  # fmt: skip
    assert (changed["content"], changed["metadata"]) == ("second", {"y": 2})
    assert (changed["tags"], changed["memory_type"], changed["confidence"]) == (["a"], "task", 0.1)
    assert data(rest.put(path, json={"tags": []}))["tags"] == []
    failure(rest.put(f"/memories/{MISSING}", json={}), 404, "RES_MEMORY_NOT_FOUND")


def test_delete_takes_the_relationships_along(rest: httpx.Client) -> None:
    one, two = store(rest, "one")["id"], store(rest, "two")["id"]
    link = relate(rest, one, two)["id"]
    response = rest.delete(f"/memories/{one}")
    assert (response.status_code, response.content) == (204, b"")
    failure(rest.get(f"/memories/{one}"), 404, "RES_MEMORY_NOT_FOUND")
    failure(rest.get(f"/relationships/{link}"), 404, "RES_NOT_FOUND")
    failure(rest.delete(f"/memories/{one}"), 404, "RES_MEMORY_NOT_FOUND")
    everything = data(rest.get("/memories", params={"include_inactive": True}))
    assert [memory["id"] for memory in everything["items"]] == [two]


def test_listing_pages_filters_and_sorts(server: Server, rest: httpx.Client) -> None:
    first = store(rest, "TODO: one", importance=0.9, tags=["a"])["id"]
    second = store(rest, "TODO: two", importance=0.1, tags=["b"])["id"]
    third = store(rest, "a plain text", importance=0.5)["id"]
    data(rest.put(f"/memories/{first}", json={"confidence": 0.2}))

    def ids(**params: Any) -> list[str]:
        return [one["id"] for one in data(rest.get("/memories", params=params))["items"]]

    assert ids() == [third, second, first]
    assert ids(sort="created_at") == [first, second, third]
    assert ids(sort="-importance") == [first, third, second]
    assert ids(sort="importance") == [second, third, first]
    assert ids(sort="-updated_at")[0] == first
    assert ids(sort="updated_at") == [second, third, first]
    assert ids(sort="importance", per_page=2, page=2) == [first]
    assert ids(sort="importance", per_page=2, page=3) == []
    assert ids(memory_type="task") == [second, first]
    assert ids(importance_threshold=0.5) == [third, first]
    assert ids(tags="a, b") == [second, first]
    assert ids(user_id="ann") == [third, second, first]
    assert ids(user_id="bob") == []
    assert ids(time_range="today") == [third, second, first]
    assert ids(time_range="yesterday") == []
    assert ids(date_from="2099-01-01") == []
    page = data(rest.get("/memories", params={"per_page": 2, "page": 1}))
    assert page["pagination"] == {
        "page": 1, "per_page": 2, "total": 3, "pages": 2, "has_next": True, "has_prev": False,
    }  # fmt: skip
    assert data(rest.get("/memories", params={"per_page": 2, "page": 2}))["pagination"] == {
        "page": 2, "per_page": 2, "total": 3, "pages": 2, "has_next": False, "has_prev": True,
    }  # fmt: skip
    for wrong in ({"per_page": 0}, {"page": 0}, {"page": "x"},
                  {"importance_threshold": "nan"}):  # fmt: skip
        failure(rest.get("/memories", params=wrong), 422, "VAL_FIELD_INVALID")
    for wrong in ({"sort": "colour"}, {"time_range": "ever"}, {"memory_type": "dream"}):
        failure(rest.get("/memories", params=wrong), 422, "VAL_ENUM_INVALID")
    failure(rest.get("/memories", params={"date_from": "soon"}), 422, "VAL_FIELD_INVALID")


def test_twenty_a_page_by_default_and_a_hundred_at_most(rest: httpx.Client) -> None:
    for i in range(21):
        store(rest, f"note {i}")
    assert len(data(rest.get("/memories"))["items"]) == 20
    assert len(data(rest.get("/memories", params={"per_page": 100}))["items"]) == 21


def test_history_tells_every_content_a_memory_had(rest: httpx.Client) -> None:
    made = store(rest, "first")["id"]
    data(rest.put(f"/memories/{made}", json={"content": "second"}))
    data(rest.put(f"/memories/{made}", json={"importance": 0.9}))
    told = data(rest.get(f"/memories/{made}/history"))
    assert told["current"]["content"] == "second"
    assert told["total_versions"] == 2
    assert [(one["version"], one["content"], one["is_active"], one["lifecycle_state"])
            for one in told["history"]] == [
        (2, "second", True, "active"), (1, "first", False, "superseded"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "state"),
    [("correction", "corrected"), ("update", "superseded"), ("expansion", "superseded"),
     ("contradiction", "contradicted"), ("deprecation", "archived")],
)  # fmt: skip
def test_evolving_replaces_a_memory_and_keeps_its_links(
    rest: httpx.Client, kind: str, state: str
) -> None:
    old, other = store(rest, "harbour at nine", tags=["sea"])["id"], store(rest, "other")["id"]
    relate(rest, old, other, strength=0.7)
    relate(rest, other, old, "causes")
    body = {"new_content": "harbour at ten", "evolution_type": kind, "reason": "it moved"}
    evolved = data(rest.post(f"/memories/{old}/evolve", json=body), 201)
    new = evolved["new_memory_id"]
    assert (evolved["original_memory_id"], evolved["evolution_type"]) == (old, kind)
    assert evolved["version"] == 2
    link = data(rest.get(f"/relationships/{evolved['evolution_id']}"))
    assert (link["from_id"], link["to_id"], link["relationship_type"]) == (new, old, "supersedes")
    assert data(rest.get(f"/memories/{old}"))["lifecycle_state"] == state
    fresh = data(rest.get(f"/memories/{new}"))
    assert (fresh["lifecycle_state"], fresh["tags"]) == ("active", ["sea"])
    kept = {(link["from_id"], link["to_id"], link["relationship_type"], link["strength"])
            for link in fresh["relationships"]}  # fmt: skip
    assert {(new, other, "supports", 0.7), (other, new, "causes", 0.5)} <= kept
    found = data(rest.post("/search/hybrid", json={"query": "harbour"}))["items"]
    assert [item["id"] for item in found if "harbour" in item["content"]] == [new]
    history = data(rest.get(f"/memories/{new}/history"))
    assert [one["id"] for one in history["history"]] == [new, old]
    assert data(rest.get(f"/memories/{old}/history"))["current"]["id"] == new
    listed = data(rest.get("/memories", params={"include_inactive": "true"}))["items"]
    assert old in [memory["id"] for memory in listed]
    again = rest.post(f"/memories/{old}/evolve", json=body)
    failure(again, 409, "RES_ALREADY_EXISTS")


def test_evolve_refuses_other_types(rest: httpx.Client) -> None:
    made = store(rest, "a text")["id"]
    body = {"new_content": "x", "evolution_type": "mutation"}
    failure(rest.post(f"/memories/{made}/evolve", json=body), 422, "VAL_ENUM_INVALID")
    body = {"new_content": "x", "evolution_type": "update"}
    failure(rest.post(f"/memories/{MISSING}/evolve", json=body), 404, "RES_MEMORY_NOT_FOUND")


def test_a_checkpoint_can_be_posted_and_its_name_is_unique(rest: httpx.Client) -> None:
    content = '{"checkpoint_name": "Monday", "description": "d", "memory_ids": []}'
    made = store(rest, content, memory_type="checkpoint")
    assert made["content"] == content
    assert made["metadata"] == {"checkpoint_name": "Monday", "memory_count": 0}
    again = rest.post("/memories", json={"content": content, "memory_type": "checkpoint"})
    failure(again, 409, "RES_ALREADY_EXISTS")
    listed = data(rest.get("/memories", params={"memory_type": "checkpoint"}))["items"]
    assert [memory["id"] for memory in listed] == [made["id"]]
    plain = rest.post("/memories", json={"content": "no JSON", "memory_type": "checkpoint"})
    failure(plain, 422, "VAL_FIELD_INVALID")
    assert rest.delete(f"/memories/{made['id']}").status_code == 204
    store(rest, content, memory_type="checkpoint")


def test_contradictions_are_recorded_listed_and_resolved(rest: httpx.Client) -> None:
    def pair() -> tuple[str, str, str]:
        one, two = store(rest, "closes at nine")["id"], store(rest, "closes at ten")["id"]
        body = {"source_memory_id": one, "target_memory_id": two, "confidence": 0.9,
                "contradiction_type": "partial", "metadata": {"by": "test"}}  # fmt: skip
        made = data(rest.post("/memories/contradictions", json=body), 201)
        assert (made["status"], made["contradiction_type"]) == ("unresolved", "partial")
        assert (made["confidence"], made["metadata"]) == (0.9, {"by": "test"})
        failure(rest.post("/memories/contradictions", json=body), 409, "RES_RELATIONSHIP_EXISTS")
        return one, two, made["id"]

    def resolve(identity: str, resolution: str, **more: Any) -> httpx.Response:
        path = f"/memories/contradictions/{identity}/resolve"
        return rest.post(path, json={"resolution": resolution, **more})

    def state(identity: str) -> str:
        found: str = data(rest.get(f"/memories/{identity}"))["lifecycle_state"]
        return found

    one, two, first = pair()
    listed = data(rest.get(f"/memories/{two}/contradictions"))
    assert (listed["total"], listed["items"][0]["id"]) == (1, first)
    assert data(resolve(first, "keep_both"))["status"] == "accepted"
    failure(resolve(first, "keep_both"), 409, "RES_ALREADY_EXISTS")

    one, two, second = pair()
    assert data(resolve(second, "choose_memory_1", reason="seen"))["status"] == "resolved"
    assert (state(one), state(two)) == ("active", "contradicted")
    one, two, third = pair()
    data(resolve(third, "choose_memory_2"))
    assert (state(one), state(two)) == ("contradicted", "active")

    one, two, fourth = pair()
    failure(resolve(fourth, "create_new"), 422, "VAL_FIELD_INVALID")
    made = data(resolve(fourth, "create_new", new_content="closes at half past nine"))
    new = made["new_memory"]["id"]
    assert (state(one), state(two), state(new)) == ("contradicted", "contradicted", "active")
    links = data(rest.get("/relationships", params={"from_id": new}))["items"]
    assert {(link["to_id"], link["relationship_type"]) for link in links} == {
        (one, "supersedes"), (two, "supersedes"),
    }  # fmt: skip
    failure(resolve(MISSING, "keep_both"), 404, "RES_NOT_FOUND")
    failure(resolve(fourth, "guess"), 422, "VAL_ENUM_INVALID")


def test_tags_are_added_removed_and_counted(rest: httpx.Client) -> None:
    one = store(rest, "one", tags=["sea"])["id"]
    store(rest, "two", tags=["sea", "port"])
    path = f"/memories/{one}/tags"
    added = data(rest.post(path, json={"tags": ["New Tag", "c++"]}))
    assert (added["memory_id"], added["tags"]) == (one, ["sea", "new-tag"])
    assert len(added["warnings"]) == 1 and "c++" in added["warnings"][0]
    assert data(rest.get(path))["tags"] == ["sea", "new-tag"]
    assert data(rest.delete(path, params={"tags": "new-tag"}))["tags"] == ["sea"]
    listed = data(rest.get("/tags"))
    assert [(tag["name"], tag["usage_count"]) for tag in listed["items"]] == [
        ("sea", 2), ("port", 1),
    ]  # fmt: skip
    assert listed["total"] == 2
    tagged = data(rest.get("/tags/Sea/memories"))
    assert tagged["pagination"]["total"] == 2
    full = data(rest.post(path, json={"tags": [f"t{i}" for i in range(9)]}))
    assert len(full["tags"]) == 10
    error = failure(rest.post(path, json={"tags": ["more"]}), 422, "VAL_FIELD_INVALID")
    assert error["details"]["max_items"] == 10


@pytest.mark.parametrize("tag", ["ML-Team", "a_b", "two words", "über", "c++"])
def test_a_tag_of_another_dialect_is_found_as_it_is_listed(server: Server, tag: str) -> None:
    space = f"tags-{tag.encode().hex()}"
    memory = Commonplace(library=server.parts.library, space=space)
    one = memory.remember("a ferry", kind="fact", tags=[tag]).id
    with server.client(server.key("read", "write", space=space)) as client:
        (listed,) = data(client.get("/tags"))["items"]
        assert listed["name"] == tag
        tagged = data(client.get(f"/tags/{quote(tag)}/memories"))["items"]
        found = data(client.post("/search/hybrid", json={"query": "ferry", "tags": tag}))["items"]
        paged = data(client.get("/memories", params={"tags": tag}))["items"]
        assert [[each["id"] for each in some] for some in (tagged, found, paged)] == [[one]] * 3
        removed = data(client.delete(f"/memories/{one}/tags", params={"tags": tag}))
    assert (removed["tags"], removed["warnings"]) == ([], [])


# --- search --------------------------------------------------------------------------------------


def test_hybrid_search_has_every_documented_key(rest: httpx.Client) -> None:
    one, two = store(rest, "harbour lantern")["id"], store(rest, "soup")["id"]
    relate(rest, one, two, strength=0.9)
    found = data(rest.post("/search/hybrid", json={"query": "harbour lantern"}))
    assert found.keys() == {"items", "query", "analyzed_query", "search_metadata"}
    item = found["items"][0]
    assert item.keys() >= {"id", "content", "snippet", "score", "score_breakdown", "metadata",
                           "source_type", "created_at"}  # fmt: skip
    assert item["score_breakdown"].keys() == {
        "final_score", "bm25_score", "vector_score", "graph_score", "rank_bm25", "rank_vector",
    }  # fmt: skip
    assert item["metadata"].keys() == {"memory_type", "importance", "highlight", "graph_context"}
    assert found["analyzed_query"] == {
        "original": "harbour lantern", "search_type": "hybrid",
        "weights": {"bm25": 0.4, "vector": 0.4, "graph": 0.2}, "graph_expansion_enabled": True,
    }  # fmt: skip
    about = found["search_metadata"]
    assert about["results_count"] == 2
    assert about["stats"].keys() >= {"search_time_ms", "bm25_count"}
    cloud = about["knowledge_cloud"]
    assert cloud["edges"] == [{"from_id": one, "to_id": two, "type": "supports", "strength": 0.9}]
    assert cloud["stats"] == {"seed_count": 1, "cloud_count": 2, "edge_count": 1}


def test_hybrid_search_obeys_its_options(rest: httpx.Client) -> None:
    one = store(rest, "harbour lantern", memory_type="insight", importance=0.9, tags=["sea"])["id"]
    two = store(rest, "harbour soup", memory_type="task", importance=0.2,
                source_type="import")["id"]  # fmt: skip
    three = store(rest, "a cupboard", importance=0.9)["id"]
    relate(rest, one, three, strength=1.0)

    def ids(query: str = "harbour", **options: Any) -> set[str]:
        body = {"query": query, **options}
        return {item["id"] for item in data(rest.post("/search/hybrid", json=body))["items"]}

    assert ids() == {one, two, three}
    assert ids(enable_graph_expansion=False) == {one, two}
    assert ids(memory_types=["task"]) == {two}
    assert ids(importance_threshold=0.5) == {one, three}
    assert ids(tags="sea,other") == {one}
    assert ids(source_types=["import"]) == {two}
    assert ids(source_types=["document_upload"]) == set()
    assert ids(limit=1) == {one}
    assert ids(start_date="2099-01-01") == set()
    assert ids(bm25_weight=1.0, vector_weight=0.0, graph_weight=0.0) == {one, two}
    assert ids(bm25_weight=0.0, vector_weight=0.0, graph_weight=1.0) == {three}
    assert ids(min_score_threshold=0.5) <= {one, two}


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("limit", 1, 100), ("graph_max_depth", 1, 5), ("graph_seed_limit", 1, 50), ("rrf_k", 1, 100),
     ("include_neighbors", 0, 20)],
)  # fmt: skip
def test_every_limit_of_hybrid_search(rest: httpx.Client, name: str, least: int, most: int) -> None:
    for value in (least, most):
        data(rest.post("/search/hybrid", json={"query": "harbour", name: value}))
    for value in (least - 1, most + 1):
        response = rest.post("/search/hybrid", json={"query": "harbour", name: value})
        failure(response, 422, "VAL_FIELD_INVALID")


def test_weights_must_add_up(rest: httpx.Client) -> None:
    body = {"query": "harbour", "bm25_weight": 0.5, "vector_weight": 0.5, "graph_weight": 0.5}
    error = failure(rest.post("/search/hybrid", json=body), 422, "VAL_FIELD_INVALID")
    assert error["details"]["sum"] == 1.5
    failure(rest.post("/search/hybrid", json={}), 422, "VAL_FIELD_REQUIRED")
    failure(rest.post("/search/hybrid", json={"query": "x" * 4_001}), 422, "VAL_FIELD_TOO_LONG")


def test_vector_search_goes_by_meaning(rest: httpx.Client) -> None:
    one = store(rest, "harbour lantern", tags=["sea"], importance=0.9)["id"]
    store(rest, "harbour soup kettle", importance=0.1)
    found = data(rest.post("/search/vector", json={"query": "harbour lantern", "limit": 1}))
    (item,) = found["items"]
    assert (item["id"], item["tags"]) == (one, ["sea"])
    assert item["score_breakdown"] == {"vector_similarity": item["score"]}
    filtered = {"query": "harbour", "filters": {"min_importance": 0.5, "user_id": "ann"}}
    assert [each["id"] for each in data(rest.post("/search/vector", json=filtered))["items"]] == [
        one
    ]
    for nobody in ({"filters": {"user_id": "bob"}}, {"filters": {"memory_types": ["task"]}},
                   {"tags": "other"}):  # fmt: skip
        body = {"query": "harbour", **nobody}
        assert data(rest.post("/search/vector", json=body))["items"] == []


def test_search_stats_count(rest: httpx.Client) -> None:
    assert data(rest.get("/search/stats")) == {
        "total_memories": 0, "total_documents": 0, "total_relationships": 0,
        "embedding_coverage": 1.0, "last_indexed": None,
    }  # fmt: skip
    one, two = store(rest, "one")["id"], store(rest, "two")["id"]
    relate(rest, one, two)
    told = data(rest.get("/search/stats"))
    assert (told["total_memories"], told["total_relationships"]) == (2, 1)
    assert told["last_indexed"] is not None


# --- relationships -------------------------------------------------------------------------------


def test_a_relationship_lives(rest: httpx.Client) -> None:
    one, two = store(rest, "one")["id"], store(rest, "two")["id"]
    made = relate(rest, one, two, strength=0.8, confidence=0.6, evidence={"page": 1},
                  traversal_properties={"cost": 2})  # fmt: skip
    assert (made["direction_type"], made["strength"], made["confidence"]) == ("DIRECTED", 0.8, 0.6)
    assert (made["evidence"], made["traversal_properties"]) == ({"page": 1}, {"cost": 2})
    path = f"/relationships/{made['id']}"
    assert data(rest.get(path)) == made
    changed = data(rest.patch(path, json={"strength": 0.1, "confidence": 0.2, "evidence": {}}))
    assert (changed["strength"], changed["confidence"], changed["evidence"]) == (0.1, 0.2, {})
    assert rest.delete(path).status_code == 204
    failure(rest.get(path), 404, "RES_NOT_FOUND")
    failure(rest.delete(path), 404, "RES_NOT_FOUND")
    failure(rest.patch(path, json={}), 404, "RES_NOT_FOUND")


def test_relationships_fail_as_documented(rest: httpx.Client) -> None:
    one, two = store(rest, "one")["id"], store(rest, "two")["id"]
    relate(rest, one, two)

    def post(**body: Any) -> httpx.Response:
        return rest.post("/relationships", json={
            "from_id": one, "to_id": two, "relationship_type": "supports", **body})  # fmt: skip

    failure(post(), 409, "RES_RELATIONSHIP_EXISTS")
    failure(post(to_id=MISSING), 404, "RES_MEMORY_NOT_FOUND")
    failure(post(to_id=one), 422, "VAL_FIELD_INVALID")
    failure(post(relationship_type="likes"), 422, "VAL_ENUM_INVALID")
    failure(post(direction_type="INVERSE_PAIRED"), 422, "VAL_FIELD_INVALID")
    failure(post(relationship_type="tests", inverse_type="causes"), 422, "VAL_FIELD_INVALID")


def test_an_inverse_pair_is_two_rows(rest: httpx.Client) -> None:
    one, two = store(rest, "one")["id"], store(rest, "two")["id"]
    made = relate(rest, one, two, "parent_of", direction_type="INVERSE_PAIRED",
                  inverse_type="child_of")  # fmt: skip
    assert made["inverse_type"] == "child_of"
    listed = data(rest.get("/relationships", params={"memory_id": one}))
    assert {(link["from_id"], link["relationship_type"]) for link in listed["items"]} == {
        (one, "parent_of"), (two, "child_of"),
    }  # fmt: skip


def test_relationships_are_listed_by_end_and_type(rest: httpx.Client) -> None:
    one, two, three = (store(rest, text)["id"] for text in ("one", "two", "three"))
    first, second = relate(rest, one, two)["id"], relate(rest, two, three, "causes")["id"]

    def ids(**params: Any) -> list[str]:
        return [link["id"] for link in data(rest.get("/relationships", params=params))["items"]]

    assert ids() == [first, second]
    assert ids(from_id=two) == [second]
    assert ids(to_id=two) == [first]
    assert ids(memory_id=two) == [first, second]
    assert ids(memory_id=two.upper(), relationship_type="causes") == [second]
    assert ids(from_id=one, to_id=three) == []
    assert ids(memory_id=MISSING) == []
    assert ids(per_page=1, page=2) == [second]


def test_bulk_creates_all_or_none(rest: httpx.Client) -> None:
    one, two, three = (store(rest, text)["id"] for text in ("one", "two", "three"))
    good = [{"from_id": one, "to_id": two, "relationship_type": "supports"},
            {"from_id": two, "to_id": three, "relationship_type": "causes"}]  # fmt: skip
    bad = [*good, {"from_id": one, "to_id": MISSING, "relationship_type": "tests"}]
    failure(rest.post("/relationships/bulk", json=bad), 404, "RES_MEMORY_NOT_FOUND")
    assert data(rest.get("/relationships"))["items"] == []
    made = data(rest.post("/relationships/bulk", json=good), 201)
    assert len(made["created"]) == 2
    assert (made["updated"], made["deleted"], made["errors"]) == ([], [], [])
    failure(rest.post("/relationships/bulk", json=good), 409, "RES_RELATIONSHIP_EXISTS")
    for wrong in ([], good * 51, {"from_id": one}):
        assert rest.post("/relationships/bulk", json=wrong).status_code == 422


def test_between_removes_one_direction(rest: httpx.Client) -> None:
    one, two = store(rest, "one")["id"], store(rest, "two")["id"]
    relate(rest, one, two), relate(rest, one, two, "causes"), relate(rest, two, one, "tests")
    params = {"from_id": one, "to_id": two}
    assert rest.delete("/relationships/between", params=params).status_code == 204
    failure(rest.delete("/relationships/between", params=params), 404, "RES_NOT_FOUND")
    assert len(data(rest.get("/relationships"))["items"]) == 1
    failure(rest.delete("/relationships/between", params={"from_id": one}), 422,
            "VAL_FIELD_REQUIRED")  # fmt: skip


def test_traverse_goes_the_way_that_is_asked(rest: httpx.Client) -> None:
    one, two, three = (store(rest, text)["id"] for text in ("one", "two", "three"))
    relate(rest, one, two, strength=0.8)
    relate(rest, three, one, "causes", strength=0.2)

    def ends(**body: Any) -> set[str]:
        walked = data(rest.post("/relationships/traverse", json={"start_memory_id": one, **body}))
        return {path["nodes"][-1] for path in walked["paths"]}

    assert ends() == {two, three}
    assert ends(direction="OUTBOUND") == {two}
    assert ends(direction="INBOUND") == {three}
    assert ends(min_strength=0.5) == {two}
    assert ends(relationship_types=["causes"]) == {three}
    body = {"start_memory_id": one, "include_scores": False}
    walked = data(rest.post("/relationships/traverse", json=body))
    assert {path["total_score"] for path in walked["paths"]} == {None}
    assert walked["total_paths_found"] == 2 and walked["max_depth_reached"] == 1
    failure(rest.post("/relationships/traverse", json={"start_memory_id": MISSING}), 404,
            "RES_MEMORY_NOT_FOUND")  # fmt: skip
    for depth in (0, 11):
        response = rest.post("/relationships/traverse",
                             json={"start_memory_id": one, "max_depth": depth})  # fmt: skip
        failure(response, 422, "VAL_FIELD_INVALID")


# --- analysis ------------------------------------------------------------------------------------


def test_reflect_over_rest(rest: httpx.Client) -> None:
    store(rest, "the harbour closes")
    told = data(rest.post("/analysis/reflect", json={"time_window": "month", "max_memories": 1}))
    assert told.keys() == {
        "time_window", "memories", "active_topics", "memory_clusters", "emerging_patterns",
        "relationship_insights", "statistics",
    }  # fmt: skip
    assert told["memories"][0].keys() == {
        "id", "content", "memory_type", "importance", "access_count", "created_at", "age_hours",
        "score",
    }  # fmt: skip
    off = {"include_patterns": False, "include_relationships": False, "include_clusters": False}
    bare = data(rest.post("/analysis/reflect", json=off))
    assert bare["memory_clusters"] == bare["emerging_patterns"] == []
    failure(rest.post("/analysis/reflect", json={"recency_weight": 0.9}), 422, "VAL_FIELD_INVALID")
    for most in (0, 1_001):
        failure(rest.post("/analysis/reflect", json={"max_memories": most}), 422,
                "VAL_FIELD_INVALID")  # fmt: skip


def test_reflect_scores_by_its_weights(rest: httpx.Client) -> None:
    one = store(rest, "important", importance=1.0)["id"]
    store(rest, "unimportant", importance=0.0)
    body = {"recency_weight": 0, "access_weight": 0, "importance_weight": 1,
            "relationship_weight": 0}  # fmt: skip
    told = data(rest.post("/analysis/reflect", json=body))
    assert [memory["score"] for memory in told["memories"]] == [1.0, 0.0]
    assert told["memories"][0]["id"] == one


def test_summarize_tells_of_the_last_day_or_of_what_is_named(rest: httpx.Client) -> None:
    empty = data(rest.post("/analysis/summarize", json={}))
    assert empty["summary"] == "No memories found to summarize."
    one = store(rest, "the lighthouse keeper")["id"]
    two = store(rest, "the lighthouse lantern")["id"]
    relate(rest, one, two)
    told = data(rest.post("/analysis/summarize", json={}))
    assert told["memory_count"] == 2 and told["topics"][0] == "lighthouse"
    assert told["relationships"] == [{"type": "supports", "count": 1}]
    named = data(rest.post("/analysis/summarize", json={"memory_ids": [one]}))
    assert named["memory_count"] == 1
    failure(rest.post("/analysis/summarize", json={"memory_ids": [MISSING]}), 404,
            "RES_MEMORY_NOT_FOUND")  # fmt: skip


def test_insights_count_by_type_and_time(rest: httpx.Client) -> None:
    with time_machine.travel(datetime.now(UTC) - timedelta(days=10), tick=True):
        store(rest, "TODO: an old one")
    store(rest, "a fact")
    store(rest, "another fact")
    told = data(rest.get("/analysis/insights"))
    assert told["distribution"] == {"task": 1, "fact": 2}
    assert told["statistics"]["total_memories"] == 3
    assert told["statistics"]["created_last_24h"] == told["statistics"]["created_last_week"] == 2
    assert told["statistics"]["created_last_month"] == 3
    assert [one["title"] for one in told["insights"]] == [
        "Memory Creation Rate", "Most Common Type",
    ]  # fmt: skip


# --- personality ---------------------------------------------------------------------------------


def test_a_persona_is_chosen_and_traits_are_added(rest: httpx.Client) -> None:
    told = data(rest.get("/personality/personas"))
    assert told["current_tier"] == "unlimited" and len(told["personas"]) == 10
    assert data(rest.get("/personality"))["persona_id"] == "professional"
    chosen = data(rest.post("/personality", json={"persona_id": "teacher",
                                                  "set_as_org_default": True}))  # fmt: skip
    assert (chosen["persona_id"], chosen["set_as_org_default"]) == ("teacher", True)
    assert data(rest.post("/personality", json={"persona_id": "egirl_uwu"}))["is_default"] is False
    failure(rest.post("/personality", json={"persona_id": "villain"}), 422, "VAL_ENUM_INVALID")
    trait = data(rest.post("/personality/traits", json={"content": "Be brief."}), 201)
    assert trait["category"] == "custom_instruction"
    failure(rest.post("/personality/traits", json={"content": "Be brief."}), 409,
            "RES_ALREADY_EXISTS")  # fmt: skip
    path = f"/personality/traits/{trait['id']}"
    assert data(rest.put(path, json={"content": "Be very brief."}))["content"] == "Be very brief."
    briefing = data(rest.get("/personality/awakening"))["briefing"]
    assert "E-Girl" in briefing and "- Be very brief." in briefing
    assert data(rest.get("/personality"))["traits"][0]["id"] == trait["id"]
    assert data(rest.delete(path)) == {"deleted": True}
    failure(rest.delete(path), 404, "RES_NOT_FOUND")
    failure(rest.put(path, json={"content": "x"}), 404, "RES_NOT_FOUND")
    assert "very brief" not in data(rest.get("/personality/awakening"))["briefing"]


# --- artifacts -----------------------------------------------------------------------------------


def test_artifacts_over_rest(rest: httpx.Client) -> None:
    body = {"path": "/project/notes.md", "content": "# Notes"}
    saved = data(rest.post("/artifacts", json=body), 201)
    assert saved.keys() == {
        "success", "message", "path", "artifact_id", "content_type", "size", "storage_path",
    }  # fmt: skip
    failure(rest.post("/artifacts", json=body), 409, "RES_ALREADY_EXISTS")
    read = data(rest.get("/artifacts", params={"path": "/project/notes.md"}))
    assert read == {"success": True, "content": "# Notes", "path": "/project/notes.md",
                    "content_type": "text/markdown", "size": 7}  # fmt: skip
    data(rest.post("/artifacts", json={"path": "/project/todo.txt", "content": ""}), 201)
    listed = data(rest.get("/artifacts/list", params={"prefix": "/project/"}))
    assert [file["name"] for file in listed["files"]] == ["notes.md", "todo.txt"]
    found = data(rest.get("/artifacts/list", params={"prefix": "/project", "name_pattern": "TODO"}))
    assert [file["name"] for file in found["files"]] == ["todo.txt"]
    assert data(rest.get("/artifacts/list"))["folders"] == ["project"]
    params = {"path": "/project/notes.md"}
    assert "message" in data(rest.delete("/artifacts", params=params))
    failure(rest.delete("/artifacts", params=params), 404, "RES_NOT_FOUND")
    failure(rest.get("/artifacts", params=params), 404, "RES_NOT_FOUND")


@pytest.mark.parametrize("path", ["a.txt", "/../x", "/a//b", "/a%2e%2e/b", "/é.txt", "/a\\b"])
def test_bad_paths_are_400(rest: httpx.Client, path: str) -> None:
    failure(rest.post("/artifacts", json={"path": path, "content": ""}), 400, "VAL_FIELD_INVALID")
    failure(rest.get("/artifacts", params={"path": path}), 400, "VAL_FIELD_INVALID")
    failure(rest.delete("/artifacts", params={"path": path}), 400, "VAL_FIELD_INVALID")


def test_an_artifact_has_ten_megabytes_at_most(rest: httpx.Client) -> None:
    most = 10 * 1024 * 1024
    saved = data(rest.post("/artifacts", json={"path": "/most.txt", "content": "x" * most}), 201)
    assert saved["size"] == most
    read = data(rest.get("/artifacts", params={"path": "/most.txt"}))
    assert len(read["content"]) == most
    more = rest.post("/artifacts", json={"path": "/more.txt", "content": "x" * (most + 1)})
    error = failure(more, 413, "VAL_FIELD_TOO_LONG")
    assert error["details"]["actual_length"] == most + 1
    huge = {"path": "/huge.txt", "content": "x" * (17 * 1024 * 1024)}
    failure(rest.post("/artifacts", json=huge), 413, "VAL_FIELD_TOO_LONG")


def test_a_page_of_the_longest_memories_fits(server: Server) -> None:
    space = Commonplace(library=server.parts.library, space="longest")
    space.remember_many([Draft(text=f"{i:05}" + "漢" * 9_995, kind="fact") for i in range(100)])
    with server.client(server.key("read", space="longest")) as client:
        page = data(client.get("/memories", params={"per_page": 100}))
        assert {len(memory["content"]) for memory in page["items"]} == {10_000}
        found = data(client.post("/search/hybrid", json={"query": "漢漢", "limit": 100}))
        assert len(found["items"]) == 100


def test_a_retry_with_the_same_key_stores_once(rest: httpx.Client) -> None:
    headers = {"idempotency-key": "retry-1"}
    body = {"content": "stored once"}
    first, again = (rest.post("/memories", json=body, headers=headers) for _ in range(2))
    assert data(first, 201) == data(again, 201)
    assert data(rest.get("/memories"))["pagination"]["total"] == 1
