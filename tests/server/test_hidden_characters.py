"""Hidden characters of stored texts are JSON escapes in text blocks, and verbatim when parsed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commonplace.dialects import registry
from commonplace.dialects.being import beings
from commonplace.dialects.contract import as_json, json_text
from commonplace.engine.commonplace import Commonplace
from commonplace.text.hidden import escape_hidden, escape_json
from server.harness import Running, matrix

HIDDEN = (
    "kettle \x1b[31m \x9b31m \u202eback\u202c \u200b \u2066in\u2069 \ufeff \u00ad \u180e \u2060"
    " \U000e0041\U000e0042"
)
# Tools that answer with a stored text in JSON, once it is stored as below.
SHOWING = {
    "commonplace": {"recall", "read"},
    "clawbrain": {"memory_search", "memory_retrieve"},
    "mama": {"search", "load_checkpoint"},
    "penfield": {"recall", "search", "fetch"},
    "orchestrator": {"memory_search"},
    "being": {"update_memory"},
}


def blocks(result: Any) -> list[str]:
    return [block["text"] for block in result.get("content", []) if block.get("type") == "text"]


def texts_in(value: Any) -> list[str]:
    """Every text in a JSON value, also in JSON that is a text in it."""
    if isinstance(value, dict):
        return [one for each in value.values() for one in texts_in(each)]
    if isinstance(value, list):
        return [one for each in value for one in texts_in(each)]
    if not isinstance(value, str):
        return []
    try:
        inner = json.loads(value)
    except ValueError:
        return [value]
    return [value, *texts_in(inner)] if isinstance(inner, dict | list) else [value]


@pytest.mark.parametrize("name", SHOWING)
def test_text_blocks_have_no_hidden_character_and_lose_none(server: Running, name: str) -> None:
    memory = Commonplace(library=server.parts.library, space=f"hidden-{name}")
    own = {
        "own": memory.remember(HIDDEN, kind="entity").id,
        "other": memory.remember(f"other {HIDDEN}").id,
        "kept": memory.remember(f"kept {HIDDEN}", kind="decision").id,
        "checkpoint": memory.remember(f"half way {HIDDEN}", kind="checkpoint").id,
        "being": beings.create(memory, "Aria").id,
    }
    own["relationship"] = own["other"]
    dialect, rows = registry.load(name), matrix("operations")[name]
    grant = {"dialects": frozenset({"being"})} if name == "being" else {}
    client = server.client(server.token(memory.name, **grant))
    path = f"/mcp/{own['being']}" if name == "being" else dialect.paths[0]
    if name == "being":
        note = {"target": "notes", "action": "append", "content": HIDDEN}
        client.call("update_memory", note, path=path)
        rows["update_memory"]["arguments"] = {"target": "notes", "action": "get"}

    showing = set()
    for tool in dialect.tools:
        arguments = {
            key: own[one[1:]] if isinstance(one, str) and one[:1] == "$" else one
            for key, one in rows[tool.name]["arguments"].items()
        }
        arguments |= {key: "kettle" for key in ("query",) if key in arguments}
        answer = client.call(tool.name, arguments, path=path)
        result = answer.json.get("result", {})
        for block in blocks(result):
            try:
                value = json.loads(block)
            except ValueError:
                continue  # prose, which has its own rule
            assert escape_json(block) == block, tool.name
            shown = texts_in(value)
            assert all(escape_json(one) == one for one in shown if one[:1] in "[{"), tool.name
            if any(HIDDEN in one for one in shown):
                showing.add(tool.name)
    assert showing >= SHOWING[name]


@pytest.mark.parametrize("name", SHOWING)
def test_a_failure_that_repeats_an_argument_shows_its_hidden_characters(
    server: Running, name: str
) -> None:
    memory = Commonplace(library=server.parts.library, space=f"failing-{name}")
    being = beings.create(memory, "Aria").id
    dialect = registry.load(name)
    grant = {"dialects": frozenset({"being"})} if name == "being" else {}
    client = server.client(server.token(memory.name, **grant))
    path = f"/mcp/{being}" if name == "being" else dialect.paths[0]
    failed = 0
    for tool in dialect.tools:
        properties = tool.input.get("properties", {})
        arguments = {
            key: HIDDEN
            for key, one in properties.items()
            if one.get("type") == "string"
            and (key in tool.input.get("required", ()) or "id" in key)
        }
        result = client.call(tool.name, arguments, path=path).json.get("result", {})
        if result.get("isError"):
            failed += 1
            assert [escape_hidden(block) for block in blocks(result)] == blocks(result), tool.name
    assert failed


@given(st.text())
@example("plain")
@example("\x1b \x7f")
@example("caf\u00e9 \u200b")
def test_a_result_as_json_text_hides_nothing_and_keeps_its_value(text: str) -> None:
    for document in (as_json([text]), json_text([text], indent=2)):
        assert json.loads(document) == [text]
        assert escape_json(document) == document
