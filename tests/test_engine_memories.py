from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest

from commonplace import Commonplace, Draft, Origin
from commonplace.engine.binding import engine_call
from commonplace.engine.maintenance import upkeep
from commonplace.errors import Conflict, InvalidInput, NotFound
from conftest import texts

EVERYTHING: dict[str, Any] = {
    "kind": "decision",
    "title": "Where we deploy",
    "tags": ["infra", "日本語", "with, comma"],
    "importance": 0.9,
    "confidence": 0.25,
    "credit": 0.75,
    "state": "dying",
    "pinned": True,
    "occurred_at": datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC),
    "created_at": datetime(2024, 3, 1, tzinfo=UTC),
    "ref": "decision_deploy_1",
    "attrs": {"deep": {"list": [1, 2.5, None, True, "ü"]}},
    "trust": "inferred",
}
ORIGIN = Origin(user="ann", client="editor", tool="save", session="s-1", url="https://e.org/x")


def test_a_memory_comes_back_with_every_field_as_it_was_given(memory: Commonplace) -> None:
    stored = memory.remember("We deploy to Frankfurt", origin=ORIGIN, **EVERYTHING)
    found = memory.get(stored.id)
    assert found == stored
    for name, value in EVERYTHING.items():
        assert getattr(found, name) == (tuple(value) if name == "tags" else value)
    assert found.text == "We deploy to Frankfurt"
    assert found.origin == ORIGIN
    assert uuid.UUID(found.id).version == 4


def test_a_memory_has_quiet_defaults(memory: Commonplace) -> None:
    before = datetime.now(UTC)
    stored = memory.remember("plain")
    assert (stored.kind, stored.title, stored.tags, stored.state) == ("note", "", (), "active")
    assert (stored.importance, stored.confidence, stored.credit) == (0.5, 1.0, 0.5)
    assert (stored.pinned, stored.occurred_at, stored.ref) == (False, None, None)
    assert (stored.attrs, stored.origin, stored.trust) == ({}, Origin(), "stated")
    assert before <= stored.created_at == stored.updated_at <= datetime.now(UTC)


def test_a_memory_as_plain_values_is_what_json_can_carry(memory: Commonplace) -> None:
    import json

    stored = memory.remember("We deploy to Frankfurt", origin=ORIGIN, **EVERYTHING)
    plain = json.loads(json.dumps(stored.as_dict()))
    assert plain["occurred_at"] == "2024-02-29T12:30:01.000005Z"
    assert plain["origin"]["user"] == "ann"
    assert plain["tags"] == EVERYTHING["tags"]


def test_any_unicode_comes_back_byte_for_byte(memory: Commonplace) -> None:
    odd = "e\u0301 \u00e9 \u202e rtl \u200b \U0001f468\u200d\U0001f469 \ufeff\r\n\t\x07 \uffff"
    stored = memory.remember(odd, title=odd, tags=[odd], ref=odd, attrs={odd: odd})
    found = memory.get(odd)
    assert found.id == stored.id
    assert (found.text, found.title, found.tags, found.attrs) == (odd, odd, (odd,), {odd: odd})


@pytest.mark.parametrize(
    ("field", "fits", "too_much"),
    [
        ("title", "t" * 1_000, "t" * 1_001),
        ("ref", "r" * 500, "r" * 501),
        ("kind", "k" * 64, "k" * 65),
        ("tags", [f"t{i}" for i in range(100)], [f"t{i}" for i in range(101)]),
        ("tags", ["t" * 100], ["t" * 101]),
        ("importance", 1, 1.0000001),
        ("importance", 0, -0.0000001),
        ("confidence", 1.0, math.inf),
        ("credit", 0.0, math.nan),
        ("attrs", {"a": "x" * 999_992}, {"a": "x" * 999_993}),
    ],
)
def test_limits_hold_exactly(memory: Commonplace, field: str, fits: Any, too_much: Any) -> None:
    stored = memory.remember("x", **{field: fits})
    given = tuple(fits) if isinstance(fits, list) else fits
    assert getattr(memory.get(stored.id), field) == given
    with pytest.raises(InvalidInput) as caught:
        memory.remember("x", **{field: too_much})
    assert caught.value.field == field
    with pytest.raises(InvalidInput):
        memory.revise(stored.id, **{field: too_much})
    assert memory.browse()[1] == 1
    assert memory.get(stored.id) == stored


def test_a_text_may_have_a_million_characters_and_not_one_more(memory: Commonplace) -> None:
    stored = memory.remember("ö" * 1_000_000)
    assert memory.get(stored.id).text == "ö" * 1_000_000
    with pytest.raises(InvalidInput) as caught:
        memory.remember("ö" * 1_000_001)
    assert caught.value.field == "text"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("text", ""), ("text", "a\x00b"), ("text", "lone \ud800"), ("text", 5),
        ("title", "\udfff"), ("title", None), ("kind", "Note"), ("kind", ""), ("kind", "1a"),
        ("tags", "infra"), ("tags", [""]), ("tags", [1]), ("tags", 7), ("tags", None),
        ("importance", "high"), ("importance", True), ("importance", None),
        ("state", "asleep"), ("state", None), ("pinned", 1), ("pinned", "yes"),
        ("occurred_at", "yesterday"), ("occurred_at", 5),
        ("occurred_at", "9999-12-31T23:59:59-12:00"), ("occurred_at", "0001-01-01T00:00:00+12:00"),
        ("ref", ""), ("ref", "\x00"), ("attrs", [1]), ("attrs", {"a": math.nan}),
        ("attrs", {1: 2}), ("attrs", {"a": object()}), ("attrs", {"a": "\ud800"}),
        ("attrs", {"a": 10**5_000}), ("trust", "certain"), ("trust", ["stated"]),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_refused_by_name_and_changes_nothing(
    memory: Commonplace, field: str, bad: Any
) -> None:
    kept = memory.remember("kept")
    with pytest.raises(InvalidInput) as caught:
        memory.remember(**{"text": "x", field: bad})
    assert caught.value.field == field
    with pytest.raises(InvalidInput) as caught:
        memory.revise(kept.id, **{field: bad})
    assert caught.value.field == field
    assert memory.browse()[0] == [kept]
    assert len(memory.history.operations()) == 1


@pytest.mark.parametrize(
    ("tags", "told"),
    [
        (["a", ""], "'tags[1]' is empty."),
        ([" ", "a"], "'tags[0]' is blank."),
        (["a", "b", "t" * 101], "'tags[2]' has 101 characters; at most 100 are allowed."),
        (["a", 7], "'tags[1]' must be text, not int."),
    ],
)
def test_a_refusal_names_the_tag_that_is_wrong(
    memory: Commonplace, tags: list[Any], told: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        memory.remember("x", tags=tags)
    assert (caught.value.message, caught.value.field) == (told, "tags")


def test_attrs_nested_64_deep_fit_and_deeper_ones_or_circles_do_not(memory: Commonplace) -> None:
    def nest(depth: int) -> dict[str, Any]:
        return {"x": nest(depth - 1)} if depth else {}

    stored = memory.remember("x", attrs=nest(64))
    assert memory.get(stored.id).attrs == nest(64)
    circle: dict[str, Any] = {}
    circle["me"] = circle
    for bad in (nest(65), circle):
        with pytest.raises(InvalidInput):
            memory.remember("x", attrs=bad)


def test_attrs_may_be_any_mapping_and_sequence(memory: Commonplace) -> None:
    given = MappingProxyType({"a": MappingProxyType({"b": range(2)})})
    assert memory.remember("x", attrs=given).attrs == {"a": {"b": [0, 1]}}


def test_a_field_that_memories_do_not_have_is_named(memory: Commonplace) -> None:
    with pytest.raises(InvalidInput) as caught:
        memory.remember("x", colour="red")
    assert caught.value.field == "colour"
    stored = memory.remember("x")
    for name in ("id", "created_at", "updated_at", "hash", "num"):
        with pytest.raises(InvalidInput) as caught:
            memory.revise(stored.id, **{name: "x"})
        assert caught.value.field == name


def test_an_id_or_ref_that_is_taken_is_a_conflict(memory: Commonplace) -> None:
    first = memory.remember("first", ref="mine")
    with pytest.raises(Conflict) as caught:
        memory.remember("second", id=first.id)
    assert caught.value.field == "id"
    with pytest.raises(Conflict) as caught:
        memory.remember("second", ref="mine")
    assert caught.value.field == "ref"
    other = memory.remember("other")
    with pytest.raises(Conflict) as caught:
        memory.revise(other.id, ref="mine")
    assert caught.value.field == "ref"
    assert texts(memory.browse()) == ["other", "first"]


def test_a_ref_is_not_the_id_of_another_memory(memory: Commonplace) -> None:
    """Else it would lead to that one."""
    chosen = "abcdef01-2345-4678-9abc-def012345678"
    first, second = memory.remember("first"), memory.remember("second", ref=chosen)
    third = memory.remember("third", ref=str(uuid.uuid4()).upper())
    assert third.ref is not None
    for call in (
        lambda: memory.remember("x", ref=first.id),
        lambda: memory.remember("x", ref=first.id.upper()),
        lambda: memory.revise(second.id, ref=first.id),
        lambda: memory.remember("x", id=chosen),
        lambda: memory.remember("x", id=third.ref),
    ):
        with pytest.raises(Conflict) as caught:
            call()
        assert caught.value.field == "ref"
    assert [memory.get(name).text for name in (first.id, chosen, third.ref)] == [
        "first", "second", "third",
    ]  # fmt: skip
    assert memory.revise(first.id, ref=first.id).ref == first.id


def test_a_chosen_id_is_kept_and_found_in_any_case(memory: Commonplace) -> None:
    chosen = "ABCDEF01-2345-4678-9ABC-DEF012345678"
    stored = memory.remember("x", id=chosen)
    assert stored.id == chosen.lower()
    assert memory.get(chosen).id == memory.get(chosen.lower()).id
    with pytest.raises(InvalidInput):
        memory.remember("x", id="not-a-uuid")


def test_refs_are_compared_exactly(memory: Commonplace) -> None:
    lower, upper = memory.remember("l", ref="a"), memory.remember("u", ref="A")
    assert memory.get("a").id == lower.id
    assert memory.get("A").id == upper.id
    with pytest.raises(NotFound):
        memory.get("a ")


def test_many_are_stored_together_or_not_at_all(memory: Commonplace) -> None:
    drafts = [Draft(text="one", ref="1"), Draft(text="two", ref="2"), Draft(text="again", ref="1")]
    with pytest.raises(Conflict):
        memory.remember_many(drafts)
    assert memory.browse() == ([], 0)
    stored = memory.remember_many(drafts[:2])
    assert [each.text for each in stored] == ["one", "two"]
    assert len(memory.history.operations()) == 1
    assert memory.remember_many([]) == []
    assert len(memory.history.operations()) == 1


def test_a_revision_changes_only_what_it_names(memory: Commonplace) -> None:
    stored = memory.remember("before", origin=ORIGIN, **EVERYTHING)
    revised = memory.revise(stored.id, text="after", origin=Origin(user="bob"))
    assert revised.text == "after"
    assert revised.updated_at > stored.updated_at
    assert revised.version > stored.version
    assert revised.created_at == stored.created_at
    assert revised.origin == ORIGIN, "origin never changes"
    same = {**stored.as_dict(), "text": 0, "updated_at": 0, "version": 0}
    assert {**revised.as_dict(), "text": 0, "updated_at": 0, "version": 0} == same
    assert memory.history.operations()[0].origin == Origin(user="bob")


def test_optional_fields_can_be_emptied(memory: Commonplace) -> None:
    stored = memory.remember("x", **EVERYTHING)
    revised = memory.revise(stored.id, ref=None, occurred_at=None, tags=[], title="", attrs={})
    assert (revised.ref, revised.occurred_at, revised.tags) == (None, None, ())
    with pytest.raises(NotFound):
        memory.get("decision_deploy_1")


def test_a_revision_to_the_same_values_is_no_operation(memory: Commonplace) -> None:
    stored = memory.remember("x", tags=["a"])
    assert memory.revise(stored.id, text="x", tags=["a", "a"]) == stored
    assert memory.revise(stored.id) == stored
    assert len(memory.history.operations()) == 1


def test_expected_version_lets_one_of_two_editors_win(memory: Commonplace) -> None:
    stored = memory.remember("x")
    memory.revise(stored.id, text="first", expected_version=stored.version)
    with pytest.raises(Conflict) as caught:
        memory.revise(stored.id, text="second", expected_version=stored.version)
    assert str(stored.version) in caught.value.message
    assert memory.get(stored.id).text == "first"


def test_times_are_utc_microseconds_whatever_the_zone_they_came_in(memory: Commonplace) -> None:
    tokyo = timezone(timedelta(hours=9))
    at = datetime(2026, 1, 1, 3, 0, 0, 123_456, tzinfo=tokyo)
    for given in (at, at.isoformat(), "2025-12-31T18:00:00.123456Z", at.astimezone(UTC)):
        assert memory.remember("x", occurred_at=given).occurred_at == at
    assert memory.remember("x", occurred_at="2026-05-31").occurred_at == datetime(
        2026, 5, 31, tzinfo=UTC
    )
    for edge in ("0001-01-01", "1969-12-31", "1970-01-01", "9999-12-31T23:59:59.999999Z"):
        stored = memory.remember("x", occurred_at=edge, created_at=edge)
        assert (
            stored.occurred_at
            == stored.created_at
            == datetime.fromisoformat(edge).replace(tzinfo=UTC)
        )


def test_trust_is_lowered_by_a_revision_and_raised_only_by_promote(memory: Commonplace) -> None:
    stored = memory.remember("x", trust="inferred")
    with pytest.raises(InvalidInput) as caught:
        memory.revise(stored.id, trust="stated")
    assert "promote" in caught.value.hint
    assert memory.revise(stored.id, trust="external").trust == "external"
    for higher in ("inferred", "stated"):
        with pytest.raises(InvalidInput):
            memory.revise(stored.id, trust=higher)
    memory.forget(stored.id)
    memory.restore(stored.id)
    assert memory.get(stored.id).trust == "external"
    assert memory.promote(stored.id, "stated").trust == "stated"
    assert memory.history.operations()[0].name == "promote"
    assert texts(memory.recall("x", trust=["stated"])) == ["x"]
    assert memory.recall("x", trust=["external"]) == []


def test_origin_is_that_of_the_writer_or_of_the_draft(memory: Commonplace) -> None:
    whole = Commonplace(space="other", origin=ORIGIN, library=memory.library)
    assert whole.remember("x").origin == ORIGIN
    imported = Origin(client="old-store")
    assert whole.remember_many([Draft(text="y", origin=imported)])[0].origin == imported


def test_forgetting_puts_out_of_sight_and_restoring_brings_back(memory: Commonplace) -> None:
    one, two = memory.remember("blue whale"), memory.remember("blue bird")
    forgotten = memory.forget(one.id, two.id)
    assert [each.state for each in forgotten] == ["archived", "archived"]
    assert memory.recall("blue") == []
    assert memory.browse() == ([], 0)
    assert memory.find_text("blue") == ([], 0)
    assert memory.get(one.id).text == "blue whale", "by its id it is still there"
    assert set(texts(memory.recall("blue", states=["archived"]))) == {"blue whale", "blue bird"}
    memory.restore(one.id)
    assert texts(memory.recall("blue")) == ["blue whale"]


def test_forgetting_several_is_all_or_nothing(memory: Commonplace) -> None:
    one = memory.remember("one")
    with pytest.raises(NotFound):
        memory.forget(one.id, str(uuid.uuid4()))
    assert memory.get(one.id).state == "active"


def test_forgetting_what_is_forgotten_changes_nothing(memory: Commonplace) -> None:
    one = memory.remember("one")
    memory.forget(one.id)
    before = memory.history.operations()
    memory.forget(one.id)
    memory.forget()
    assert memory.history.operations() == before


@pytest.mark.parametrize("state", ["archived", "superseded", "dead"])
def test_only_active_and_dying_memories_are_live(memory: Commonplace, state: str) -> None:
    memory.remember("fern", state=state)
    memory.remember("fern dying", state="dying")
    assert texts(memory.recall("fern")) == ["fern dying"]
    assert texts(memory.browse(states=[state])) == ["fern"]


def test_what_does_not_exist_is_not_found(memory: Commonplace) -> None:
    nobody = str(uuid.uuid4())
    for call in (memory.get, memory.usage, memory.forget, memory.restore, memory.history.versions):
        with pytest.raises(NotFound):
            call(nobody)
    for change in (memory.revise, memory.purge, memory.links.neighbours):
        with pytest.raises(NotFound):
            change(nobody)
    with pytest.raises(NotFound):
        memory.supersede(nobody, "x")


def test_the_latest_are_those_that_happened_last(memory: Commonplace) -> None:
    memory.remember("told late, of old", occurred_at="2020-01-01", tags=["old"])
    memory.remember("told then", created_at="2021-01-01")
    memory.remember("of today, told early", occurred_at="2026-01-01", created_at="2019-01-01")
    expected = ["of today, told early", "told then", "told late, of old"]
    assert texts(memory.browse(order="latest")) == expected
    found, count = memory.find_text("told", order="latest")
    assert ([each.text for each in found], count) == (expected, 3)
    assert memory.find_text("told")[0][0].text == "of today, told early"
    assert [each.text for each in memory.find_text("OLD", in_text=True, order="latest")[0]] == (
        expected
    )
    memory.remember("tagged", tags=["told"])
    assert memory.find_text("told")[1] == 4
    assert memory.find_text("told", in_text=True)[1] == 3
    for bad in ({"order": "oldest"}, {"order": 1}, {"in_text": 1}, {"in_text": "yes"}):
        with pytest.raises(InvalidInput):
            memory.find_text("told", **bad)


def test_browsing_has_plain_orders_and_pages(memory: Commonplace) -> None:
    for day, (importance, credit) in enumerate([(0.1, 0.9), (0.9, 0.1), (0.5, 0.5)], start=1):
        memory.remember(
            f"m{day}", importance=importance, credit=credit, created_at=f"2026-01-0{4 - day}"
        )
    memory.revise(memory.browse(order="oldest")[0][0].id, title="touched")
    orders = {
        "newest": ["m1", "m2", "m3"],
        "oldest": ["m3", "m2", "m1"],
        "importance": ["m2", "m3", "m1"],
        "credit": ["m1", "m3", "m2"],
        "updated": ["m3", "m2", "m1"],
        "latest": ["m1", "m2", "m3"],
    }
    for order, expected in orders.items():
        assert texts(memory.browse(order=order)) == expected
        assert texts(memory.browse(order=order, limit=1, offset=1)) == expected[1:2]
        assert memory.browse(order=order, limit=1, offset=5) == ([], 3)
    with pytest.raises(InvalidInput):
        memory.browse(order="random")
    for bad in ({"limit": 0}, {"limit": 1_001}, {"limit": True}, {"offset": -1}, {"offset": 1.5}):
        with pytest.raises(InvalidInput):
            memory.browse(**bad)  # type: ignore[arg-type]


def test_text_is_found_as_it_stands_whatever_its_case(memory: Commonplace) -> None:
    memory.remember(
        "The File is at C:\\Temp\\a*b%_c.txt", title="Straße nach Köln", tags=["TagOne"]
    )
    memory.remember("nothing of the kind")
    for needle in ("c:\\temp", "A*B%_C", "STRASSE", "köln", "tagone", "is at", "%_", "*"):
        found, count = memory.find_text(needle)
        assert [each.title for each in found] == ["Straße nach Köln"], needle
        assert count == 1
    assert memory.find_text("temp a*b")[1] == 0
    assert memory.find_text("OF THE", limit=1)[1] == 1
    for hostile in ('" OR "', "NEAR(", "body:", "a' --", "'''"):
        assert memory.find_text(hostile) == ([], 0)


def test_a_text_of_two_characters_is_found_too(memory: Commonplace) -> None:
    memory.remember("東京タワー")
    memory.remember("大阪城")
    assert texts(memory.find_text("東京")) == ["東京タワー"]
    assert texts(memory.find_text("城")) == ["大阪城"]


def test_tags_are_counted_over_live_memories(memory: Commonplace) -> None:
    memory.remember("one", tags=["sea", "port"])
    memory.remember("two", tags=["sea"])
    memory.forget(memory.remember("three", tags=["sea", "gone"]).id)
    assert [(tag, count) for tag, count, _ in memory.tags()] == [("sea", 2), ("port", 1)]


def test_what_waits_for_vectors_is_told(memory: Commonplace, vectored: Commonplace) -> None:
    without = memory.remember("no embedder, no vectors")
    assert engine_call(memory, upkeep.waiting_for_vectors, [without.id]) == {without.id: ""}
    done = vectored.remember("embedded at once")
    assert engine_call(vectored, upkeep.waiting_for_vectors, [done.id]) == {}
