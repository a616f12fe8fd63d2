"""The routes of Health, Checkpoint, Memory and Graph over real HTTP."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from datetime import UTC, datetime
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

from commonplace.access.caller import READ_ONLY_SCOPES, Caller
from commonplace.access.credentials import Grant
from commonplace.dialects import registry
from commonplace.dialects.contract import Call, RequestInfo
from commonplace.dialects.mama import decisions, exporting, graph, platform
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content import chains
from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Origin
from commonplace.server.request import Paths

from .conftest import SEED_CHECKPOINT, Kept, Web, serving

DECISION = {
    "topic": "auth_strategy",
    "decision": "Use JWT",
    "reasoning": "Stateless authentication for the API",
    "confidence": 0.8,
}


def save(web: Web, **changes: Any) -> str:
    identity: str = web.post("/api/mama/save", {**DECISION, **changes}).json()["id"]
    return identity


def error(response: httpx.Response, status: int, code: str) -> str:
    """The message of a failure in the contract's shape."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error", "code", "message"}
    assert (body["error"], body["code"]) == (True, code)
    message: str = body["message"]
    return message


# Health


def test_health(web: Web) -> None:
    body = web.get("/health").json()
    assert body.keys() == {"status", "timestamp"}
    assert body["status"] == "ok"
    assert abs(body["timestamp"] - time.time()) < 60


def test_graph_api_health(web: Web) -> None:
    assert web.get("/api/health").json() == {"status": "ok", "service": "MAMA Graph API"}


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/nothing", "/api/mama/x", "/graph/x"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_where_nothing_is_the_error_has_the_shape_that_the_viewer_reads(
    web: Web, path: str, method: str
) -> None:
    answer = web.client.request(method, web.url + path)
    assert error(answer, 404, "NOT_FOUND") == "There is no such path."
    other = web.client.request(method, web.url + path, headers={"origin": "https://evil.example"})
    assert isinstance(error(other, 403, "ADDRESS"), str)


def test_paths_of_another_contract_below_the_same_root_keep_its_shape(web: Web) -> None:
    body = web.get("/api/v2/nothing").json()
    assert (body["status"], body["error"]["code"]) == ("error", "RES_NOT_FOUND")


# Checkpoint


def test_a_checkpoint_is_saved_as_the_seed_shows(web: Web) -> None:
    body = {
        "summary": "Implemented auth module, blocked on rate limiter design",
        "open_files": ["src/auth/jwt.js"],
        "next_steps": "1. Research token bucket vs leaky bucket",
    }
    saved = web.post("/api/checkpoint/save", body).json()
    assert saved == {"success": True, "id": 1, "message": "Checkpoint saved successfully"}
    answer = web.get("/api/checkpoint/load").json()
    assert answer.keys() == {"success", "checkpoint"}
    loaded = answer["checkpoint"]
    assert abs(loaded.pop("timestamp") / 1000 - time.time()) < 60
    assert loaded == {"id": 1, "status": "active", **body}


def test_a_checkpoint_needs_a_summary_only(web: Web) -> None:
    path = "/api/checkpoint/save"
    assert (
        web.post(path, {"summary": "s", "open_files": None, "next_steps": None}).json()["id"] == 1
    )
    for body in ({}, {"summary": ""}, {"summary": "  "}, {"summary": None}):
        message = error(web.post(path, body), 400, "MISSING_FIELDS")
        assert message == "Missing required field: summary"
    error(web.post(path, {"summary": "s", "open_files": "a.py"}), 400, "INVALID_REQUEST")
    assert web.get("/checkpoints").json()["count"] == 1


def test_without_a_checkpoint_loading_answers_404(web: Web) -> None:
    response = web.get("/api/checkpoint/load")
    assert error(response, 404, "NO_CHECKPOINT") == "No checkpoint found"


@pytest.mark.parametrize("path", ["/checkpoints", "/api/checkpoints"])
def test_checkpoints_are_listed_newest_first(web: Web, path: str) -> None:
    for summary in ("one", "two", "three"):
        web.post("/api/checkpoint/save", {"summary": summary})
    web.memory.forget("checkpoint_2")
    listed = web.get(path).json()
    assert listed.keys() == {"checkpoints", "count"}
    assert listed["count"] == 3
    assert [(each["id"], each["status"]) for each in listed["checkpoints"]] == [
        (3, "active"), (2, "archived"), (1, "active"),
    ]  # fmt: skip
    assert listed["checkpoints"][0].keys() == {
        "id", "timestamp", "summary", "open_files", "next_steps", "status",
    }  # fmt: skip


def test_more_checkpoints_than_a_response_holds_are_cut_and_not_refused(web: Web) -> None:
    for number in range(4):
        draft = Draft(text=f"{number}" + "x" * 300_000, kind="checkpoint")
        engine_call(web.memory, chains.remember_numbered, draft, "checkpoint_", web.memory.origin)
    listed = web.get("/checkpoints").json()
    assert [each["id"] for each in listed["checkpoints"]] == [4, 3]


def test_a_long_checkpoint_leaves_room_for_others_and_says_that_it_is_cut(web: Web) -> None:
    files = [f"src/{number}/" + "f" * 90 for number in range(9_000)]
    web.post("/api/checkpoint/save", {"summary": "short"})
    web.post("/api/checkpoint/save", {"summary": "x" * 900_000, "next_steps": "Go on."})
    web.post("/api/checkpoint/save", {"summary": "many files", "open_files": files})
    many, long, short = web.get("/checkpoints").json()["checkpoints"]
    assert (many["truncated"], many["summary"]) == (["open_files"], "many files")
    assert many["open_files"] == files[: len(many["open_files"])] != []
    assert (long["truncated"], long["next_steps"]) == (["summary"], "Go on.")
    assert len(long["summary"]) > 300_000
    assert (short["summary"], "truncated" in short) == ("short", False)


def test_long_decisions_are_cut_in_every_list(web: Web) -> None:
    text = "Ring the bell. " * 60_000
    ids = [save(web, topic=f"bell {number}", decision=text) for number in range(3)]
    searched = web.get("/api/mama/search", q="bell").json()["results"]
    drawn = web.get("/graph").json()["nodes"]
    similar = web.get("/graph/similar", id=ids[0]).json()["similar"]
    assert [len(searched), len(similar)] == [3, 2]
    assert drawn
    assert all(each["truncated"] == ["decision"] for each in [*searched, *drawn, *similar])


# Memory


@pytest.mark.parametrize("path", ["/api/mama/save", "/api/save"])
def test_a_decision_is_saved_as_the_seed_shows(web: Web, path: str) -> None:
    saved = web.post(path, DECISION).json()
    assert re.fullmatch(r"decision_auth_strategy_\d{13}_[0-9a-z]{4}", saved.pop("id"))
    assert saved == {"success": True, "message": "Decision saved successfully"}


def test_confidence_is_eight_tenths_unless_it_is_given(web: Web) -> None:
    save(web, confidence=None)
    save(web, topic="other", confidence=0)
    shown = {node["topic"]: node["confidence"] for node in web.get("/graph").json()["nodes"]}
    assert shown == {"auth_strategy": 0.8, "other": 0.0}
    for wrong in (-0.1, 1.1, "high"):
        body = {**DECISION, "confidence": wrong}
        error(web.post("/api/mama/save", body), 400, "INVALID_REQUEST")


@pytest.mark.parametrize("name", ["topic", "decision", "reasoning"])
def test_a_decision_needs_its_fields(web: Web, name: str) -> None:
    for value in (None, "", " "):
        message = error(web.post("/api/save", {**DECISION, name: value}), 400, "MISSING_FIELDS")
        assert message == "Missing required fields: topic, decision, reasoning"
    error(web.post("/api/save", {**DECISION, name: 5}), 400, "INVALID_REQUEST")
    assert web.get("/graph").json()["nodes"] == []


def test_a_body_that_is_no_object_is_refused(web: Web) -> None:
    for path in ("/api/save", "/api/checkpoint/save", "/graph/update", "/api/mama/recall"):
        headers = {"content-type": "application/json"}
        for content in ("", "{", "[]", '"text"', "null", "1" * 5000):
            response = web.client.post(web.url + path, content=content, headers=headers)
            error(response, 400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("path", "name"), [("/api/mama/search", "q"), ("/api/search", "query"), ("/api/search", "q")]
)
def test_a_search_answers_as_the_seed_shows(real_web: Web, path: str, name: str) -> None:
    identity = save(real_web)
    real_web.post("/api/checkpoint/save", {"summary": "Stateless authentication for the API"})
    answer = real_web.get(path, **{name: "authentication approach"}).json()
    assert answer.keys() == {"query", "results", "count"}
    assert (answer["query"], answer["count"]) == ("authentication approach", 1)
    (found,) = answer["results"]
    assert found.keys() == {
        "id", "topic", "decision", "reasoning", "outcome", "confidence", "similarity", "created_at",
    }  # fmt: skip
    assert found["id"] == identity
    assert abs(found["created_at"] / 1000 - time.time()) < 60


def test_a_search_needs_a_query(web: Web) -> None:
    for path in ("/api/mama/search", "/api/search"):
        for query in ({}, {"q": ""}, {"q": "  "}):
            message = error(web.get(path, **query), 400, "MISSING_QUERY")
            assert message == "Missing required parameter: q"


def test_a_search_is_limited_to_ten_and_at_most_twenty(real_web: Web) -> None:
    stated = [
        decisions.Decision(f"auth_{n}", f"Use JWT in service {n}", "Stateless") for n in range(22)
    ]
    real_web.memory.remember_many(
        [Draft(text=each.text, kind="decision", attrs=each.attrs) for each in stated]
    )
    for limit, count in ((None, 10), ("1", 1), ("19", 19), ("20", 20), ("21", 20), ("500", 20)):
        query = {"q": "JWT authentication"} | ({} if limit is None else {"limit": limit})
        assert real_web.get("/api/mama/search", **query).json()["count"] == count
    for limit in ("0", "-1", "1.5", "many", "9" * 12):
        error(real_web.get("/api/search", q="JWT", limit=limit), 400, "INVALID_REQUEST")


def test_a_search_that_is_too_long_is_refused(web: Web) -> None:
    error(web.get("/api/search", q="x" * 10_001), 400, "INVALID_REQUEST")


def test_decisions_are_exported_as_json(web: Web) -> None:
    ids = [save(web, topic=f"t{number}") for number in range(3)]
    web.post("/graph/update", {"id": ids[0], "outcome": "failed", "reason": "No."})
    for query in ({}, {"format": "json"}):
        response = web.get("/api/memory/export", **query)
        assert response.headers["content-type"].startswith("application/json")
        today = datetime.now(UTC).date().isoformat()
        assert response.headers["content-disposition"] == (
            f'attachment; filename="mama-decisions-{today}.json"'
        )
        body = response.json()
        assert body.keys() == {"decisions", "exported_at"}
        assert [each["id"] for each in body["decisions"]] == ids[::-1]
        assert body["decisions"][2]["outcome"] == "FAILED"
    assert datetime.fromisoformat(body["exported_at"]).tzinfo is not None


def test_an_export_of_nothing_is_empty(web: Web) -> None:
    assert web.get("/api/memory/export").json()["decisions"] == []
    assert web.get("/api/memory/export", format="csv").text == ",".join(exporting.COLUMNS) + "\r\n"


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_a_csv_export_is_a_formula(web: Web, sign: str) -> None:
    save(
        web,
        topic=sign + "cmd|' /C calc'!A0",
        decision=f'{sign}SUM(A1)\n"quoted"',
        reasoning="a,b",
    )
    response = web.get("/api/memory/export", format="csv")
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert ".csv" in response.headers["content-disposition"]
    head, row = csv.reader(io.StringIO(response.text, newline=""))
    assert head == ["id", "topic", "decision", "reasoning", "outcome", "confidence", "created_at"]
    cells = dict(zip(head, row, strict=True))
    assert cells["topic"] == "'" + sign + "cmd|' /C calc'!A0"
    assert cells["decision"] == f'\'{sign}SUM(A1)\n"quoted"'
    assert (cells["reasoning"], cells["outcome"], cells["confidence"]) == ("a,b", "", "0.8")
    assert datetime.fromisoformat(cells["created_at"])


def test_a_large_export_comes_whole(web: Web) -> None:
    csv.field_size_limit(2_000_000)
    memory = web.memory
    drafts = [("x" * 40_000 + f" {n}, {n}") for n in range(12)] + ['",\\' * 200_000, "end,"]
    memory.remember_many([Draft(text=text, kind="decision") for text in drafts])
    body = web.get("/api/memory/export").json()
    assert [each["decision"] for each in body["decisions"]] == drafts[::-1]
    rows = list(
        csv.reader(io.StringIO(web.get("/api/memory/export", format="csv").text, newline=""))
    )
    assert [row[2] for row in rows[1:]] == drafts[::-1]


def test_another_format_is_refused(web: Web) -> None:
    message = error(web.get("/api/memory/export", format="xml"), 400, "INVALID_REQUEST")
    assert message == "format must be csv or json"


# Graph


@pytest.mark.parametrize("path", ["/graph", "/api/graph"])
def test_the_graph_answers_as_the_seed_shows(web: Web, path: str) -> None:
    first = save(web)
    second = save(web, decision="Use sessions")
    third = save(web, topic="other", reasoning=f"builds_on: {second}")
    drawn = web.get(path).json()
    assert drawn.keys() == {"nodes", "edges", "similarityEdges", "meta", "latency"}
    assert [node["id"] for node in drawn["nodes"]] == [third, second, first]
    assert drawn["nodes"][0].keys() == {
        "id", "topic", "decision", "reasoning", "outcome", "confidence", "created_at",
    }  # fmt: skip
    assert {(e["from"], e["relationship"], e["to"]) for e in drawn["edges"]} == {
        (second, "supersedes", first), (third, "builds_on", second),
    }  # fmt: skip
    assert all(edge.keys() == {"from", "to", "relationship", "reason"} for edge in drawn["edges"])
    assert drawn["similarityEdges"] == []
    assert drawn["meta"] == {
        "total_nodes": 3,
        "total_edges": 2,
        "similarity_edges": 0,
        "topics": ["auth_strategy", "other"],
    }
    assert isinstance(drawn["latency"], int)


def test_a_topic_keeps_only_its_nodes_and_the_edges_between_them(web: Web) -> None:
    first, second = save(web), save(web)
    save(web, topic="auth_strategy_2", reasoning=f"builds_on: {second}")
    drawn = web.get("/graph", topic="auth_strategy").json()
    assert [node["id"] for node in drawn["nodes"]] == [second, first]
    assert [(edge["from"], edge["to"]) for edge in drawn["edges"]] == [(second, first)]
    assert drawn["meta"]["topics"] == ["auth_strategy"]
    empty = web.get("/graph", topic="nothing").json()
    assert (empty["nodes"], empty["meta"]["topics"]) == ([], [])


def test_clusters_are_pairs_that_are_alike(real_web: Web) -> None:
    one = save(real_web)
    other = save(real_web, topic="login", decision="Use JWT tokens for the login")
    save(real_web, topic="dinner", decision="Eat pasta", reasoning="The children like it")
    for asked in ("true", "TRUE"):
        drawn = real_web.get("/graph", cluster=asked).json()
        (edge,) = drawn["similarityEdges"]
        assert {edge["from"], edge["to"]} == {one, other}
        assert edge.keys() == {"from", "to", "relationship", "similarity"}
        assert edge["relationship"] == "similar"
        assert edge["similarity"] > 0.7
        assert drawn["meta"]["similarity_edges"] == 1
    assert real_web.get("/graph", cluster="false").json()["similarityEdges"] == []
    error(real_web.get("/graph", cluster="perhaps"), 400, "INVALID_REQUEST")


def test_a_graph_that_is_too_large_shows_its_newest_nodes(web: Web) -> None:
    for number in range(4):
        web.memory.remember(f"{number}" + "x" * 300_000, kind="decision")
    drawn = web.get("/graph").json()
    assert len(drawn["nodes"]) == drawn["meta"]["shown_nodes"] == 2
    assert drawn["meta"]["total_nodes"] == 4
    assert drawn["nodes"][0]["decision"].startswith("3")


def test_a_graph_with_too_many_edges_shows_those_of_its_newest_nodes(web: Web) -> None:
    ids = [web.memory.remember(f"{number}", kind="note").id for number in range(30)]
    with web.memory.unit("link"):
        for one, other in permutations(ids, 2):
            web.memory.links.add(one, other, "supports", reason="r" * 4_000)
    drawn = web.get("/graph").json()
    assert len(drawn["nodes"]) == 30
    assert drawn["meta"]["total_edges"] == 870
    assert 300 < len(drawn["edges"]) == drawn["meta"]["shown_edges"] < 870
    assert drawn["edges"][0]["from"] == ids[-1]


def test_a_graph_asks_for_all_its_edges_at_once(web: Web) -> None:
    ids = [save(web, topic=f"topic {number}") for number in range(30)]
    for one, other in pairwise(ids):
        web.memory.links.add(one, other, "builds_on", reason="why")
    asked: list[str] = []
    with web.memory.unit("look"), lease(web.memory) as space:
        web.memory.events.record("look")  # from here on one connection reads everything
        assert space.store.open_unit is not None
        connection = space.store.open_unit.connection
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: asked.append(event["sql"]))
        try:
            call = Call(
                memory=web.memory, caller=Caller(), request_info=RequestInfo(), origin=Origin()
            )
            drawn = graph.decision_graph(call, topic="", cluster=False)
        finally:
            connection.trace_v2(0, None)
    assert [(edge["from"], edge["to"]) for edge in drawn["edges"]] == list(pairwise(ids))[::-1]
    assert sum("FROM links" in statement for statement in asked) == 1


def test_what_was_superseded_elsewhere_takes_no_place_in_the_graph(web: Web) -> None:
    one = save(web)
    draft = Draft(text="before", kind="fact", state="superseded")
    web.memory.remember_many([draft] * graph.MAX_NODES)
    drawn = web.get("/graph").json()
    assert [node["id"] for node in drawn["nodes"]] == [one]
    assert drawn["meta"]["total_nodes"] == 1


def test_a_topic_finds_what_others_call_so_however_long_ago(web: Web) -> None:
    titled = web.memory.remember("a cup", title="Kitchen Ware", kind="note")
    plain = web.memory.remember("Ann is kind", kind="person")
    web.memory.remember("another", title="kitchen ware, old", kind="note")
    web.memory.remember_many([Draft(text=f"{number}") for number in range(graph.MAX_NODES)])
    for topic, found in (("Kitchen Ware", titled), ("person", plain)):
        drawn = web.get("/graph", topic=topic).json()
        assert [node["id"] for node in drawn["nodes"]] == [found.id]
        assert drawn["meta"]["total_nodes"] == 1
    for topic in (" ", "x" * 600, "a b ü", "decision", "checkpoint"):
        assert web.get("/graph", topic=topic).json()["nodes"] == []


def test_similar_decisions_answer_as_the_seed_shows(real_web: Web) -> None:
    one = save(real_web)
    other = save(real_web, topic="login", decision="Use JWT tokens for the login")
    answer = real_web.get("/graph/similar", id=one).json()
    assert (answer.keys(), answer["id"], answer["count"]) == ({"id", "similar", "count"}, one, 1)
    (similar,) = answer["similar"]
    assert similar.keys() == {"id", "topic", "decision", "similarity", "outcome"}
    assert similar["id"] == other
    assert similar["similarity"] >= 0.5


def test_at_most_five_are_similar(real_web: Web) -> None:
    ids = [save(real_web, topic=f"auth_{n}", decision=f"Use JWT in service {n}") for n in range(8)]
    answer = real_web.get("/graph/similar", id=ids[0]).json()
    assert (answer["count"], len(answer["similar"])) == (5, 5)
    assert ids[0] not in {each["id"] for each in answer["similar"]}


def test_similar_needs_the_id_of_something_there(web: Web) -> None:
    message = error(web.get("/graph/similar"), 400, "MISSING_ID")
    assert message == "Missing required parameter: id"
    error(web.get("/graph/similar", id=" "), 400, "MISSING_ID")
    error(web.get("/graph/similar", id="decision_gone"), 404, "NOT_FOUND")


@pytest.mark.parametrize("path", ["/graph/update", "/api/update"])
def test_an_outcome_is_updated_as_the_seed_shows(web: Web, path: str) -> None:
    identity = save(web)
    for given, stored in (("success", "SUCCESS"), ("failure", "FAILED"), ("Partial", "PARTIAL")):
        body = {"id": identity, "outcome": given, "reason": "Seen."}
        answer = web.post(path, body).json()
        assert answer == {"success": True, "id": identity, "outcome": stored}
        assert web.get("/graph").json()["nodes"][0]["outcome"] == stored


def test_an_update_needs_an_id_and_an_outcome_that_exist(web: Web) -> None:
    identity = save(web)
    path = "/graph/update"
    for body in ({}, {"id": identity}, {"outcome": "success"}, {"id": "", "outcome": "success"}):
        message = error(web.post(path, body), 400, "INVALID_REQUEST")
        assert message == "Missing required fields: id, outcome"
    error(web.post(path, {"id": identity, "outcome": "maybe"}), 400, "INVALID_REQUEST")
    error(web.post(path, {"id": identity, "outcome": 5}), 400, "INVALID_REQUEST")
    error(web.post(path, {"id": "decision_gone", "outcome": "success"}), 404, "NOT_FOUND")


# What is common to all


ROUTES = {
    "/api/health": "GET",
    "/api/checkpoint/save": "POST",
    "/api/checkpoint/load": "GET",
    "/checkpoints": "GET",
    "/api/checkpoints": "GET",
    "/api/mama/search": "GET",
    "/api/search": "GET",
    "/api/mama/save": "POST",
    "/api/save": "POST",
    "/api/mama/recall": "POST",
    "/api/memory/export": "GET",
    "/graph": "GET",
    "/api/graph": "GET",
    "/graph/similar": "GET",
    "/graph/update": "POST",
    "/api/update": "POST",
}


@pytest.mark.parametrize("path", ROUTES)
def test_another_method_is_refused_in_this_contracts_words(web: Web, path: str) -> None:
    wrong = "DELETE" if ROUTES[path] == "GET" else "GET"
    response = web.client.request(wrong, web.url + path)
    error(response, 405, "METHOD_NOT_ALLOWED")
    assert ROUTES[path] in response.headers["allow"]
    asked = web.client.options(web.url + path)
    assert (asked.status_code, asked.content) == (204, b"")


def test_every_route_is_behind_the_door_of_this_contract() -> None:
    rest = registry.load("mama").rest
    assert rest is not None
    beside = {path for route in platform.ROUTES for path in route.paths}
    assert {path for route in rest.routes for path in route.paths} - beside == ROUTES.keys()
    paths = Paths(registry.load_all(), "commonplace", public_paths=())
    for path in ROUTES:
        dialect = paths.rules_of(path).dialect
        assert dialect is not None and dialect.name == "mama", path


def test_pages_of_other_sites_are_refused_in_this_contracts_words(web: Web) -> None:
    response = web.client.get(web.url + "/graph", headers={"origin": "https://evil.example"})
    error(response, 403, "ADDRESS")
    assert "access-control-allow-origin" not in response.headers
    own = web.client.get(web.url + "/graph", headers={"origin": web.url})
    assert own.status_code == 200


def test_too_large_a_body_is_refused_in_this_contracts_words(web: Web) -> None:
    frame = len(json.dumps({**DECISION, "decision": ""}).encode())
    room = 1_048_576 - frame
    headers = {"content-type": "application/json"}
    for size, status in ((room + 1, 413), (room, 400)):  # what is stored has a limit of its own
        body = json.dumps({**DECISION, "decision": "x" * size})
        response = web.client.post(web.url + "/api/save", content=body, headers=headers)
        code = "TOO_LARGE" if status == 413 else "INVALID_REQUEST"
        error(response, status, code)


def test_a_token_decides_whose_memory_it_is(tmp_path: Path, builtin_model: Any) -> None:
    environ = {"MAMA_AUTH_TOKEN": "first-token", "MAMA_SERVER_TOKEN": "second-token"}
    with serving(tmp_path, Kept(builtin_model), environ, require_token=True) as web:
        error(web.get("/graph"), 401, "UNAUTHORIZED")
        error(web.post("/api/save", DECISION), 401, "UNAUTHORIZED")
        assert web.get("/api/health").status_code == 200
        assert web.get("/health").status_code == 200

        def asked(token: str, method: str, path: str, **more: Any) -> httpx.Response:
            headers = {"authorization": f"Bearer {token}"}
            return web.client.request(method, web.url + path, headers=headers, **more)

        assert asked("first-token", "POST", "/api/save", json=DECISION).status_code == 200
        assert len(asked("first-token", "GET", "/graph").json()["nodes"]) == 1
        error(asked("second-token", "GET", "/graph"), 401, "UNAUTHORIZED")
        granted = Grant(space="team", scopes=READ_ONLY_SCOPES, dialects=frozenset({"mama"}))
        reader = web.tokens.credentials.create(granted).token
        assert asked(reader, "GET", "/graph").json()["nodes"] == []
        error(asked(reader, "POST", "/api/save", json=DECISION), 403, "FORBIDDEN")
        error(asked(reader, "POST", "/graph/update", json={"id": "x", "outcome": "success"}),
              403, "FORBIDDEN")  # fmt: skip
        elsewhere = Grant(space="team", dialects=frozenset({"commonplace"}))
        stranger = web.tokens.credentials.create(elsewhere).token
        error(asked(stranger, "GET", "/graph"), 403, "FORBIDDEN")


def test_too_many_requests_are_refused_in_this_contracts_words(
    tmp_path: Path, builtin_model: Any
) -> None:
    with serving(tmp_path, Kept(builtin_model), rate=0.01, burst=3) as web:
        answers = [web.get("/graph") for _ in range(4)]
    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    error(answers[3], 429, "RATE_LIMITED")
    assert int(answers[3].headers["retry-after"]) >= 1


def test_what_fails_on_our_side_has_the_code_of_its_route(tmp_path: Path) -> None:
    identity = {"id": "decision_x", "outcome": "success"}
    posts = {
        ("/api/mama/save", "SAVE_FAILED"): DECISION,
        ("/api/checkpoint/save", "SAVE_FAILED"): {"summary": "s"},
        ("/graph/update", "UPDATE_FAILED"): identity,
        ("/api/mama/recall", "SEARCH_FAILED"): {"prompt": "a prompt"},
    }
    gets = {
        "/api/checkpoint/load": "LOAD_FAILED",
        "/checkpoints": "LOAD_FAILED",
        "/api/mama/search?q=x": "SEARCH_FAILED",
        "/graph/similar?id=x": "SEARCH_FAILED",
        "/graph": "INTERNAL_ERROR",
        "/api/memory/export": "INTERNAL_ERROR",
    }
    with serving(tmp_path, None) as web:
        web.library.close()
        for (path, code), body in posts.items():
            error(web.post(path, body), 500, code)
        for path, code in gets.items():
            error(web.client.get(web.url + path), 500, code)


def test_mcp_and_http_tell_the_same_story_in_seconds_and_milliseconds(web: Web) -> None:
    body = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "save", "arguments": SEED_CHECKPOINT},
    }  # fmt: skip
    headers = {"accept": "application/json, text/event-stream"}
    web.client.post(web.url + "/mcp/mama", json=body, headers=headers)
    body["params"] = {"name": "load_checkpoint", "arguments": {}}
    answer = web.client.post(web.url + "/mcp/mama", json=body, headers=headers).json()
    told = json.loads(answer["result"]["content"][0]["text"])["checkpoint"]
    loaded = web.get("/api/checkpoint/load").json()["checkpoint"]
    assert loaded["timestamp"] // 1000 == told["timestamp"]
    assert {**loaded, "timestamp": 0} == {**told, "timestamp": 0, "status": "active"}
    body["params"] = {"name": "update", "arguments": {"id": "x", "outcome": "success"}}
    failed = web.client.post(web.url + "/mcp/mama", json=body, headers=headers).json()["result"]
    assert failed["isError"] is True
    assert failed["content"] == [{"type": "text", "text": "Error: Decision not found: x"}]
