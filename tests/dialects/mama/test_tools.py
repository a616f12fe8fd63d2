"""The four tools: the seed's examples in, the documented keys out, and every failure."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from commonplace.dialects.contract import as_json

from .conftest import SEED_CHECKPOINT, SEED_DECISION, Mama

# save


def test_saving_a_decision_answers_as_the_seed_shows(mama: Mama) -> None:
    wire = mama.wire("save", **SEED_DECISION)
    assert wire.keys() == {"content"}
    (part,) = wire["content"]
    assert part["type"] == "text"
    saved = json.loads(part["text"])
    assert re.fullmatch(r"decision_auth_strategy_[0-9]{13}_[0-9a-z]{4}", saved.pop("id"))
    assert saved == {
        "success": True,
        "type": "decision",
        "message": "Decision saved: auth_strategy",
    }


def test_saving_a_checkpoint_answers_as_the_seed_shows(mama: Mama) -> None:
    for number in (1, 2, 3):
        saved = mama.call("save", **SEED_CHECKPOINT)
        assert saved == {
            "success": True,
            "id": f"checkpoint_{number}",
            "type": "checkpoint",
            "message": "Checkpoint saved",
        }


def test_every_field_of_a_decision_is_read_back_verbatim(mama: Mama) -> None:
    text = " <b>\tReasoning: x\n\nDecision: y\u200b 결정 \U0001f600 "
    mama.decide("t\nDecision: z", text, text, confidence=0.25)
    (found,) = mama.call("search", type="decision")["results"]
    assert (found["topic"], found["decision"], found["reasoning"], found["confidence"]) == (
        "t\nDecision: z", text, text, 0.25,
    )  # fmt: skip


def test_confidence_is_one_half_unless_it_is_given(wordy: Mama) -> None:
    wordy.decide("a", "x")
    assert wordy.call("search")["results"][0]["confidence"] == 0.5


@pytest.mark.parametrize("confidence", [0, 0.0, 1, 1.0])
def test_the_ends_of_confidence_are_accepted(wordy: Mama, confidence: float) -> None:
    wordy.decide("a", "x", confidence=confidence)
    assert wordy.call("search")["results"][0]["confidence"] == confidence


@pytest.mark.parametrize("confidence", [-0.01, 1.01, "high"])
def test_any_other_confidence_is_an_error(wordy: Mama, confidence: object) -> None:
    text = wordy.failure("save", **{**SEED_DECISION, "confidence": confidence})
    assert text.startswith("Error: confidence must be a number")
    assert wordy.call("search")["count"] == 0


@pytest.mark.parametrize("name", ["topic", "decision", "reasoning"])
@pytest.mark.parametrize("value", [None, "", " \n"])
def test_a_decision_without_one_of_its_fields_is_an_error(
    wordy: Mama, name: str, value: str | None
) -> None:
    given = {key: item for key, item in SEED_DECISION.items() if key != name}
    if value is not None:
        given[name] = value
    text = wordy.failure("save", **given)
    assert text == f"Error: Decision requires: topic, decision, reasoning. Missing: {name}."


def test_a_checkpoint_without_a_summary_is_an_error(wordy: Mama) -> None:
    assert wordy.failure("save", type="checkpoint") == "Error: Checkpoint requires: summary."
    assert wordy.failure("save", type="checkpoint", summary=" ").startswith("Error: ")
    assert wordy.call("load_checkpoint")["checkpoint"] is None


def test_next_steps_and_files_of_a_checkpoint_may_be_left_out(wordy: Mama) -> None:
    wordy.call("save", type="checkpoint", summary="Half way.")
    loaded = wordy.call("load_checkpoint")["checkpoint"]
    assert (loaded["next_steps"], loaded["open_files"]) == ("", [])


@pytest.mark.parametrize("given", [{}, {"type": "thought"}, {"type": 3}])
def test_a_type_that_is_not_known_is_an_error(wordy: Mama, given: dict[str, object]) -> None:
    text = wordy.failure("save", **given, topic="a", decision="b", reasoning="c")
    assert text.startswith("Error: type ")


def test_an_argument_that_is_not_known_is_ignored(wordy: Mama) -> None:
    assert wordy.call("save", **SEED_DECISION, confidense=1)["success"]


def test_a_decision_may_have_a_million_characters_and_no_more(wordy: Mama) -> None:
    topic, reasoning = "t", "r"
    room = 1_000_000 - len(f"Topic: {topic}\nDecision: \nReasoning: {reasoning}")
    wordy.decide(topic, "x" * room, reasoning)
    assert wordy.failure(
        "save", type="decision", topic=topic, decision="x" * (room + 1), reasoning=reasoning
    ).startswith("Error: 'topic, decision and reasoning' has 1,000,001 characters")


def test_a_topic_of_any_length_has_a_chain_of_its_own(wordy: Mama) -> None:
    for length in (93, 94, 95, 5000):
        first = wordy.decide("t" * length, "one")
        wordy.decide("t" * length + "x", "other")
        second = wordy.decide("t" * length, "two")
        edges = wordy.operation("http_graph", topic="t" * length)["edges"]
        assert [(e["from"], e["to"]) for e in edges] == [(second, first)]


@pytest.mark.parametrize(
    ("topic", "slug"),
    [
        ("Auth Strategy", "auth_strategy"),
        ("auth-strategy!", "authstrategy"),
        ("인증", "topic"),
        ("a" * 60, "a" * 50),
    ],
)
def test_the_id_tells_the_topic(wordy: Mama, topic: str, slug: str) -> None:
    assert re.fullmatch(rf"decision_{slug}_\d{{13}}_[0-9a-z]{{4}}", wordy.decide(topic, "x"))


def test_similar_decisions_are_told_of_when_one_is_saved(mama: Mama) -> None:
    first = mama.call("save", **SEED_DECISION)["id"]
    saved = mama.call("save", **{**SEED_DECISION, "topic": "auth_for_the_app"})
    (similar,) = saved["similar_decisions"]
    assert similar.keys() == {"id", "topic", "decision", "similarity", "created_at"}
    assert similar["id"] == first
    assert similar["similarity"] >= 0.7
    assert "builds_on" in saved["collaboration_hint"]


def test_a_decision_that_says_the_same_is_warned_of_but_not_again_on_its_topic(mama: Mama) -> None:
    mama.call("save", **SEED_DECISION)
    same = {
        "type": "decision", "topic": "auth_strategy_", "reasoning": "Because.",
        "decision": "Topic: auth_strategy\nDecision: Use JWT with refresh tokens\nReasoning: Need"
        " stateless auth for API scaling. Session-based auth failed under load.",
    }  # fmt: skip
    assert re.search(
        r"High similarity \((8[5-9]|9[0-9]|100)%\) with", mama.call("save", **same)["warning"]
    )
    assert "warning" not in mama.call("save", **same)


def test_a_topic_that_grows_tells_how_long_it_is(mama: Mama) -> None:
    mama.decide("caching", "Use Redis")
    saved = mama.call("save", type="decision", topic="caching", decision="LRU", reasoning="Ops.")
    assert saved["reasoning_graph"] == {"topic": "caching", "depth": 2, "latest": saved["id"]}


# search


def test_the_seeds_query_finds_the_seeds_decision(mama: Mama) -> None:
    identity = mama.call("save", **SEED_DECISION)["id"]
    mama.decide("dinner", "Eat pasta on Tuesday", "The children like it")
    answer = mama.call("search", query="authentication approach", limit=5)
    assert answer.keys() == {"success", "count", "results"}
    assert (answer["success"], answer["count"]) == (True, 1)
    (found,) = answer["results"]
    assert found.keys() >= {
        "id", "topic", "decision", "reasoning", "confidence", "created_at", "_type", "similarity",
    }  # fmt: skip
    assert (found["id"], found["_type"], found["confidence"]) == (identity, "decision", 0.85)
    assert found["similarity"] >= 0.74  # not just above the .7 that a short query asks for
    assert abs(found["created_at"] - time.time()) < 60


def test_a_search_shows_how_the_thinking_went_newest_first(mama: Mama) -> None:
    mama.decide("caching", "Use Redis", "Fast in-memory cache")
    mama.decide("caching", "Switch to local LRU cache", "Redis added too much ops burden")
    for query in ("caching strategy", "caching"):
        shown = [found["decision"] for found in mama.found(query)]
        assert shown == ["Switch to local LRU cache", "Use Redis"]


def test_an_outcome_shows_in_later_searches(mama: Mama) -> None:
    identity = mama.decide("caching", "Use Redis", "Fast in-memory cache")
    assert mama.found("caching")[0]["outcome"] is None
    reason = "Redis cluster too complex for our team size"
    mama.call("update", id=identity, outcome="failure", reason=reason)
    (found,) = mama.found("caching")
    assert (found["outcome"], found["failure_reason"]) == ("FAILED", reason)


def test_without_a_query_the_newest_come_first(wordy: Mama) -> None:
    first = wordy.decide("a", "one")
    wordy.call("save", type="checkpoint", summary="two")
    third = wordy.decide("a", "three")
    answer = wordy.call("search", type="all", limit=10)
    assert [each["id"] for each in answer["results"]] == [third, "checkpoint_1", first]
    assert answer["results"][1].keys() == {"id", "summary", "next_steps", "created_at", "_type"}
    assert wordy.call("search", query="  ") == answer
    assert wordy.call("search") == answer


def test_the_type_decides_what_is_searched(mama: Mama) -> None:
    identity = mama.call("save", **SEED_DECISION)["id"]
    mama.call("save", **SEED_CHECKPOINT)
    for query in ("", "refactoring the auth module with JWT tokens"):
        ids = {
            kind: {each["id"] for each in mama.call("search", query=query, type=kind)["results"]}
            for kind in ("all", "decision", "checkpoint")
        }
        assert ids["decision"] == {identity}
        assert ids["checkpoint"] == {"checkpoint_1"}
        assert ids["all"] == {identity, "checkpoint_1"}
    assert mama.failure("search", type="note").startswith("Error: type ")


def test_checkpoints_are_found_by_what_they_say(mama: Mama) -> None:
    mama.call("save", **SEED_CHECKPOINT)
    mama.call("save", type="checkpoint", summary="Painted the garden fence.")
    found = mama.found("refresh token rotation", type="checkpoint")
    assert [each["id"] for each in found] == ["checkpoint_1"]
    assert found[0]["_type"] == "checkpoint"


def test_limits_are_kept_within_bounds(wordy: Mama) -> None:
    for number in range(12):
        wordy.decide(f"topic_{number}", f"Use tool number {number}")
    for query in ("", "tool"):
        count = {
            limit: wordy.call("search", query=query, limit=limit)["count"]
            for limit in (-1, 0, 1, 2.7, 11, 12, 1e6)
        }
        assert count == {-1: 1, 0: 1, 1: 1, 2.7: 2, 11: 11, 12: 12, 1e6: 12}
        assert wordy.call("search", query=query)["count"] == 10
    assert wordy.failure("search", limit="many").startswith("Error: limit ")


def test_a_search_by_the_topics_name_recalls_its_decisions(mama: Mama) -> None:
    mama.decide("xq_77", "Paint it blue", "Because of the light")
    assert [each["topic"] for each in mama.found("XQ_77")] == ["xq_77"]


def test_a_query_whose_every_word_is_there_is_found_whatever_it_means(mama: Mama) -> None:
    mama.decide("net", "Retry on ECONNRESET", "The balancer drops idle sockets now and then")
    assert len(mama.found("ECONNRESET balancer")) == 1


def test_without_a_model_words_decide_and_the_newest_come_first(wordy: Mama) -> None:
    old = wordy.decide("store", "Use PostgreSQL for storage")
    new = wordy.decide("queue", "Use PostgreSQL as a queue")
    wordy.decide("ui", "Use React")
    found = wordy.found("postgresql please")
    assert [each["id"] for each in found] == [new, old]
    assert {each["similarity"] for each in found} == {0.75}


def test_in_a_script_that_the_model_does_not_know_words_decide(mama: Mama) -> None:
    mama.decide("인증", "리프레시 토큰과 함께 JWT 사용", "세션 인증이 부하에서 실패했다")
    mama.decide("저녁", "화요일에는 파스타", "아이들이 좋아한다")
    assert [each["topic"] for each in mama.found("인증 방식")] == ["인증"]


def test_a_query_that_is_too_long_is_an_error(wordy: Mama) -> None:
    assert wordy.call("search", query="x" * 10_000)["count"] == 0
    assert wordy.failure("search", query="x" * 10_001).startswith("Error: 'query' has 10,001")


@pytest.mark.parametrize("sign", ["x", '"', "\\", "鐘", "👩‍👩‍👧"])
@pytest.mark.parametrize("query", ["", "bell"])
def test_long_decisions_are_cut_in_a_list_only_as_far_as_they_must_be(
    wordy: Mama, query: str, sign: str
) -> None:
    long = "Bell rings. " + sign * (900_000 // len(sign))
    first = wordy.decide("bell", long, "It is loud.")
    second = wordy.decide("bell tower", "Bell waits.", "Because: " + sign * (900_000 // len(sign)))
    third = wordy.decide("bell rope", "Bell is rung by hand.", "No engine is needed.")
    wire = wordy.wire("search", query=query)
    assert 900_000 < len(as_json(wire).encode()) <= 1_048_576
    answer = json.loads(wire["content"][0]["text"])
    assert answer["count"] == 3
    found = {each["id"]: each for each in answer["results"]}
    assert (found[first]["truncated"], found[first]["reasoning"]) == (["decision"], "It is loud.")
    assert (found[second]["truncated"], found[second]["decision"]) == (["reasoning"], "Bell waits.")
    assert "truncated" not in found[third]
    assert found[third]["reasoning"] == "No engine is needed."
    shown = found[first]["decision"]
    assert shown.endswith("…") and long.startswith(shown[:-1]) and len(shown) > 100_000 / len(sign)


def test_a_decision_that_has_room_in_an_answer_is_whole(wordy: Mama) -> None:
    text = "Bell rings. " + "x" * 900_000
    wordy.decide("bell", text)
    wordy.decide("tower", text)
    (one,) = wordy.call("search", limit=1)["results"]
    assert (one["decision"], "truncated" in one) == (text, False)
    assert all(each["truncated"] for each in wordy.call("search", limit=2)["results"])


def test_a_decision_is_saved_whatever_the_length_of_those_that_are_like_it(wordy: Mama) -> None:
    for number in range(3):
        wordy.decide(f"bell {number}", "Ring the bell. " * 30_000)
    saved = wordy.call("save", type="decision", topic="bell", decision="Ring the bell. " * 30_000,
                       reasoning="Loud.")  # fmt: skip
    assert [each["truncated"] for each in saved["similar_decisions"]] == [["decision"]] * 3


# update


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("success", "SUCCESS"), ("SUCCESS", "SUCCESS"), ("failed", "FAILED"),
        ("FAILED", "FAILED"), ("failure", "FAILED"), ("partial", "PARTIAL"), ("Partial", "PARTIAL"),
    ],
)  # fmt: skip
def test_outcomes_are_accepted_in_any_case(wordy: Mama, given: str, stored: str) -> None:
    identity = wordy.decide("a", "x")
    assert wordy.call("update", id=identity, outcome=given) == {
        "success": True,
        "message": f"Updated {identity} -> {given.lower()}",
    }
    assert wordy.call("search")["results"][0]["outcome"] == stored


def test_a_later_outcome_takes_the_place_of_the_earlier(wordy: Mama) -> None:
    identity = wordy.decide("a", "x")
    wordy.call("update", id=identity, outcome="failed", reason="It rained.")
    wordy.call("update", id=identity, outcome="success")
    (found,) = wordy.call("search")["results"]
    assert found["outcome"] == "SUCCESS"
    assert "failure_reason" not in found
    memory = wordy.memory.get(identity)
    assert memory.tags == ("topic:a", "outcome:success")
    assert len(wordy.memory.history.versions(identity)) == 3


@pytest.mark.parametrize("outcome", ["", "maybe", "pending"])
def test_another_outcome_is_an_error(wordy: Mama, outcome: str) -> None:
    identity = wordy.decide("a", "x")
    text = wordy.failure("update", id=identity, outcome=outcome)
    assert text.startswith("Error: outcome must be success, failed or partial.")


@pytest.mark.parametrize("identity", ["decision_nothing_1_abc", "", " ", "x" * 501])
def test_a_decision_that_is_not_there_is_an_error(wordy: Mama, identity: str) -> None:
    text = wordy.failure("update", id=identity, outcome="success")
    assert text == f"Error: Decision not found: {identity[:200]}"


@pytest.mark.parametrize("given", [{"outcome": "success"}, {"id": "decision_x"}])
def test_update_needs_an_id_and_an_outcome(wordy: Mama, given: dict[str, str]) -> None:
    assert wordy.failure("update", **given).startswith("Error: ")


def test_a_superseded_decision_can_still_be_judged(wordy: Mama) -> None:
    first = wordy.decide("a", "one")
    wordy.decide("a", "two")
    wordy.call("update", id=first, outcome="failed")
    outcomes = {each["id"]: each["outcome"] for each in wordy.call("search")["results"]}
    assert outcomes[first] == "FAILED"
    assert wordy.memory.get(first).state == "superseded"


def test_only_decisions_have_an_outcome(wordy: Mama) -> None:
    wordy.call("save", type="checkpoint", summary="Half way.")
    text = wordy.failure("update", id="checkpoint_1", outcome="success")
    assert "kind checkpoint, stored by save" in text


# load_checkpoint


def test_the_latest_checkpoint_is_loaded_as_the_seed_shows(mama: Mama) -> None:
    mama.call("save", type="checkpoint", summary="Earlier.")
    mama.call("save", **SEED_CHECKPOINT)
    answer = mama.call("load_checkpoint")
    assert answer.keys() == {"success", "checkpoint"}
    loaded = answer["checkpoint"]
    assert abs(loaded.pop("timestamp") - time.time()) < 60
    assert loaded == {
        "id": 2,
        "summary": SEED_CHECKPOINT["summary"],
        "next_steps": SEED_CHECKPOINT["next_steps"],
        "open_files": SEED_CHECKPOINT["open_files"],
    }


@pytest.mark.parametrize("sign", ["x", '"', "\x01", "鐘"])
def test_a_checkpoint_is_loaded_whole_however_long_it_is(wordy: Mama, sign: str) -> None:
    files = [f"src/{number}/" + "f" * 90 for number in range(9_000)]
    steps = sign * 500_000
    wordy.call("save", type="checkpoint", summary="Long.", next_steps=steps, open_files=files)
    loaded = wordy.call("load_checkpoint")["checkpoint"]
    assert (loaded["next_steps"], loaded["open_files"]) == (steps, files)
    assert wordy.operation("http_load_checkpoint")["checkpoint"]["next_steps"] == steps


def test_without_a_checkpoint_there_is_none(wordy: Mama) -> None:
    assert wordy.call("load_checkpoint") == {
        "success": True,
        "checkpoint": None,
        "message": "No checkpoint found",
    }


def test_load_checkpoint_takes_nothing(wordy: Mama) -> None:
    wordy.call("save", **SEED_CHECKPOINT)
    assert wordy.call("load_checkpoint", id=3) == wordy.call("load_checkpoint")


# search_decisions_and_contracts


def test_a_hook_is_given_decisions_and_the_contracts_of_its_file(mama: Mama) -> None:
    auth = mama.decide("auth_strategy", "Use JWT with refresh tokens for sign-in")
    contract = mama.decide("contract_user_login", "POST /login takes email and password: contract"
                           " api of user login")  # fmt: skip
    mama.decide("kettle", "Put the kettle on")
    asked = {
        "query": "JWT refresh tokens sign-in", "filePath": "/src/user-login.ts", "toolName": "Edit",
    }  # fmt: skip
    answer = mama.call("search_decisions_and_contracts", **asked)
    assert answer["success"] is True
    assert [each["id"] for each in answer["decisionResults"]] == [auth]
    assert [each["id"] for each in answer["contractResults"]] == [contract]
    (found,) = answer["decisionResults"]
    assert found.keys() >= {"topic", "decision", "reasoning", "confidence", "similarity"}
    assert found["created_at"] == int(mama.memory.get(auth).created_at.timestamp())


@pytest.mark.parametrize("more", [
    {"toolName": "Read"}, {"filePath": "/src/user_login.md"}, {"filePath": ""},
    {"contractLimit": 0}, {"contractLimit": -1},
])  # fmt: skip
def test_a_hook_is_given_contracts_only_where_code_is_changed(
    wordy: Mama, more: dict[str, Any]
) -> None:
    wordy.decide("contract_user_login", "contract api user login")
    asked = {"filePath": "C:\\src\\user_login.py", "toolName": "Write"}
    found = wordy.call("search_decisions_and_contracts", **asked)
    assert len(found["contractResults"]) == 1
    found = wordy.call("search_decisions_and_contracts", **{**asked, **more})
    assert found == {"success": True, "decisionResults": [], "contractResults": []}


def test_a_hook_says_how_many_decisions_it_wants_and_how_alike(wordy: Mama) -> None:
    for number in range(7):
        wordy.decide(f"lamp {number}", "Light the lantern")
    for limit, count in ((None, 5), (2, 2), (1.9, 1), (0, 0), (-3, 0), (1_000_000, 7)):
        more = {} if limit is None else {"decisionLimit": limit}
        found = wordy.call("search_decisions_and_contracts", query="lantern", **more)
        assert len(found["decisionResults"]) == count
    strict = {"query": "lantern", "similarityThreshold": 0.99}
    assert wordy.call("search_decisions_and_contracts", **strict)["decisionResults"] == []
    assert wordy.call("search_decisions_and_contracts")["decisionResults"] == []


def test_what_is_too_long_is_named_by_its_fields(wordy: Mama) -> None:
    half = "x" * 600_000
    texts = {"type": "decision", "topic": "t", "decision": half, "reasoning": half}
    assert "'topic, decision and reasoning' has 1,200,031" in wordy.failure("save", **texts)
    texts = {"type": "checkpoint", "summary": half, "next_steps": half}
    assert "'summary and next_steps' has 1,200,013" in wordy.failure("save", **texts)
    files = {"type": "checkpoint", "summary": "s", "open_files": [half, half]}
    assert wordy.failure("save", **files).startswith("Error: open_files has 1,200,0")
    identity = wordy.decide("t", "d")
    told = wordy.failure("update", id=identity, outcome="failed", reason=half + half)
    assert told.startswith("Error: 'reason' has 1,200,000")
