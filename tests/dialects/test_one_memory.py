"""One memory, many tongues: what one dialect stored, every other finds in its own shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from commonplace.dialects import registry
from commonplace.engine.commonplace import Commonplace
from server.harness import Client, Running, running

PATHS = {
    name: registry.load(name).paths[0] for name in registry.built_in_names() if name != "being"
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("one")) as started:
        yield started


class Person:
    """Somebody with one space, who talks to it in every tongue."""

    def __init__(self, server: Running, space: str) -> None:
        self.space = space
        self._clients = {
            name: server.client(server.token(space, user="ann"), path)
            for name, path in PATHS.items()
        }

    def __getattr__(self, dialect: str) -> Callable[..., Any]:
        client: Client = self._clients[dialect]

        def call(tool: str, **arguments: Any) -> Any:
            wire = client.call(tool, arguments).json["result"]
            assert not wire.get("isError"), wire
            text = wire["content"][0]["text"]
            try:
                return json.loads(text)
            except ValueError:
                return text

        return call

    def rest(self, dialect: str, method: str, path: str) -> Any:
        return self._clients[dialect].request(method, path).json


@pytest.fixture
def ann(server: Running, request: pytest.FixtureRequest) -> Person:
    return Person(server, f"ann-{abs(hash(request.node.name)) % 10**8}")


STORED: dict[str, Callable[[Person], Any]] = {
    "commonplace": lambda ann: ann.commonplace("remember", text="The kettle whistles at dawn"),
    "clawbrain": lambda ann: ann.clawbrain(
        "memory_store", type="entity", category="projects", name="kettle",
        content="The kettle whistles at dawn",
    ),
    "mama": lambda ann: ann.mama(
        "save", type="decision", topic="kettle", decision="The kettle whistles at dawn",
        reasoning="Tea comes first",
    ),
    "penfield": lambda ann: ann.penfield("store", content="The kettle whistles at dawn"),
    "orchestrator": lambda ann: ann.orchestrator(
        "memory_add_drawer", wing="kitchen", room="stove", content="The kettle whistles at dawn",
    ),
}  # fmt: skip

FOUND: dict[str, Callable[[Person], Any]] = {
    "commonplace": lambda ann: ann.commonplace("recall", query="kettle")["memories"],
    "clawbrain": lambda ann: ann.clawbrain("memory_search", query="kettle")["results"],
    "mama": lambda ann: ann.mama("search", query="kettle whistles")["results"],
    "penfield": lambda ann: ann.penfield("recall", query="kettle"),
    "orchestrator": lambda ann: ann.orchestrator("memory_search", query="kettle")["results"],
}


def test_every_tongue_with_a_path_takes_part() -> None:
    assert set(STORED) == set(FOUND) == set(PATHS)


@pytest.mark.parametrize("reader", FOUND)
@pytest.mark.parametrize("writer", STORED)
def test_what_one_stored_the_other_finds(ann: Person, writer: str, reader: str) -> None:
    STORED[writer](ann)
    assert "kettle whistles at dawn" in json.dumps(FOUND[reader](ann)).lower()


def test_a_memory_of_penfield_is_a_node_of_mamas_graph(ann: Person) -> None:
    ann.penfield("store", content="The kettle whistles at dawn")
    nodes = ann.rest("mama", "GET", "/graph")["nodes"]
    assert any("kettle" in json.dumps(node) for node in nodes)


LONG = "The kettle whistles at dawn. " + "Steam rises over the stove. " * 16_000

LISTED: dict[str, Callable[[Person], Any]] = {
    **FOUND,
    "penfield by meaning": lambda ann: ann.penfield("search", query="kettle whistles"),
    "penfield's reflection": lambda ann: ann.penfield("reflect"),
    "penfield over REST": lambda ann: ann.rest("penfield", "GET", "/api/v2/memories"),
    "mama's newest": lambda ann: ann.mama("search"),
}


@pytest.mark.parametrize("reader", LISTED)
def test_long_memories_of_one_leave_room_in_the_answers_of_the_others(
    ann: Person, reader: str
) -> None:
    """Together they are larger than a response may be."""
    whole = [ann.commonplace("remember", text=f"{LONG}{part}")["id"] for part in range(3)]
    ann.penfield("store", content="The kettle whistles at dawn, and the cat wakes")
    listed = json.dumps(LISTED[reader](ann))
    assert "the cat wakes" in listed and len(listed) < 100_000
    if reader.startswith("penfield"):
        assert ann.penfield("fetch", id=whole[2])["text"] == f"{LONG}2"


def test_the_table_says_how_each_kind_is_shown(server: Running, ann: Person) -> None:
    tables = {name: registry.load(name).shown_types for name in ("clawbrain", "mama", "penfield")}
    kinds = sorted({kind for table in tables.values() for kind in table} - {"*"} | {"whatever"})
    owner = Commonplace(library=server.parts.library, space=ann.space)  # some are reserved
    ids = {owner.remember(f"A kettle, {kind}", kind=kind).id: kind for kind in kinds}
    for id, kind in ids.items():
        listed = ann.rest("penfield", "GET", f"/api/v2/memories/{id}")["data"]
        (found,) = ann.clawbrain("memory_search", query=f"A kettle, {kind}", limit=1)["results"]
        shown = {"penfield": listed["memory_type"], "clawbrain": found["type"]}
        for name, type in shown.items():
            table = tables[name]
            assert type == table.get(kind, table["*"]), (name, kind)
    for each in ann.mama("search", limit=100)["results"]:
        kind = each.get("kind", each["_type"])
        assert each["_type"] == tables["mama"].get(kind, tables["mama"]["*"])


def test_a_context_of_penfield_is_resumed_in_mama_by_what_it_says(ann: Person) -> None:
    ann.penfield("save_context", name="Kettle", description='It "whistles".\nNext: tea.')
    loaded = ann.mama("load_checkpoint")["checkpoint"]
    assert loaded["summary"] == 'Kettle: It "whistles".\nNext: tea.'
    (found,) = ann.mama("search", type="checkpoint")["results"]
    assert found["summary"] == loaded["summary"]
    ann.penfield("save_context", name="Pot")
    assert ann.mama("load_checkpoint")["checkpoint"]["summary"] == "Pot"
