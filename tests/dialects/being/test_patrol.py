"""The patrol, step by step, without a model."""

from __future__ import annotations

import contextlib
import math
import threading
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from commonplace.dialects.being import patrol, records, running, sight
from commonplace.dialects.being.beings import clusters_of
from commonplace.dialects.being.recalling import describe_cluster
from commonplace.dialects.being.scenes import PARSE_FAILED, scene_of
from commonplace.engine.binding import lease
from commonplace.engine.finding.ranking import faded_importance
from commonplace.engine.transfer.exporting import export_space
from commonplace.engine.transfer.importing import import_file
from commonplace.storage.locking import file_lock

from .conftest import Desk, open_desk, scene
from .lives import nodes

GARDEN = "garden tomato soil spade"
HARBOUR = "harbour boat rope tide"


def patrol_times(desk: Desk, times: int) -> None:
    for _ in range(times):
        desk.json("trigger_patrol", messages=[])


def test_patrol_answers_with_what_it_counted_and_a_new_marker(desk: Desk) -> None:
    first = desk.live(scene("one"), scene("two"), scene("three"))
    assert first["status"] == "ok"
    assert (first["scenes_created"], first["nodes_created"]) == (3, 3)
    second = desk.json("trigger_patrol", messages=[], marker_id=first["marker_id"])
    assert (second["scenes_created"], second["nodes_created"]) == (0, 0)
    assert second["marker_id"] != first["marker_id"]
    assert set(second) == {"status", "scenes_created", "nodes_created", "marker_id"}


def test_an_unknown_marker_is_accepted(desk: Desk) -> None:
    assert desk.json("trigger_patrol", messages=[], marker_id="no such")["status"] == "ok"


def test_messages_are_required(desk: Desk) -> None:
    outcome = desk.outcome("trigger_patrol")
    assert outcome.wire["isError"]
    assert "messages" in outcome.wire["content"][0]["text"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"created_at": "one of these days"}, "created_at"),
        ({"content": "x" * 1_000_001}, "content"),
    ],
)
def test_messages_that_cannot_be_stored_are_refused(
    desk: Desk, wrong: dict[str, str], field: str
) -> None:
    said = [{"role": "user", "content": "Hello"}, {"role": "user", "content": "there", **wrong}]
    outcome = desk.outcome("trigger_patrol", messages=said)
    assert outcome.wire["isError"]
    assert f"messages[1].{field}" in str(outcome.error and outcome.error.field)
    assert desk.memory.events.count(kind=patrol.PATROL_EVENT) == 0, "no patrol has run"


def test_a_scene_becomes_a_node_with_all_it_told(desk: Desk) -> None:
    desk.live(scene("Planted tomatoes", setting="behind the house", feeling="calm",
                    themes=["garden"], importance=0.9))  # fmt: skip
    (node,) = nodes(desk)
    told = scene_of(node)
    assert (told.action, told.setting, told.feeling) == (
        "Planted tomatoes",
        "behind the house",
        "calm",
    )
    assert (told.actors, told.when, told.themes) == (("Mika",), ("2026-04-14",), ("garden",))
    assert (node.importance, node.state) == (0.9, "active")
    assert node.text == "[2026-04-14] Planted tomatoes / calm"


def test_a_scene_that_cannot_be_read_is_marked_once_and_kept(desk: Desk) -> None:
    desk.text("update_notes", scenes=[scene("one")])
    (note,) = sight.readable_rows(desk.memory, sight.own_row_filters(desk.being, sight.SCENE))
    assert desk.memo("notes", "update", key=note.id, content="{not json")["success"]
    done = desk.json("trigger_patrol", messages=[])
    assert (done["scenes_created"], done["nodes_created"]) == (1, 0)
    patrol_times(desk, 2)
    assert desk.memory.get(note.id, count=False).text == f"{PARSE_FAILED} {{not json"
    repaired = '{"action": "told again", "actors": ["Mika"], "when": ["2026-04-15"]}'
    desk.memo("notes", "update", key=note.id, content=repaired)
    assert desk.json("trigger_patrol", messages=[])["nodes_created"] == 1
    assert desk.memory.get(note.id, count=False).text == "[2026-04-15] told again"


def test_the_longest_scene_that_cannot_be_read_stops_no_patrol(wordy: Desk) -> None:
    wordy.text("update_notes", scenes=[scene("one"), scene("two")])
    (note, _) = sight.readable_rows(wordy.memory, sight.own_row_filters(wordy.being, sight.SCENE))
    assert wordy.memo("notes", "update", key=note.id, content="{" * 1_000_000)["success"]
    assert wordy.json("trigger_patrol", messages=[])["nodes_created"] == 1
    assert wordy.memory.get(note.id, count=False).text.startswith(f"{PARSE_FAILED} {{{{")


def test_an_importance_of_hundreds_of_digits_is_one(desk: Desk) -> None:
    desk.text("update_notes", scenes=[scene("one")])
    (note,) = sight.readable_rows(desk.memory, sight.own_row_filters(desk.being, sight.SCENE))
    content = '{"action": "one", "importance": 1' + "0" * 400 + "}"
    assert desk.memo("notes", "update", key=note.id, content=content)["success"]
    assert desk.memory.get(note.id, count=False).importance == 1


def test_without_a_model_scenes_that_are_like_none_go_to_business(desk: Desk) -> None:
    desk.live(scene("one"), scene("two"))
    roots = {each.name: each.id for each in clusters_of(desk.memory, desk.being)}
    assert set(roots) == {"Business", "Private"}
    assert len(desk.memory.clusters.members(roots["Business"])) == 2


def test_themes_of_three_or_more_leave_a_root_of_more_than_ten(desk: Desk) -> None:
    told = [scene(f"{GARDEN} nr{i}", themes=["garden"]) for i in range(6)]
    told += [
        scene(f"{HARBOUR} nr{i}", "2019-11-30", themes=["harbour"], importance=0.9)
        for i in range(5)
    ]
    desk.live(*told[:10])
    assert len(clusters_of(desk.memory, desk.being)) == 2, "ten are not more than ten"
    desk.live(told[10])
    subs = [each for each in clusters_of(desk.memory, desk.being) if not each.attrs.get("root")]
    assert sorted(each.name for each in subs) == ["garden", "harbour"]
    assert all(describe_cluster(desk.memory, each)[1].count(" / ") == 2 for each in subs)
    (garden,) = [each for each in subs if each.name == "garden"]
    desk.live(scene(f"{GARDEN} nr99"))
    assert len(desk.memory.clusters.members(garden.id)) == 7, "the next one finds its cluster"


def test_clusters_quote_no_node_that_is_forgotten_or_purged(desk: Desk) -> None:
    desk.live(
        *(scene(f"{GARDEN} elephant nr{i}") for i in range(6)),
        *(scene(f"{HARBOUR} nr{i}", "2019-11-30") for i in range(5)),
    )
    assert len(clusters_of(desk.memory, desk.being)) == 4
    assert desk.text("recall_memory").count("elephant") >= 2, "in a name and a digest"
    first, *others = [node.id for node in nodes(desk) if "elephant" in node.text]
    desk.memory.forget(first)
    desk.memory.purge(*others)
    assert "elephant" not in desk.text("recall_memory")
    for each in clusters_of(desk.memory, desk.being):
        assert "elephant" not in desk.text("recall_memory", cluster_id=each.id)
        assert "elephant" not in f"{each.name} {each.digest} {each.attrs}"
    listed = desk.outcome("get_clusters", being_id=desk.being).wire["value"]
    assert sum(each["nodes"] for each in listed) == 5


def test_a_cluster_of_two_joins_one_like_it_or_its_parent(desk: Desk) -> None:
    desk.live(*(scene(f"{GARDEN} nr{i}") for i in range(6)),
              *(scene(f"{HARBOUR} nr{i}", "2019-11-30") for i in range(5)))  # fmt: skip
    harbour = next(
        each for each in clusters_of(desk.memory, desk.being)
        if "harbour" in describe_cluster(desk.memory, each)[1]
    )  # fmt: skip
    for node in desk.memory.clusters.members(harbour.id)[2:]:
        desk.memory.revise(node.id, state="dead")
    desk.json("trigger_patrol", messages=[])
    assert harbour.id not in [each.id for each in clusters_of(desk.memory, desk.being)]
    business = next(e for e in clusters_of(desk.memory, desk.being) if e.name == "Business")
    held = desk.memory.clusters.members(business.id, states=["active", "dead"])
    assert len([node for node in held if "harbour" in node.text]) == 5, "all of them moved"


def test_importance_fades_until_a_node_is_dying_but_not_a_pinned_one(desk: Desk) -> None:
    desk.live(scene("soon gone", importance=0.06), scene("pinned", importance=0.06),
              scene("stays", importance=1.0))  # fmt: skip
    by_name = {scene_of(node).action: node.id for node in nodes(desk)}
    desk.memory.revise(by_name["pinned"], pinned=True)
    lives = math.ceil(30 * math.log(0.06 / 0.05))
    patrol_times(desk, lives - 2)
    assert desk.memory.get(by_name["soon gone"], count=False).state == "active"
    patrol_times(desk, 1)
    states = {name: desk.memory.get(each, count=False).state for name, each in by_name.items()}
    assert states == {"soon gone": "dying", "pinned": "active", "stays": "active"}


def test_the_formula_is_importance_times_e_to_minus_t_by_30_never_above_importance() -> None:
    assert faded_importance(0.5, 30, 0) == pytest.approx(0.5 / math.e)
    assert faded_importance(0.5, 30, 30) == 0.5
    assert faded_importance(0.5, 1, 99) == 0.5


@pytest.mark.parametrize("others", [0, 60])
def test_nodes_keep_their_age_after_an_import_that_numbers_them_anew(
    desk: Desk, tmp_path: Path, others: int
) -> None:
    file = tmp_path / "export.jsonl"
    gone = [desk.memory.remember(f"one of many {n}").id for n in range(30)]
    desk.live(scene("lived before", importance=0.06))
    patrol_times(desk, 3)
    desk.memory.purge(*gone)
    with lease(desk.memory) as space, file.open("w") as written:
        export_space(space, written.write)
    with open_desk(tmp_path / "new", None) as made:
        for n in range(others):
            made.memory.remember(f"already here {n}")
        with lease(made.memory) as space:
            import_file(space, file, trust_file=True)
        new = replace(made, being=desk.being, caller=replace(made.caller, subject=desk.being))
        new.live(scene("lived since", importance=0.06))
        assert len(nodes(new, "active")) == 2
        patrol_times(new, 2)
        assert ["lived before" in node.text for node in nodes(new, "dying")] == [True]
        patrol_times(new, 4)
        assert len(nodes(new, "dying")) == 2


def test_marks_of_an_older_release_count_as_well(desk: Desk) -> None:
    desk.live(scene("lived before", importance=0.06))
    being, (node,) = sight.get_being(desk.memory, desk.being), nodes(desk)
    attrs = {name: value for name, value in being.attrs.items() if name != "marks_at"}
    desk.memory.revise(being.id, attrs={**attrs, "marks": [node.num] * 4})
    desk.live(scene("lived since", importance=0.06))
    patrol_times(desk, 2)
    assert [each.id for each in nodes(desk, "dying")] == [node.id]


def test_remembering_lets_a_node_live_longer(desk: Desk) -> None:
    desk.live(scene("twin one", importance=0.06), scene("twin two", importance=0.06))
    one, two = (node.id for node in nodes(desk))
    for _ in range(4):
        desk.text("recall_memory", node_id=one)
    patrol_times(desk, 6)
    assert (desk.memory.get(one, count=False).state, desk.memory.get(two, count=False).state) == (
        "active",
        "dying",
    )


def test_a_dying_or_dead_node_that_is_remembered_is_revived(desk: Desk) -> None:
    desk.live(scene("will return", importance=0.06))
    (node,) = nodes(desk)
    patrol_times(desk, 8)
    assert desk.memory.get(node.id, count=False).state == "dying"
    desk.memory.revise(node.id, state="dead")
    assert "status: dead" in desk.text("recall_memory", node_id=node.id)
    assert desk.memory.usage(node.id).accesses == 2, "a dead node counts twice"
    desk.json("trigger_patrol", messages=[])
    assert desk.memory.get(node.id, count=False).state == "active"
    assert node.id in desk.text("search_memory", query="will return")
    assert desk.memory.usage(node.id).accesses == 5, "and is given two more"


def test_a_patrol_that_cannot_take_its_scenes_is_not_begun_again_and_again(desk: Desk) -> None:
    (file,) = desk.library.path.glob("spaces/*.db")
    with contextlib.closing(apsw.Connection(str(file))) as disk:
        disk.execute("CREATE TRIGGER stop BEFORE INSERT ON members"
                     " BEGIN SELECT raise(ABORT, 'no'); END")  # fmt: skip
        desk.text("update_notes", scenes=[scene(f"{GARDEN} {at}") for at in range(10)])
        desk.idle()
        told = [
            e.payload or {} for e in desk.memory.events.all(kind=patrol.PATROL_EVENT, limit=1_000)
        ]
        assert [each["step"] for each in told if "failed" in each].count("gather") == 1
        disk.execute("DROP TRIGGER stop")
    desk.text("update_notes", scenes=[scene(f"{GARDEN} and more")])
    desk.idle()
    assert len(nodes(desk)) == 11


def test_few_patrols_run_in_the_background_at_the_same_time(desk: Desk) -> None:
    beings = [
        desk,
        *(desk.other(f"Nr {number}") for number in range(running.MAX_PATROL_THREADS + 4)),
    ]
    folder = desk.library.path / "turns"
    with contextlib.ExitStack() as held:
        for each in beings:  # all of them wait for another process
            lock = folder / f"patrol-{desk.memory.name}-{each.being}.lock"
            held.enter_context(file_lock(lock, 1))
        for each in beings:
            each.text("update_notes", scenes=[scene(f"nr {i}") for i in range(10)])
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("commonplace-patrol") == running.MAX_PATROL_THREADS
    desk.idle()
    assert [len(nodes(each)) for each in beings] == [10] * len(beings)


def test_ten_scenes_fire_a_patrol_in_the_background_and_nine_do_not(desk: Desk) -> None:
    desk.text("update_notes", scenes=[scene(f"nr {i}") for i in range(9)], notes=["a note"] * 5)
    desk.idle()
    assert not nodes(desk)
    desk.text("update_notes", scenes=[scene("the tenth")])
    desk.idle()
    assert len(nodes(desk)) == 10


def test_scenes_that_cannot_be_read_start_no_patrol(desk: Desk) -> None:
    desk.text("update_notes", scenes=[scene(f"scene {i}") for i in range(9)])
    for note in sight.readable_rows(desk.memory, sight.own_row_filters(desk.being, sight.SCENE)):
        desk.memo("notes", "update", key=note.id, content="no JSON")
    marker = desk.json("trigger_patrol", messages=[])["marker_id"]
    desk.text("update_notes", scenes=[scene("one more")])
    desk.idle()
    assert sight.get_being(desk.memory, desk.being).attrs["patrol_marker"] == marker


def test_one_patrol_at_a_time_for_each_being(desk: Desk) -> None:
    desk.text("update_notes", scenes=[scene(f"nr {i}") for i in range(5)])
    done: list[dict[str, object]] = []
    threads = [
        threading.Thread(target=lambda: done.append(desk.json("trigger_patrol", messages=[])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each["nodes_created"] for each in done) == [0, 0, 0, 5]
    assert sight.get_being(desk.memory, desk.being).attrs["sessions"] == 4


def test_while_another_process_patrols_the_answer_is_busy(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from commonplace.storage.locking import file_lock

    monkeypatch.setattr(running, "BUSY_SECONDS", 0.1)
    file = desk.library.path / "turns" / f"patrol-default-{desk.being}.lock"
    with file_lock(file):
        made = running.runtime_of(desk.library)
        call = _call(desk)
        assert made.patrol(call, desk.being, wait=0.1).status == "busy"
    assert made.patrol(call, desk.being, wait=0.1).status == "ok"


def _call(desk: Desk) -> object:
    from commonplace.dialects.contract import Call, RequestInfo
    from commonplace.engine.model import NOBODY

    return Call(memory=desk.memory, caller=desk.caller, request_info=RequestInfo(),
                origin=NOBODY)  # fmt: skip


STEPS = (
    "listen", "gather", "count", "fade", "consolidate", "revive", "split", "shrink", "reflect",
)  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_leaves_the_others_running(
    desk: Desk, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(patrol._Patrol, step, broken)
    done = desk.live(scene("one"))
    assert done["status"] == "ok"
    events = [each.payload for each in desk.memory.events.all(kind=patrol.PATROL_EVENT)]
    assert {"step": step, "failed": "RuntimeError"} in events
    told = {payload["step"] for payload in events if payload and "failed" not in payload}
    assert told == {"gather", "count"} - {step}


def test_a_whole_patrol_is_undone_at_once(desk: Desk) -> None:
    told = [scene(f"{GARDEN} nr{i}") for i in range(11)]
    desk.text("update_notes", scenes=told[:9])
    desk.idle()
    before = sight.get_being(desk.memory, desk.being).attrs
    desk.json("trigger_patrol", messages=[])
    assert len(nodes(desk)) == 9
    desk.memory.undo()
    assert not nodes(desk)
    assert (
        len(list(sight.readable_rows(desk.memory, sight.own_row_filters(desk.being, sight.SCENE))))
        == 9
    )
    assert sight.get_being(desk.memory, desk.being).attrs == before
    assert not clusters_of(desk.memory, desk.being)


def test_what_it_did_is_in_the_life_cycle_log(desk: Desk) -> None:
    desk.live(scene("soon gone", importance=0.06))
    (node,) = nodes(desk)
    patrol_times(desk, 8)
    events = desk.memory.events.all(kind=patrol.PATROL_EVENT, subject=desk.being)
    dying = [each.payload for each in events if each.payload and each.payload["step"] == "dying"]
    assert [each["nodes"] for each in dying if each] == [[node.id]]


def test_patrol_touches_no_other_being_and_no_other_dialects_memories(desk: Desk) -> None:
    other = desk.other("Brin")
    other.text("update_notes", scenes=[scene("of another")])
    foreign = desk.memory.remember("A note of another agent.", importance=0.01)
    desk.live(scene("mine", importance=0.06))
    patrol_times(desk, 10)
    assert desk.memory.get(foreign.id, count=False).version == foreign.version
    assert not nodes(other)
    assert sight.get_being(desk.memory, other.being).attrs["sessions"] == 0


def test_scenes_in_a_script_the_model_does_not_know_find_their_cluster_by_words(
    wordy: Desk,
) -> None:
    told = [scene(f"庭でトマトを植えた 第{i}回") for i in range(11)]
    wordy.live(*told)
    subs = [each for each in clusters_of(wordy.memory, wordy.being) if not each.attrs.get("root")]
    assert len(subs) == 1
    wordy.live(scene("庭でトマトを植えた また"))
    assert len(wordy.memory.clusters.members(subs[0].id)) == 12


def test_the_diary_needs_a_model(desk: Desk) -> None:
    desk.live(scene("one"))
    assert not records.diary_entries(desk.memory, desk.being)
