"""The requests that @ruddia/being-mcp-server 1.0.0 sends, replayed by a small client."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from .conftest import Desk, Served, scene


class Client:
    """Forwards each tool to a route, as that server does."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._token = served.token(space=f"r{uuid.uuid4().hex[:12]}")
        made = served.request("POST", "/v1/beings", self._token, {"name": "Aria"})
        self._base = f"/v1/beings/{made.json()['id']}"

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self._served.request(method, self._base + path, self._token, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def update_memory(self, **arguments: str) -> Any:
        return self.request("POST", "/memory/update", arguments)

    def conclude_topic(self, **arguments: Any) -> str:
        result: str = self.request("POST", "/memory/conclude", arguments)["result"]
        return result


@pytest.fixture
def client(served: Served) -> Client:
    return Client(served)


@pytest.mark.parametrize(
    ("target", "key"),
    [("preferences", "tea"), ("knowledge", "boats"), ("relationship", "Mika"),
     ("partner_tools", "lamp"), ("partner_map", "home"), ("diary", "2026-04-14"),
     ("souls", "voice")],
)  # fmt: skip
def test_an_update_of_a_key_that_is_missing_adds_it(client: Client, target: str, key: str) -> None:
    for content in ("first", "second"):
        told = client.update_memory(target=target, action="update", key=key, content=content)
        assert told["success"], told
        assert client.update_memory(target=target, action="get", key=key)["message"] == content
    assert "before: first after: second" in told["message"]


@pytest.mark.parametrize("target", ["notes", "partner_rules"])
def test_what_is_known_by_its_id_is_not_added_by_an_update(client: Client, target: str) -> None:
    told = client.update_memory(target=target, action="update", key="missing", content="x")
    assert not told["success"] and "not found" in told["message"]
    assert client.update_memory(target=target, action="get")["message"] == "[]"


def test_a_topic_is_concluded_by_a_summary_and_scenes_that_are_texts(client: Client) -> None:
    told = client.conclude_topic(summary="We talked of boats.", scenes=["Mika sailed", "It rained"])
    assert told.startswith("ok: notes updated.") and "We talked of boats." in told
    written = {each["content"] for each in client.request("GET", "/notes")}
    today = datetime.now(UTC).date().isoformat()
    stored = [json.loads(each) for each in written - {"We talked of boats."}]
    assert sorted((each["action"], each["when"]) for each in stored) == [
        ("It rained", [today]), ("Mika sailed", [today]),
    ]  # fmt: skip
    patrol = client.request("POST", "/patrol/trigger", {"messages": []})
    assert patrol["nodes_created"] == 2
    assert client.conclude_topic(summary="Only a summary.").startswith("ok")
    assert client.conclude_topic(scenes=[scene("An object"), "A text"]).startswith("ok")
    assert client.conclude_topic(summary="  ") == "error: a note is empty; nothing was stored."
    assert client.conclude_topic(scenes=[" "]).startswith("error: every scene needs an action")


def test_nodes_are_searched_by_any_or_every_keyword(client: Client) -> None:
    client.conclude_topic(summary="-", scenes=["Planted red tomatoes", "Painted the red boat"])
    client.request("POST", "/patrol/trigger", {"messages": []})
    for mode, count in (("or", 2), ("and", 1)):
        given = {"query": "red tomatoes", "mode": mode}
        found = client.request("POST", "/memory/search-nodes", given)
        assert found["count"] == len(found["nodes"]) == count
    assert found["nodes"][0]["action"] == "Planted red tomatoes"


def test_nodes_are_searched_by_keyword_with_an_embedding_model_too(desk: Desk) -> None:
    desk.live(scene("Planted red tomatoes"), scene("Painted the red boat"))
    assert "(vector search)" in desk.text("search_memory", query="red tomatoes", mode="and")
    asked = {"being_id": desk.being, "query": "red tomatoes"}
    for mode, count in (("or", 2), ("and", 1)):
        found = desk.outcome("memory_search_nodes", mode=mode, **asked).wire["value"]
        assert found["count"] == count
