"""Patrols that think: what is asked, what of the answers is taken, and a model that misbehaves."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from commonplace.dialects.being import beings, patrol, records, running, sight
from commonplace.dialects.being.beings import clusters_of
from commonplace.dialects.being.scenes import scene_of
from commonplace.engine.finding.filters import Filters
from commonplace.platform import llm
from commonplace.storage.fields import STATES

from .conftest import Desk, scene
from .lives import nodes, scripted
from .model_server import ModelServer

KEY = {"x-llm-api-key": "sk-ant-of-the-header"}


def spending(desk: Desk) -> list[dict[str, Any]]:
    return [dict(each.payload or {}) for each in desk.memory.events.all(kind="being.llm")]


def test_without_a_key_nothing_is_asked(desk: Desk, model: ModelServer) -> None:
    desk.live(scene("one"), scene("two"))
    assert not model.asked


def test_the_headers_key_comes_before_the_owners(thinker: Desk, model: ModelServer) -> None:
    model.script = scripted
    thinker.text("update_notes", scenes=[scene("one")])
    thinker.json("trigger_patrol", KEY, messages=[])
    assert set(model.keys) == {"sk-ant-of-the-header"}
    model.keys.clear()
    thinker.live(scene("two"))
    assert set(model.keys) == {"sk-ant-kept-by-owner"}


@pytest.mark.parametrize("key", ["sk-ant-abcdefgh", "sk-proj-abcdefgh"])
def test_both_wires_are_spoken(thinker: Desk, model: ModelServer, key: str) -> None:
    model.script = scripted
    thinker.text("update_notes", scenes=[scene("family cake letter")])
    thinker.json("trigger_patrol", {"x-llm-api-key": key}, messages=[])
    assert model.count("classify") == 1
    homes = {each.name: each.id for each in clusters_of(thinker.memory, thinker.being)}
    assert len(thinker.memory.clusters.members(homes["Private"])) == 1


def test_the_key_is_never_stored_in_the_clear_nor_audited(
    thinker: Desk, model: ModelServer
) -> None:
    model.script = scripted
    thinker.text("update_notes", scenes=[scene("one")])
    thinker.json("trigger_patrol", KEY, messages=[])
    held = b"".join(file.read_bytes() for file in thinker.library.path.rglob("*") if file.is_file())
    assert b"of-the-header" not in held
    assert b"kept-by-owner" not in held
    about = running.runtime_of(thinker.library).keys().describe("default")
    assert about["configured"]
    assert "kept-by-owner" not in json.dumps(about)


def test_a_key_of_one_space_cannot_be_read_for_another(thinker: Desk) -> None:
    keys = running.runtime_of(thinker.library).keys()
    with keys._sealed.store.maintain() as connection:
        connection.execute(
            "INSERT INTO settings SELECT 'llm key elsewhere', value FROM settings"
            " WHERE name = 'llm key default'"
        )
    with pytest.raises(Exception, match="cannot be read"):
        keys.get("elsewhere")


def test_messages_become_scenes_of_some_importance(thinker: Desk, model: ModelServer) -> None:
    def script(what: str, shown: Any) -> Any:
        if what == "extract":
            assert shown == [{"role": "user", "content": "We planted a tree."}]
            full = scene("Planted a tree", importance=0.8)
            return {"scenes": [full, {**full, "importance": 0.2}, {"action": "no actors"}]}
        return scripted(what, shown)

    model.script = script
    said = [{"role": "user", "content": "We planted a tree."}]
    done = thinker.json("trigger_patrol", messages=said)
    assert (done["scenes_created"], done["nodes_created"]) == (1, 1)
    assert scene_of(nodes(thinker)[0]).action == "Planted a tree"


def test_messages_after_the_marker_are_all_new_and_others_are_known_again(
    thinker: Desk, model: ModelServer
) -> None:
    model.script = scripted
    said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    first = thinker.json("trigger_patrol", messages=said)
    more = [*said, {"role": "user", "content": "three"}]
    thinker.json("trigger_patrol", messages=more)
    assert thinker.text("search_history", query="one").count("user: one") == 1
    marker = thinker.json("trigger_patrol", messages=[])["marker_id"]
    assert marker != first["marker_id"]
    thinker.json("trigger_patrol", messages=[{"role": "user", "content": "three"}],
                 marker_id=marker)  # fmt: skip
    assert thinker.text("search_history", query="three").count("user: three") == 2


def twins(thinker: Desk, model: ModelServer) -> list[str]:
    model.script = lambda what, shown: scripted(what, shown) if what != "consolidate" else {}
    thinker.live(scene("garden soil", themes=["a"], importance=0.5),
                 scene("garden spade", "2026-04-20", themes=["b"]))  # fmt: skip
    found = sorted(nodes(thinker), key=lambda node: node.num)
    return [node.id for node in found]


def test_a_merge_joins_dates_and_themes_and_the_absorbed_is_dead(
    thinker: Desk, model: ModelServer
) -> None:
    one, two = twins(thinker, model)

    def script(what: str, shown: Any) -> Any:
        if what != "consolidate":
            return scripted(what, shown)
        assert {"id", "action", "when", "status", "fresh", "importance"} <= set(shown[0])
        merge = {"survivor_id": one, "absorbed_ids": [two], "merged_action": "Gardened",
                 "merged_feeling": "content"}  # fmt: skip
        return {"merges": [merge], "make_dead": []}

    model.script = script
    thinker.live(scene("garden watering"))
    survivor = thinker.memory.get(one, count=False)
    told = scene_of(survivor)
    assert (told.action, told.feeling, told.themes) == ("Gardened", "content", ("a", "b"))
    assert told.when == ({"date": "2026-04-20", "action": "garden spade"}, "2026-04-14")
    assert survivor.importance == pytest.approx(0.55)
    assert thinker.memory.get(two, count=False).state == "dead"
    assert "2026-04-20（garden spade）" in told.line


NONSENSE: list[Any] = [
    "no JSON at all",
    "{",
    {"merges": "many"},
    {"merges": [{"survivor_id": "UNKNOWN", "absorbed_ids": ["ONE"]}]},
    {"merges": [{"survivor_id": "ONE", "absorbed_ids": ["ONE"]}]},
    {"merges": [{"survivor_id": "ONE", "absorbed_ids": ["TWO"]}], "make_dead": ["TWO"]},
    {"merges": [], "make_dead": ["ONE"]},
    {"merges": [{"survivor_id": "ONE", "absorbed_ids": []}]},
    {"merges": [{"survivor_id": "ONE", "absorbed_ids": ["TWO"], "merged_action": 7}]},
    ["merges"],
]


@pytest.mark.parametrize("answer", NONSENSE)
def test_nonsense_changes_nothing(thinker: Desk, model: ModelServer, answer: Any) -> None:
    one, two = twins(thinker, model)
    before = [thinker.memory.get(each, count=False).version for each in (one, two)]

    def script(what: str, shown: Any) -> Any:
        if what != "consolidate":
            return scripted(what, shown)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return text.replace("ONE", one).replace("TWO", two)

    model.script = script
    assert thinker.live(scene("garden watering"))["nodes_created"] == 1
    after = [thinker.memory.get(each, count=False).version for each in (one, two)]
    assert before == after


@pytest.mark.parametrize("manner", ["429", "500", "garbage", "empty", "401"])
def test_a_model_that_fails_leaves_the_patrol_as_without_one(
    thinker: Desk, model: ModelServer, manner: str
) -> None:
    model.manners = [manner]
    done = thinker.live(*(scene(f"garden soil spade nr{i}", themes=["garden"]) for i in range(9)))
    assert (done["status"], done["nodes_created"]) == ("ok", 9)
    done = thinker.live(scene("garden soil spade nr10"), scene("garden soil spade nr11"))
    names = [each.name for each in clusters_of(thinker.memory, thinker.being)]
    assert "garden" in names, "the mechanical split took over"
    assert all("error" in each for each in spending(thinker))


def test_a_model_that_hangs_costs_no_more_than_its_time(
    thinker: Desk, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(running.Runtime.patrol, "__kwdefaults__",
                        {**running.Runtime.patrol.__kwdefaults__, "seconds": 1.0})  # fmt: skip
    thinker.live(scene("warm up"))
    model.manners = ["hung"]
    begun = time.monotonic()
    done = thinker.live(scene("one"), scene("two"))
    assert done["nodes_created"] == 2
    assert time.monotonic() - begun < 15


def test_a_write_while_the_model_thinks_is_never_lost(thinker: Desk, model: ModelServer) -> None:
    one, two = twins(thinker, model)

    def during(what: str) -> None:
        if what == "consolidate":
            thinker.memory.revise(two, importance=0.9)
            thinker.text("update_notes", scenes=[scene("came meanwhile")])

    def script(what: str, shown: Any) -> Any:
        if what != "consolidate":
            return scripted(what, shown)
        return {"merges": [{"survivor_id": one, "absorbed_ids": [two]}], "make_dead": []}

    model.script, model.during = script, during
    thinker.live(scene("garden watering"))
    changed = thinker.memory.get(two, count=False)
    assert (changed.state, changed.importance) == ("active", 0.9)
    assert thinker.memory.get(one, count=False).importance == 0.5
    waiting = list(
        sight.readable_rows(thinker.memory, sight.own_row_filters(thinker.being, sight.SCENE))
    )
    assert [scene_of(note).action for note in waiting] != []
    model.during = lambda what: None
    model.script = scripted
    assert thinker.json("trigger_patrol", messages=[])["nodes_created"] == 1


def test_a_scene_that_is_changed_while_the_model_thinks_waits_as_it_was_changed(
    thinker: Desk, model: ModelServer
) -> None:
    thinker.text("update_notes", scenes=[scene("one"), scene("two")])
    changed, _ = sight.readable_rows(
        thinker.memory, sight.own_row_filters(thinker.being, sight.SCENE), "oldest"
    )

    def during(what: str) -> None:
        if what == "classify":
            thinker.memo("notes", "update", key=changed.id, content=json.dumps(scene("other")))

    model.script, model.during = scripted, during
    assert thinker.json("trigger_patrol", messages=[])["nodes_created"] == 1
    model.during = lambda what: None
    (waiting,) = sight.readable_rows(
        thinker.memory, sight.own_row_filters(thinker.being, sight.SCENE)
    )
    assert waiting.id == changed.id
    assert thinker.json("trigger_patrol", messages=[])["nodes_created"] == 1
    assert {scene_of(node).action for node in nodes(thinker)} == {"other", "two"}


def test_what_the_being_writes_into_its_diary_stays_beside_what_patrols_tell(
    thinker: Desk, model: ModelServer
) -> None:
    diaries = iter(["First telling.", "Second telling."])

    def during(what: str) -> None:
        if what == "reflect" and not thinker.memo("diary", "get")["message"]:
            thinker.memo("diary", "append", content="By my own hand.")

    def script(what: str, shown: Any) -> Any:
        if what == "reflect":
            return {"diary": next(diaries), "reflection": ["On."]}
        return scripted(what, shown)

    model.script, model.during = script, during
    thinker.live(scene("one"))
    today = records.today()
    told = thinker.memo("diary", "get", key=today)["message"]
    assert told == "By my own hand.\n\nFirst telling."
    thinker.live(scene("two"))
    told = thinker.memo("diary", "get", key=today)["message"]
    assert told == "By my own hand.\n\nSecond telling."


def everything(desk: Desk) -> list[str]:
    """Every memory, cluster, membership, link and line of conversation as it is."""
    every = sight.readable_rows(desk.memory, Filters(states=STATES), "oldest")
    rows = [
        (row.id, row.kind, row.state, row.title, row.text, row.importance, row.trust,
         sorted(row.tags), json.dumps(row.attrs, sort_keys=True))
        for row in every
    ]  # fmt: skip
    homes = desk.memory.clusters.homes(*(row[0] for row in rows))
    clusters = [
        (each.id, each.name, each.digest, each.parent, json.dumps(each.attrs, sort_keys=True))
        for each in desk.memory.clusters.all()
    ]
    links = [(link.source, link.target, link.kind) for row in rows
             for link in desk.memory.links.of(row[0])]  # fmt: skip
    return sorted(map(repr, [*rows, *clusters, *homes.items(), *set(links)]))


def test_all_that_a_patrol_with_a_model_did_is_in_the_log_and_undone_at_once(
    thinker: Desk, model: ModelServer
) -> None:
    model.script = lambda what, shown: scripted(what, shown) if what == "classify" else "no"
    garden = [scene(f"garden spade soil nr{n}", themes=["garden"]) for n in range(12)]
    fading = [scene(f"family cake letter nr{n}", importance=0.06) for n in range(3)]
    thinker.live(*garden[:6], *fading)
    thinker.live(*garden[6:])
    for _ in range(8):
        thinker.json("trigger_patrol", messages=[])
    dying = nodes(thinker, "dying")
    assert len(dying) >= 2
    for _ in range(2):
        thinker.text("recall_memory", node_id=dying[-1].id)
    thinker.text("update_notes", scenes=[scene("office invoice", importance=0.9)])
    before = everything(thinker)
    known = len(thinker.memory.events.all(kind=patrol.PATROL_EVENT, limit=1_000))

    def script(what: str, shown: Any) -> Any:
        if what == "extract":
            told = {"action": "They met", "actors": ["Ann"], "when": ["2026-05-01"]}
            return {"scenes": [{**told, "importance": 0.7}]}
        if what == "consolidate":
            near = [each for each in shown if each["action"].startswith("garden")]
            alone = [each["id"] for each in shown if each["id"] == dying[0].id]
            merges = [{"survivor_id": near[0]["id"], "absorbed_ids": [near[1]["id"]]}]
            return {"merges": merges if len(near) > 1 else [], "make_dead": alone}
        if what == "split":
            two = [each["id"] for each in shown if each["action"].startswith("garden")][:4]
            return {"splits": [{"name": "Spades", "node_ids": two}]}
        return scripted(what, shown)

    model.script = script
    thinker.json("trigger_patrol", messages=[{"role": "user", "content": "We met Ann."}])
    events = thinker.memory.events.all(kind=patrol.PATROL_EVENT, limit=1_000)[known:]
    told = {str((each.payload or {})["step"]) for each in events}
    wanted = {"listen", "extract", "gather", "count", "consolidate", "revived", "split", "reflect"}
    assert told >= wanted, told
    assert everything(thinker) != before
    thinker.memory.undo()
    assert everything(thinker) == before


def test_others_write_and_read_at_once_while_the_model_thinks(
    thinker: Desk, model: ModelServer
) -> None:
    taken: list[float] = []

    def during(what: str) -> None:
        begun = time.monotonic()
        thinker.memory.remember("written meanwhile")
        thinker.memory.browse(limit=1)
        taken.append(time.monotonic() - begun)
        time.sleep(0.2)

    model.script, model.during = scripted, during
    thinker.live(scene("one"), scene("two"))
    assert taken
    assert max(taken) < 5, "no lock is held over a question"


def test_a_split_by_the_model_needs_two_nodes_and_names_the_cluster(
    thinker: Desk, model: ModelServer
) -> None:
    model.script = scripted
    told = [f"office budget nr{i}" for i in range(6)] + [f"school exam nr{i}" for i in range(5)]
    thinker.live(*(scene(each) for each in (*told, "chess clock")))
    subs = {
        e.name: e.id for e in clusters_of(thinker.memory, thinker.being) if not e.attrs.get("root")
    }
    assert set(subs) == {"office", "school"}
    assert len(thinker.memory.clusters.members(subs["office"])) == 6


@pytest.mark.parametrize(
    "answer",
    [{"splits": [{"name": "x", "node_ids": ["unknown", "ids"]}]}, {"splits": None}, "no"],
)
def test_a_split_that_is_nonsense_changes_no_cluster_by_it(
    thinker: Desk, model: ModelServer, answer: Any
) -> None:
    model.script = lambda what, shown: answer if what == "split" else scripted(what, shown)
    thinker.live(*(scene(f"{'abcdefghijkl'[i] * 5} {i}", f"20{10 + i}-01-0{1 + i % 9}")
                   for i in range(12)))  # fmt: skip
    assert {each.name for each in clusters_of(thinker.memory, thinker.being)} >= {
        "Business",
        "Private",
    }
    assert "x" not in {each.name for each in clusters_of(thinker.memory, thinker.being)}


def test_diary_and_thoughts_come_from_the_scenes_of_the_patrol(
    thinker: Desk, model: ModelServer
) -> None:
    def script(what: str, shown: Any) -> Any:
        if what == "reflect":
            assert shown["scenes"] == ["2026-04-14 — Planted tomatoes"]
            return {"diary": "A good day.", "reflection": ["I like soil.", "More water."]}
        return scripted(what, shown)

    model.script = script
    thinker.live(scene("Planted tomatoes"))
    assert "A good day." in thinker.memo("diary", "get")["message"]
    assert records.thoughts(thinker.memory, thinker.being) == "- I like soil.\n- More water."
    assert "I like soil." in thinker.json("get_context")["snapshot"]


def test_what_is_made_of_text_from_outside_stays_from_outside(
    thinker: Desk, model: ModelServer
) -> None:
    model.script = lambda what, shown: (
        {"scenes": [scene("Obey the page", importance=0.9)]} if what == "extract"
        else scripted(what, shown)
    )  # fmt: skip
    thinker.json("trigger_patrol", messages=[{"role": "system", "content": "a page says: obey"}])
    (node,) = nodes(thinker)
    assert node.trust == "external"
    assert {each.trust for each in records.diary_entries(thinker.memory, thinker.being)} == {
        "external"
    }
    soul = beings.soul(thinker.memory, thinker.being)
    assert soul is not None and soul.trust == "stated"


def test_auto_recall_finds_the_most_important_nodes_of_the_themes_a_model_names(
    thinker: Desk, model: ModelServer
) -> None:
    told = [scene(f"garden spade number{n}", importance=n / 10) for n in range(5)]
    model.script = lambda what, shown: scripted(what, shown) if what == "classify" else "no"
    thinker.live(*told, scene("office invoice", importance=1.0))

    def choosing(what: str, shown: Any) -> Any:
        assert (what, shown["message"]) == ("choose", "shall we dig?")
        assert set(shown["themes"]) == {"Business", "Private"}
        return {"keywords": ["Private"]}

    model.script = choosing
    asked = {"being_id": thinker.being, "user_message": "shall we dig?"}
    found = thinker.outcome("memory_auto_recall", **asked).wire["value"]
    assert found["keywords"] == ["Private"]
    assert [node["importance"] for node in found["nodes"]] == [0.4, 0.3, 0.2]
    assert found["recall_content"].startswith("<memory-recall>\n")
    assert "garden spade number4" in found["recall_content"]
    for node in found["nodes"]:
        assert thinker.memory.usage(node["id"]).accesses == 1
    assert spending(thinker)[-1]["purpose"] == "choose"


def test_auto_recall_without_a_useful_model_says_what_to_do(
    thinker: Desk, model: ModelServer
) -> None:
    asked = {"being_id": thinker.being, "user_message": "shall we dig?"}
    empty = thinker.outcome("memory_auto_recall", **asked).wire["value"]
    assert (empty["nodes"], empty["keywords"], model.asked) == ([], [], [])
    model.script = scripted
    thinker.live(scene("garden spade"))
    for answer in ("no idea", {"keywords": ["Another's"]}, {"keywords": "Private"}):
        model.script = lambda what, shown, answer=answer: answer  # type: ignore[misc]
        assert "search-nodes" in str(thinker.outcome("memory_auto_recall", **asked).error)
    running.runtime_of(thinker.library).keys().forget("default")
    assert "X-LLM-API-Key" in str(thinker.outcome("memory_auto_recall", **asked).error)


def test_tokens_and_cost_are_told_and_an_unknown_price_is_not_zero(
    thinker: Desk, model: ModelServer
) -> None:
    model.script = scripted
    thinker.live(scene("one"))
    told = next(each for each in spending(thinker) if each["purpose"] == "classify")
    assert (told["input_tokens"], told["output_tokens"], told["tries"]) == (1000, 100, 1)
    assert float(told["cost_usd"]) > 0
    running.runtime_of(thinker.library).keys().put(
        "default", "sk-ant-kept-by-owner", model="nobody-1"
    )
    thinker.live(scene("two"))
    assert spending(thinker)[-1]["model"] == "nobody-1"
    assert spending(thinker)[-1]["cost_usd"] is None


def test_answers_of_no_use_are_paid_for_too(thinker: Desk, model: ModelServer) -> None:
    model.script = lambda what, shown: "no JSON at all"
    thinker.live(scene("one"))
    told = next(each for each in spending(thinker) if each["purpose"] == "classify")
    assert "requested schema" in told["error"]
    assert (told["input_tokens"], told["output_tokens"], told["tries"]) == (2000, 200, 2)
    assert float(told["cost_usd"]) > 0


@pytest.mark.parametrize("operator", ["anthropic", "openai"])
@pytest.mark.parametrize(
    ("key", "provider"), [("sk-ant-12345678", "anthropic"), ("sk-12345678", "openai")]
)
def test_a_key_goes_to_its_own_provider_whatever_the_operator_uses(
    key: str, provider: str, operator: str
) -> None:
    environ = {"COMMONPLACE_LLM_PROVIDER": operator, "COMMONPLACE_LLM_MODEL": "of-the-operator"}
    assert llm.provider_of(key, environ) == provider
    assert llm.provider_of("12345678", environ) == operator
    access = llm.with_operator_settings(llm.Access(key, provider), environ)
    assert (access.provider, access.url) == (provider, llm.URLS[provider])
    assert (access.model == "of-the-operator") == (provider == operator)


def test_after_repeated_failures_the_model_is_left_alone(model: ModelServer) -> None:
    access = llm.with_operator_settings(llm.Access("sk-ant-12345678"), model.environ())
    model.manners = ["500"]
    from commonplace.dialects.being.thinking import Roots

    for _ in range(5):
        with pytest.raises(llm.ModelUnavailable):
            llm.ask(access, "x", "y", Roots, seconds=0.5)
    asked = len(model.asked)
    with pytest.raises(llm.ModelUnavailable, match="is not called"):
        llm.ask(access, "x", "y", Roots, seconds=0.5)
    assert len(model.asked) == asked


@pytest.mark.parametrize("provider", llm.PROVIDERS)
@pytest.mark.parametrize("manner", ["endless", "compressed"])
def test_an_answer_is_read_only_as_far_as_one_may_go(
    model: ModelServer, manner: str, provider: str
) -> None:
    from commonplace.dialects.being.thinking import Roots

    model.manners = [manner]
    access = llm.with_operator_settings(llm.Access("sk-12345678", provider), model.environ())
    with pytest.raises(llm.ModelUnavailable, match="compressed or longer than 4,194,304 bytes"):
        llm.ask(access, "x", "y", Roots, seconds=30)
    assert len(model.asked) == 1  # another would be no shorter
    assert model.sent < 20_000_000  # the limit, and what the sockets' buffers hold


@pytest.mark.parametrize("provider", llm.PROVIDERS)
def test_the_longest_answer_is_taken_and_none_longer(
    model: ModelServer, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    from commonplace.dialects.being.thinking import Roots

    access = llm.with_operator_settings(llm.Access("sk-12345678", provider), model.environ())
    model.script = lambda what, shown: {"roots": []}
    llm.ask(access, "x", "y", Roots)
    for most in (model.sent, model.sent - 1):
        monkeypatch.setattr(llm, "ANSWER_BYTES", most)
        if most == model.sent:
            llm.ask(access, "x", "y", Roots)
        else:
            with pytest.raises(llm.ModelUnavailable, match="longer than"):
                llm.ask(access, "x", "y", Roots)


def test_a_service_that_is_busy_once_is_asked_again(model: ModelServer) -> None:
    from commonplace.dialects.being.thinking import Roots

    access = llm.with_operator_settings(llm.Access("sk-ant-12345678"), model.environ())
    model.manners = ["429", "500", "well"]
    model.script = lambda what, shown: {"roots": []}
    _, spent = llm.ask(access, "x", "y", Roots, seconds=10)
    assert spent.tries == 3


def test_nothing_that_speaks_to_models_is_imported_before_a_question() -> None:
    import subprocess
    import sys

    code = (
        "import sys, commonplace.dialects.being, commonplace.dialects.being.patrol;"
        "print([m for m in ('pydantic_ai', 'anthropic', 'openai') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
