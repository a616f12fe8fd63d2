"""A row that does not hold what its reader needs is skipped and reported; it disables nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from commonplace.access.caller import Caller
from commonplace.cli.app import app
from commonplace.dialects import registry
from commonplace.dialects.being import beings, bridges, sight
from commonplace.dialects.contract import Dialect, RequestInfo
from commonplace.dialects.reserved import unreadable_memories
from commonplace.engine.commonplace import Commonplace
from commonplace.errors import CommonplaceError
from server.harness import NEW, OLD, Running, lab, matrix, registered, running

RESERVED = registry.reservations()
ROWS: dict[str, dict[str, Any]] = matrix("operations")
KINDS = (
    *sight.OWN_KINDS, "note", "decision", "checkpoint", "entity", "episode", "document_chunk",
    "fact", "identity_core", "personality_trait", "drawer", "diary", "identity", "message",
)  # fmt: skip
NAMES = (
    "topic", "decision_chars", "summary_chars", "open_files", "category", "name", "scene",
    "metadata", "document", "chunk", "chunks", "start", "stop", "memory_ids", "checkpoint_name",
    "trait", "persona_id", "lifecycle", "outcome", "failure_reason", "wing", "room", "hall",
    "credited", "updated", "created", "archived_as", "frontmatter", "merged", "missing",
    "capability", "sort_order", "enabled", "type", "from", "read", "done", "source_type",
    "session_count", "away", "summary", "next", "recent_conversation", "promoted", "location",
    "patrol", "title", "agent_id", "id", "status", "steps", "day", "user", "endpoint", "keys",
)  # fmt: skip
ODD: tuple[Any, ...] = (None, 5, "odd", [1], {"odd": 1}, [["a", "b"]], -1.5, True)


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    with running(shared_data) as one:
        yield one


def filled(memory: Commonplace) -> str:
    """A being whose space has rows of every kind with attrs that nobody expects."""
    being = beings.create(memory, "Aria").id
    tags = [sight.being_tag(being)]
    for kind in KINDS:
        for odd in ({}, *(dict.fromkeys(NAMES, value) for value in ODD)):
            text = f"the kettle of {kind} {odd and type(odd['id']).__name__}"
            if kind != sight.BEING:
                memory.remember(text, kind=kind, tags=tags, attrs=odd)
            memory.remember(text, kind=kind, attrs=odd)
    for kind, shape in RESERVED["orchestrator"].records.items():
        for value in ODD:
            attrs = dict.fromkeys((*NAMES, *shape), value)
            memory.remember("odd", kind=kind, state="archived", attrs=attrs)
    return being


@pytest.mark.parametrize("dialect", ROWS)
def test_rows_with_odd_attrs_disable_no_operation(server: Running, dialect: str) -> None:
    memory = Commonplace(library=server.parts.library, space=f"odd-{dialect}")
    being = filled(memory)
    own = memory.remember("own").id
    caller = Caller(space=memory.name, subject=being if dialect == "being" else "")

    def put(told: Any) -> Any:
        if isinstance(told, list):
            return [put(one) for one in told]
        if isinstance(told, dict):
            return {name: put(one) for name, one in told.items()}
        return own if isinstance(told, str) and told.startswith("$") else told

    broken = []
    for name, row in ROWS[dialect].items():
        for shape in (row["arguments"], *row.get("variants", [])):
            arguments = put(shape)
            if "being_id" in arguments:
                arguments["being_id"] = being
            try:
                outcome = server.gate.perform(caller, RequestInfo(), dialect, name, arguments)
            except CommonplaceError:
                continue
            if outcome.error is not None and outcome.error.code == "INTERNAL_ERROR":
                broken.append(name)
    assert broken == []


def test_a_capability_without_attrs_disables_no_being(server: Running) -> None:
    memory = Commonplace(library=server.parts.library, space="one-row")
    being = beings.create(memory, "Aria").id
    memory.remember("x", kind=sight.CAPABILITY, tags=[sight.being_tag(being)])
    client = server.client(server.token("one-row", subject=being), "/mcp")
    assert "get_context" in {tool["name"] for tool in client.listed()}
    assert not client.call("get_context").json["result"]["isError"]
    told = {"type": "act", "name": "Lamp"}
    arguments = {"being_id": being, "capabilities": [told]}
    done = server.gate.perform(
        Caller(space="one-row"), RequestInfo(), "being", "register_capabilities", arguments
    )
    assert done.error is None
    assert [each.name for each in bridges._registered_capabilities(memory, being)] == ["Lamp"]


def test_doctor_reports_what_is_skipped(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding=None) as memory:
        being = beings.create(memory, "Aria").id
        tags = [sight.being_tag(being)]
        bad = memory.remember("x", kind=sight.CAPABILITY, tags=tags)
        rule = memory.remember("x", kind=sight.RULE, tags=tags, attrs={"sort_order": "first"})
        memory.remember("x", kind=sight.RULE, tags=tags)
        half = memory.remember("x", kind="agent", state="archived", attrs={"slug": "spy"})
        memory.remember("not a record", kind="conversation", state="archived")
        assert {one.id for one, _ in unreadable_memories(memory)} == {bad.id, rule.id, half.id}
    told = CliRunner().invoke(
        app, ["doctor", "--json", "--embedding", "none", "--data", str(tmp_path)]
    )
    assert told.exit_code == 0, told.output
    space = json.loads(told.output.splitlines()[0])
    found = {row for each in space["findings"] if each["check"] == "attrs" for row in each["rows"]}
    assert space["healthy"] and found == {bad.id, rule.id, half.id}
    assert "the Being dialect cannot read it as a being.capability" in told.output


@pytest.mark.parametrize("era", [OLD, NEW])
def test_no_client_is_told_the_text_of_an_exception(data: Path, era: str) -> None:
    def broken(memory: Commonplace, caller: Caller) -> Any:
        raise KeyError("a secret of ours")

    dialect: Dialect = replace(lab(), dynamic_tools=broken)
    with registered(dialect), running(data) as server:
        client = server.client(path="/mcp/lab")
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        listed = client.request("POST", "/mcp/lab", body)
        called = client.call("nothing", {}, era=era)
        for answer in (listed, called):
            assert b"secret" not in answer.body
            assert b"Something went wrong" in answer.body
