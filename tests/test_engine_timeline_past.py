"""Everything that can be read can be read as it was."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from commonplace import Commonplace, Line
from commonplace.engine import parts
from commonplace.engine.binding import engine_call
from commonplace.engine.finding.ranking import MEANING_ONLY, WORDS_ONLY
from commonplace.engine.finding.summary import summary
from commonplace.engine.maintenance import upkeep
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound
from conftest import WordVectors, texts

BEFORE = datetime(2000, 1, 1, tzinfo=UTC)
ANY_STATE = ["active", "dying", "archived", "superseded", "dead"]
WORDS = ["walrus", "otter", "heron", "lynx", "viper", "ibex"]

# What reads and has no `as_of`, and why. Whatever else is public and not here changes something.
PRESENT_ONLY = {
    "at": "another space",
    "within": "another project",
    "close": "ends the use",
    "unit": "makes several writes one",
    "may_replace": "what is about to be stored is compared with what is there now",
    "recall_for_prompt": "a prompt is answered now",
    "usage": "reads are counted, not versioned: a look at the past changes no count",
    "backlog": "work that waits is of the present",
    "facts.query": "its as_of is known_at, beside true_at",
    "history.operations": "the past itself",
    "history.versions": "the past itself",
}
WRITING = {
    "remember", "remember_many", "revise", "promote", "supersede", "forget", "restore", "purge",
    "undo", "links.add", "links.revise", "links.remove", "facts.add", "facts.close",
    "facts.retract", "clusters.create", "clusters.revise", "clusters.delete",
    "clusters.add", "clusters.remove", "clusters.refresh", "clusters.move",
    "artifacts.create", "artifacts.update", "artifacts.delete", "artifacts.review",
    "conversations.add", "events.record",
}  # fmt: skip


def methods() -> dict[str, inspect.Signature]:
    """Every public method of a memory and of its parts, by dotted name."""
    owners: dict[str, type] = {"": Commonplace}
    for name, owner in inspect.getmembers(parts, inspect.isclass):
        if issubclass(owner, parts.Part) and owner is not parts.Part:
            owners[f"{name.lower()}."] = owner
    return {
        prefix + name: inspect.signature(function)
        for prefix, owner in owners.items()
        for name, function in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_")
    }


def test_every_reading_method_takes_as_of_or_says_why_not() -> None:
    found = methods()
    without = {name for name, signature in found.items() if "as_of" not in signature.parameters}
    assert without == PRESENT_ONLY.keys() | WRITING
    for name in found.keys() - without:
        parameter = found[name].parameters["as_of"]
        assert parameter.default is None, name
        assert parameter.kind is parameter.KEYWORD_ONLY, name


def everything(memory: Commonplace, known: Known, then: datetime | None) -> dict[str, Any]:
    """The answers of every method that can look back, for all that there ever was."""
    whole: dict[str, Any] = {} if then is None else {"as_of": then}

    def asked(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        try:
            return call(*given, **named, **whole)
        except CommonplaceError as error:
            return type(error)

    every, one = {"states": ANY_STATE}, sorted(known.memories)
    answers: dict[str, Any] = {
        "get": {each: asked(memory.get, each, count=False) for each in one},
        "browse": {
            order: memory.browse(order=order, limit=1_000, **every, **whole)
            for order in ("newest", "oldest", "importance", "credit", "updated", "latest")
        },
        "browse live": memory.browse(limit=3, offset=1, **whole),
        "browse some": [
            ids(memory.browse(**narrow, **whole)[0])
            for narrow in (
                {"tags_any": ["red"]}, {"tags_none": ["red"], "kinds": ["note"]},
                {"speakers": ["Ann"]}, {"importance": 0.5}, {"pinned": True}, {"ids": one[:2]},
                {"trust": ["external"]},
            )
        ],
        "find_text": {
            needle: memory.find_text(needle, limit=1_000, **every, **whole)
            for needle in ("walr", "otter", "a", "red", "zz")
        },
        "find_text spoken": memory.find_text("a", speakers=["Ann"], **whole),
        "tags": memory.tags(**whole),
        "recall": {
            (word, how): sorted(ids(hit.memory for hit in memory.recall(
                word, limit=1_000, weighting=weighting, count=False, minimum=0, **whole)))
            for word in WORDS[:3]
            for how, weighting in (("words", WORDS_ONLY), ("meaning", MEANING_ONLY))
        },
        "recall_sessions": sorted(
            (hit.conversation, hit.session) for hit in memory.recall_sessions("walrus", **whole)
        ),
        "links.get": {each: asked(memory.links.get, each) for each in sorted(known.links)},
        "links.of": memory.links.of(**whole),
        "links of each": {each: asked(memory.links.of, each) for each in one},
        "links around": memory.links.around(*one, **whole),
        "neighbours": {each: asked(memory.links.neighbours, each) for each in one},
        "traverse": {each: asked(memory.links.traverse, each, depth=2) for each in one},
        "components": memory.links.components(**whole),
        "timeline": [memory.facts.timeline(name, **whole) for name in (None, "Ann")],
        "totals": memory.facts.totals(**whole),
        "facts.query": memory.facts.query(**({} if then is None else {"known_at": then})),
        "clusters.get": {each: asked(memory.clusters.get, each) for each in sorted(known.clusters)},
        "clusters.all": memory.clusters.all(**whole),
        "members": {
            each: asked(memory.clusters.members, each, **every) for each in sorted(known.clusters)
        },
        "sizes": memory.clusters.sizes(**whole),
        "homes": memory.clusters.homes(*one, **whole),
        "clusters.of": {each: asked(memory.clusters.of, each) for each in one},
        "artifacts": [
            [each] + [look(each.id, **whole) for look in (
                memory.artifacts.get, memory.artifacts.read, memory.artifacts.versions,
                memory.artifacts.reviews)]
            for each in memory.artifacts.all(**whole)
        ],
        "history": memory.conversations.history("talk", limit=1_000, **whole),
        "find": memory.conversations.find("talk", "a", **whole),
        "names": memory.conversations.names(**whole),
        "of": {each: asked(memory.conversations.of, each) for each in one},
        "window": {each: asked(memory.conversations.window, each) for each in one},
        "events": memory.events.all(limit=1_000, **whole),
        "events counted": memory.events.count(kind="seen", **whole),
        "events newest": memory.events.all(newest=True, limit=2, kind="seen", **whole),
    }  # fmt: skip
    return answers


def ids(found: Any) -> list[str]:
    return [each.id for each in found]


class Known:
    """The names of all that there ever was."""

    def __init__(self) -> None:
        self.memories: set[str] = set()
        self.links: set[str] = set()
        self.clusters: set[str] = set()
        self.facts: set[str] = set()
        self.artifacts: set[str] = set()

    def memory(self, memory: Any) -> None:
        self.memories.add(memory.id)


def steps(memory: Commonplace, known: Known, chance: random.Random) -> list[Callable[[], object]]:
    """Something of each kind that can be done, with what is there by chance."""
    any_of = lambda names: chance.choice(sorted(names) or ["none"])  # noqa: E731
    one, other = any_of(known.memories), any_of(known.memories)
    link, cluster = any_of(known.links), any_of(known.clusters)
    text = " ".join(chance.choices(WORDS, k=3))
    details = {
        "tags": chance.sample(["red", "blue"], chance.randrange(3)),
        "kind": chance.choice(["note", "idea"]), "importance": chance.random(),
        "credit": chance.random(), "pinned": chance.random() < 0.3,
        "attrs": {"wing": chance.choice(["east", 5, True, ["a"]])},
    }  # fmt: skip
    changed = chance.choice(sorted(details))

    def supersede() -> None:
        known.memory(memory.supersede(one, text))

    def say() -> None:
        lines = [Line(speaker=chance.choice(["Ann", "Bob"]), text=text, session="s")]
        known.memory(memory.conversations.add("talk", *lines)[0].memory)

    def several() -> None:
        with memory.unit("several"):
            known.memory(memory.remember(text, **details))
            memory.forget(one)
            known.links.add(memory.links.add(one, other, "beside").id)

    return [
        lambda: known.memory(memory.remember(text, **details)),
        lambda: known.memory(memory.remember(text, trust="external")),
        lambda: memory.revise(one, text=text),
        lambda: memory.revise(one, **{changed: details[changed]}),
        lambda: memory.forget(one),
        lambda: memory.restore(one),
        supersede,
        lambda: known.links.add(
            memory.links.add(one, other, "knows", weight=round(chance.random(), 2)).id),
        lambda: memory.links.revise(link, weight=0.25, reason=text),
        lambda: memory.links.remove(link),
        lambda: known.facts.add(memory.facts.add(
            chance.choice(["Ann", "Bob"]), "likes", chance.choice(WORDS), memory=one,
            valid_from="2026-01-01").id),
        lambda: memory.facts.close("Ann", "likes", chance.choice(WORDS)),
        lambda: memory.facts.retract(any_of(known.facts)),
        lambda: known.clusters.add(memory.clusters.create(text).id),
        lambda: memory.clusters.add(cluster, one, other),
        lambda: memory.clusters.remove(cluster, one),
        lambda: memory.clusters.revise(cluster, digest=text),
        lambda: memory.clusters.move(cluster, any_of(known.clusters)),
        lambda: memory.clusters.refresh(cluster),
        lambda: memory.clusters.delete(cluster),
        lambda: known.artifacts.add(memory.artifacts.create(text, title=text).id),
        lambda: memory.artifacts.update(any_of(known.artifacts), text),
        lambda: memory.artifacts.review(any_of(known.artifacts), "approved"),
        lambda: memory.artifacts.delete(any_of(known.artifacts)),
        say,
        lambda: memory.events.record("seen", one, {"text": text}),
        several,
        lambda: memory.undo(),
        lambda: memory.undo(),
        lambda: memory.undo(chance.choice(memory.history.operations()).id),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_what_was_read_at_each_moment_is_read_again_later(vectored: Commonplace, seed: int) -> None:
    chance, known = random.Random(seed), Known()
    for number in range(4):
        known.memory(vectored.remember(f"{WORDS[number]} {WORDS[number + 1]}", tags=["red"]))
    known.clusters.add(vectored.clusters.create("group").id)
    seen: list[tuple[datetime, Known, dict[str, Any]]] = []
    done: set[str] = set()
    for _ in range(30):
        newest = vectored.history.operations(limit=1)[0].seq
        try:
            chance.choice(steps(vectored, known, chance))()
        except (Conflict, NotFound, InvalidInput):
            continue
        operation = vectored.history.operations(limit=1)[0]
        if operation.seq > newest:
            done.add(operation.name)
            engine_call(vectored, upkeep.embed_all)
            seen.append((operation.at, deepcopy(known), everything(vectored, known, None)))
    assert len(seen) > 12 and len(done) > 6, "too little happened"
    for moment, names, before in seen:
        after = everything(vectored, names, moment)
        for call, answer in before.items():
            assert after[call] == answer, call
    while True:
        try:
            vectored.undo()
        except (NotFound, Conflict):
            break
    for moment, names, before in seen[::7]:
        assert everything(vectored, names, moment) == before, "after all was undone"


def test_links_and_clusters_are_found_by_id_as_they_were(memory: Commonplace) -> None:
    one, two = memory.remember("one"), memory.remember("two")
    early = now(memory)
    link = memory.links.add(one.id, two.id, "knows", weight=0.3)
    cluster = memory.clusters.create("group")
    memory.clusters.add(cluster.id, one.id)
    then = now(memory)
    memory.links.revise(link.id, weight=0.9)
    memory.links.remove(link.id)
    memory.clusters.revise(cluster.id, name="other")
    memory.clusters.delete(cluster.id)
    assert memory.links.get(link.id, as_of=then) == link
    assert memory.clusters.get(cluster.id, as_of=then).name == "group"
    assert [each.name for each in memory.clusters.of(one.id, as_of=then)] == ["group"]
    assert memory.clusters.of(two.id, as_of=then) == memory.clusters.of(one.id) == []
    assert memory.clusters.homes(one.id, two.id, as_of=then) == {one.id: [cluster.id], two.id: []}
    assert memory.clusters.sizes(as_of=then) == {cluster.id: {"active": 1}}
    assert memory.clusters.sizes() == {}
    for look, field in (
        (lambda: memory.links.get(link.id, as_of=early), "id"),
        (lambda: memory.clusters.get(cluster.id, as_of=early), "cluster"),
        (lambda: memory.clusters.members(cluster.id, as_of=early), "cluster"),
        (lambda: memory.clusters.of(one.id, as_of=BEFORE), "id"),
    ):
        with pytest.raises(NotFound) as caught:
            look()
        assert caught.value.field == field
        assert "at that time" in caught.value.message


def test_a_listing_of_the_past_is_ordered_filtered_and_paged_as_it_was(memory: Commonplace) -> None:
    a = memory.remember("a", importance=0.9, tags=["x"])
    b = memory.remember("b", importance=0.5)
    memory.remember("c", importance=0.1, tags=["x"])
    then = now(memory)
    memory.revise(a.id, importance=0.0, tags=[])
    memory.forget(b.id)
    memory.remember("d", importance=1.0, tags=["x"])
    assert texts(memory.browse(order="importance", as_of=then)) == ["a", "b", "c"]
    assert texts(memory.browse(order="updated", as_of=then)) == ["c", "b", "a"]
    assert texts(memory.browse(tags_all=["x"], as_of=then)) == ["c", "a"]
    page, total = memory.browse(order="oldest", limit=1, offset=1, as_of=then)
    assert (texts(page), total) == (["b"], 3)
    assert memory.browse(as_of=BEFORE) == ([], 0)
    assert [tag for tag, *_ in memory.tags(as_of=then)] == ["x"]
    assert memory.tags(as_of=then)[0][1:] == (2, a.created_at)
    assert texts(memory.find_text("b", as_of=then)) == ["b"]
    assert memory.find_text("b") == ([], 0)
    with pytest.raises(InvalidInput):
        memory.browse(order="sideways", as_of=then)
    with pytest.raises(InvalidInput):
        memory.browse(as_of="once upon a time")


def test_a_speaker_who_was_undone_is_still_known_in_the_past(memory: Commonplace) -> None:
    memory.conversations.add("talk", Line(speaker="Ann", text="I like walrus"))
    then = now(memory)
    memory.undo()
    for speaker, expected in (("Ann", ["I like walrus"]), ("Bob", [])):
        assert texts(memory.recall("walrus", speakers=[speaker], as_of=then)) == expected
        assert texts(memory.browse(speakers=[speaker], as_of=then)) == expected
        assert texts(memory.find_text("walrus", speakers=[speaker], as_of=then)) == expected
    assert texts(memory.conversations.find("talk", "walrus", as_of=then)) == ["I like walrus"]
    assert memory.conversations.find("talk", "walrus") == []


def test_meaning_finds_in_the_past_what_was_put_aside_since(
    vectored: Commonplace, words: WordVectors
) -> None:
    words.meanings = {"auto": "car"}
    stored = vectored.remember("the auto is red")
    vectored.remember("something else")
    then = now(vectored)
    vectored.forget(stored.id)
    vectored.revise(stored.id, importance=0.9)
    assert texts(vectored.recall("car", as_of=then, weighting=MEANING_ONLY))[0] == stored.text
    vectored.revise(stored.id, text="a boat")
    assert texts(vectored.recall("car", as_of=then, weighting=MEANING_ONLY))[0] == stored.text


def test_what_an_undo_brings_back_is_found_by_meaning_at_once(
    vectored: Commonplace, words: WordVectors
) -> None:
    stored = vectored.remember("the walrus sleeps")
    vectored.forget(stored.id)
    made = words.texts
    vectored.undo()
    assert vectored.backlog()[0] == 0
    assert vectored.recall("walrus", weighting=MEANING_ONLY)[0].why.dense_rank == 1
    assert words.texts == made, "its vectors were kept, and not made anew"


def now(memory: Commonplace) -> datetime:
    """The moment of the newest operation."""
    return memory.history.operations(limit=1, upkeep=True)[0].at


def test_a_search_of_the_past_scores_as_it_did_then(vectored: Commonplace) -> None:
    """Also what its conversation, its session and the rarity of its words added."""
    first, second, third = vectored.conversations.add(
        "talk",
        Line(speaker="Ann", text="the walrus swims", session="1"),
        Line(speaker="Bob", text="so does the otter", session="1"),
        Line(speaker="Ann", text="a heron waits", session="2"),
    )
    note = vectored.remember("walrus and heron on the shore", importance=0.9)
    vectored.links.add(note.id, second.memory.id, "cites", weight=1.0)
    asked = ("walrus", "who saw the heron, Ann?", "otter shore")

    def found(as_of: datetime | None) -> list[tuple[str, float, float]]:
        hits = [hit for each in asked for hit in vectored.recall(each, as_of=as_of, count=False)]
        return [(hit.memory.text, round(hit.score, 5), round(hit.why.context, 5)) for hit in hits]

    then, moment = found(None), vectored.history.operations()[0].at
    sessions = vectored.recall_sessions("walrus heron")
    vectored.revise(first.memory.id, "the viper swims")
    vectored.revise(second.memory.id, state="archived")
    vectored.revise(note.id, "an ibex", importance=0.1)
    for n in range(20):
        vectored.remember(f"walrus number {n}")
    assert found(None) != then
    assert found(moment) == then
    past = vectored.recall_sessions("walrus heron", as_of=moment)
    assert [(hit.session, hit.best.text) for hit in past] == [
        (hit.session, hit.best.text) for hit in sessions
    ]
    assert [hit.score for hit in past] == pytest.approx([hit.score for hit in sessions])
    assert third.memory.id in {hit.memory.id for hit in vectored.recall("heron", as_of=moment)}


def test_a_summary_of_the_past_counts_by_trust_as_now(memory: Commonplace) -> None:
    memory.remember("Otters hold hands.")
    then = datetime.now(UTC)
    for text in ("Herons wait.", "Vipers bask."):
        memory.remember(text, trust="external")
    past = engine_call(memory, summary, as_of=then)
    assert past.total == 1
    assert past.trusts == engine_call(memory, summary).trusts == {"stated": 1, "external": 2}
