"""Calls at the same moment: each is decided by what is there when it writes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from racing import overtaken

from .conftest import Tools


def store(tools: Tools, content: str = "The harbour is closed in winter", **more: Any) -> str:
    return str(tools("create_memory", content=content, **more)["id"])


def after(tools: Tools, name: str, first: Callable[[], Any], /, **arguments: Any) -> Any:
    """What a call answers that waited while `first` was done: its value, or the error's code."""
    with overtaken(tools.memory, lambda: tools.outcome(name, **arguments)) as waiting:
        first()
    outcome = waiting.result()
    if outcome.error is not None:
        return getattr(outcome.error, "rest_code", outcome.error.code)
    return outcome.wire.get("structuredContent", outcome.wire.get("value"))


def test_tags_that_two_add_at_once_are_both_there(tools: Tools) -> None:
    one = store(tools, tags=["sea"])
    answer = after(tools, "add_tags", partial(tools, "add_tags", id=one, tags=["ice"]), id=one,
                   tags=["port"])  # fmt: skip
    assert answer["tags"] == ["sea", "ice", "port"]
    answer = after(tools, "remove_tags", partial(tools, "add_tags", id=one, tags=["new"]), id=one,
                   tags="ice")  # fmt: skip
    assert answer["tags"] == ["sea", "port", "new"]


def test_no_tag_too_many_is_added_by_two_at_once(tools: Tools) -> None:
    one = store(tools, tags=[f"t{n}" for n in range(9)])
    first = partial(tools, "add_tags", id=one, tags=["ninth"])
    assert after(tools, "add_tags", first, id=one, tags=["tenth"]) == "VAL_FIELD_INVALID"


@pytest.mark.parametrize(("name", "arguments"), [
    ("replace_memory", {"content": "Changed"}), ("update_memory", {"content": "Changed"}),
    ("delete_memory", {}), ("add_tags", {"tags": ["late"]}), ("remove_tags", {"tags": "sea"}),
    ("evolve_memory", {"new_content": "Newer", "evolution_type": "update"}),
])  # fmt: skip
def test_what_was_deleted_meanwhile_is_not_there(
    tools: Tools, name: str, arguments: dict[str, Any]
) -> None:
    one = store(tools, tags=["sea"])
    named = "memory_id" if name == "update_memory" else "id"
    gone = partial(tools, "delete_memory", id=one)
    assert after(tools, name, gone, **{named: one}, **arguments) == "RES_MEMORY_NOT_FOUND"
    memory = tools.memory.get(one)
    assert (memory.text, memory.state) == ("The harbour is closed in winter", "archived")


def test_a_memory_that_evolved_meanwhile_keeps_its_lifecycle_and_does_not_fork(
    tools: Tools,
) -> None:
    one = store(tools, metadata={"a": 1})
    evolve = {"id": one, "new_content": "Open again", "evolution_type": "correction"}
    first = partial(tools, "evolve_memory", **evolve)
    after(tools, "replace_memory", first, id=one, metadata={"b": 2})
    assert tools("read_memory", id=one)["lifecycle_state"] == "corrected"
    two = store(tools)
    second = {**evolve, "id": two}
    changed = partial(tools, "replace_memory", id=two, metadata={"c": 3})
    new = after(tools, "evolve_memory", changed, **second)["new_memory_id"]
    assert tools("read_memory", id=new)["metadata"] == {"c": 3}
    again = store(tools)
    other = partial(tools, "evolve_memory", **{**evolve, "id": again})
    assert after(tools, "evolve_memory", other, **{**evolve, "id": again}) == "RES_ALREADY_EXISTS"


def test_a_relationship_to_what_was_deleted_meanwhile_is_not_made(tools: Tools) -> None:
    one, two = store(tools), store(tools, "Ice on the quay")
    gone = partial(tools, "delete_memory", id=two)
    ends = {"from_id": one, "to_id": two, "relationship_type": "supports"}
    assert after(tools, "create_relationship", gone, **ends) == "RES_MEMORY_NOT_FOUND"
    assert tools.memory.links.of() == []


def test_a_memory_is_deleted_with_the_relationship_that_was_made_meanwhile(tools: Tools) -> None:
    one, two = store(tools), store(tools, "Ice on the quay")
    made = partial(tools, "connect", from_memory=one, to_memory=two,
                         relationship_type="supports")  # fmt: skip
    after(tools, "delete_memory", made, id=two)
    assert tools.memory.links.of() == []


def test_fields_of_a_relationship_that_two_change_at_once_are_both_changed(tools: Tools) -> None:
    one, two = store(tools), store(tools, "Ice on the quay")
    link = tools("create_relationship", from_id=one, to_id=two, relationship_type="causes")["id"]
    first = partial(tools, "change_relationship", id=link, evidence={"a": 1})
    shown = after(tools, "change_relationship", first, id=link, confidence=0.3)
    assert (shown["evidence"], shown["confidence"]) == ({"a": 1}, 0.3)
    gone = partial(tools, "delete_relationship", id=link)
    assert after(tools, "delete_between", gone, from_id=one, to_id=two) == "RES_NOT_FOUND"


def test_a_contradiction_is_resolved_once(tools: Tools) -> None:
    one, two = store(tools), store(tools, "The harbour is open in winter")
    made = tools("create_contradiction", source_memory_id=one, target_memory_id=two)
    resolve = {"id": made["id"], "resolution": "choose_memory_1"}
    first = partial(tools, "resolve_contradiction", **resolve)
    resolved = after(tools, "resolve_contradiction", first,
                     **{**resolve, "resolution": "choose_memory_2"})  # fmt: skip
    assert resolved == "RES_ALREADY_EXISTS"
    assert tools("read_memory", id=one)["lifecycle_state"] == "active"


def test_a_persona_that_two_choose_at_once_is_one_of_them(tools: Tools) -> None:
    first = partial(tools, "choose_persona", persona_id="teacher")
    chosen = after(tools, "choose_persona", first, persona_id="sassy_pirate")
    assert chosen["persona_id"] == "sassy_pirate"


def test_a_trait_that_was_removed_meanwhile_is_not_changed(tools: Tools) -> None:
    trait = tools("create_trait", content="Be brief.")["id"]
    gone = partial(tools, "delete_trait", id=trait)
    assert after(tools, "change_trait", gone, id=trait, content="Be long.") == "RES_NOT_FOUND"
    assert tools.memory.get(trait).text == "Be brief."


def test_a_path_does_not_become_a_file_and_a_directory_at_once(tools: Tools) -> None:
    first = partial(tools, "save_artifact", path="/a/b", content="x")
    saved = after(tools, "save_artifact", first, path="/a", content="y")
    assert saved == "VAL_FIELD_INVALID"
    assert [one.path for one in tools.memory.artifacts.all()] == ["/a/b"]


def test_a_file_that_two_upload_at_once_is_one_document(tools: Tools) -> None:
    file = {"filename": "a.txt", "data": base64.b64encode(b"The ferry leaves at nine.").decode()}
    documents: list[Any] = []
    second = after(
        tools, "upload_document", lambda: documents.append(tools("upload_document", **file)), **file
    )
    assert second["id"] == documents[0]["id"]
    assert second["metadata"] == {"duplicate_upload": True}
    assert tools("list_documents")["pagination"]["total"] == 1
    assert tools.memory.browse(kinds=["document_chunk"])[1] == 1


def test_a_document_is_deleted_with_the_links_that_were_made_meanwhile(tools: Tools) -> None:
    data = base64.b64encode(b"The ferry leaves at nine.").decode()
    document = tools("upload_document", filename="a.txt", data=data)["id"]
    (chunk,), _ = tools.memory.browse(kinds=["document_chunk"])
    one = store(tools)
    made = partial(tools, "connect", from_memory=one, to_memory=chunk.id,
                         relationship_type="references")  # fmt: skip
    after(tools, "delete_document", made, id=document)
    assert tools.memory.links.of() == []
