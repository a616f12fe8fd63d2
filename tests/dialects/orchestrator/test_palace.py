"""The palace: drawers, rooms, wings, diaries, and what they answer when the input is wrong."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from commonplace.dialects.contract import RequestInfo
from commonplace.dialects.orchestrator import drawers, rooms
from commonplace.engine.binding import lease
from commonplace.engine.content.memories import Draft
from conftest import WordVectors, _Kept

from .conftest import Workspace

if TYPE_CHECKING:
    from commonplace.embedding.builtin import BuiltIn

JWT = "We decided to use JWT instead of sessions because the service keeps no state."


def add(workspace: Workspace, wing: str, room: str, content: str) -> str:
    answer = workspace.value("memory_add_drawer", wing=wing, room=room, content=content)
    assert answer["info"] == "drawer added"
    return str(answer["drawer_id"])


def test_a_drawer_has_the_id_that_its_address_and_text_give(workspace: Workspace) -> None:
    answer = workspace.value(
        "memory_add_drawer", wing="alice", room="auth", content=JWT, source_file="notes.md",
        added_by="wally", description="Filing a decision",
    )  # fmt: skip
    digest = hashlib.sha256(JWT.encode()).hexdigest()[:16]
    assert answer == {
        "drawer_id": f"drawer_alice_auth_{digest}",
        "memory_type": "decision",
        "info": "drawer added",
    }
    stored = workspace.memory.get(answer["drawer_id"])
    assert stored.text == JWT
    assert (stored.attrs["source_file"], stored.attrs["added_by"]) == ("notes.md", "wally")


def test_the_same_drawer_again_is_added_once(workspace: Workspace) -> None:
    first, second = add(workspace, "w", "r", JWT), add(workspace, "w", "r", JWT)
    assert first == second
    assert workspace.value("memory_status")["total_drawers"] == 1


def test_the_same_drawer_in_two_workspaces_is_two(workspace: Workspace) -> None:
    other = workspace.at("other")
    assert add(workspace, "w", "r", JWT) == add(other, "w", "r", JWT)
    workspace.value("memory_delete_drawer", drawer_id=drawers.drawer_id("w", "r", JWT))
    assert other.value("memory_status")["total_drawers"] == 1
    assert workspace.value("memory_status")["total_drawers"] == 0


@pytest.mark.parametrize("missing", ["wing", "room", "content"])
@pytest.mark.parametrize("how", ["left out", "empty"])
def test_a_write_tool_tells_what_is_missing_as_info(
    workspace: Workspace, missing: str, how: str
) -> None:
    given = {"wing": "w", "room": "r", "content": JWT}
    if how == "empty":
        given[missing] = ""
    else:
        del given[missing]
    answer = workspace.value("memory_add_drawer", **given)
    assert answer == {
        "drawer_id": "", "memory_type": "", "info": "wing, room, and content are required",
    }  # fmt: skip
    assert workspace.value("memory_status")["total_drawers"] == 0


@pytest.mark.parametrize(
    "noise",
    ["hi", "Hello!", "ok", "got it", "thanks", "yes", "no", "bye", "cool", "ninechars",
     "Sounds good!", "thank you so much", "         "],
)  # fmt: skip
def test_noise_is_not_stored(workspace: Workspace, noise: str) -> None:
    answer = workspace.value("memory_add_drawer", wing="w", room="r", content=noise)
    told = "content too short or trivial to store"
    assert answer["info"] == (told if noise.strip() else "wing, room, and content are required")


def test_ten_characters_are_enough_and_ten_thousand_the_most(workspace: Workspace) -> None:
    add(workspace, "w", "r", "ten chars!")
    add(workspace, "w", "r", "x" * 10_000)
    answer = workspace.value("memory_add_drawer", wing="w", room="r", content="x" * 10_001)
    assert answer["info"] == "content exceeds max length of 10000"


def test_names_of_wings_and_rooms_have_a_limit(workspace: Workspace) -> None:
    add(workspace, "w" * 200, "r" * 200, JWT)
    found = workspace.value("memory_search", query="JWT", wing="w" * 200, room="r" * 200)
    assert found["count"] == 1
    answer = workspace.value("memory_add_drawer", wing="w" * 201, room="r", content=JWT)
    assert answer["info"] == "wing exceeds max length of 200"


def test_importance_is_three_or_five_times_the_confidence(workspace: Workspace) -> None:
    plain = add(workspace, "w", "plain", "The harbour has nine quays and a lighthouse.")
    assert workspace.memory.get(plain).importance * 5 == pytest.approx(3.0)
    assert workspace.memory.get(plain).attrs["memory_type"] == "general"
    sure = "We decided to go with Rust rather than Go because of safety. The reason: trade-offs."
    strong = add(workspace, "w", "strong", sure)
    assert workspace.memory.get(strong).importance * 5 == pytest.approx(5.0)


def test_a_new_drawer_reinforces_its_neighbours_up_to_five(workspace: Workspace) -> None:
    texts = [f"the lighthouse keeper lights the lamp at dusk {word}" for word in "abcdefg"]
    first = add(workspace, "w", "r", texts[0])
    far = add(workspace, "w", "r", "quarterly revenue grew strongly in northern markets")
    add(workspace, "w", "r", texts[1])
    assert workspace.memory.get(first).importance * 5 == pytest.approx(3.5)
    assert workspace.memory.get(far).importance * 5 == pytest.approx(3.0)
    for text in texts[2:]:
        add(workspace, "w", "r", text)
    assert workspace.memory.get(first).importance * 5 <= 5.0
    raised = [workspace.memory.get(drawers.drawer_id("w", "r", text)) for text in texts]
    assert sum(one.importance > 0.6 for one in raised) >= 5
    assert workspace.memory.get(far).importance * 5 == pytest.approx(3.0)


def test_ten_thousand_drawers_are_the_most(workspace: Workspace) -> None:
    memory = workspace.memory
    vector = workspace.library.embedder
    assert vector is not None
    from commonplace.storage.derived import quantise

    packed = quantise(vector.embed(["many"]))
    for first in range(0, 9_999, 1_000):
        memory.remember_many(
            [
                Draft(text=f"number {n}", kind="drawer", vectors=packed,
                      attrs={"wing": "w", "room": "r"})
                for n in range(first, min(first + 1_000, 9_999))
            ]
        )  # fmt: skip
    add(workspace, "w", "r", "The ten thousandth drawer fits.")
    full = "the workspace has 10000 drawers, the most it may have"
    assert (
        workspace.value(
            "memory_add_drawer", wing="w", room="r", content="The next one does not fit."
        )["info"]
        == full
    )
    assert workspace.value("memory_diary_write", agent_name="a", entry="nor this")["info"] == full
    workspace.value(
        "memory_delete_drawer",
        drawer_id=drawers.drawer_id("w", "r", "The ten thousandth drawer fits."),
    )
    workspace.value("memory_diary_write", agent_name="a", entry="now this does")
    assert workspace.value("memory_status")["total_drawers"] == 10_000


def test_search_gives_the_nearest_first_with_all_keys(workspace: Workspace) -> None:
    near = add(workspace, "alice", "auth", JWT)
    add(workspace, "bob", "food", "Bob eats porridge with honey every single morning.")
    answer = workspace.value("memory_search", query="JWT sessions")
    assert answer["count"] == 2
    first, second = answer["results"]
    assert set(first) == {
        "id", "wing", "room", "content", "memory_type", "importance", "similarity", "filed_at",
    }  # fmt: skip
    assert (first["id"], first["wing"], first["room"], first["content"]) == (
        near, "alice", "auth", JWT,
    )  # fmt: skip
    assert first["similarity"] > second["similarity"]
    assert first["filed_at"].endswith("Z") and len(first["filed_at"]) == 20


def test_search_keeps_to_a_wing_and_a_room(workspace: Workspace) -> None:
    for wing, room in (("a", "x"), ("a", "y"), ("b", "x")):
        add(workspace, wing, room, f"The lighthouse of {wing} and {room} shines at night.")

    def found(**where: str) -> set[tuple[str, str]]:
        results = workspace.value("memory_search", query="lighthouse", **where)["results"]
        return {(one["wing"], one["room"]) for one in results}

    assert found() == {("a", "x"), ("a", "y"), ("b", "x")}
    assert found(wing="a") == {("a", "x"), ("a", "y")}
    assert found(room="x") == {("a", "x"), ("b", "x")}
    assert found(wing="b", room="x") == {("b", "x")}
    assert found(wing="c") == set()


@pytest.mark.parametrize(
    ("asked", "given"), [(0, 5), (-1, 5), (3, 3), (50, 50), (51, 50), (999, 50)]
)
def test_the_limit_of_a_search_is_clamped(workspace: Workspace, asked: int, given: int) -> None:
    memory = workspace.memory
    memory.remember_many([Draft(text=f"harbour number {n}", kind="drawer") for n in range(60)])
    assert workspace.value("memory_search", query="harbour", limit=asked)["count"] == given


def test_a_read_tool_fails_without_its_query(workspace: Workspace) -> None:
    assert workspace.call("memory_search").error == "query is required"
    assert workspace.call("memory_search", query="  ").error == "query is required"
    assert workspace.call("memory_check_duplicate").error == "content is required"
    assert workspace.call("memory_traverse").error == "start_room is required"
    assert workspace.call("memory_diary_read").error == "agent_name is required"


def test_search_sees_what_other_dialects_remember(workspace: Workspace) -> None:
    memory = workspace.memory
    noted = memory.remember("The lighthouse was painted red.", kind="decision")
    hidden = memory.remember("The lighthouse was painted blue.", kind="note")
    memory.forget(hidden.id)
    (found,) = workspace.value("memory_search", query="lighthouse painted")["results"]
    assert (found["id"], found["wing"], found["room"], found["memory_type"]) == (
        noted.id, "shared", "decision", "decision",
    )  # fmt: skip
    workspace.value(
        "memory_add_drawer", wing="shared", room="sea", content="The lighthouse of our own wing."
    )
    workspace.value("memory_add_drawer", wing="sea", room="decision", content="The lighthouse far.")

    def rooms(**where: str) -> list[str]:
        results = workspace.value("memory_search", query="lighthouse", limit=9, **where)["results"]
        assert [one["similarity"] for one in results] == sorted(
            (one["similarity"] for one in results), reverse=True
        )
        return sorted(f"{one['wing']}/{one['room']}" for one in results)

    assert rooms(wing="shared") == ["shared/decision", "shared/sea"]
    assert rooms(wing="shared", room="decision") == ["shared/decision"]
    assert rooms(wing="shared", room="sea") == ["shared/sea"]
    assert rooms(wing="shared", room="No Kind!") == rooms(wing="shared", room="drawer") == []
    assert rooms(wing="sea") == rooms(room="decision") == ["sea/decision"]


def test_the_nearest_come_first_also_among_texts_of_one_form(
    tmp_path: Path, builtin_model: BuiltIn
) -> None:
    from .conftest import opened

    with opened(tmp_path / "real", _Kept(builtin_model)) as workspace:
        for n in range(8):
            add(workspace, "w", "r", f"Standup of day {n}: we talked about what is due this week.")
        add(workspace, "w", "r", "Our team decided to use Postgres because of its security.")
        for query in ("When is the standup?", "What did the team talk about?"):
            results = workspace.value("memory_search", query=query, limit=50)["results"]
            similarities = [one["similarity"] for one in results]
            assert len(similarities) == 9
            assert similarities == sorted(similarities, reverse=True), query


def test_search_has_no_threshold(tmp_path: Path, builtin_model: BuiltIn) -> None:
    from .conftest import opened

    texts = (
        "The cat sleeps on the red sofa", "zxqv 12 blorp 99 --", "def f(x): return x*x",
        "Quarterly tax filings are due in April", "Das Wetter in Hamburg ist heute regnerisch",
        "Photosynthesis converts light into chemical energy",
    )  # fmt: skip
    with opened(tmp_path / "real", _Kept(builtin_model)) as workspace:
        for text in texts:
            add(workspace, "w", "r", text)
        for query in ("Elephant", "kubernetes ingress controller"):
            results = workspace.value("memory_search", query=query, limit=50)["results"]
            similarities = [one["similarity"] for one in results]
            assert len(similarities) == len(texts), query
            assert similarities == sorted(similarities, reverse=True), query


def test_a_search_counts_one_read_while_vectors_are_waiting(tmp_path: Path) -> None:
    from .conftest import opened

    embedder = WordVectors()
    with opened(tmp_path / "data", embedder) as workspace:
        identity = add(workspace, "w", "r", JWT)
        assert workspace.value("memory_search", query="JWT")["count"] == 1
        assert workspace.memory.usage(identity).accesses == 1
        with lease(workspace.memory) as space:
            space.embed_later = True
        embedder.gate.clear()
        try:
            workspace.memory.remember("of another dialect")
            assert workspace.memory.recall("JWT", count=False).degraded
            assert workspace.value("memory_search", query="JWT")["count"] == 1
        finally:
            embedder.gate.set()
        assert workspace.memory.usage(identity).accesses == 2


def test_search_without_a_model_goes_by_words(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from .conftest import opened

    with opened(tmp_path / "plain", None) as workspace:
        add(workspace, "w", "r", JWT)
        assert workspace.value("memory_search", query="sessions")["count"] == 1
        assert workspace.value("memory_search", query="porridge")["count"] == 0


def test_a_duplicate_is_found_in_any_state(workspace: Workspace) -> None:
    identity = add(workspace, "w", "r", JWT)
    answer = workspace.value("memory_check_duplicate", content=JWT)
    assert answer["has_duplicate"] is True
    assert [one["id"] for one in answer["duplicates"]] == [identity]
    for state in ("superseded", "dead"):
        workspace.memory.revise(identity, state=state)
        assert workspace.value("memory_check_duplicate", content=JWT)["has_duplicate"] is True
    other = workspace.value("memory_check_duplicate", content="Porridge with honey in the morning")
    assert other == {"duplicates": [], "has_duplicate": False}


def test_the_threshold_of_a_duplicate_counts_and_at_most_five_are_told(
    workspace: Workspace,
) -> None:
    for n in range(7):
        workspace.memory.remember(f"the harbour closes at nine {n}", kind="drawer")
    close = "the harbour closes at nine"
    assert (
        len(workspace.value("memory_check_duplicate", content=close, threshold=0.5)["duplicates"])
        == 5
    )
    some = workspace.value("memory_check_duplicate", content="the harbour opens", threshold=0.99)
    assert some["has_duplicate"] is False
    assert workspace.value("memory_check_duplicate", content="the harbour opens", threshold=0.1)[
        "has_duplicate"
    ]
    assert workspace.call("memory_check_duplicate", content="x" * 10_001).error == (
        "content exceeds max length of 10000"
    )


def test_a_deleted_drawer_is_gone_and_comes_back_when_added_again(workspace: Workspace) -> None:
    identity = add(workspace, "w", "r", JWT)
    answer = workspace.value("memory_delete_drawer", drawer_id=identity)
    assert answer == {"deleted": True, "info": "drawer deleted"}
    assert workspace.value("memory_search", query="JWT")["count"] == 0
    again = workspace.value("memory_delete_drawer", drawer_id=identity)
    assert again == {"deleted": False, "info": "drawer not found"}
    assert workspace.memory.get(identity).state == "archived"
    nothing = {"duplicates": [], "has_duplicate": False}
    assert workspace.value("memory_check_duplicate", content=JWT) == nothing
    assert add(workspace, "w", "r", JWT) == identity
    assert workspace.value("memory_search", query="JWT")["count"] == 1


@pytest.mark.parametrize("change", [{"kind": "note"}, {"text": "What another dialect wrote."}])
def test_a_drawer_that_another_dialect_changed_gives_up_its_id(
    workspace: Workspace, change: dict[str, Any]
) -> None:
    identity = add(workspace, "w", "r", JWT)
    changed = workspace.memory.revise(identity, **change)
    assert add(workspace, "w", "r", JWT) == identity
    stored = workspace.memory.get(identity)
    assert (stored.kind, stored.text) == ("drawer", JWT)
    kept = workspace.memory.get(changed.id)
    assert (kept.ref, kept.kind, kept.text) == (None, changed.kind, changed.text)

    given = {"agent_name": "eve", "entry": "Dear diary"}
    written = workspace.value("memory_diary_write", **given)
    workspace.memory.revise(written["drawer_id"], **change)
    assert workspace.value("memory_diary_write", **given) == written
    assert workspace.value("memory_diary_write", **given)["info"] == drawers.REPEATED_ENTRY
    read = workspace.value("memory_diary_read", agent_name="eve")["entries"]
    assert read[0]["content"] == "Dear diary"
    assert all(isinstance(entry["id"], str) for entry in read)


def test_a_text_with_a_secret_is_recognised_when_it_is_added_again(workspace: Workspace) -> None:
    text = "The key of the harbour is sk-ant-api03-" + "A1b2C3d4" * 11 + "AA."
    identity = add(workspace, "w", "r", text)
    first = workspace.memory.get(identity)
    assert first.text != text
    assert add(workspace, "w", "r", text) == identity
    assert workspace.memory.get(identity).id == first.id


def test_a_drawer_in_the_room_of_a_diary_is_read_with_it(workspace: Workspace) -> None:
    identity = add(workspace, "wing_eve", "diary", JWT)
    (entry,) = workspace.value("memory_diary_read", agent_name="Eve")["entries"]
    assert (entry["id"], entry["content"], entry["hall"]) == (identity, JWT, "")


def test_what_another_dialect_keeps_is_not_deleted_here(workspace: Workspace) -> None:
    workspace.do("create_agent", name="Zed")
    note = workspace.memory.remember("A note of another dialect.", kind="decision")
    answer = workspace.value("memory_delete_drawer", drawer_id=note.id)
    assert answer["deleted"] is False
    assert "decision" in answer["info"]
    assert workspace.memory.get(note.id).state == "active"
    workspace.memory.forget(note.id)
    workspace.value("memory_set_identity", content="We are Acme.")
    for identity, told in (
        (note.id, "drawer not found"),
        ("agent:eve", "drawer not found"),
        ("palace:identity", "not a drawer but a memory of the kind 'identity'"),
    ):
        assert told in workspace.value("memory_delete_drawer", drawer_id=identity)["info"]
    missing = workspace.value("memory_delete_drawer")
    assert missing == {"deleted": False, "info": "drawer_id is required"}


def test_status_counts_drawers_by_wing_and_room_most_first(workspace: Workspace) -> None:
    for wing, room, count in (("a", "x", 1), ("b", "x", 3), ("b", "y", 2)):
        for n in range(count):
            add(workspace, wing, room, f"Drawer number {n} of {wing} in {room}.")
    assert workspace.value("memory_status") == {
        "total_drawers": 6,
        "wings": [{"wing": "b", "count": 5}, {"wing": "a", "count": 1}],
        "rooms": [
            {"wing": "b", "room": "x", "count": 3},
            {"wing": "b", "room": "y", "count": 2},
            {"wing": "a", "room": "x", "count": 1},
        ],
    }
    assert workspace.value("memory_list_wings") == {
        "wings": [{"wing": "b", "count": 5}, {"wing": "a", "count": 1}]
    }
    assert workspace.value("memory_list_rooms", wing="a") == {
        "rooms": [{"wing": "a", "room": "x", "count": 1}]
    }
    assert len(workspace.value("memory_list_rooms")["rooms"]) == 3
    assert workspace.value("memory_get_taxonomy") == {
        "taxonomy": {"b": {"rooms": {"x": 3, "y": 2}}, "a": {"rooms": {"x": 1}}}
    }


def test_traversal_goes_from_wing_to_wing(workspace: Workspace) -> None:
    for wing, room in (("a", "start"), ("a", "near"), ("b", "near"), ("b", "far"), ("c", "far"),
                       ("c", "farther"), ("d", "alone"), ("a", "general")):  # fmt: skip
        add(workspace, wing, room, f"A drawer in {wing} and {room}.")
    answer = workspace.value("memory_traverse", start_room="start")
    assert [(one["room"], one["hop"]) for one in answer["rooms"]] == [
        ("start", 0), ("near", 1), ("far", 2), ("farther", 3),
    ]  # fmt: skip
    near = answer["rooms"][1]
    assert (near["wings"], near["count"], near["connected_via"]) == (["a", "b"], 2, ["a"])
    assert answer["count"] == 4
    one = workspace.value("memory_traverse", start_room="start", max_hops=1)
    assert one["count"] == 2
    for hops, rooms_seen in ((0, 4), (5, 4), (6, 4)):  # none is the usual three, six are five
        seen = workspace.value("memory_traverse", start_room="start", max_hops=hops)["count"]
        assert seen == rooms_seen
    for unknown in ("nowhere", "general"):
        error = workspace.call("memory_traverse", start_room=unknown).error
        assert error == f'graph: room "{unknown}" not found'


def test_hops_end_at_five_and_rooms_at_fifty() -> None:
    chain = [((f"w{n}", f"r{n}", ""), 1) for n in range(9)]
    chain += [((f"w{n}", f"r{n + 1}", ""), 1) for n in range(9)]
    found = rooms.rooms_within_hops(rooms.rooms_by_name(chain), "r0", 5)
    assert max(one["hop"] for one in found) == 5
    many = rooms.rooms_by_name([(("w", f"r{n}", "h" if n else ""), n + 1) for n in range(80)])
    found = rooms.rooms_within_hops(many, "r0", 1)
    assert len(found) == 50
    assert found[1]["count"] == 80  # of one hop, those with the most drawers first
    assert found[1]["halls"] == ["h"]


def test_many_rooms_of_one_wing_are_walked_once() -> None:
    counts = [(("w", f"room {n}", ""), 1) for n in range(20_000)]
    begun = time.monotonic()
    found = rooms.rooms_within_hops(rooms.rooms_by_name(counts), "room 7", 5)
    assert time.monotonic() - begun < 5  # from each room to each room, it took half a minute
    assert [room["hop"] for room in found[:2]] == [0, 1]
    assert found[1]["connected_via"] == ["w"]


def test_tunnels_join_wings(workspace: Workspace) -> None:
    for wing, room, count in (("a", "t", 1), ("b", "t", 1), ("a", "u", 3), ("b", "u", 1),
                              ("c", "u", 1), ("a", "only", 5)):  # fmt: skip
        for n in range(count):
            add(workspace, wing, room, f"Drawer {n} in {wing} and {room}.")
    answer = workspace.value("memory_find_tunnels")
    assert answer == {
        "tunnels": [
            {"room": "u", "wings": ["a", "b", "c"], "halls": [], "count": 5},
            {"room": "t", "wings": ["a", "b"], "halls": [], "count": 2},
        ],
        "count": 2,
    }
    assert workspace.value("memory_find_tunnels", wing_a="c")["count"] == 1
    assert workspace.value("memory_find_tunnels", wing_a="a", wing_b="c")["count"] == 1
    assert workspace.value("memory_find_tunnels", wing_a="a", wing_b="z")["count"] == 0
    assert workspace.value("memory_graph_stats") == {
        "total_rooms": 3,
        "tunnel_rooms": 2,
        "total_edges": 4,  # three pairs of wings through u, one through t
        "rooms_per_wing": {"a": 3, "b": 2, "c": 1},
        "top_tunnels": answer["tunnels"],
    }


def test_identity_is_replaced_and_limited(workspace: Workspace) -> None:
    assert workspace.value("memory_set_identity", content="I am Anna.") == {"info": "identity set"}
    assert workspace.value("memory_set_identity", content="I am Berta.")["info"] == "identity set"
    assert drawers.workspace_identity(workspace.memory) == "I am Berta."
    assert workspace.memory.browse(kinds=["identity"])[1] == 1
    assert workspace.value("memory_set_identity", content="x" * 2_000)["info"] == "identity set"
    too_long = workspace.value("memory_set_identity", content="x" * 2_001)
    assert too_long == {"info": "content exceeds max length of 2000"}
    assert workspace.value("memory_set_identity")["info"] == "content is required"


def test_a_diary_is_read_newest_first(workspace: Workspace) -> None:
    for n in range(12):
        answer = workspace.value(
            "memory_diary_write", agent_name="Wally O'Neil", entry=f"Day {n}", topic=f"t{n}"
        )
        assert answer["info"] == "diary entry written"
        assert answer["drawer_id"].startswith("drawer_wing_wally_oneil_diary_")
    read = workspace.value("memory_diary_read", agent_name=" WALLY O'Neil")
    assert read["count"] == 10
    assert [one["content"] for one in read["entries"][:2]] == ["Day 11", "Day 10"]
    assert set(read["entries"][0]) == {"id", "content", "hall", "filed_at"}
    assert read["entries"][0]["hall"] == "t11"
    assert workspace.value("memory_diary_read", agent_name="wally o'neil", last_n=1)["count"] == 1
    assert (
        workspace.value("memory_diary_read", agent_name="wally o'neil", last_n=101)["count"] == 12
    )
    assert workspace.value("memory_diary_read", agent_name="eve")["entries"] == []
    wing = workspace.value("memory_list_wings")["wings"][0]
    assert wing == {"wing": "wing_wally_oneil", "count": 12}


def test_a_diary_of_long_entries_is_read_up_to_its_limit(workspace: Workspace) -> None:
    entries = [f"{n:03} " + "дн " * 3_332 for n in range(100)]
    with workspace.memory.unit("write"):
        for entry in entries:
            drawers.write_diary(workspace.memory, "eve", entry, "")
    read = workspace.value("memory_diary_read", agent_name="eve", last_n=100)["entries"]
    assert [one["content"] for one in read] == entries[::-1]
    assert workspace.value("memory_search", query="дн", limit=50)["count"] == 50
    # Another dialect may make an entry longer than any entry of a diary.
    workspace.memory.revise(read[0]["id"], text="long " * 190_000)
    (entry,) = workspace.value("memory_diary_read", agent_name="eve", last_n=1)["entries"]
    assert len(entry["content"]) == drawers.CONTENT_CHARS + 1  # with an ellipsis


def test_a_palace_of_many_rooms_is_listed_whole(workspace: Workspace) -> None:
    workspace.memory.remember_many(
        Draft(
            text=f"Drawer {n}",
            kind="drawer",
            attrs={
                "wing": f"{n:03}".ljust(200, "w"),
                "room": "harbour",
                "hall": f"{n}".ljust(200, "h"),
            },
        )
        for n in range(900)
    )
    assert len(workspace.value("memory_status")["rooms"]) == 900
    assert len(workspace.value("memory_list_rooms")["rooms"]) == 900
    assert len(workspace.value("memory_list_wings")["wings"]) == 900
    assert len(workspace.value("memory_get_taxonomy")["taxonomy"]) == 900
    assert workspace.value("memory_find_tunnels")["tunnels"][0]["count"] == 900
    assert workspace.value("memory_traverse", start_room="harbour")["rooms"][0]["count"] == 900
    assert len(workspace.value("memory_graph_stats")["rooms_per_wing"]) == 900


def test_the_same_diary_entry_twice_is_refused_as_info(workspace: Workspace) -> None:
    workspace.value("memory_diary_write", agent_name="eve", entry="Dear diary")
    again = workspace.value("memory_diary_write", agent_name="eve", entry="Dear diary")
    assert again["drawer_id"] == ""
    assert again["info"].startswith("failed to write diary entry")
    assert workspace.value("memory_diary_write", agent_name="eve")["info"] == (
        "agent_name and entry are required"
    )
    workspace.value("memory_diary_write", agent_name="eve", entry="x" * 10_000)
    long = workspace.value("memory_diary_write", agent_name="eve", entry="x" * 10_001)
    assert long["info"] == "entry exceeds max length of 10000"


def test_a_deleted_diary_entry_can_be_written_again(workspace: Workspace) -> None:
    given = {"agent_name": "eve", "entry": "Dear diary"}
    first = workspace.value("memory_diary_write", topic="then", **given)["drawer_id"]
    workspace.value("memory_diary_write", agent_name="eve", entry="Another day")
    for _ in range(2):
        assert workspace.value("memory_delete_drawer", drawer_id=first)["deleted"] is True
        again = workspace.value("memory_diary_write", topic="now", **given)
        assert again == {"drawer_id": first, "info": "diary entry written"}
        entries = workspace.value("memory_diary_read", agent_name="eve")["entries"]
        assert [(one["content"], one["hall"]) for one in entries] == [
            ("Dear diary", "now"), ("Another day", ""),
        ]  # fmt: skip
    assert workspace.value("memory_diary_write", **given)["info"] == drawers.REPEATED_ENTRY


def test_a_diary_counts_as_important_as_any_drawer(workspace: Workspace) -> None:
    answer = workspace.value("memory_diary_write", agent_name="eve", entry="Dear diary")
    stored = workspace.memory.get(answer["drawer_id"])
    assert (stored.kind, stored.importance * 5) == ("diary", pytest.approx(3.0))
    found = workspace.value("memory_search", query="diary")["results"][0]
    assert (found["memory_type"], found["wing"], found["room"]) == ("diary", "wing_eve", "diary")


def test_an_unknown_argument_is_ignored(workspace: Workspace) -> None:
    assert "query is required" in workspace.call("memory_search", qurey="x").error
    assert (
        workspace.value("memory_set_identity", content="x", colour="red")["info"]
        == (workspace.value("memory_set_identity", content="x")["info"])
    )


def at_once(times: int, call: Callable[[int], Any]) -> list[Any]:
    """What calls give that begin at the same moment."""
    ready = threading.Barrier(times)

    def one(n: int) -> Any:
        ready.wait()
        return call(n)

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(one, range(times)))


def test_the_same_drawer_from_several_at_once_is_stored_once(workspace: Workspace) -> None:
    for hour in range(3):
        given = {"wing": "w", "room": "r", "content": f"The harbour closes at {hour}."}
        answers = at_once(
            8, lambda _: workspace.value("memory_add_drawer", **given)  # noqa: B023
        )  # fmt: skip
        assert answers[0]["info"] == "drawer added"
        assert answers == answers[:1] * 8
    assert workspace.value("memory_status")["total_drawers"] == 3


def test_the_same_entry_of_a_diary_at_once_is_written_once(workspace: Workspace) -> None:
    given = {"agent_name": "Wally", "entry": "A long day at the harbour."}
    answers = at_once(8, lambda _: workspace.value("memory_diary_write", **given))
    told = Counter(one["info"] for one in answers)
    assert told == {"diary entry written": 1, drawers.REPEATED_ENTRY: 7}
    keyed = replace(workspace, request_info=RequestInfo(idempotency_key="k"))
    given = {"agent_name": "Wally", "entry": "Another long day at the harbour."}
    answers = at_once(8, lambda _: keyed.value("memory_diary_write", **given))
    assert {one["info"] for one in answers} == {"diary entry written"}  # all of them the first's


def test_no_drawer_too_many_is_stored_by_several_at_once(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawers, "MOST_DRAWERS", 5)
    answers = at_once(
        12,
        lambda n: workspace.value(
            "memory_add_drawer", wing="w", room="r", content=f"The harbour has {n} boats."
        ),
    )  # fmt: skip
    assert sum(bool(one["drawer_id"]) for one in answers) == 5
    assert workspace.value("memory_status")["total_drawers"] == 5
