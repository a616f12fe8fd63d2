"""Every tool over the local socket: other spaces, and callers who may only read.

Clients of the era of `initialize` are answered without the protocol SDK, newer ones by it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types.methods import serialize_server_result

import postgres_engine
from commonplace import Commonplace
from commonplace.client import connection
from commonplace.dialects import registry
from commonplace.dialects.being import beings
from server.harness import BOOKKEEPING, content_of, matrix, message

from .harness import HELLO, Agent, place_of

ROWS: dict[str, dict[str, Any]] = matrix("operations")
CANARY = "canary-of-the-first-space"
REFUSED = -32003
HANDSHAKES = ("2025-06-18", "2025-11-25")
ERAS = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory with two spaces and a server; the first space has what is not to be seen."""
    place = tmp_path_factory.mktemp("matrices")
    with Commonplace(place, embedding="none") as memory:
        for space in ("first", "second"):
            beings.create(memory.at(space), "Aria")
        memory.at("first").remember(CANARY, kind="decision")
    with Agent(place, "--space", "second") as agent:
        agent.call("recall", query="x")
        yield place


class Client:
    """A connection of a dialect to the server, without a process of its own."""

    def __init__(self, data: Path, dialect: str, space: str, era: str, **more: Any) -> None:
        made = connection.connect(place_of(data))
        assert made is not None
        made.settimeout(120)
        self.connection = connection.ServerConnection(made)
        hello = {"kind": "mcp", "dialect": dialect, "space": space, "pid": os.getpid(), **more}
        assert self.connection.greet(hello)
        assert "error" not in self.connection.answer, self.connection.answer
        self.era = era
        if era in HANDSHAKES:
            first = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}
            self.ask({**first, "params": {**HELLO, "protocolVersion": era}})

    def ask(self, whole: Any) -> Any:
        self.connection.send(json.dumps(whole).encode() + b"\n")
        return json.loads(self.connection.read_line())

    def call(self, tool: str, arguments: Any) -> Any:
        if self.era not in HANDSHAKES:
            return self.ask(message(tool, arguments, era=self.era))
        params = {"name": tool, "arguments": arguments}
        answer = self.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        if "result" in answer:  # in the form that the SDK would give it
            whole = {**answer["result"], "resultType": "complete"}
            assert serialize_server_result("tools/call", self.era, whole) == answer["result"]
        return answer


def arguments_of(dialect: str, tool: str, own: dict[str, str]) -> Any:
    """The arguments of a row of the matrix, with ids put in."""

    def put(told: Any) -> Any:
        if isinstance(told, list):
            return [put(one) for one in told]
        if isinstance(told, str) and told[:1] == "$":
            return own.get(told[1:], own["own"])
        return told

    return {name: put(told) for name, told in ROWS[dialect][tool]["arguments"].items()}


def ids(data: Path) -> dict[str, str]:
    """What the arguments name: things of the first space."""
    with Commonplace(data, space="first", embedding="none") as memory:
        secret = next(each for each in memory.browse()[0] if each.text == CANARY)
    return {"own": secret.id}


def rows_of(data: Path) -> Path | postgres_engine.Place:
    """Where the rows of the first space are."""
    if postgres_engine.ON_POSTGRES:
        return postgres_engine.Place(postgres_engine.address_for(data), "first")
    return data / "spaces" / "first.db"


@ERAS
@pytest.mark.parametrize("dialect", registry.built_in_names())
def test_no_tool_sees_or_changes_another_space(data: Path, dialect: str, era: str) -> None:
    named = ids(data)
    first = rows_of(data)
    before = content_of(first, BOOKKEEPING)
    client = Client(data, dialect, "second", era)
    for tool in registry.load(dialect).tools:
        if tool.open_world or tool.stepwise:
            continue
        answer = client.call(tool.name, arguments_of(dialect, tool.name, named))
        assert CANARY not in json.dumps(answer), tool.name
    client.connection.close()
    assert content_of(first, BOOKKEEPING) == before


@ERAS
@pytest.mark.parametrize("dialect", registry.built_in_names())
def test_a_caller_who_may_only_read_is_refused_all_else(data: Path, dialect: str, era: str) -> None:
    named = ids(data)
    first = rows_of(data)
    before = content_of(first, BOOKKEEPING)
    client = Client(data, dialect, "first", era, read_only=True)
    for tool in registry.load(dialect).tools:
        if tool.scope == "read":
            continue
        answer = client.call(tool.name, arguments_of(dialect, tool.name, named))
        assert answer["error"]["code"] == REFUSED, tool.name
    client.connection.close()
    assert content_of(first, BOOKKEEPING) == before
