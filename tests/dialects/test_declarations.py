"""What the dialects declare agrees with what their handlers take."""

from __future__ import annotations

import inspect

import pytest

from commonplace.dialects import registry

OPERATIONS = {
    f"{name} {tool.name}": tool
    for name in registry.names()
    for tool in (*registry.load(name).tools, *registry.load(name).operations)
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_handler_can_be_called_with_whatever_its_schema_accepts(name: str) -> None:
    tool = OPERATIONS[name]
    declared, required = tool.input.get("properties", {}), tool.input.get("required", ())
    _, *taken = inspect.signature(tool.handler).parameters.values()
    needed = {
        each.name
        for each in taken
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    }
    sure = {*required, *(key for key, one in declared.items() if "default" in one)}
    assert needed <= sure
    if not any(each.kind is each.VAR_KEYWORD for each in taken):
        assert declared.keys() <= {each.name for each in taken}


def test_only_these_tools_answer_before_what_they_store_is_embedded() -> None:
    later = {name for name, tool in OPERATIONS.items() if tool.embeds_later}
    assert later == {
        f"commonplace {name}" for name in ("remember", "revise", "checkpoint", "hook", "memory")
    }
