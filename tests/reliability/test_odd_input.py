"""Odd input comes back byte for byte, or is refused and changes nothing (R13)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from commonplace import Commonplace
from commonplace.engine import checks
from commonplace.engine.binding import lease
from commonplace.engine.content.conversations import Line
from commonplace.engine.transfer.exporting import export_space
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.storage.sqlite import hashed_rows

ODD = [
    "\x00", "a\x00b", "\ud800", "a\udfff", "\ufeffbom", "\ufffe\uffff", "\U0010ffff", "👩‍👩‍👧‍👦",
    "e\u0301", "\u202eevil\u202c", "\u2028\u2029", "ﬁ ﬀ", "İıŞ", "ẞß", "\r\n\t\x0b\x1b[31m", " ",
    "\u3000", "\u200b", "a" * 10_000, "\U0001f1e8\U0001f1ed", "한글", "ﷺ" * 50, "\x7f\x80\x9f",
    "'; DROP TABLE memories; --", '"', "\\", "{}", "%s %d {0}", "${jndi:x}", "<script>",
]  # fmt: skip
HOSTILE = [
    '"', '""', "*", "a*", "^a", "a AND", "OR", "NOT", "NEAR(", "NEAR(a b, 2)", "a NEAR b", "(",
    ")", "a)", "{a b}: c", "body:", "body : a", "-a", "- body: a", "+", "a + b", "a'b", "';--",
    "\\", "%", "_", "a%b", "grams", 'grams MATCH "a"', 'col:"x"', "a:b:c", "AND AND AND", "\u201c",
    "[]", "a\nb", "(" * 500, '"' * 501, "a " * 400, "*" * 300, "rowid:1", "rank:x", "^", "🏳️‍🌈",
    "\ufffe", ".", "?", "NULL",
]  # fmt: skip
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=80)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commonplace]:
    with Commonplace(tmp_path_factory.mktemp("odd"), embedding="none") as memory:
        memory.remember("Always here.", ref="always", tags=["tag"])
        yield memory


def _state(memory: Commonplace) -> str:
    """A digest of every row there is."""
    with lease(memory) as space, space.store.read() as connection:
        return hashed_rows.take_census(connection, "default").digest


def _storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def _exported(memory: Commonplace, wanted: str) -> bool:
    lines: list[str] = []
    with lease(memory) as space:
        export_space(space, lines.append)
    values = [json.loads(line).get("value", {}) for line in lines]
    return any(value.get("text") == wanted for value in values)


@QUICK
@given(text=ANY_TEXT, other=ANY_TEXT)
@example(text="a\x00b", other="x")
@example(text="x", other="\ud800")
@example(text="\ufffe\uffff\U0010ffff", other="\ufeff x")
def test_any_text_comes_back_or_is_refused(store: Commonplace, text: str, other: str) -> None:
    before = _state(store)
    try:
        made = store.remember(text)
    except InvalidInput:
        assert not _storable(text) or not text.strip()
        assert _state(store) == before
        return
    assert _storable(text)
    assert store.get(made.id, count=False).text == text
    before = _state(store)
    try:
        store.revise(made.id, text=other)
    except InvalidInput:
        assert not _storable(other) or not other.strip()
        assert _state(store) == before
        assert store.get(made.id, count=False).text == text
    else:
        assert store.get(made.id, count=False).text == other
        forms = [version.memory.text for version in store.history.versions(made.id)]
        assert forms == ([other, text] if other != text else [text])


@QUICK
@given(data=st.data())
def test_any_field_comes_back_or_is_refused(store: Commonplace, data: st.DataObject) -> None:
    given_fields: dict[str, Any] = {
        "title": data.draw(ANY_TEXT),
        "tags": data.draw(st.lists(ANY_TEXT, max_size=3)),
        "attrs": data.draw(
            st.dictionaries(ANY_TEXT, st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
                lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ANY_TEXT, inner,
                                                                            max_size=2),
                max_leaves=4), max_size=3)),
        "ref": data.draw(st.none() | ANY_TEXT),
    }  # fmt: skip
    before = _state(store)
    try:
        made = store.remember("Fields.", **given_fields)
    except CommonplaceError as error:
        assert error.code in ("INVALID_INPUT", "CONFLICT")
        assert _state(store) == before
        return
    found = store.get(made.id, count=False)
    assert found.title == given_fields["title"]
    assert found.tags == tuple(dict.fromkeys(given_fields["tags"]))
    assert dict(found.attrs) == given_fields["attrs"]
    assert found.ref == given_fields["ref"]


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text)[:24])
def test_known_oddities_survive_every_way_in_and_out(memory: Commonplace, text: str) -> None:
    before = _state(memory)
    if not _storable(text) or not text.strip():
        for call in (
            lambda: memory.remember(text),
            lambda: memory.conversations.add("c", Line(speaker="a", text=text)),
            lambda: memory.facts.add(text, "is", "x"),
            lambda: memory.clusters.create(text),
            lambda: memory.recall(text),
            lambda: memory.find_text(text),
        ):
            with pytest.raises(InvalidInput):
                call()
        assert _state(memory) == before
        return
    made = memory.remember(text, title=text[:900], tags=[text[:90]], attrs={text[:90]: [text]})
    found = memory.get(made.id)
    assert (found.text, found.title) == (text, text[:900])
    assert dict(found.attrs) == {text[:90]: [text]}
    memory.revise(made.id, text="other")
    assert memory.history.versions(made.id)[1].memory.text == text
    memory.undo()
    assert memory.get(made.id).text == text
    assert _exported(memory, text)
    line = memory.conversations.add("c", Line(speaker=text[:90], text=text, session=text[:90]))[0]
    assert memory.conversations.history("c") == [line]
    memory.facts.add(text[:90], "is", text[:90])
    memory.events.record("odd", text[:90], {"text": text})
    assert memory.events.all()[0].payload == {"text": text}
    memory.artifacts.create(text, path="/" + text[:90])
    assert memory.artifacts.read("/" + text[:90])[1].content.decode() == text
    if len(text) <= 1000:
        assert memory.find_text(text)[1] == 2
    memory.recall(text[:9000])
    assert memory.browse(tags_all=[text[:90]])[1] == 1
    assert memory.library.maintenance.check("default").findings == []


@pytest.mark.parametrize("query", HOSTILE, ids=lambda query: ascii(query)[:24])
def test_no_query_is_syntax(store: Commonplace, query: str) -> None:
    made = store.remember(f"before {query} after")
    started = time.monotonic()
    store.recall(query)
    found, count = store.find_text(query, limit=1000)
    assert time.monotonic() - started < 2.0
    assert made.id in [one.id for one in found] and count >= 1


@QUICK
@given(query=ANY_TEXT)
def test_any_query_answers_or_is_refused(store: Commonplace, query: str) -> None:
    for ask in (store.recall, store.find_text, store.recall_sessions):
        try:
            ask(query)
        except InvalidInput:
            assert not _storable(query) or not query.strip()


AT_THE_EDGE = {
    "text": ("a" * checks.TEXT_CHARS, "a" * (checks.TEXT_CHARS + 1)),
    "title": ("t" * checks.TITLE_CHARS, "t" * (checks.TITLE_CHARS + 1)),
    "ref": ("r" * checks.REF_CHARS, "r" * (checks.REF_CHARS + 1)),
    "tags": (
        [f"t{i}" for i in range(checks.MAX_TAGS)],
        [f"t{i}" for i in range(checks.MAX_TAGS + 1)],
    ),
    "tags, one long": (["x" * checks.TAG_CHARS], ["x" * (checks.TAG_CHARS + 1)]),
    "tags, one empty": (["x"], [""]),
    "tags, no list": (("a", "b"), "ab"),
    "attrs": ({"a": "x" * (checks.ATTRS_CHARS - 8)}, {"a": "x" * (checks.ATTRS_CHARS - 7)}),
    "attrs, number": ({"a": 1e308}, {"a": math.inf}),
    "attrs, kind": ({"a": None}, {"a": b"bytes"}),
    "attrs, key": ({"": 1}, {1: 1}),
    "importance": (1.0, 1.0000001),
    "importance, low": (0, -0.0000001),
    "importance, kind": (0.5, True),
    "importance, nan": (0.5, math.nan),
    "confidence": (0.0, "0.5"),
    "kind": ("k" * 64, "k" * 65),
    "kind, letters": ("a.b_c-1", "Note"),
    "state": ("dying", "gone"),
    "trust": ("external", "divine"),
    "pinned": (True, 1),
    "occurred_at": ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00x"),
    "occurred_at, late": ("9999-12-31T23:59:59Z", "10000-01-01"),
    "id": ("12345678-1234-4234-8234-123456789abc", "1234"),
}  # fmt: skip


@pytest.mark.parametrize("edge", AT_THE_EDGE)
def test_each_limit_holds_exactly(memory: Commonplace, edge: str) -> None:
    field = edge.split(",")[0]
    fits, too_much = AT_THE_EDGE[edge]
    before = _state(memory)
    with pytest.raises(InvalidInput) as caught:
        memory.remember(**{"text": "x", field: too_much})
    assert caught.value.field == field
    assert _state(memory) == before
    made = memory.remember(**{"text": "x", field: fits})
    assert memory.get(made.id) == made
    if field == "id":
        return
    before = _state(memory)
    with pytest.raises(InvalidInput):
        memory.revise(made.id, **{field: too_much})
    assert _state(memory) == before


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_deep_attributes_are_refused_not_recursed_into(memory: Commonplace) -> None:
    memory.remember("deep", attrs={"a": _nested(63)})
    before = _state(memory)
    for depth in (64, 1_000, 50_000):
        with pytest.raises(InvalidInput):
            memory.remember("deeper", attrs={"a": _nested(depth)})
    assert _state(memory) == before


def test_a_million_characters_of_any_script_come_back(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        for letter in ("я", "字", "😀"):
            text = letter * (checks.TEXT_CHARS - 7) + " needle"
            made = memory.remember(text)
            assert memory.get(made.id).text == text
        assert memory.find_text("needle")[1] == 3


@pytest.mark.parametrize("limit", [0, -1, 1001, True, 1.0, "10", None])
def test_limits_of_lists_are_whole_numbers_in_range(memory: Commonplace, limit: Any) -> None:
    for ask in (
        lambda: memory.recall("x", limit=limit),
        lambda: memory.browse(limit=limit),
        lambda: memory.find_text("x", limit=limit),
        lambda: memory.history.operations(limit=limit),
        lambda: memory.events.all(limit=limit),
    ):
        with pytest.raises(InvalidInput):
            ask()


def test_a_store_that_mends_its_input_would_be_noticed(
    memory: Commonplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: what cannot be stored is left out instead of refused."""
    monkeypatch.setattr(checks, "text", lambda value, *_, **__: value.replace("\x00", ""))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_known_oddities_survive_every_way_in_and_out(memory, "a\x00b")
