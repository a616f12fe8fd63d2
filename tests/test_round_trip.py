"""Whatever is accepted comes back equal, from every side, and leaves the space sound."""

from __future__ import annotations

import contextlib
import enum
import json
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from commonplace import Commonplace, Draft, Line, Origin
from commonplace.access.caller import Caller
from commonplace.dialects import registry
from commonplace.dialects.contract import RequestInfo, Tool
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content import chains
from commonplace.engine.history import audit
from commonplace.engine.transfer import exporting
from commonplace.engine.transfer.importing import import_file
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.server.gate import Gate
from commonplace.storage.system import open_system
from postgres_engine import NO_TRACES

SHARE = 4
STATES = ["active", "dying", "archived", "superseded", "dead"]
EVERY: dict[str, Any] = {"states": STATES, "limit": 1_000}


class Word(enum.StrEnum):
    """Texts that print as something else."""

    KIND = "note"
    TEXT = "a word of its own"


TEXTS = [
    "plain", "\x00", "a\x00b", "\ud800", "\ufeff", "\u2028\u2029", "\u202eevil\u202c", "e\u0301",
    "\u0301", "ß", "ẞ", "İ", "ı", "K", "k", "ﬁ", "\u200b", "\u00ad", " ", "\r\n", "a\r\nb\r",
    "\x85", "\x1cx", "\u3000x", "0", "-0.0", "NaN", "null", "2024-02-30", "{}",
    '{"a": 1}', '"', "\\", "%", "'; DROP TABLE memories; --", "SQLite format 3",
    "CREATE TABLE memories (", "tag:", "user:ann",
    "import:x", "__proto__", "$ref", "---\nid: x\n---\n", "../../etc", "CON", "a/b", "x.", "😀",
    "\U0010ffff", "각", "😀" * 99, "x" * 100, "x" * 101, "a" * 499 + "😀", "log_" + "9" * 496,
    'what she called "the harbour \\ lantern"\nof the old town', "/plan.md", Word.KIND, Word.TEXT,
    np.str_("from an array"),
]  # fmt: skip
NUMBERS: list[Any] = [
    0, 1, -0.0, 5e-324, 1e-320, 1e-45, 0.7, 1 / 3, 1 - 2**-53, True, 2, 1e308, -1e-320, 2**63,
    float("nan"), float("inf"), np.float64(0.3), np.float64(-0.0), "1",
]  # fmt: skip
MOMENTS: list[Any] = [
    "0001-01-01", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59.999999Z", "2024-W09-4",
    "9999-12-31T23:59:59-00:01", "1969-12-31T23:59:59.999999Z", "2016-12-31T23:59:60Z",
    "2024-01-01T10:00:00,5", "2024-01-01 10:00+05:30:15.000007", "", "1704067200", 1704067200, None,
    datetime.max, datetime(1, 1, 1), datetime(2024, 10, 27, 2, 30, fold=1), date(2024, 1, 1),
    datetime(1900, 1, 1, tzinfo=timezone(timedelta(seconds=1172, microseconds=7))),
]  # fmt: skip
ATTRS: list[Any] = [
    None, {}, {"a": -0.0}, {"a": 2**53 + 1, "b": -(2**63) - 1}, {"a": 10**400}, {"a": 1e22},
    {"": {"__proto__": [None, True, (1, 2.0)]}}, {"ß": 1, "ẞ": 2, "ss": 3}, {1: 1}, {"a": b"x"},
    {"a": float("nan")}, {Word.TEXT: Word.KIND, "a": np.float64(0.5)}, {"a": "\ud800"}, [],
]  # fmt: skip
TAGS = [[text] for text in TEXTS] + [["ß", "ẞ", "ß"], [], ["a"] * 200, "ab", ["k", "K", "K"]]
OBJECTS = [{}, {"a": -0.0}, {"a": 2**53 + 1}, {"": {"__proto__": [None]}}, {"ß": 1, "ẞ": 2}]
CONTENTS: list[Any] = [*TEXTS[::4], b"", b"\x00", b"a\x00b", b"\xff", np.bytes_(b"ab")]
ORIGINS = [Origin(text, "import:x", text, text, text) for text in TEXTS]

DETAILS: dict[str, list[Any]] = {
    "kind": TEXTS, "title": TEXTS, "tags": TAGS, "importance": NUMBERS, "confidence": NUMBERS,
    "credit": NUMBERS, "pinned": [True, 1], "occurred_at": MOMENTS, "ref": [None, *TEXTS],
    "attrs": ATTRS, "state": [*STATES, "gone"], "trust": ["inferred", "external", Word.TEXT],
}  # fmt: skip
LINKED: dict[str, list[Any]] = {"weight": NUMBERS, "reason": TEXTS, "attrs": ATTRS}
GROUPED: dict[str, list[Any]] = {"digest": TEXTS, "attrs": ATTRS}


def now() -> datetime:
    return datetime.now(UTC)


def as_given(thing: Any, fields: Mapping[str, Any]) -> None:
    """Every field is what was asked for; what the store makes of a time, a tag or attrs is told."""
    for name, value in fields.items():
        got = getattr(thing, name)
        if name == "tags":
            assert got == tuple(dict.fromkeys(value))
        elif name == "attrs":
            assert got == json.loads(json.dumps(value or {}))
        elif isinstance(value, datetime):
            assert got == (value if value.tzinfo else value.replace(tzinfo=UTC))
        elif name not in ("occurred_at", "created_at", "valid_from", "valid_to"):
            assert got == value, name


class Writer:
    """Every way to store something, each with a look at what was stored."""

    def __init__(self, memory: Commonplace) -> None:
        self.m = memory

    def ids(self, table: str = "memories") -> list[str]:
        with lease(self.m) as space, space.store.read() as connection:
            rows = connection.execute(f"SELECT id FROM {table} ORDER BY num")
            return [str(row[0]) for row in rows]

    def first(self, table: str) -> str:
        return next(iter(self.ids(table)), "none")

    def remember(self, text: Any = "plain", **fields: Any) -> None:
        made = self.m.remember(text, **fields)
        as_given(made, {"text": text, **{k: v for k, v in fields.items() if k != "origin"}})
        assert made == self.m.get(made.id) == self.m.get(made.id, as_of=now())
        assert made.ref is None or self.m.get(made.ref) == made
        if made.state in ("active", "dying"):
            happened = made.occurred_at or made.created_at
            found, _ = self.m.browse(
                limit=1_000, kinds=[made.kind], tags_all=made.tags, origin=made.origin,
                importance=made.importance, credit=made.credit, since=happened, until=happened,
            )  # fmt: skip
            assert made in found
            for needle in (made.text, made.title or made.text, *made.tags):
                assert made in self.m.find_text(needle, limit=1_000)[0]
            assert {tag for tag, *_ in self.m.tags()}.issuperset(made.tags)
            self.m.recall(text)

    def revise(self, **fields: Any) -> None:
        one = self.m.remember("to be revised")
        made = self.m.revise(one.id, **fields)
        as_given(made, fields)
        assert made == self.m.get(one.id) == self.m.history.versions(one.id)[0].memory
        assert self.m.history.versions(one.id)[-1].memory == one

    def supersede(self, text: Any = "plain", reason: Any = "", **fields: Any) -> None:
        one = self.m.remember("to be superseded")
        made = self.m.supersede(one.id, text, reason=reason, **fields)
        assert made == self.m.get(made.id)
        assert self.m.links.of(one.id)[0].reason == reason

    def link(self, **fields: Any) -> None:
        one, other = self.m.remember("one").id, self.m.remember("other").id
        made = self.m.links.add(one, other, "follows", **fields)
        as_given(made, fields)
        assert made == self.m.links.get(made.id) == self.m.links.get(made.id, as_of=now())
        again = self.m.links.revise(self.m.links.add(other, one, "follows").id, **fields)
        as_given(again, fields)
        assert again == self.m.links.get(again.id)

    def fact(self, s: Any = "Ann", p: Any = "likes", o: Any = "tea", **fields: Any) -> None:
        made = self.m.facts.add(s, p, o, **fields)
        assert made in self.m.facts.query(s, predicate=p, limit=1_000)
        assert made in self.m.facts.query(o, role="object", limit=1_000)
        with contextlib.suppress(InvalidInput):  # one that begins later cannot end now
            self.m.facts.close(s, p, o)

    def cluster(self, name: Any = "plain", **fields: Any) -> None:
        made = self.m.clusters.create(name, **fields)
        as_given(made, {"name": name, **fields})
        assert made == self.m.clusters.get(made.id) == self.m.clusters.get(made.id, as_of=now())
        assert self.m.clusters.add(made.id, *self.ids()[:2]) <= 2

    def artifact(self, content: Any = "plain", summary: Any = "", **fields: Any) -> None:
        made = self.m.artifacts.create(content, **fields)
        as_given(made, fields)
        raw = content if isinstance(content, bytes) else content.encode()
        for name in (made.id, made.path or made.id):
            found, version = self.m.artifacts.read(name)
            assert (found, version.content) == (made, raw)
        self.m.artifacts.update(made.id, content, summary=summary)
        assert self.m.artifacts.versions(made.id)[1].content == raw

    def review(self, **fields: Any) -> None:
        one = self.m.artifacts.create("to be reviewed").id
        made = self.m.artifacts.review(one, "approved", **fields)
        as_given(made, fields)
        assert self.m.artifacts.reviews(one) == [made]

    def say(self, talk: Any = "talk", **fields: Any) -> None:
        line = Line(**{"speaker": "ann", "text": "plain", **fields})
        (made,) = self.m.conversations.add(talk, line)
        assert made == self.m.conversations.of(made.memory.id)
        assert made == self.m.conversations.history(talk)[-1]
        assert made in self.m.conversations.find(talk, line.text)
        assert made.memory in self.m.browse(limit=1_000, speakers=[line.speaker])[0]

    def event(self, subject: Any = "", payload: Any = None) -> None:
        self.m.events.record(Word.KIND, subject, payload)
        (last,) = self.m.events.all(newest=True, limit=1)
        assert (last.subject, last.payload) == (subject, json.loads(json.dumps(payload or {})))
        assert last in self.m.events.all(kind="note", subject=subject, limit=1_000)

    def chain(self, tag: Any = "plain", reason: Any = "") -> None:
        made, _ = engine_call(
            self.m, chains.extend, Draft(text="a link", tags=[tag]), tag, self.m.origin, reason
        )
        assert self.m.get(made.id) == made

    def number(self, prefix: Any = "log_", digits: int = 1) -> None:
        self.m.remember("counted", ref=f"{prefix}{'9' * digits}")
        made = engine_call(
            self.m, chains.remember_numbered, Draft(text="numbered"), prefix, self.m.origin
        )
        assert made.ref is not None and self.m.get(made.ref) == made

    def name(self, memory: str = "", artifact: str = "") -> None:
        """By a name of its own, or by the id of another."""
        if memory:
            self.remember(ref=self.first("memories") if memory == "another" else memory)
        if artifact:
            self.artifact(path=self.first("artifacts") if artifact == "another" else artifact)

    def purged(self, text: Any = "plain") -> None:
        gone, stays = (self.m.remember(each, tags=[text]) for each in (text, "stays"))
        assert self.m.purge(gone.id).traces == NO_TRACES
        assert stays in self.m.browse(tags_all=[text])[0]

    def unit(self, name: Any = "unit", origin: Any = None) -> None:
        with self.m.unit(name, origin):
            one = self.m.remember("in a unit").id
        assert self.m.history.operations(limit=1)[0].name == name
        assert self.m.get(one)

    def undo(self) -> None:
        self.m.undo()

    def purge(self) -> None:
        self.m.purge(self.first("memories"))

    def unlink(self) -> None:
        self.m.links.remove(self.first("links"))

    def delete(self) -> None:
        self.m.artifacts.delete(self.first("artifacts"))


# The fields of each way to store something, with what is tried in them.
FIELDS: dict[str, dict[str, list[Any]]] = {
    "remember": {"text": TEXTS, "origin": ORIGINS, "created_at": MOMENTS, **DETAILS},
    "revise": {"text": TEXTS, **DETAILS},
    "supersede": {"text": TEXTS, "reason": TEXTS, "importance": NUMBERS, "tags": TAGS},
    "link": LINKED,
    "fact": {"s": TEXTS, "p": TEXTS, "o": TEXTS, "valid_from": MOMENTS, "valid_to": MOMENTS,
             "confidence": NUMBERS, "attrs": ATTRS},
    "cluster": {"name": TEXTS, **GROUPED},
    "artifact": {"content": CONTENTS, "summary": TEXTS, "path": TEXTS, "title": TEXTS,
                 "media_type": TEXTS, "attrs": ATTRS},
    "review": {"reviewer": TEXTS, "comments": TEXTS},
    "say": {"talk": TEXTS, "speaker": TEXTS, "text": TEXTS, "at": MOMENTS, "session": TEXTS,
            "tags": TAGS},
    "event": {"subject": TEXTS, "payload": ATTRS},
    "chain": {"tag": TEXTS, "reason": TEXTS},
    "number": {"prefix": TEXTS, "digits": [1, 17, 19, 300, 496]},
    "name": {"artifact": ["/p", "another", "/q"], "memory": ["p", "another", "q"]},
    "purged": {"text": [text for text in TEXTS if 12 <= len(text) <= 100]},
    "unit": {"name": TEXTS, "origin": ORIGINS},
}  # fmt: skip
OTHERS = ("undo", "purge", "unlink", "delete")


@contextlib.contextmanager
def opened() -> Iterator[tuple[Path, Commonplace]]:
    # In memory where there is such a place: no disk is waited for thousands of times.
    path = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        with Commonplace(path / "data", embedding="none") as memory:
            yield path, memory
    finally:
        shutil.rmtree(path)


def healthy(memory: Commonplace) -> None:
    for space in memory.library.spaces():
        found = memory.library.maintenance.check(space)
        assert found.healthy and not found.findings, found.findings
        with lease(memory.at(space)) as each:
            assert audit.verify(each.store).faults == ()


def digest(memory: Commonplace) -> str:
    with lease(memory) as space:
        return exporting.digest(space)


def sound(path: Path, memory: Commonplace) -> None:
    """Listings, the present as of now, an export, a backup: all of them tell the same."""
    healthy(memory)
    for order in ("newest", "importance", "updated"):
        listed = memory.browse(order=order, **EVERY)
        assert listed == memory.browse(order=order, as_of=now(), **EVERY)
    for ask in (
        memory.tags, memory.links.of, memory.facts.totals, memory.facts.timeline,
        memory.clusters.all, memory.clusters.sizes, memory.artifacts.all,
        memory.conversations.names, memory.events.all,
    ):  # fmt: skip
        assert ask() == ask(as_of=now())
    file = path / "export.jsonl"
    with lease(memory) as space, file.open("w", encoding="utf-8", newline="") as stream:
        exporting.export_space(space, stream.write)
    with Commonplace(path / "imported", embedding="none") as other:
        with lease(other) as space:
            assert import_file(space, file, trust_file=True).problems == []
        assert digest(other) == digest(memory)
        healthy(other)
    memory.library.maintenance.backup(path / "backup", spaces=["default"])
    with Commonplace(path / "restored", embedding="none") as other:
        other.library.maintenance.restore(path / "backup")
        assert digest(other) == digest(memory)
    for name in ("imported", "backup", "restored"):
        shutil.rmtree(path / name)


def undone_and_purged(memory: Commonplace, most: int) -> None:
    """Take back what can be, and then delete for good what is left."""
    with contextlib.suppress(NotFound, Conflict):
        for _ in range(most):
            memory.undo()
    healthy(memory)
    for identity in Writer(memory).ids()[:most]:
        assert memory.purge(identity).traces == NO_TRACES
    healthy(memory)


@pytest.mark.parametrize("way", FIELDS)
def test_each_odd_value_comes_back_or_is_refused(way: str) -> None:
    with opened() as (path, memory):
        taken = 0
        for at, (field, values) in enumerate(FIELDS[way].items()):
            # Of the long lists each field gets its share, and the fields of a way all of them.
            for value in values[at % SHARE :: SHARE] if len(values) > 40 else values:
                try:
                    getattr(Writer(memory), way)(**{field: value})
                    taken += 1
                except (InvalidInput, Conflict):
                    pass
                except Exception as error:
                    error.add_note(f"{field}={value!a}")
                    raise
        assert taken > len(FIELDS[way])
        sound(path, memory)
        undone_and_purged(memory, 4)


@settings(
    max_examples=8, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(data=st.data())
def test_odd_values_together_leave_a_space_sound(data: st.DataObject) -> None:
    with opened() as (path, memory):
        writer = Writer(memory)
        memory.remember("one")
        ways = st.sampled_from([*FIELDS, *OTHERS])
        for way in data.draw(st.lists(ways, min_size=4, max_size=10)):
            fields = FIELDS.get(way, {})
            names = (
                data.draw(st.sets(st.sampled_from(sorted(fields)), max_size=3)) if fields else ()
            )
            chosen = {name: data.draw(st.sampled_from(fields[name])) for name in sorted(names)}
            with contextlib.suppress(InvalidInput, Conflict, NotFound):
                getattr(writer, way)(**chosen)
        sound(path, memory)
        undone_and_purged(memory, 4)


USUAL: dict[str, list[Any]] = {
    "name": ["alice-chen", "bob"], "path": ["/plan.md", "/a/b.txt"], "topic": ["auth", "db"],
    "category": ["people", "projects"], "kind": ["note", "fact"], "data": ["aGFyYm91cg=="],
    "filename": ["a.txt", "b.md"], "outcome": ["success", "approved", "commented"],
    "role": ["user", "agent"], "agent_slug": ["manager"], "weight": [0.5],
}  # fmt: skip
KINDS = (
    "workspace", "agent", "person", "conversation", "workflow", "workflow_execution", "decision",
    "checkpoint", "entity", "episode", "drawer", "diary", "identity", "scene", "rule", "document",
    "preference", "relationship", "soul", "capability", "identity_core", "personality_trait",
)  # fmt: skip
NAMES_ONE = ("id", "ids", "source", "target", "replaces", "memory", "from", "to")
# Tools that wait for something outside, or that end the being that the others are about.
LEFT_OUT = ("send_message_to_agent", "delete_being", "patrol_trigger")


class Asking:
    """Arguments for any tool: some that fit, some that are odd, and ids that are known."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.known: list[str] = []
        self.being = ""

    def learn(self, value: Any, name: str = "") -> None:
        """Note every id of an answer."""
        if isinstance(value, Mapping):
            for key, part in value.items():
                self.learn(part, key)
        elif isinstance(value, list):
            for part in value:
                self.learn(part, name)
        elif isinstance(value, str) and value[:1] in "{[":
            with contextlib.suppress(ValueError):
                self.learn(json.loads(value))
        elif isinstance(value, str) and "id" in name and value:
            self.known.append(value)

    def arguments(self, schema: Mapping[str, Any], odd: float) -> dict[str, Any]:
        wanted, needed = schema.get("properties", {}), schema.get("required", ())
        return {
            name: self.value(part, name, odd)
            for name, part in wanted.items()
            if name in needed or self.chance.random() < 0.4
        }

    def value(self, schema: Mapping[str, Any], name: str, odd: float) -> Any:
        chance = self.chance
        if "enum" in schema:
            return chance.choice(schema["enum"])
        kind = schema.get("type", "string")
        kind = kind if isinstance(kind, str) else kind[0]
        if kind == "object":
            return self.arguments(schema, odd) or chance.choice(OBJECTS)
        if kind == "array":
            least = schema.get("minItems", 0)
            return [
                self.value(schema.get("items", {}), name, odd)
                for _ in range(chance.randint(least, least + 2))
            ]
        if kind == "boolean":
            return chance.random() < 0.5
        if kind in ("integer", "number"):
            low = schema.get("minimum", 0)
            fits = [low, schema.get("maximum", low + 1), *([-0.0] if low <= 0 else [])]
            return chance.choice(NUMBERS if chance.random() < odd else fits)
        if name == "being_id":
            return self.being
        if self.known and set(name.split("_")) & set(NAMES_ONE) and chance.random() > odd / 3:
            return chance.choice(self.known[-30:])
        text = str(chance.choice(TEXTS)) if chance.random() < odd else ""
        return text or chance.choice(USUAL.get(name, ["words about a harbour"]))


@pytest.mark.parametrize("seed", range(3))
def test_what_the_tools_accept_leaves_a_space_sound(seed: int) -> None:
    asking = Asking(seed)
    info = RequestInfo(request="r", client="tests", session="s", address="192.0.2.1")
    with opened() as (path, memory), contextlib.closing(open_system(path / "data")) as system:
        for kind in KINDS:  # what one dialect calls so may be anything that another stored
            memory.forget(memory.remember(f"a stray {kind}", kind=kind).id)
        gate = Gate(memory.library, system, [registry.load(name) for name in registry.names()])
        made = gate.perform(Caller(), info, "being", "create_being", {"name": "Ada"})
        asking.being = made.wire["value"]["id"]
        secret = memory.remember("what nobody may read after its purge")
        refused = gate.perform(Caller(), info, "penfield", "fetch", {"id": secret.text}).error
        assert refused is not None and secret.text in refused.message
        assert memory.purge(secret.id).traces == NO_TRACES
        table: dict[str, list[Tool]] = {}
        for dialect, tool in gate.operations():
            if tool.name not in LEFT_OUT and not tool.stepwise:
                table.setdefault(dialect, []).append(tool)
        taken = 0
        for _ in range(60):
            dialect = asking.chance.choice(list(table))
            tool = asking.chance.choice(table[dialect])
            arguments = asking.arguments(tool.input, asking.chance.choice([0, 0.2, 0.5]))
            caller = Caller(subject=asking.being if dialect == "being" else "")
            outcome = gate.perform(caller, info, dialect, tool.name, arguments)
            code = outcome.error.code if outcome.error else "ok"
            told = f"{dialect}.{tool.name} {arguments!a}: {outcome.error}"
            assert code != "INTERNAL_ERROR" and not code.startswith("STORAGE"), told
            json.dumps(outcome.wire, allow_nan=False)
            if outcome.error is None:
                asking.learn(outcome.wire)
                taken += 1
        assert taken > 20
        for dialect, tools in table.items():
            for tool in tools:
                if tool.scope == "read" and not tool.input.get("required"):
                    outcome = gate.perform(Caller(), info, dialect, tool.name, {})
                    code = outcome.error.code if outcome.error else "ok"
                    assert code != "INTERNAL_ERROR", f"{dialect}.{tool.name}"
        sound(path, memory)
        undone_and_purged(memory, 6)
