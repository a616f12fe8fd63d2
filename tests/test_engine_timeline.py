from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from commonplace import Commonplace, Line, Origin, Weighting
from commonplace.errors import Conflict, InvalidInput, NotFound
from conftest import texts

UNLINKED = Weighting(graph=0)
ANY_STATE = ["active", "dying", "archived", "superseded", "dead"]


def now() -> datetime:
    """A moment after everything before and before everything after."""
    time.sleep(0.002)
    at = datetime.now(UTC)
    time.sleep(0.002)
    return at


def picture(memory: Commonplace) -> dict[str, Any]:
    """All that can be seen of a space, but for the numbers of versions."""
    memories = memory.browse(states=ANY_STATE, limit=1_000)[0]
    return {
        "memories": [{**each.as_dict(), "version": 0} for each in memories],
        "live": sorted(each.id for each in memory.browse(limit=1_000)[0]),
        "by word": sorted(
            (word, hit.memory.id)
            for word in ("alpha", "beta", "gamma", "delta", "said", "new")
            for hit in memory.recall(word, count=False)
        ),
        "by text": [
            each.id for word in ("alph", "bet", "new") for each in memory.find_text(word)[0]
        ],
        "by tag": [each.id for each in memory.browse(tags_any=["t", "u"], states=ANY_STATE)[0]],
        "links": sorted(memory.links.of(), key=lambda link: link.id),
        "facts": memory.facts.query(),
        "clusters": [
            (cluster, texts(memory.clusters.members(cluster.id)))
            for cluster in memory.clusters.all()
        ],
        "artifacts": [
            (each, memory.artifacts.versions(each.id), memory.artifacts.reviews(each.id))
            for each in memory.artifacts.all()
        ],
        "talk": [
            (line.position, line.speaker, line.memory.id)
            for line in memory.conversations.history("talk")
        ],
    }


class World:
    """A little of everything, for operations to change."""

    def __init__(self, memory: Commonplace) -> None:
        self.memory = memory
        with memory.unit("world"):
            self.make(memory)

    def make(self, memory: Commonplace) -> None:
        self.alpha = memory.remember("alpha one", tags=["t"], ref="a", title="First").id
        self.beta = memory.remember("beta two", tags=["t", "u"]).id
        self.gamma = memory.remember("gamma three", importance=0.9).id
        self.gone = memory.remember("delta four").id
        memory.forget(self.gone)
        self.link = memory.links.add(self.alpha, self.beta, "knows", weight=0.3, reason="r").id
        self.fact = memory.facts.add("Ann", "works at", "Acme", memory=self.alpha).id
        self.cluster = memory.clusters.create("group", digest="d").id
        memory.clusters.add(self.cluster, self.alpha)
        self.paper = memory.artifacts.create("v1", path="/paper.md", title="Paper").id
        memory.conversations.add("talk", Line(speaker="Ann", text="she said hello"))


def _unit(w: World) -> None:
    with w.memory.unit("several"):
        new = w.memory.remember("new thing", ref="n")
        w.memory.revise(w.alpha, ref=None, text="alpha changed")
        w.memory.revise(w.beta, ref="a")
        w.memory.links.remove(w.link)
        w.memory.links.add(w.alpha, w.beta, "knows")
        w.memory.links.add(new.id, w.beta, "about")
        w.memory.clusters.add(w.cluster, new.id)
        w.memory.artifacts.delete("/paper.md")
        w.memory.artifacts.create("other", path="/paper.md")
        w.memory.forget(w.gamma)
        w.memory.facts.retract(w.fact)
        w.memory.conversations.add("talk", Line(speaker="Bob", text="Bob said"))


OPERATIONS: dict[str, Callable[[World], object]] = {
    "remember": lambda w: w.memory.remember("new thing", tags=["u"], ref="n"),
    "revise text": lambda w: w.memory.revise(w.alpha, text="beta now, alpha no more"),
    "revise title": lambda w: w.memory.revise(w.alpha, title="new title"),
    "revise tags": lambda w: w.memory.revise(w.alpha, tags=["u", "new"]),
    "revise state": lambda w: w.memory.revise(w.alpha, state="dead"),
    "revise numbers": lambda w: w.memory.revise(w.alpha, importance=1, credit=0, confidence=0),
    "revise ref": lambda w: w.memory.revise(w.alpha, ref="b"),
    "revise the rest": lambda w: w.memory.revise(
        w.alpha, kind="fact", pinned=True, attrs={"a": 1}, occurred_at="2020-01-01",
        trust="external",
    ),
    "promote": lambda w: w.memory.promote(
        w.memory.remember("new external", trust="external").id, "stated"
    ),
    "forget several": lambda w: w.memory.forget(w.alpha, w.beta),
    "restore": lambda w: w.memory.restore(w.gone),
    "supersede": lambda w: w.memory.supersede(w.alpha, "new alpha", reason="better"),
    "supersede, taking the ref": lambda w: w.memory.supersede(w.alpha, "new alpha", ref="a"),
    "link": lambda w: w.memory.links.add(w.beta, w.gamma, "knows"),
    "revise link": lambda w: w.memory.links.revise(w.link, weight=0.9, reason="q", attrs={"x": 1}),
    "unlink": lambda w: w.memory.links.remove(w.link),
    "add fact": lambda w: w.memory.facts.add("Bob", "knows", "Ann"),
    "close fact": lambda w: w.memory.facts.close("Ann", "works at", "Acme"),
    "retract fact": lambda w: w.memory.facts.retract(w.fact),
    "create cluster": lambda w: w.memory.clusters.create("second", parent=w.cluster),
    "add to cluster": lambda w: w.memory.clusters.add(w.cluster, w.beta, w.gamma),
    "remove from cluster": lambda w: w.memory.clusters.remove(w.cluster, w.alpha),
    "revise cluster": lambda w: w.memory.clusters.revise(w.cluster, name="n", digest="new"),
    "delete cluster": lambda w: w.memory.clusters.delete(w.cluster),
    "create artifact": lambda w: w.memory.artifacts.create(b"\x00\xff", path="/b.bin"),
    "update artifact": lambda w: w.memory.artifacts.update("/paper.md", "v2", summary="s"),
    "approve artifact": lambda w: w.memory.artifacts.review("/paper.md", "approved", reviewer="b"),
    "comment on artifact": lambda w: w.memory.artifacts.review("/paper.md", "commented"),
    "delete artifact": lambda w: w.memory.artifacts.delete("/paper.md"),
    "add messages": lambda w: w.memory.conversations.add(
        "talk", Line(speaker="Bob", text="Bob said"), Line(speaker="Ann", text="Ann said")
    ),
    "a unit of all kinds": _unit,
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_can_be_undone_and_the_undo_too(memory: Commonplace, name: str) -> None:
    world = World(memory)
    before = picture(memory)
    OPERATIONS[name](world)
    operation = memory.history.operations()[0]
    if name == "promote":  # the memory it needs was stored first
        memory.undo()
        assert memory.browse()[0][0].trust == "external"
        memory.undo()
        assert picture(memory) == before
        return
    after = picture(memory)
    assert after != before
    undone = memory.undo()
    assert undone.undoes == operation.id
    assert picture(memory) == before
    redone = memory.undo(undone.id)
    assert redone.undoes == undone.id
    assert picture(memory) == after
    memory.undo()
    assert picture(memory) == before, "what was redone is again the newest to undo"


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_was_before_an_operation_can_still_be_seen(memory: Commonplace, name: str) -> None:
    world = World(memory)
    then = now()
    seen = {
        "links": sorted(memory.links.of(), key=lambda link: link.id),
        "facts": memory.facts.query(),
        "clusters": memory.clusters.all(),
        "members": texts(memory.clusters.members(world.cluster)),
        "memories": [
            memory.get(each) for each in (world.alpha, world.beta, world.gamma, world.gone)
        ],
        "found": {
            word: sorted(texts(memory.recall(word, weighting=UNLINKED)))
            for word in ("alpha", "beta", "gamma", "delta")
        },
    }  # fmt: skip
    OPERATIONS[name](world)
    for _ in range(2):
        assert sorted(memory.links.of(as_of=then), key=lambda link: link.id) == seen["links"]
        assert memory.facts.query(known_at=then) == seen["facts"]
        assert memory.clusters.all(as_of=then) == seen["clusters"]
        assert texts(memory.clusters.members(world.cluster, as_of=then)) == seen["members"]
        for each in seen["memories"]:
            assert memory.get(each.id, as_of=then) == each
        for word, expected in seen["found"].items():
            assert sorted(texts(memory.recall(word, as_of=then, weighting=UNLINKED))) == expected
        memory.undo()


def test_undo_without_a_name_goes_back_step_by_step(memory: Commonplace) -> None:
    stored = memory.remember("one")
    memory.revise(stored.id, text="two")
    memory.revise(stored.id, text="three")
    memory.undo()
    assert memory.get(stored.id).text == "two"
    memory.undo()
    assert memory.get(stored.id).text == "one"
    memory.undo()
    with pytest.raises(NotFound):
        memory.get(stored.id)
    with pytest.raises(NotFound):
        memory.undo()


def test_undo_after_a_redo_takes_the_newest_and_not_an_older_one(memory: Commonplace) -> None:
    first, second = memory.remember("first"), memory.remember("second")
    undone = memory.undo()
    memory.undo(undone.id)
    memory.undo()
    assert texts(memory.browse()) == ["first"]
    assert memory.get(first.id)
    with pytest.raises(NotFound):
        memory.get(second.id)
    memory.undo()
    assert memory.browse() == ([], 0)


def test_undo_refuses_and_names_the_later_change(memory: Commonplace) -> None:
    stored = memory.remember("one")
    first = memory.history.operations()[0]
    memory.revise(stored.id, text="two")
    later = memory.history.operations()[0]
    with pytest.raises(Conflict) as caught:
        memory.undo(first.id)
    assert later.id in caught.value.message
    assert "revise" in caught.value.message
    assert memory.get(stored.id).text == "two"
    assert memory.history.operations()[0] == later, "nothing was recorded"


@pytest.mark.parametrize(
    "use", ["link out", "link in", "fact", "member", "cluster", "parent", "review"]
)
def test_undo_refuses_to_leave_something_pointing_at_nothing(memory: Commonplace, use: str) -> None:
    other = memory.remember("other")
    creation: Callable[[], str] = {
        "cluster": lambda: memory.clusters.create("c").id,
        "parent": lambda: memory.clusters.create("c").id,
        "review": lambda: memory.artifacts.create("x").id,
    }.get(use, lambda: memory.remember("made").id)
    cluster = memory.clusters.create("fixed").id
    made = creation()
    creating = memory.history.operations()[0]
    {
        "link out": lambda: memory.links.add(made, other.id, "knows"),
        "link in": lambda: memory.links.add(other.id, made, "knows"),
        "fact": lambda: memory.facts.add("a", "b", "c", memory=made),
        "member": lambda: memory.clusters.add(cluster, made),
        "cluster": lambda: memory.clusters.add(made, other.id),
        "parent": lambda: memory.clusters.create("within", parent=made),
        "review": lambda: memory.artifacts.review(made, "commented"),
    }[use]()  # fmt: skip
    using = memory.history.operations()[0]
    with pytest.raises(Conflict) as caught:
        memory.undo(creating.id)
    assert using.id in caught.value.message
    memory.undo(using.id)
    memory.undo(creating.id)
    with pytest.raises(Conflict):
        memory.undo(memory.history.operations()[1].id)  # it would bring the use back alone


def test_undo_refuses_where_the_place_is_taken_and_names_who_took_it(memory: Commonplace) -> None:
    one, two = memory.remember("one", ref="r"), memory.remember("two")
    link = memory.links.add(one.id, two.id, "knows")
    memory.artifacts.create("x", path="/p")
    memory.revise(one.id, ref=None)
    freed = memory.history.operations()[0]
    memory.links.remove(link.id)
    unlinked = memory.history.operations()[0]
    memory.artifacts.delete("/p")
    deleted = memory.history.operations()[0]
    takers = []
    memory.remember("taker", ref="r")
    takers.append(memory.history.operations()[0])
    memory.links.add(one.id, two.id, "knows")
    takers.append(memory.history.operations()[0])
    memory.artifacts.create("y", path="/p")
    takers.append(memory.history.operations()[0])
    for operation, taker in zip((freed, unlinked, deleted), takers, strict=True):
        with pytest.raises(Conflict) as caught:
            memory.undo(operation.id)
        assert taker.id in caught.value.message


def test_lines_that_were_undone_and_replaced_cannot_come_back_to_their_place(
    memory: Commonplace,
) -> None:
    memory.conversations.add("talk", Line(speaker="a", text="first"))
    undone = memory.undo()
    memory.conversations.add("talk", Line(speaker="b", text="instead"))
    taker = memory.history.operations()[0]
    with pytest.raises(Conflict) as caught:
        memory.undo(undone.id)
    assert taker.id in caught.value.message
    assert texts(memory.conversations.history("talk")) == ["instead"]


def test_a_purge_is_final(memory: Commonplace) -> None:
    stored = memory.remember("something to be purged for good")
    memory.revise(stored.id, title="x")
    memory.purge(stored.id)
    for operation in memory.history.operations():
        with pytest.raises(Conflict):
            memory.undo(operation.id)
    with pytest.raises(NotFound):
        memory.get(stored.id, as_of=stored.created_at)


def test_what_cannot_be_undone_says_so(memory: Commonplace) -> None:
    memory.events.record("audit", "x", {})
    with pytest.raises(Conflict):
        memory.undo(memory.history.operations()[0].id)
    with pytest.raises(NotFound):
        memory.undo("no such operation")
    assert len(memory.events.all()) == 1


def test_undo_within_a_unit_that_changed_something_wants_a_name(memory: Commonplace) -> None:
    memory.remember("before")
    (before,) = memory.history.operations()
    with memory.unit("mixed"):
        memory.remember("inside")
        with pytest.raises(Conflict):
            memory.undo()
        memory.undo(before.id)
        assert texts(memory.browse()) == ["inside"]
    assert texts(memory.browse()) == ["inside"]


def test_every_write_belongs_to_an_operation_with_an_origin(memory: Commonplace) -> None:
    whence = Origin(user="ann", client="cli", tool="remember", session="s")
    memory.remember("x", origin=whence)
    operation = memory.history.operations()[0]
    assert (operation.name, operation.origin, operation.undoes) == ("remember", whence, None)
    assert operation.as_dict()["origin"] == whence.as_dict()
    assert abs((operation.at - datetime.now(UTC)).total_seconds()) < 5
    undo = memory.undo(origin=Origin(user="bob"))
    assert undo.origin == Origin(user="bob")
    names = [each.name for each in memory.history.operations()]
    assert names == ["undo", "remember"]
    assert [each.seq for each in memory.history.operations()] == [2, 1]
    with pytest.raises(InvalidInput):
        memory.history.operations(limit=0)


def test_versions_tell_every_form_and_when_it_held(memory: Commonplace) -> None:
    stored = memory.remember("one")
    memory.revise(stored.id, text="two", tags=["x"])
    memory.forget(stored.id)
    memory.undo()
    versions = memory.history.versions(stored.id)
    assert [each.memory.text for each in versions] == ["two", "two", "two", "one"]
    assert [each.memory.state for each in versions] == ["active", "archived", "active", "active"]
    assert versions[0].until is None
    for newer, older in pairwise(versions):
        assert older.until == newer.since
    operations = [each.id for each in memory.history.operations()]
    assert [each.operation for each in versions] == operations


def test_a_memory_is_seen_as_it_was_at_each_moment(memory: Commonplace) -> None:
    moments = [now()]
    stored = memory.remember("one", ref="r")
    moments.append(now())
    memory.revise(stored.id, text="two", ref="s")
    moments.append(now())
    memory.forget(stored.id)
    moments.append(now())
    with pytest.raises(NotFound):
        memory.get(stored.id, as_of=moments[0])
    assert memory.get(stored.id, as_of=moments[1]).text == "one"
    assert memory.get("r", as_of=moments[1]).text == "one"
    assert memory.get(stored.id.upper(), as_of=moments[1]).text == "one"
    assert memory.get(stored.id, as_of=moments[2]).text == "two"
    assert memory.get(stored.id, as_of=moments[2].isoformat()).state == "active"
    assert memory.get(stored.id, as_of=moments[3]).state == "archived"
    with pytest.raises(InvalidInput):
        memory.get(stored.id, as_of="once upon a time")


def test_a_ref_means_who_had_it_then(memory: Commonplace) -> None:
    one, two = memory.remember("one", ref="r"), memory.remember("two", ref="s")
    then = now()
    memory.revise(one.id, ref="old")
    memory.revise(two.id, ref="r")
    assert memory.get("r").id == two.id
    assert memory.get("r", as_of=then).id == one.id
    assert memory.get("s", as_of=then).id == two.id


def test_a_memory_that_was_undone_is_still_in_the_past(memory: Commonplace) -> None:
    other = memory.remember("other")
    stored = memory.remember("short-lived pelican")
    memory.links.add(stored.id, other.id, "knows")
    then = now()
    memory.undo()
    memory.undo()
    assert memory.get(stored.id, as_of=then) == stored
    assert texts(memory.recall("pelican", as_of=then)) == ["short-lived pelican", "other"]
    assert memory.recall("pelican") == []
    assert texts(memory.links.neighbours(other.id, as_of=then)) == ["short-lived pelican"]
    assert texts(memory.links.neighbours(stored.id, as_of=then)) == ["other"]
    assert memory.links.traverse(stored.id, as_of=then).paths[0].nodes == (stored.id, other.id)


def test_recall_in_the_past_sees_the_former_text_tags_and_state(memory: Commonplace) -> None:
    stored = memory.remember("the meeting is on monday", tags=["plan"], importance=0.9)
    then = now()
    memory.revise(stored.id, text="the meeting is on friday", tags=[], importance=0.1)
    assert texts(memory.recall("monday")) == []
    hits = memory.recall("monday meeting", as_of=then)
    assert texts(hits) == ["the meeting is on monday"]
    assert hits[0].why.as_it_was
    assert set(hits[0].why.words) == {"monday", "meeting"}
    assert memory.recall("friday", as_of=then) == []
    assert texts(memory.recall("meeting", as_of=then, tags_all=["plan"], importance=0.5)) == [
        "the meeting is on monday"
    ]
    assert texts(memory.recall("meeting", as_of=now())) == ["the meeting is on friday"]
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    assert memory.recall("meeting", as_of=long_ago) == []


def test_recall_in_the_past_walks_the_links_of_then(memory: Commonplace) -> None:
    one, two = memory.remember("walrus"), memory.remember("unrelated")
    then = now()
    link = memory.links.add(one.id, two.id, "knows", weight=1.0)
    assert set(texts(memory.recall("walrus"))) == {"walrus", "unrelated"}
    assert texts(memory.recall("walrus", as_of=then)) == ["walrus"]
    later = now()
    memory.links.remove(link.id)
    assert set(texts(memory.recall("walrus", as_of=later))) == {"walrus", "unrelated"}


def test_a_speaker_is_known_in_the_past_too(memory: Commonplace) -> None:
    line = memory.conversations.add("talk", Line(speaker="Ann", text="I like walrus"))[0]
    then = now()
    memory.revise(line.memory.id, text="I like seals")
    assert texts(memory.recall("walrus", as_of=then, speakers=["Ann"])) == ["I like walrus"]
    assert memory.recall("walrus", as_of=then, speakers=["Bob"]) == []


def test_a_superseded_decision_stays_reachable_through_its_chain(memory: Commonplace) -> None:
    first = memory.remember("use MySQL for orders", ref="db", kind="decision")
    second = memory.supersede(first.id, "use Postgres for orders", ref="db", reason="JSON")
    third = memory.supersede("db", "use SQLite for orders", ref="db", kind="decision")
    assert texts(memory.recall("orders")) == ["use SQLite for orders"]
    assert memory.get("db").id == third.id
    assert memory.get(first.id).state == memory.get(second.id).state == "superseded"
    walk = [
        (link.source, link.target, link.kind, link.reason, link.weight)
        for link in memory.links.of(kinds=["supersedes"])
    ]
    assert walk == [
        (second.id, first.id, "supersedes", "JSON", 1.0),
        (third.id, second.id, "supersedes", "", 1.0),
    ]
    assert texts(memory.recall("orders", states=["superseded"], limit=5))
    with pytest.raises(Conflict) as caught:
        memory.supersede(first.id, "again")
    assert "chain" in caught.value.hint


def test_superseding_is_all_or_nothing(memory: Commonplace) -> None:
    first, other = memory.remember("first"), memory.remember("other", ref="taken")
    with pytest.raises(Conflict):
        memory.supersede(first.id, "second", ref="taken")
    with pytest.raises(InvalidInput):
        memory.supersede(first.id, "")
    assert memory.get(first.id) == first
    assert memory.get(other.id) == other
    assert memory.links.of() == []
