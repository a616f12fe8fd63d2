"""T1, T2: nothing of one space can be seen, changed or guessed from another.

Every operation of the gate and every route is walked. A further dialect is covered once it is
registered and has its rows in `tests/dialects/NAME/matrix.json`; without them
the first tests here fail. In a row, `ids` are the parameters that name something and `free` those
that do not; `$own` and `$other` stand for two memories of the caller's, and `answers` is the status
of a right request that finds nothing to do it with. A route has `public`, `mcp`
or the `operation` that it does, a `sample` of its path, `methods` and a `body`, with `$id` where
something is named.

Every name is tried for every parameter and shape of a tool, on the whole application, at its first
path; at its other paths and in the other era, which no tool knows of, a name of each form is. Of
each parameter the first name goes over HTTP, and so does all of our own dialect; the rest is given
to the application in its own loop, without a socket (`Direct`), since how bytes are read from one
does not depend on what is named in them.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from commonplace.access.caller import FULL_SCOPES
from commonplace.dialects import registry
from commonplace.dialects.being import beings, notes, patrol, records, scenes, sight
from commonplace.dialects.being.routes import REST
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.conversations import Line
from commonplace.engine.content.memories import Draft
from commonplace.engine.finding.filters import Filters
from commonplace.engine.transfer import exporting
from server.harness import (
    NEW,
    OLD,
    Answer,
    Client,
    Request,
    Running,
    calling,
    content_of,
    lab,
    matrix,
    registered,
    running,
)

CANARY = "zqcanaryzq"
BY_HTTP = "commonplace"
"""The dialect of which all is tried over HTTP; of others the first name of each parameter."""
BEING_ROUTES = [
    (route.method, route.path, route.operation, route.status)
    for route in REST.routes
    if route.method != "WEBSOCKET"
]
ROWS: dict[str, dict[str, Any]] = matrix("operations")
ROUTES: dict[str, dict[str, Any]] = matrix("routes")
Shape = dict[str, Any]
"""The arguments of a call, with what stands for somebody's own."""
_CHANGING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)"), "TIME"),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "HEX"),
)


@dataclass(frozen=True)
class Trier:
    """Somebody who tries, with one token: over HTTP, and without a socket (see `Direct`)."""

    wire: Client
    direct: Client

    def divided(self, names: dict[str, str]) -> list[tuple[Client, dict[str, str]]]:
        """By which way each name is tried: the first over HTTP, the rest as fast as can be."""
        first = dict(list(names.items())[:1])
        rest = dict(list(names.items())[1:])
        return [(self.wire, first), (self.direct, rest)]


@dataclass
class Spaces:
    """Alice, whose space is full of canaries, and Bob, who tries."""

    server: Running
    bob: Trier
    alice: dict[str, str] = field(default_factory=dict)
    """A name of every kind of thing in Alice's space."""
    own: dict[str, str] = field(default_factory=dict)
    hers: dict[str, str] = field(default_factory=dict)
    """The same of what only beings have, Alice's being itself among it."""
    as_being: Trier | None = None
    """Bob with a token of the Being dialect."""
    newcomers: tuple[Trier, ...] = ()
    """Somebody who tries with little of their own: routes that tell of all one has tell it soon.
    Once with a token, once with the cookie of a browser that has signed in."""

    def __post_init__(self) -> None:
        self._seen = content_of(self.server.file("alice"))

    def ways(self, dialect: str) -> list[tuple[Trier, str, str]]:
        """By whom, where and in which era a dialect's tools are called."""
        if dialect != "being":
            paths = registry.load(dialect).paths
            bob = Trier(self.bob.wire, self.bob.wire) if dialect == BY_HTTP else self.bob
            return [(bob, path, era) for path in paths for era in (OLD, NEW)]
        assert self.as_being is not None
        being = self.own["being"]
        by_path, by_query = f"/mcp/{being}", f"/mcp?being_id={being}"
        return [(self.as_being, by_path, OLD), (self.as_being, by_query, NEW)]

    def names(self, dialect: str) -> dict[str, str]:
        """What of Alice's is tried."""
        return {**self.alice, **self.hers} if dialect == "being" else self.alice

    def unchanged(self) -> bool:
        """Whether all of her file is as it was when this was last asked."""
        before, self._seen = self._seen, content_of(self.server.file("alice"))
        return self._seen == before

    def story(self) -> str:
        """All that Alice has and had, as the engine tells it."""
        with self.server.parts.library.lease("alice") as space:
            return exporting.digest(space)


def fill(memory: Commonplace, word: str) -> dict[str, str]:
    """Something of every kind, each with the word in all that it says."""
    first, second, gone, old, who, point = memory.remember_many(
        [
            Draft(
                text=f"{word} text {number}",
                title=f"{word} title",
                kind=kind,
                tags=(f"{word}-tag",),
                ref=f"{word}-ref-{number}",
                attrs={"said": f"{word} attr"},
                trust="stated",
                pinned=number == 1,
            )
            for number, kind in enumerate(
                ["note", "note", "note", "decision", "identity", "checkpoint"]
            )
        ]
    )
    memory.revise(first.id, text=f"{word} revised")
    memory.forget(gone.id)
    memory.supersede(old.id, f"{word} newer")
    link = memory.links.add(first.id, second.id, "supports", reason=f"{word} reason")
    fact = memory.facts.add(f"{word} subject", "knows", f"{word} object", memory=first.id)
    cluster = memory.clusters.create(f"{word} cluster", digest=f"{word} digest")
    memory.clusters.add(cluster.id, first.id, second.id)
    artifact = memory.artifacts.create(f"# {word}", path=f"/{word}/one.md", title=f"{word} one")
    memory.artifacts.review(artifact.id, "approved", reviewer=word, comments=f"{word} comment")
    (line,) = memory.conversations.add(
        f"{word}-talk", Line(speaker=word, text=f"{word} line", session=f"{word}-session")
    )
    memory.events.record("credit.given", first.id, {"why": f"{word} why"})
    return {
        "memory": first.id,
        "ref": f"{word}-ref-0",
        "forgotten": gone.id,
        "superseded": old.id,
        "identity": who.id,
        "checkpoint": point.id,
        "prefix": first.id[:8],
        "link": link.id,
        "fact": fact.id,
        "cluster": cluster.id,
        "artifact": artifact.id,
        "path": f"/{word}/one.md",
        "conversation": f"{word}-talk",
        "session": f"{word}-session",
        "line": line.memory.id,
        "operation": memory.history.operations(limit=1)[0].id,
        "tag": f"{word}-tag",
    }


def live(memory: Commonplace, word: str) -> dict[str, str]:
    """A being with something of all that is its own, each with the word in what it says."""
    being = beings.create(memory, f"{word} being").id
    told = {"action": f"{word} happened", "actors": [word], "when": ["2026-04-14"]}
    notes.write_notes(memory, being, "append", [told], [], [], [])
    marker = patrol.run(memory, being).marker_id
    notes.write_notes(
        memory, being, "append", [{**told, "action": f"{word} waits"}], [word], [], []
    )
    for kept in (records.PREFERENCES, records.RELATIONSHIPS, records.DIARY_DAYS, records.MAPS):
        kept.put(memory, being, f"{word} key", f"{word} text", "stated")
    records._change_relation(
        memory, being, f"{word} entity", "person", "upsert", f"{word} is", "stated"
    )
    rule = records.add_rule(memory, being, word, f"{word} title", f"{word} rule", "stated")
    (node,) = sight.readable_rows(memory, sight.own_row_filters(being, sight.NODE))
    (waiting,) = notes.waiting_scenes(memory, being)
    (note,) = notes.open_notes(memory, being, "note")
    friend = records.RELATIONSHIPS.find(memory, being, f"{word} key")
    assert scenes.scene_of(node).action == f"{word} happened" and friend is not None
    return {
        "being": being,
        "being's name": f"{word} being",
        "node": node.id,
        "home": memory.clusters.homes(node.id)[node.id][0],
        "scene": waiting.id,
        "jotted": note.id,
        "rule": rule.id,
        "relationship": friend.id,
        "key": f"{word} key",
        "entity": f"{word} entity",
        "marker": marker,
    }


@pytest.fixture(scope="module")
def spaces(server: Running) -> Iterator[Spaces]:
    library = server.parts.library
    alice = Commonplace(library=library, space="alice")
    mine = Commonplace(library=library, space="bob")
    own = {"own": mine.remember("bob's own").id, "other": mine.remember("bob's other").id}
    own["operation"] = mine.history.operations(limit=1)[0].id
    own["being"] = beings.create(mine, "Bob's").id
    friend = records.RELATIONSHIPS.put(mine, own["being"], "Ben", "A friend.", "stated")
    own["relationship"] = friend.id
    as_being = server.token("bob", FULL_SCOPES, dialects=frozenset({"being"}))
    assert as_being.startswith("brt_")
    Commonplace(library=library, space="newcomer").remember("a newcomer's own")
    newcomer = server.token("newcomer", user="newcomer")
    made = Spaces(
        server,
        trier(server, server.token("bob", user="bob")),
        fill(alice, CANARY),
        own,
        live(alice, CANARY),
        trier(server, as_being),
        (trier(server, newcomer), trier_by_cookie(server, newcomer)),
    )
    before = made.story()
    yield made
    assert made.story() == before


def trier(server: Running, token: str) -> Trier:
    return Trier(server.client(token), server.direct(token))


def trier_by_cookie(server: Running, token: str) -> Trier:
    return Trier(
        server.signed_in(server.client(), token=token),
        server.signed_in(server.direct(), token=token),
    )


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def missing_like(identity: str) -> str:
    """A name of the same form that nobody has."""
    if _UUID.fullmatch(identity):
        return str(uuid.uuid4())
    if re.fullmatch(r"[0-9a-f]{8}", identity):
        return uuid.uuid4().hex[:8]
    return identity.replace(CANARY, "zq" + uuid.uuid4().hex[:6] + "zq")[: len(identity)]


def shapes_of(row: dict[str, Any], parameter: str) -> list[Shape]:
    """The arguments of a row that have a parameter, all of them; if none has, those it has."""
    shapes = [row["arguments"], *row.get("variants", [])]
    return [one for one in shapes if parameter in one] or [row["arguments"]]


def filled(shape: Shape, own: dict[str, str], parameter: str, value: str) -> dict[str, Any]:
    """Arguments that are right but for one parameter, which names something."""

    def put(told: Any) -> Any:
        if isinstance(told, list):
            return [put(one) for one in told]
        if isinstance(told, dict):
            return {name: put(one) for name, one in told.items()}
        return own[told[1:]] if isinstance(told, str) and told.startswith("$") else told

    def name(told: Any) -> Any:
        if isinstance(told, list):
            return [name(told[0])] if told else [value]
        return {**told, "id": value} if isinstance(told, dict) else value

    arguments = {key: put(told) for key, told in shape.items()}
    arguments[parameter] = name(arguments.get(parameter))
    return arguments


def normal(answer: Answer, given: str) -> tuple[int, list[str], str]:
    """An answer without what differs between any two answers."""
    text = answer.body.decode(errors="replace").replace(given, "GIVEN")
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    names = sorted(key.lower() for key, _ in answer.headers)
    return answer.status, names, text


def told(answer: Answer) -> str:
    return answer.body.decode(errors="replace") + json.dumps(answer.headers)


def told_apart(
    client: Client,
    names: dict[str, str],
    asking: Callable[[str], Request],
    *,
    by_status: bool = False,
) -> list[str]:
    """What somebody learns who asks for each of another's names, and for names that nobody has.

    Of names of one form, as all ids are, one that nobody has stands for the rest.
    """
    missing = {_UUID.sub("ID", name): missing_like(name) for name in names.values()}
    values = [*names.values(), *missing.values()]
    answers = dict(zip(values, client.each(map(asking, values)), strict=True))
    found = []
    for kind, name in names.items():
        absent = missing[_UUID.sub("ID", name)]
        if CANARY in told(answers[name]).replace(name, ""):  # it was given, and may be echoed
            found.append(f"{kind}: shows what is Alice's")
        one, other = normal(answers[name], name), normal(answers[absent], absent)
        if one[0] != other[0] or (one != other and not by_status):
            found.append(f"{kind}: {answers[name].body!r} is not {answers[absent].body!r}")
    return found


def call_of(
    tool: str, path: str, era: str, shape: Shape, own: dict[str, str], parameter: str, value: str
) -> Request:
    return calling(tool, filled(shape, own, parameter, value), path=path, era=era)


def at_route(method: str, sample: str, body: str, value: str) -> Request:
    there = f"{sample.replace('$id', value)}?id={value}&being_id={value}&space=alice"
    return method, there, json.loads(body.replace("$id", value)), {}


def at_beings_route(
    method: str, path: str, shape: Shape, own: dict[str, str], parameter: str, value: str
) -> Request:
    return as_owner(method, path, filled(shape, own, parameter, value))


def leaks(spaces: Spaces, dialect: str, tool: str, row: dict[str, Any]) -> list[str]:
    """What Bob learns or changes of Alice's by one operation."""
    found = []
    names = spaces.names(dialect)
    forms = {_UUID.sub("ID", name): (kind, name) for kind, name in names.items()}
    for number, (caller, path, era) in enumerate(spaces.ways(dialect)):
        if number:
            names = dict(forms.values())
        for parameter in row["ids"]:
            for shape in shapes_of(row, parameter):
                asking = partial(call_of, tool, path, era, shape, spaces.own, parameter)
                for client, tried in caller.divided(names):
                    found += [
                        f"{dialect}.{tool} at {path} ({era}) {parameter}={one}"
                        for one in told_apart(client, tried, asking)
                    ]
        arguments = filled(row["arguments"], spaces.own, "", "")
        del arguments[""]
        answer = caller.wire.call(tool, arguments, path=path, era=era)
        if dialect != "lab" and CANARY in told(answer):
            found.append(f"{dialect}.{tool} at {path}: shows what is Alice's unasked")
    if not spaces.unchanged():
        found.append(f"{dialect}.{tool}: changed what is Alice's")
    return found


def test_every_operation_has_a_row(server: Running) -> None:
    there = {(dialect, tool.name) for dialect, tool in server.gate.operations()}
    assert there == {(dialect, tool) for dialect, tools in ROWS.items() for tool in tools}


def test_every_route_has_a_row(server: Running) -> None:
    assert sorted(set(server.routes())) == sorted(ROUTES)


def test_every_listed_tool_has_a_row(spaces: Spaces) -> None:
    for name in registry.names():
        for caller, path, era in spaces.ways(name):
            listed = [tool["name"] for tool in caller.wire.listed(era, path)]
            assert set(listed) <= set(ROWS[name])
            shown = [tool for tool in registry.load(name).tools if not tool.hidden]
            assert len(listed) == len(shown)


def test_every_parameter_that_could_name_something_is_looked_at(server: Running) -> None:
    for dialect, tool in server.gate.operations():
        row = ROWS[dialect][tool.name]
        texts = {
            name
            for name, schema in tool.input.get("properties", {}).items()
            if "string" in json.dumps(schema) or "enum" in schema
        }
        assert texts - {"trust"} == {*row["ids"], *row["free"]} - {"trust"}, (dialect, tool.name)


def tools() -> list[tuple[str, str]]:
    return [(name, tool.name) for name in registry.names() for tool in registry.load(name).tools]


@pytest.mark.parametrize(("dialect", "tool"), tools())
def test_nothing_of_another_space_is_seen_changed_or_guessed(
    spaces: Spaces, dialect: str, tool: str
) -> None:
    assert leaks(spaces, dialect, tool, ROWS[dialect][tool]) == []


@pytest.mark.parametrize("path", ROUTES)
def test_no_route_tells_of_another_space(spaces: Spaces, path: str) -> None:
    row = ROUTES[path]
    sample, body = row.get("sample", path), json.dumps(row.get("body"))
    names_something = "$id" in sample + body
    assert spaces.newcomers
    for newcomer in spaces.newcomers:
        for method in row.get("methods", ("GET", "DELETE", "HEAD")):
            asking = partial(at_route, method, sample, body)
            for client, tried in newcomer.divided(spaces.alice):
                found = told_apart(client, tried, asking, by_status=not names_something)
                assert found == [], method
        for name in ("space", "x-space", "x-commonplace-space", "mcp-session-id", "last-event-id"):
            answer = newcomer.wire.request("GET", sample, headers={name: "alice"})
            assert CANARY not in told(answer)
    assert spaces.unchanged()


@pytest.mark.parametrize(("method", "path", "operation", "status"), BEING_ROUTES)
def test_no_method_of_a_beings_routes_tells_of_another_space(
    spaces: Spaces, method: str, path: str, operation: str, status: int
) -> None:
    row = ROWS["being"][operation]
    own = {**spaces.own, "own": spaces.own["being"]}
    for parameter in row["ids"]:
        for shape in shapes_of(row, parameter):
            asking = partial(at_beings_route, method, path, shape, own, parameter)
            for client, tried in spaces.bob.divided({**spaces.alice, **spaces.hers}):
                assert told_apart(client, tried, asking) == [], parameter
    if operation != "delete_being":  # which Bob's other requests need
        arguments = filled(row["arguments"], own, "", "")
        del arguments[""]
        answer = spaces.bob.wire.request(*as_owner(method, path, arguments))
        assert answer.status == row.get("answers", status), answer.body
        assert CANARY not in told(answer)
    assert spaces.unchanged()


def as_owner(method: str, path: str, arguments: dict[str, Any]) -> Request:
    """A request to a being's route: what its path does not name is in the query or the body."""
    rest = dict(arguments)
    for name in re.findall(r"{(\w+)}", path):
        path = path.replace(f"{{{name}}}", quote(str(rest.pop(name)), safe=""))
    if method in ("GET", "DELETE"):
        return method, f"{path}?{urlencode(rest)}" if rest else path, None, {}
    return method, path, rest, {"x-llm-api-key": "sk-ant-nobody"}


@pytest.mark.parametrize("tool", [tool.name for tool in registry.load("being").tools])
def test_nothing_of_an_owners_other_being_is_seen_changed_or_guessed(
    server: Running, tool: str
) -> None:
    space = f"sisters-{tool.replace('_', '-')}"
    memory = Commonplace(library=server.parts.library, space=space)
    hers = live(memory, CANARY)
    hers.pop("being's name")  # one owner's beings write to each other
    mine = beings.create(memory, "Mine").id
    owner = trier(
        server, server.token(space, FULL_SCOPES, subject=mine, dialects=frozenset({"being"}))
    )
    row = ROWS["being"][tool]
    before = rows_of(memory, hers["being"])
    for parameter in row["ids"]:
        for shape in shapes_of(row, parameter):
            asking = partial(call_of, tool, "/mcp", OLD, shape, {"own": mine}, parameter)
            for client, tried in owner.divided(hers):
                assert told_apart(client, tried, asking) == [], parameter
    arguments = {**filled(row["arguments"], {"own": mine}, "", "")}
    del arguments[""]
    assert CANARY not in told(owner.wire.call(tool, arguments, path="/mcp"))
    assert rows_of(memory, hers["being"]) == before


def rows_of(memory: Commonplace, being: str) -> list[str]:
    """The rows of a being as they are, whatever state they are in."""
    every = Filters(tags_all=[sight.being_tag(being)], states=sight.ALL_STATES)
    return sorted(repr(row) for row in sight.readable_rows(memory, every))


def test_a_space_cannot_be_chosen_by_an_argument(spaces: Spaces) -> None:
    for name in ("space", "tenant_id", "user_id", "being_id", "workspace_id"):
        answer = spaces.bob.wire.call("recall", {"query": CANARY, name: "alice"})
        assert CANARY not in told(answer).replace(f'"{CANARY}"', "")
        assert answer.json["result"]["isError"]


def test_no_log_line_tells_of_another_space(spaces: Spaces) -> None:
    for _ in range(3):
        spaces.bob.wire.call("read", {"id": spaces.alice["memory"]})
    told = spaces.server.log.getvalue()
    assert told
    assert CANARY not in told


def test_a_tool_without_a_tenant_is_found_by_this_matrix(data: Path) -> None:
    with registered(lab()), running(data) as server:
        alice = fill(Commonplace(library=server.parts.library, space="alice"), CANARY)
        spaces = Spaces(server, trier(server, server.token("bob")), alice)
        found = leaks(spaces, "lab", "peek", {"arguments": {}, "ids": ["id"], "free": []})
    for kind in ("memory", "identity"):  # over HTTP, and without a socket
        assert any(f"id={kind}: shows what is Alice's" in one for one in found)
        assert any(re.search(f"id={kind}: .* is not ", one) for one in found)


def test_answers_are_the_same_whatever_another_space_stores(server: Running) -> None:
    library = server.parts.library
    mine = Commonplace(library=library, space="carol")
    words = [
        "harbour", "lantern", "ledger", "orchard", "compass", "meadow", "granite", "violin",
        "saffron", "kettle",
    ]  # fmt: skip
    mine.remember_many(
        [
            Draft(text=f"{one} {other} number {place}", ref=f"mine-{place}", tags=(one,))
            for place, (one, other) in enumerate((a, b) for a in words[:6] for b in words)
        ]
    )
    client = server.direct(server.token("carol"))
    asked = [
        *(("recall", {"query": f"{a} {b}", "limit": 5, "why": True}) for a in words for b in words),
        *(("recall", {"query": f"number {n}", "limit": 50}) for n in range(60)),
        *(("read", {"id": f"mine-{n}", "history": True}) for n in range(20)),
        *(("explore", {"id": f"mine-{n}"}) for n in range(5)),
        *(("context", {"about": word}) for word in words),
        *(("recall", {"query": word, "tags": [word]}) for word in words[:5]),
    ]
    assert len(asked) == 200

    def answers() -> list[str]:
        told = []
        requests = [calling(tool, arguments) for tool, arguments in asked]
        for (tool, _), answer in zip(asked, client.each(requests), strict=True):
            result = answer.json["result"]
            if tool == "context":
                result.pop("content")  # its delimiters are drawn anew each time
            told.append(json.dumps(result))
        return told

    before = answers()
    other = Commonplace(library=library, space="dave")
    other.remember_many(
        [Draft(text=f"{words[n % 10]} {words[n // 10 % 10]} {n}", tags=(words[n % 10],))
         for n in range(1_000)]
    )  # fmt: skip
    assert answers() == before
