from __future__ import annotations

import json

import pytest

from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.errors import InvalidInput, StorageCorrupt


def test_events_stay_in_their_order_with_their_payload(memory: Commonplace) -> None:
    for i in range(3):
        memory.events.record("credit", f"m{i % 2}", {"reward": i, "who": "ü"})
    memory.events.record("audit.call")
    events = memory.events.all()
    assert [each.kind for each in events] == ["credit"] * 3 + ["audit.call"]
    assert [each.payload for each in events[:3]] == [{"reward": i, "who": "ü"} for i in range(3)]
    assert events[3].payload == {}
    assert [each.num for each in events] == sorted(each.num for each in events)
    assert len(memory.events.all(kind="credit", subject="m0")) == 2
    assert memory.events.all(after=events[1].num) == events[2:]
    assert memory.events.all(limit=1) == events[:1]
    assert memory.events.all(before=events[2].num) == events[:2]
    assert memory.events.all(before=events[2].num, newest=True, limit=1) == events[1:2]
    with pytest.raises(InvalidInput):
        memory.events.all(before=-1)


def test_events_are_for_good(memory: Commonplace) -> None:
    memory.remember("before")
    memory.events.record("audit", "x", {"a": 1})
    memory.undo()
    assert memory.browse() == ([], 0), "undo passes over what can only be appended"
    assert len(memory.events.all()) == 1
    assert not [name for name in dir(memory.events) if name in ("remove", "delete", "revise")]


def test_an_event_joins_the_unit_that_is_open(memory: Commonplace) -> None:
    with memory.unit("call"):
        memory.remember("x")
        memory.events.record("audit", "x")
    assert [each.name for each in memory.history.operations()] == ["call"]


@pytest.mark.parametrize("column", ["kind", "subject", "payload", "at"])
def test_an_event_that_was_tampered_with_is_not_returned(memory: Commonplace, column: str) -> None:
    memory.events.record("audit", "x", {"a": 1})
    values = {"kind": "other", "subject": "y", "payload": json.dumps({"a": 2}), "at": 5}
    with lease(memory) as space, space.store.maintain() as connection:
        connection.execute(f"UPDATE events SET {column} = ?", (values[column],))
    with pytest.raises(StorageCorrupt):
        memory.events.all()


def test_a_purge_takes_the_payloads_that_quote_and_leaves_the_rest(memory: Commonplace) -> None:
    text = "the secret recipe of the old baker in the village"
    stored = memory.remember(text)
    memory.events.record("audit", "save", {"arguments": {"text": text}})
    memory.events.record("audit", "other", {"arguments": {"text": "something else"}})
    memory.purge(stored.id)
    events = memory.events.all(kind="audit")
    assert [each.payload for each in events] == [
        None, {"arguments": {"text": "something else"}},
    ]  # fmt: skip


@pytest.mark.parametrize(
    "bad", [{"kind": "Bad Kind"}, {"kind": "k", "subject": "\x00"}, {"kind": "k", "payload": [1]}]
)
def test_bad_events_are_refused(memory: Commonplace, bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        memory.events.record(**bad)  # type: ignore[arg-type]
    assert memory.events.all() == []


def test_events_are_counted_by_kind_and_subject(memory: Commonplace) -> None:
    for kind, subject in (("seen", "a"), ("seen", "b"), ("heard", "a")):
        memory.events.record(kind, subject)
    assert memory.events.count() == len(memory.events.all())
    assert memory.events.count(kind="seen") == 2
    assert memory.events.count(subject="a") == 2
    assert memory.events.count(kind="seen", subject="a") == 1
    assert memory.events.count(kind="never") == 0
