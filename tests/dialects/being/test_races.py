"""Several clients of one being at the same moment: nothing is lost, and nothing is told twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from commonplace.dialects.being import beings, bridges, sight

from .conftest import Desk, scene
from .lives import nodes

AT_ONCE = 8


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """What eight threads get that begin together."""
    ready = Barrier(AT_ONCE)

    def begin(number: int) -> Any:
        ready.wait(20)
        return work(number)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(begin, range(AT_ONCE)))


@pytest.mark.parametrize(("target", "key"), [
    ("knowledge", "k"), ("relationship", "Mika"), ("diary", "2026-04-14"),
])  # fmt: skip
def test_what_is_appended_at_once_is_all_there(desk: Desk, target: str, key: str) -> None:
    for turn in range(3):
        done = at_once(
            lambda number, turn=turn: desk.memo(
                target, "append", key=key, content=f"part {turn}.{number}"
            )
        )
        assert all(each["success"] for each in done), done
    parts = desk.memo(target, "get", key=key)["message"].split("\n\n")
    assert sorted(parts) == sorted(f"part {turn}.{n}" for turn in range(3) for n in range(AT_ONCE))


def test_an_entry_that_eight_make_at_once_is_made_once(desk: Desk) -> None:
    done = at_once(
        lambda n: desk.memo("preferences", "append", key="tea", content=f"green {n}")["message"]
    )
    assert Counter(done) == {
        "preferences 'tea' added.": 1, "preferences 'tea' updated.": AT_ONCE - 1,
    }  # fmt: skip
    related = at_once(
        lambda n: desk.json(
            "update_relation", entity_name="Mika", relation_type="person", action="upsert",
            content=f"friend {n}",
        )["success"]
    )  # fmt: skip
    assert related == [True] * AT_ONCE


def test_fields_of_a_soul_that_are_changed_at_once_are_all_changed(desk: Desk) -> None:
    at_once(lambda n: desk.memo("souls", "update", key=beings.SOUL_FIELDS[n % 6], content=f"s{n}"))
    soul = json.loads(desk.memo("souls", "get")["message"])
    assert set(beings.SOUL_FIELDS) <= set(soul)


def test_a_message_is_read_once(desk: Desk) -> None:
    brin = desk.other("Brin")
    for number in range(5):
        desk.memo("party_message", "append", to="Brin", content=f"m{number}")
    told = at_once(lambda _: json.loads(brin.memo("party_message", "get")["message"]))
    assert sorted(each["content"] for some in told for each in some) == [f"m{n}" for n in range(5)]


def test_a_sense_is_told_once_and_a_patrol_keeps_its_count(desk: Desk) -> None:
    for number in range(20):
        sense = {"capability_id": "eye", "data": number}
        desk.memory.events.record(bridges.SENSE_EVENT, desk.being, sense)

    def work(number: int) -> list[Any]:
        if number:
            return list(desk.json("get_context").get("pending_senses", []))
        for _ in range(3):
            desk.json("trigger_patrol", messages=[])
        return []

    told = [each["data"] for some in at_once(work) for each in some]
    assert sorted(told) == list(range(20))
    attrs = sight.get_being(desk.memory, desk.being).attrs
    assert (attrs["sessions"], len(attrs["marks_at"])) == (3, 3)


def test_nodes_that_eight_merge_at_once_are_merged_once(desk: Desk) -> None:
    desk.live(scene("Planted tomatoes"), scene("Watered tomatoes"))
    named = ",".join(node.id for node in nodes(desk))
    done = at_once(lambda n: desk.text("merge_nodes", node_ids=named, summary=f"Tomatoes {n}"))
    assert sum(each.startswith("2 nodes merged.") for each in done) == 1, done
    assert len([node for node in nodes(desk) if node.state == "active"]) == 1


def test_an_act_is_decided_on_once(desk: Desk) -> None:
    lamp = {"id": "lamp", "type": "act", "name": "Lamp"}
    desk.outcome("register_capabilities", being_id=desk.being, capabilities=[lamp])
    waits = desk.json("act_lamp", action="on")["queue_id"]
    done = at_once(
        lambda n: (
            desk.outcome(
                "approve_act" if n % 2 else "reject_act", being_id=desk.being, action_id=waits
            ).error
        )
    )
    assert done.count(None) == 1
