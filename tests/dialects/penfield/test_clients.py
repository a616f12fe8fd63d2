"""The requests of Penfield's own clients, as openclaw-penfield 1.1.2 and hermes-penfield 0.2.0 send
them to /api/v2: bodies, order and parallelism. How they sign in is tested with OAuth."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest


class Client:
    """Sends a client's requests and unwraps the envelope as both clients do."""

    def __init__(self, rest: httpx.Client) -> None:
        self._rest = rest

    def send(self, method: str, path: str, **more: Any) -> Any:
        response = self._rest.request(method, path, **more)
        assert response.is_success, response.text
        if response.status_code == 204:
            return None
        body = response.json()
        assert body["status"] == "success"
        return body["data"]


class OpenClaw(Client):
    """The tools of openclaw-penfield."""

    def store(self, content: str) -> str:
        return str(self.send("POST", "/memories", json={"content": content})["id"])

    def recall(self, query: str) -> list[str]:
        body = {
            "query": query, "limit": 20, "bm25_weight": 0.4, "vector_weight": 0.4,
            "graph_weight": 0.2, "enable_graph_expansion": True,
        }  # fmt: skip
        return [item["id"] for item in self.send("POST", "/search/hybrid", json=body)["items"]]

    def search(self, query: str) -> list[str]:
        body = {"query": query, "vector_weight": 0.6, "bm25_weight": 0.3, "graph_weight": 0.1}
        return [item["id"] for item in self.send("POST", "/search/hybrid", json=body)["items"]]

    def save_context(self, name: str, ids: list[str]) -> str:
        content = {
            "checkpoint_name": name, "description": f"About {name}", "memory_count": len(ids),
            "memory_ids": ids, "referenced_memories": [],
        }  # fmt: skip
        body = {
            "content": json.dumps(content), "memory_type": "checkpoint", "importance": 0.9,
            "tags": ["checkpoint", "context"],
        }  # fmt: skip
        return str(self.send("POST", "/memories", json=body)["id"])

    def list_contexts(self, pattern: str = "", limit: int = 20, offset: int = 0) -> list[str]:
        """With a pattern it asks for up to 250 at once and filters them itself."""
        asked = {"memory_type": "checkpoint"}
        if pattern:
            asked["per_page"] = str(min(limit + offset + 50, 250))
        else:
            asked |= {"per_page": str(limit), "page": str(offset // limit + 1)}
        items = self.send("GET", "/memories", params=asked)["items"]
        names = [item["metadata"]["checkpoint_name"] for item in items]
        return [name for name in names if pattern.lower() in name.lower()]

    def explore(self, start: str) -> Any:
        body = {"start_memory_id": start, "max_depth": 3}
        return self.send("POST", "/relationships/traverse", json=body)


class Hermes(Client):
    """The tools of hermes-penfield."""

    def recall(self, query: str, source_type: str | None = None) -> list[str]:
        body: dict[str, Any] = {"query": query, "limit": 10}
        if source_type is not None:
            body["source_types"] = [source_type]
        return [item["id"] for item in self.send("POST", "/search/hybrid", json=body)["items"]]

    def connect(self, source: str, target: str) -> Any:
        body = {"from_id": source, "to_id": target, "relationship_type": "supports"}
        return self.send("POST", "/relationships", json=body)

    def reflect(self) -> Any:
        return self.send("POST", "/analysis/reflect", json={"time_window": "recent", "limit": 10})


def upload(rest: httpx.Client, text: str) -> str:
    """A document of one chunk; the id of the chunk."""
    answer = rest.post("/documents/upload", files={"file": ("ferry.txt", text.encode())})
    document = answer.json()["data"]["id"]
    read = rest.get(f"/documents/{document}", params={"include_chunks": "true"}).json()
    return str(read["data"]["chunks"][0]["id"])


def test_openclaw_stores_finds_and_follows(rest: httpx.Client) -> None:
    client = OpenClaw(rest)
    one, two = client.store("The ferry leaves at nine"), client.store("The ferry costs ten euros")
    Hermes(rest).connect(one, two)
    with ThreadPoolExecutor(2) as threads:  # it sends two calls at once
        recalled = threads.submit(client.recall, "ferry")
        searched = threads.submit(client.search, "ferry")
    assert set(recalled.result()) == set(searched.result()) == {one, two}
    assert client.explore(one)["visited_chunks"] == [one, two]


def test_openclaw_lists_contexts_with_more_on_a_page_than_there_can_be(rest: httpx.Client) -> None:
    client = OpenClaw(rest)
    for number in range(3):
        client.save_context(f"Harbour {number}", [])
    assert client.list_contexts() == ["Harbour 2", "Harbour 1", "Harbour 0"]
    assert client.list_contexts("HARBOUR", limit=100, offset=100) == client.list_contexts()
    assert client.list_contexts("harbour 1", limit=1) == ["Harbour 1"]


@pytest.mark.parametrize(
    "path", ["/memories", "/tags/sea/memories", "/relationships", "/documents"]
)
def test_a_page_has_at_most_a_hundred_whatever_is_asked_for(rest: httpx.Client, path: str) -> None:
    for asked, given in (("99", 99), ("100", 100), ("101", 100), ("250", 100), ("1000000", 100)):
        answer = rest.get(path, params={"per_page": asked})
        assert answer.json()["data"]["pagination"]["per_page"] == given, answer.text
    for wrong in ("0", "-1", "x"):
        assert rest.get(path, params={"per_page": wrong}).status_code == 422


def test_the_pages_of_a_hundred_hold_everything_once(rest: httpx.Client) -> None:
    for number in range(3):
        rest.post("/memories", json={"content": f"note {number}", "tags": ["sea"]})
    asked = {"per_page": "250", "tags": "sea"}
    page = rest.get("/memories", params=asked).json()["data"]
    assert len(page["items"]) == page["pagination"]["total"] == 3
    assert rest.get("/memories", params={**asked, "page": "2"}).json()["data"]["items"] == []


def test_hermes_recalls_memories_or_documents(rest: httpx.Client) -> None:
    hermes = Hermes(rest)
    memory = OpenClaw(rest).store("The ferry leaves at nine")
    stored = rest.post("/memories", json={"content": "The ferry is red", "source_type": "camera"})
    camera = stored.json()["data"]["id"]
    chunk = upload(rest, "The ferry carries forty cars.")
    assert set(hermes.recall("ferry")) == {memory, camera, chunk}
    assert set(hermes.recall("ferry", "memory")) == {memory, camera}
    assert hermes.recall("ferry", "document") == [chunk]
    assert hermes.recall("ferry", "document_upload") == [chunk]
    assert hermes.recall("ferry", "direct_input") == [memory]
    assert hermes.recall("ferry", "camera") == [camera]
    assert hermes.recall("ferry", "web_scrape") == []  # documented, but nothing is of it
    assert hermes.reflect()["statistics"]["total_memories_analyzed"] == 2

    def found(*types: str) -> set[str]:
        body = {"query": "ferry", "source_types": list(types)}
        return {one["id"] for one in hermes.send("POST", "/search/hybrid", json=body)["items"]}

    assert found("memory", "document") == found() == {memory, camera, chunk}
    assert found("memory", "camera") == {memory, camera}
    assert found("document", "camera") == {camera, chunk}


def test_a_source_type_that_nothing_can_have_is_an_error(rest: httpx.Client) -> None:
    for types in (["memories"], ["memory", "nonsense"], [""]):
        answer = rest.post("/search/hybrid", json={"query": "ferry", "source_types": types})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (422, "VAL_ENUM_INVALID")
        assert error["details"]["field"] == "source_types"
        assert {"memory", "document", "direct_input"} <= set(error["details"]["allowed"])
        assert types[-1] in error["message"]


@pytest.mark.parametrize("path", ["/a\x00b", "/a b", "/" + "x" * 6_000])
def test_a_path_that_cannot_be_stored_is_an_invalid_path(rest: httpx.Client, path: str) -> None:
    answers = [
        rest.post("/artifacts", json={"path": path, "content": "x"}),
        rest.get("/artifacts", params={"path": path}),
        rest.delete("/artifacts", params={"path": path}),
        rest.get("/artifacts/list", params={"prefix": path}),
    ]
    for answer in answers:
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["code"] == "VAL_FIELD_INVALID"
