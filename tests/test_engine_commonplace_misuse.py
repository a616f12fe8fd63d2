"""Whatever is passed where, the library answers with its own error or does what it says.

Methods and parameters are found by inspection, so that a new one is tried without being listed
here; only what makes its call a good one has to be said.
"""

from __future__ import annotations

import inspect
import math
import shutil
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import pytest

from commonplace import Commonplace, Draft, Filters, Library, Line, Origin, Weighting
from commonplace.engine import commonplace as facade
from commonplace.engine import parts
from commonplace.engine.binding import lease
from commonplace.engine.content import (
    artifacts,
    clusters,
    conversations,
    facts,
    links,
    memories,
)
from commonplace.engine.finding import filters, recall
from commonplace.engine.transfer import exporting
from commonplace.errors import CommonplaceError

WRONG: dict[str, Any] = {
    "nothing": None,
    "a number": 5,
    "nought": 0,
    "a negative number": -1,
    "a huge number": 2**70,
    "true": True,
    "false": False,
    "a fraction": 0.5,
    "not a number": math.nan,
    "infinity": math.inf,
    "a letter": "x",
    "an empty text": "",
    "a NUL": "a\x00b",
    "half a character": "\ud800",
    "bytes": b"x",
    "no bytes": b"",
    "a list": [],
    "a list of numbers": [5],
    "a list of nothing": [None],
    "a tuple": (),
    "a mapping": {},
    "a mapping of bytes": {b"x": b"y"},
    "an object": object(),
    "a class": int,
    "a function": len,
}

PARTS = ("links", "facts", "clusters", "artifacts", "conversations", "events", "history")
NAMES: dict[str, Any] = {}
for _module in (typing, memories, links, facts, clusters, artifacts, conversations, recall,
                filters, facade):  # fmt: skip
    NAMES |= vars(_module)


def good(call: str, world: dict[str, str]) -> dict[str, Any]:
    """Arguments with which a call succeeds; `*name` are its positional rest."""
    own = {
        "links": {"identity": world["link"], "source": world["one"], "target": world["two"],
                  "kind": "beside"},
        "facts": {"identity": world["fact"], "subject": "Ann", "predicate": "likes",
                  "object": "tea"},
        "clusters": {"identity": world["cluster"], "name": "c", "memory": world["one"],
                     "*members": [world["two"]]},
        "artifacts": {"name": "/p", "content": "c", "outcome": "approved"},
        "conversations": {"conversation": "talk", "identity": world["line"], "needle": "tea",
                          "*lines": [Line(speaker="s", text="t")]},
        "events": {"kind": "k"},
        "history": {"identity": world["one"]},
    }  # fmt: skip
    part, _, method = call.rpartition(".")
    if part:
        given: dict[str, Any] = dict(own[part])
        if call in ("links.of", "links.neighbours", "links.traverse"):
            given["identity"] = world["one"]
        if call == "clusters.move":
            given |= {"source": world["cluster"], "target": world["cluster"]}
        if call in ("clusters.homes", "links.around"):
            given["*identities"] = [world["one"]]
        return given
    return {
        "identity": world["one"], "text": "t", "drafts": [Draft(text="t")], "trust": "stated",
        "prompt": "t", "project": None,
        "*identities": [world["archived" if method == "restore" else "two"]], "query": "tea",
        "needle": "tea", "space": "elsewhere", "name": "unit",
    }  # fmt: skip


def calls() -> Iterator[tuple[str, inspect.Signature]]:
    """(name, signature) of every public method of a memory and of its parts."""
    owners = {"": Commonplace} | {part: getattr(parts, part.capitalize()) for part in PARTS}
    for part, owner in owners.items():
        for method, function in inspect.getmembers(owner, inspect.isfunction):
            if not method.startswith("_"):
                yield f"{part}.{method}".lstrip("."), inspect.signature(function)


def places() -> Iterator[tuple[str, str, Any]]:
    """(call, parameter, what it may be) for everything that can be passed."""
    for call, signature in calls():
        for name, parameter in list(signature.parameters.items())[1:]:
            assert parameter.kind is not parameter.VAR_KEYWORD, f"{call} does not name {name}"
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
            yield call, star + name, eval(parameter.annotation, NAMES)
    for made, owner in MADE.items():
        for field in fields(owner):
            if field.init:
                yield made, field.name, eval(field.type, NAMES)  # type: ignore[arg-type]


# Values that are made first and passed on, each field of them wrong in turn.
MADE: dict[str, type] = {
    "remember_many(Draft)": Draft,
    "conversations.add(Line)": Line,
    "recall(Filters)": Filters,
    "find_text(Filters)": Filters,
    "recall(Weighting)": Weighting,
    "remember(Origin)": Origin,
}
FITTING: dict[type, dict[str, Any]] = {Draft: {"text": "t"}, Line: {"speaker": "s", "text": "t"}}


def make(memory: Commonplace, made: str, field: str, value: Any) -> object:
    whole = MADE[made](**{**FITTING.get(MADE[made], {}), field: value})
    match made:
        case "remember_many(Draft)":
            return memory.remember_many([whole])
        case "conversations.add(Line)":
            return memory.conversations.add("talk", whole)
        case "recall(Filters)":
            return memory.recall("tea", filters=whole)
        case "find_text(Filters)":
            return memory.find_text("tea", filters=whole)
        case "recall(Weighting)":
            return memory.recall("tea", weighting=whole)
    return memory.remember("t", origin=whole)


def attempt(memory: Commonplace, call: str, name: str, value: Any, world: dict[str, str]) -> None:
    if call in MADE:
        make(memory, call, name, value)
        return
    part, _, method = call.rpartition(".")
    bound = getattr(getattr(memory, part) if part else memory, method)
    given, named, rest = good(call, world), {}, []
    for each, parameter in inspect.signature(bound).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = given[f"*{each}"]
        elif parameter.default is parameter.empty:
            assert each in given, f"say what a good {each} for {call} is"
            named[each] = given[each]
    if name.startswith("*"):
        rest = [*rest, value]
    elif name:
        named[name] = value
    leading = [named.pop(each) for each in list(named) if rest and _leads(bound, each)]
    made = bound(*leading, *rest, **named)
    if hasattr(made, "__enter__") and method == "unit":
        with made:
            pass


def _leads(bound: Callable[..., Any], name: str) -> bool:
    parameter = inspect.signature(bound).parameters.get(name)
    return parameter is not None and parameter.kind is parameter.POSITIONAL_OR_KEYWORD


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; what it says is another matter."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if hint in (None, type(None)):
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    if origin is not None and issubclass(origin, Collection):
        plain = isinstance(value, origin) and not isinstance(value, str | bytes | Mapping)
        return plain and all(fits(each, inner[0]) for each in value)
    if origin is not None:
        return callable(value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return not isinstance(hint, type) or isinstance(value, hint)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A data directory with a bit of everything, and the names of what is in it."""
    path = tmp_path_factory.mktemp("misuse") / "template"
    with Commonplace(path, embedding="none") as memory:
        one, two, gone = (memory.remember(text) for text in ("tea", "coffee", "gone"))
        memory.forget(gone.id)
        link = memory.links.add(one.id, two.id, "knows")
        fact = memory.facts.add("Ann", "drinks", "tea")
        cluster = memory.clusters.create("drinks")
        memory.artifacts.create("c", path="/p")
        (line,) = memory.conversations.add("talk", Line(speaker="s", text="line"))
        memory.events.record("k")
    return path, {
        "one": one.id, "two": two.id, "archived": gone.id, "link": link.id, "fact": fact.id,
        "cluster": cluster.id, "line": line.memory.id,
    }  # fmt: skip


class Store:
    """A copy of the template, made anew once a call has changed it."""

    def __init__(self, template: Path, place: Path) -> None:
        self._template, self._place = template, place
        self._copies = 0
        self._renew()

    def _renew(self) -> None:
        self._copies += 1
        path = self._place / str(self._copies)
        shutil.copytree(self._template, path)
        self.memory = Commonplace(path, embedding="none")
        self.before = self._operations()
        self.digest = self._digest()

    def _operations(self) -> object:
        return self.memory.history.operations(limit=1000, upkeep=True)

    def _digest(self) -> str:
        with lease(self.memory) as space:
            return exporting.digest(space)

    def unchanged(self) -> bool:
        return self._operations() == self.before

    def refresh(self) -> None:
        if not self.unchanged():
            self.close()
            self._renew()

    def untouched(self) -> bool:
        return self._digest() == self.digest

    def close(self) -> None:
        self.memory.close()


PLACES: dict[str, dict[str, Any]] = {}
for _call, _name, _hint in places():
    PLACES.setdefault(_call, {})[_name] = _hint


@pytest.fixture
def store(template: tuple[Path, dict[str, str]], tmp_path: Path) -> Iterator[Store]:
    opened = Store(template[0], tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("call", [call for call in PLACES if call not in MADE])
def test_the_good_arguments_are_good(
    store: Store, template: tuple[Path, dict[str, str]], call: str
) -> None:
    attempt(store.memory, call, "", None, template[1])


@pytest.mark.parametrize("call", PLACES)
def test_whatever_is_passed_the_answer_is_typed_and_a_refusal_changes_nothing(
    store: Store, template: tuple[Path, dict[str, str]], call: str
) -> None:
    wrong = []
    for name, hint in PLACES[call].items():
        for what, value in WRONG.items():
            try:
                attempt(store.memory, call, name, value, template[1])
            except CommonplaceError as error:
                if not (error.code and error.message and store.unchanged()):
                    wrong.append(f"{name}={what}: {error!r} and something changed")
            except Exception as error:
                wrong.append(f"{name}={what}: {type(error).__name__}: {error}")
            else:
                if not fits(value, hint):
                    wrong.append(f"{name}={what} was taken")
            store.refresh()
    assert wrong == []
    assert store.untouched()


OPENING = {"path": "str | Path | None", "space": "str", "origin": "Origin | None",
           "embedding": "str | None", "library": "Library | None", "project": "Project | None",
           "allow_secrets": "bool", "embed": "Literal['now', 'later']"}  # fmt: skip


@pytest.mark.parametrize("name", OPENING)
def test_a_memory_is_opened_with_what_it_needs_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert set(inspect.signature(Commonplace).parameters) == set(OPENING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMMONPLACE_DATA", str(tmp_path / "usual"))
    hint = eval(OPENING[name], {**NAMES, "Library": Library, "Path": Path})
    for what, value in WRONG.items():
        given = {"path": tmp_path / "data", "embedding": "none", name: value}
        try:
            Commonplace(**given).close()
        except CommonplaceError as error:
            assert error.message, what
        else:
            assert fits(value, hint), what


def test_a_library_refuses_what_is_no_name(tmp_path: Path) -> None:
    library = Library(tmp_path / "data", embedder=None)
    for what, value in WRONG.items():
        if what == "a letter":
            continue
        for call in (library.file, library.drop, lambda name: library.lease(name).__enter__()):
            with pytest.raises(CommonplaceError):
                call(value)
        for field in ("embedder", "open_spaces"):
            if value is not None and what != "a number":
                with pytest.raises(CommonplaceError):
                    Library(tmp_path / "data", **{"embedder": None, field: value})
    library.close()
    assert library.spaces() == []


def test_a_home_that_nobody_has_is_refused() -> None:
    with pytest.raises(CommonplaceError):
        Commonplace("~nobody-has-this-name/data", embedding="none")
