"""Bad input anywhere gets one typed error, and changes nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from commonplace import Commonplace, Draft, Filters, Line, Origin
from commonplace.engine.binding import engine_call
from commonplace.engine.content import chains
from commonplace.engine.finding import likeness
from commonplace.errors import CommonplaceError

HOSTILE: dict[str, Any] = {
    "a lone surrogate": "\ud800",
    "a NUL": "a\x00b",
    "a number": 7,
    "nothing": None,
    "bytes": b"x",
    "a list": ["x"],
    "too long": "x" * 2_000_000,
}
BAD_ORIGIN = Origin(user="\ud800")

# Every text a caller can give, as a call that takes the hostile value in its place.
TEXTS: dict[str, Callable[[Commonplace, str, Any], object]] = {
    "remember": lambda m, a, x: m.remember(x),
    "remember title": lambda m, a, x: m.remember("t", title=x),
    "remember kind": lambda m, a, x: m.remember("t", kind=x),
    "remember tag": lambda m, a, x: m.remember("t", tags=[x]),
    "remember state": lambda m, a, x: m.remember("t", state=x),
    "remember trust": lambda m, a, x: m.remember("t", trust=x),
    "get": lambda m, a, x: m.get(x),
    "get as of": lambda m, a, x: m.get(x, as_of="2024-01-01"),
    "usage": lambda m, a, x: m.usage(x),
    "revise id": lambda m, a, x: m.revise(x, text="t"),
    "revise text": lambda m, a, x: m.revise(a, text=x),
    "revise title": lambda m, a, x: m.revise(a, title=x),
    "promote": lambda m, a, x: m.promote(a, x),
    "supersede id": lambda m, a, x: m.supersede(x, "t"),
    "supersede text": lambda m, a, x: m.supersede(a, x),
    "supersede reason": lambda m, a, x: m.supersede(a, "t", reason=x),
    "forget": lambda m, a, x: m.forget(a, x),
    "restore": lambda m, a, x: m.restore(x),
    "purge": lambda m, a, x: m.purge(x),
    "recall": lambda m, a, x: m.recall(x),
    "recall sessions": lambda m, a, x: m.recall_sessions(x),
    "find text": lambda m, a, x: m.find_text(x),
    "browse order": lambda m, a, x: m.browse(order=x),
    "filter kinds": lambda m, a, x: Filters(kinds=[x]),
    "filter tags": lambda m, a, x: Filters(tags_all=[x]),
    "similarity": lambda m, a, x: engine_call(m, likeness.similarity, "t", [x]),
    "space": lambda m, a, x: m.at(x),
    "link source": lambda m, a, x: m.links.add(x, a, "knows"),
    "link target": lambda m, a, x: m.links.add(a, x, "knows"),
    "link kind": lambda m, a, x: m.links.add(a, m.get("other").id, x),
    "link reason": lambda m, a, x: m.links.add(a, "other", "knows", reason=x),
    "link get": lambda m, a, x: m.links.get(x),
    "link revise": lambda m, a, x: m.links.revise(x, weight=0.5),
    "link remove": lambda m, a, x: m.links.remove(x),
    "neighbours": lambda m, a, x: m.links.neighbours(x),
    "neighbours as of": lambda m, a, x: m.links.neighbours(x, as_of="2024-01-01"),
    "direction": lambda m, a, x: m.links.neighbours(a, direction=x),
    "traverse": lambda m, a, x: m.links.traverse(x),
    "fact subject": lambda m, a, x: m.facts.add(x, "b", "c"),
    "fact predicate": lambda m, a, x: m.facts.add("a", x, "c"),
    "fact object": lambda m, a, x: m.facts.add("a", "b", x),
    "fact close": lambda m, a, x: m.facts.close(x, "b", "c"),
    "fact retract": lambda m, a, x: m.facts.retract(x),
    "fact role": lambda m, a, x: m.facts.query("a", role=x),
    "cluster name": lambda m, a, x: m.clusters.create(x),
    "cluster digest": lambda m, a, x: m.clusters.create("c", digest=x),
    "cluster get": lambda m, a, x: m.clusters.get(x),
    "cluster members": lambda m, a, x: m.clusters.members(x),
    "cluster add": lambda m, a, x: m.clusters.add(x, a),
    "cluster delete": lambda m, a, x: m.clusters.delete(x),
    "cluster of": lambda m, a, x: m.clusters.of(x),
    "artifact title": lambda m, a, x: m.artifacts.create("c", title=x),
    "artifact type": lambda m, a, x: m.artifacts.create("c", media_type=x),
    "artifact get": lambda m, a, x: m.artifacts.get(x),
    "artifact update": lambda m, a, x: m.artifacts.update(x, "c"),
    "artifact summary": lambda m, a, x: m.artifacts.update("/p", "c", summary=x),
    "artifact review": lambda m, a, x: m.artifacts.review("/p", x),
    "artifact reviewer": lambda m, a, x: m.artifacts.review("/p", "approved", reviewer=x),
    "artifact comments": lambda m, a, x: m.artifacts.review("/p", "approved", comments=x),
    "conversation": lambda m, a, x: m.conversations.add(x, Line(speaker="s", text="t")),
    "speaker": lambda m, a, x: m.conversations.add("c", Line(speaker=x, text="t")),
    "line": lambda m, a, x: m.conversations.add("c", Line(speaker="s", text=x)),
    "session": lambda m, a, x: m.conversations.add("c", Line(speaker="s", text="t", session=x)),
    "history": lambda m, a, x: m.conversations.history(x),
    "line of": lambda m, a, x: m.conversations.of(x),
    "window": lambda m, a, x: m.conversations.window(x),
    "event kind": lambda m, a, x: m.events.record(x),
    "event subject": lambda m, a, x: m.events.record("k", x),
    "versions": lambda m, a, x: m.history.versions(x),
    "unit": lambda m, a, x: _unit(m, x),
}  # fmt: skip

# The same for texts that may also be left out.
OPTIONAL: dict[str, Callable[[Commonplace, str, Any], object]] = {
    "remember ref": lambda m, a, x: m.remember("t", ref=x),
    "remember id": lambda m, a, x: m.remember("t", id=x),
    "fact memory": lambda m, a, x: m.facts.add("a", "b", "c", memory=x),
    "fact entity": lambda m, a, x: m.facts.query(x),
    "fact entity then": lambda m, a, x: m.facts.query(x, known_at="2024-01-01"),
    "fact predicate asked": lambda m, a, x: m.facts.query("a", predicate=x),
    "timeline": lambda m, a, x: m.facts.timeline(x),
    "cluster parent": lambda m, a, x: m.clusters.create("c", parent=x),
    "artifact path": lambda m, a, x: m.artifacts.create("c", path=x),
    "artifact prefix": lambda m, a, x: m.artifacts.all(prefix=x),
    "history session": lambda m, a, x: m.conversations.history("c", session=x),
    "event kind counted": lambda m, a, x: m.events.count(kind=x),
    "event subject counted": lambda m, a, x: m.events.count(subject=x),
    "event kind asked": lambda m, a, x: m.events.all(kind=x),
    "event subject asked": lambda m, a, x: m.events.all(subject=x),
    "links of": lambda m, a, x: m.links.of(x),
    "undo": lambda m, a, x: m.undo(x),
}

# Numbers, moments and origins.
OTHERS: dict[str, Callable[[Commonplace, str], object]] = {
    "version of an artifact": lambda m, a: m.artifacts.read("/p", version="x"),  # type: ignore[arg-type]
    "huge version": lambda m, a: m.artifacts.read("/p", version=2**70),
    "huge offset": lambda m, a: m.browse(offset=2**70) and m.browse(offset=-(2**70)),
    "before": lambda m, a: m.conversations.history("c", before=2**70),
    "window before": lambda m, a: m.conversations.window(m.get("line").id, before=2**70),
    "window after": lambda m, a: m.conversations.window("line", after="x"),  # type: ignore[arg-type]
    "events after": lambda m, a: m.events.all(after=2**70),
    "events after text": lambda m, a: m.events.all(after="x"),  # type: ignore[arg-type]
    "link kinds": lambda m, a: m.links.of(kinds=5),  # type: ignore[arg-type]
    "link kinds as text": lambda m, a: m.links.of(kinds="knows"),
    "as of": lambda m, a: m.recall("t", as_of="soon"),
    "links as of": lambda m, a: m.links.of(as_of=5),  # type: ignore[arg-type]
    "known at": lambda m, a: m.facts.query("a", known_at="9999-12-31T23:59:59-12:00"),
    "expected version": lambda m, a: m.revise(a, text="t", expected_version="1"),  # type: ignore[arg-type]
    "origin of remember": lambda m, a: m.remember("t", origin=BAD_ORIGIN),
    "origin of forget": lambda m, a: m.forget(a, origin=BAD_ORIGIN),
    "origin of link": lambda m, a: m.links.add(a, "other", "knows", origin=BAD_ORIGIN),
    "origin of event": lambda m, a: m.events.record("k", origin=BAD_ORIGIN),
    "origin of artifact": lambda m, a: m.artifacts.create("c", origin=BAD_ORIGIN),
    "origin as text": lambda m, a: m.remember("t", origin="ann"),  # type: ignore[arg-type]
    "content": lambda m, a: m.artifacts.create(5),  # type: ignore[arg-type]
    "draft": lambda m, a: m.remember_many(["text"]),  # type: ignore[list-item]
    "line": lambda m, a: m.conversations.add("c", "text"),  # type: ignore[arg-type]
    "filters": lambda m, a: m.recall("t", filters={"kinds": []}),  # type: ignore[arg-type]
}


def _unit(memory: Commonplace, name: Any) -> None:
    with memory.unit(name):
        memory.remember("t")


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Commonplace(tmp_path_factory.mktemp("input"), embedding="none") as memory:
        memory.remember("one", ref="one")
        memory.remember("other", ref="other")
        memory.artifacts.create("c", path="/p")
        memory.conversations.add("c", Line(speaker="s", text="line", ref="line"))
        yield memory


def refused(memory: Commonplace, call: Callable[[], object]) -> None:
    before = memory.history.operations()
    with pytest.raises(CommonplaceError) as caught:
        call()
    assert caught.value.code
    assert caught.value.message
    assert len(str(caught.value)) < 2_000
    assert memory.history.operations() == before


@pytest.mark.parametrize("place", TEXTS)
def test_a_hostile_value_for_a_text_is_refused(stocked: Commonplace, place: str) -> None:
    one = stocked.get("one").id
    for value in HOSTILE.values():
        if value is None and place == "revise text":  # which leaves it as it is
            assert stocked.revise(one, text=None) == stocked.get(one)
            continue
        refused(stocked, lambda value=value: TEXTS[place](stocked, one, value))  # type: ignore[misc]


@pytest.mark.parametrize("place", OPTIONAL)
def test_a_hostile_value_for_an_optional_text_is_refused(stocked: Commonplace, place: str) -> None:
    one = stocked.get("one").id
    for name, value in HOSTILE.items():
        if name != "nothing":
            refused(stocked, lambda value=value: OPTIONAL[place](stocked, one, value))  # type: ignore[misc]


@pytest.mark.parametrize("place", OTHERS)
def test_other_bad_arguments_are_refused(stocked: Commonplace, place: str) -> None:
    refused(stocked, lambda: OTHERS[place](stocked, stocked.get("one").id))


# Every number a caller can give, as a call that stores a zero with a sign in its place.
SIGNED: dict[str, Callable[[Commonplace, str, str], object]] = {
    "remember importance": lambda m, a, b: m.remember("t", importance=-0.0),
    "remember confidence": lambda m, a, b: m.remember("t", confidence=-0.0),
    "remember credit": lambda m, a, b: m.remember("t", credit=-0.0),
    "remember many": lambda m, a, b: m.remember_many([Draft(text="t", importance=-0.0)]),
    "supersede": lambda m, a, b: m.supersede(a, "t", importance=-0.0),
    "revise importance": lambda m, a, b: m.revise(a, importance=-0.0),
    "revise confidence": lambda m, a, b: m.revise(a, confidence=-0.0),
    "revise credit": lambda m, a, b: m.revise(a, credit=-0.0),
    "link": lambda m, a, b: m.links.add(a, b, "follows", weight=-0.0),
    "fact": lambda m, a, b: m.facts.add("x", "is", "y", confidence=-0.0),
}


@pytest.mark.parametrize("place", SIGNED)
def test_a_zero_with_a_sign_is_stored_as_zero(memory: Commonplace, place: str) -> None:
    """SQLite drops the sign, and a row that is not what its hash was taken of cannot be read."""
    first, second = memory.remember("one").id, memory.remember("two").id
    SIGNED[place](memory, first, second)
    assert memory.recall("one two t")
    assert len(memory.browse()[0]) >= 2
    memory.links.of(first)
    memory.facts.timeline("x")
    assert memory.library.maintenance.check("default").healthy


class Shown(str):
    """A text that prints as something else, as members of enumerations and numpy's texts do."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<shown>"


class ShownBytes(bytes):
    """The same for bytes."""

    def __repr__(self) -> str:
        return "<shown>"


X = Shown("x")
# Every text that is stored, as a call that stores one of a type of its own in its place.
OWN_TYPES: dict[str, Callable[[Commonplace, str, str], object]] = {
    "remember": lambda m, a, b: m.remember(X, kind=X, title=X, tags=[X], ref=X, attrs={X: X}),
    "state and trust": lambda m, a, b: m.remember(
        "t", state=Shown("dying"), trust=Shown("external")
    ),
    "origin": lambda m, a, b: m.remember("t", origin=Origin(X, X, X, X, X)),
    "revise": lambda m, a, b: m.revise(a, text=X, kind=X, title=X, tags=[X], ref=X, attrs={X: X}),
    "supersede": lambda m, a, b: m.supersede(a, X, reason=X),
    "link": lambda m, a, b: m.links.add(a, b, X, reason=X, attrs={X: X}),
    "fact": lambda m, a, b: m.facts.add(X, X, X, attrs={X: X}),
    "cluster": lambda m, a, b: m.clusters.create(X, digest=X, attrs={X: X}),
    "artifact": lambda m, a, b: m.artifacts.create(X, path=X, title=X, media_type=X),
    "bytes": lambda m, a, b: m.artifacts.create(ShownBytes(b"x")),
    "update": lambda m, a, b: m.artifacts.update(m.artifacts.create("c").id, X, summary=X),
    "review": lambda m, a, b: m.artifacts.review(
        m.artifacts.create("c").id, "approved", reviewer=X, comments=X
    ),
    "line": lambda m, a, b: m.conversations.add(X, Line(speaker=X, text=X, session=X, ref=X)),
    "event": lambda m, a, b: m.events.record(X, X, {X: X}),
    "chain": lambda m, a, b: engine_call(m, chains.extend, Draft(text=X, tags=[X]), X, m.origin, X),
    "number": lambda m, a, b: engine_call(m, chains.remember_numbered, Draft(text=X), X, m.origin),
    "unit": lambda m, a, b: _unit(m, X),
    "space": lambda m, a, b: m.at(Shown("default")).remember("t"),
}


@pytest.mark.parametrize("place", OWN_TYPES)
def test_a_text_of_a_type_of_its_own_is_stored_as_text(memory: Commonplace, place: str) -> None:
    """A row's hash goes by what SQLite gives back, and not by how a value prints itself."""
    first, second = memory.remember("one").id, memory.remember("two").id
    OWN_TYPES[place](memory, first, second)
    found = memory.library.maintenance.check("default")
    assert found.healthy and not found.findings
    memory.browse(), memory.links.of(), memory.facts.query(), memory.clusters.all()
    memory.artifacts.all(), memory.events.all(), memory.history.operations()
    memory.conversations.history("x")


@pytest.mark.parametrize(
    "scale", ["nan", "inf", "-inf", "-1", "-0.0", "0", "1e-45", "1.0001", "1e30"]
)
def test_a_vector_without_a_scale_is_refused(vectored: Commonplace, scale: str) -> None:
    """One of them decided every search of the space, or made it find nothing."""
    vectored.remember("a lantern")
    whole = struct.pack("<f", float(scale)) + bytes(64)
    for vectors in ([whole], [whole[:4]], [b""]):
        refused(vectored, lambda vectors=vectors: vectored.remember("t", vectors=vectors))  # type: ignore[misc]
        line = Line(speaker="s", text="t", vectors=vectors)
        refused(vectored, lambda line=line: vectored.conversations.add("c", line))  # type: ignore[misc]
    assert len(vectored.recall("lantern")) == 1


@pytest.mark.parametrize("scale", [1.0, 2.0**-126])
def test_a_vector_of_any_usual_scale_is_taken(vectored: Commonplace, scale: float) -> None:
    packed = struct.pack("<f", scale) + bytes([1] * 64)
    assert vectored.remember("a lantern", vectors=[packed])
    assert vectored.library.maintenance.check("default").healthy
