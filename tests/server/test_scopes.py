"""T3, T4, T5: what a credential allows, on every way in; and nothing by another way round.

Every tool is called at every path in every version of the protocol: in the newest version of each
era over HTTP, in those between on the same application without a socket (`Direct`).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from commonplace.access.caller import ALL_SCOPES, Caller, Scope
from commonplace.dialects import registry
from commonplace.dialects.being import beings, records
from commonplace.dialects.being.routes import NO_ACTION, NO_TOOL, REST
from commonplace.dialects.being.running import runtime_of as being_runtime
from commonplace.engine.commonplace import Commonplace
from commonplace.server.gate import Gate
from server.harness import (
    BOOKKEEPING,
    NEW,
    OLD,
    Answer,
    Client,
    Running,
    content_of,
    headers_of,
    lab,
    matrix,
    message,
)

BEING_ROUTES = [
    (route.method, route.path, route.operation, route.status)
    for route in REST.routes
    if route.method != "WEBSOCKET"
]
ROWS: dict[str, dict[str, Any]] = matrix("operations")
ROUTES: dict[str, dict[str, Any]] = matrix("routes")
CREDENTIALS: dict[str, frozenset[Scope]] = {
    "none": frozenset(),
    "read": frozenset({"read"}),
    "write": frozenset({"write"}),
    "delete": frozenset({"delete"}),
    "admin": frozenset({"admin"}),
    "full": frozenset({"read", "write", "delete"}),
    "everything": ALL_SCOPES,
}
FORBIDDEN = -32003
BETWEEN = ("2025-03-26", "2025-06-18")


@dataclass
class Holder:
    """Somebody with a credential of one scope, in a space of their own."""

    server: Running
    scope: str
    client: Client
    caller: Caller
    own: dict[str, str] = field(default_factory=dict)
    as_being: Client | None = None
    """With a token of the Being dialect; there is none that allows nothing."""
    by_cookie: Client | None = None
    """A browser that signed in with the token."""

    def ways(self, dialect: str) -> list[tuple[Client, str]]:
        """By whom and where a dialect's tools are called over HTTP."""
        if dialect != "being":
            return [(self.client, path) for path in registry.load(dialect).paths]
        being = self.own["being"]
        paths = (f"/mcp/{being}", f"/mcp?being_id={being}", "/mcp")
        return [(self.as_being, path) for path in paths] if self.as_being is not None else []

    def content(self) -> dict[str, str]:
        return content_of(self.server.file(self.caller.space), BOOKKEEPING)

    def arguments(self, dialect: str, tool: str) -> dict[str, Any]:
        def put(told: Any) -> Any:
            if isinstance(told, list):
                return [put(one) for one in told]
            return self.own[told[1:]] if isinstance(told, str) and told[:1] == "$" else told

        return {name: put(told) for name, told in ROWS[dialect][tool]["arguments"].items()}


@pytest.fixture(scope="module", params=CREDENTIALS)
def holder(server: Running, request: pytest.FixtureRequest) -> Iterator[Holder]:
    scope: str = request.param
    space = f"of-{scope}"
    memory = Commonplace(library=server.parts.library, space=space)
    own = {
        "own": memory.remember("own").id,
        "other": memory.remember("other").id,
        # What routes are asked for: no tool of these tests puts it out of sight.
        "kept": memory.remember("kept", kind="decision").id,
        "checkpoint": memory.remember("half way", kind="checkpoint").id,
        "being": beings.create(memory, "Aria").id,
    }
    friend = records.RELATIONSHIPS.put(memory, own["being"], "Ben", "A friend.", "stated")
    own["relationship"] = friend.id
    scopes = CREDENTIALS[scope]
    # A token always has some scope; one that has none here is for what needs more than it has.
    grant: dict[str, Any] = {} if scopes else {"dialects": frozenset({"server"})}
    token = server.token(space, scopes or {"read"}, user=scope, **grant)
    caller = Caller(space=space, user=scope, scopes=scopes)
    one = Holder(server, scope, server.client(token), caller, own)
    one.by_cookie = server.signed_in(server.client(), token=token)
    if scopes:
        token = server.token(space, scopes, user=scope, dialects=frozenset({"being"}))
        assert token.startswith("brt_")
        one.as_being = server.client(token)
    yield one


def mcp_operations() -> list[tuple[str, str]]:
    return [(name, tool.name) for name in registry.names() for tool in registry.load(name).tools]


@pytest.mark.parametrize("name", [n for n in registry.names() if registry.load(n).operations])
def test_what_routes_do_is_no_tool(server: Running, name: str) -> None:
    """An operation of REST has its own way in; a client cannot call it past that."""
    dialect, caller = registry.load(name), Caller(space="of-routes", scopes=ALL_SCOPES)
    with contextlib.closing(server.stdio(caller, name)) as pipes:
        for operation in dialect.operations:
            if dialect.tool(operation.name) is None:
                answer = pipes.call(operation.name, ROWS[name][operation.name]["arguments"])
                assert answer["error"]["code"] == -32602, (operation.name, answer)
                assert "There is no tool" in answer["error"]["message"]


def allowed(scope: str, dialect: str, tool: str) -> bool:
    """By the table that a person wrote."""
    return ROWS[dialect][tool]["scope"] in CREDENTIALS[scope]


def check_refused(answer: Answer, dialect: str, tool: str, identity: Any, scope: str = "") -> None:
    assert answer.status == 403, answer.body
    reads = ROWS[dialect][tool]["scope"] == "read"
    if dialect == "being" and "write" not in CREDENTIALS[scope] and not reads:
        assert answer.json == {"error": NO_TOOL}  # the contract's own words
        return
    challenge = answer.header("www-authenticate") or ""
    assert 'error="insufficient_scope"' in challenge
    named = "being:full" if dialect == "being" else ROWS[dialect][tool]["scope"]
    told_scopes = re.search(r'scope="([^"]*)"', challenge)
    assert told_scopes and named in told_scopes[1].split(), challenge
    if dialect != "being" and CREDENTIALS[scope] >= {"read"}:  # what is there is kept
        assert "read" in told_scopes[1].split(), challenge
    told = answer.json
    assert (told["jsonrpc"], told["id"]) == ("2.0", identity)
    assert told["error"]["code"] == FORBIDDEN


def ran(wire: Any) -> bool:
    """Whether a call got as far as its tool."""
    return "result" in wire and "scope" not in json.dumps(wire["result"])


def test_the_registry_says_what_a_person_wrote_down(server: Running) -> None:
    registry = {(dialect, tool.name): tool.scope for dialect, tool in server.gate.operations()}
    written = {(d, t): row["scope"] for d, tools in ROWS.items() for t, row in tools.items()}
    assert registry == written


@pytest.mark.parametrize("era", [OLD, NEW, *BETWEEN])
def test_streamable_http_lets_through_what_the_scope_allows(holder: Holder, era: str) -> None:
    for number, (dialect, tool) in enumerate(mcp_operations()):
        identity = f"call-{number}"
        for wire, path in holder.ways(dialect):
            client = holder.server.direct(wire.token) if era in BETWEEN else wire
            answer = client.call(
                tool, holder.arguments(dialect, tool), era=era, identity=identity, path=path
            )
            if allowed(holder.scope, dialect, tool):
                assert answer.status == 200 and ran(answer.json), (tool, answer.body)
            else:
                check_refused(answer, dialect, tool, identity, holder.scope)


def test_the_older_transport_lets_through_what_the_scope_allows(holder: Holder) -> None:
    for name in registry.names():
        for client, path in holder.ways(name)[:1]:
            older = holder.server.older(client.token, path)
            for tool in registry.load(name).tools:
                told = older.call(tool.name, holder.arguments(name, tool.name), identity=7)
                if allowed(holder.scope, name, tool.name):
                    assert ran(told), told
                else:
                    check_refused(told, name, tool.name, 7, holder.scope)
            older.close()


def expected(holder: Holder, dialect: str) -> set[str]:
    """The tools that a list must have for the holder's scope."""
    return {
        tool.name
        for tool in registry.load(dialect).tools
        if not tool.hidden and allowed(holder.scope, dialect, tool.name)
    }


def test_stdio_lets_through_what_the_scope_allows(holder: Holder) -> None:
    for name in registry.names():
        pipes = holder.server.stdio(holder.caller, name)
        listed = pipes.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert {tool["name"] for tool in listed["result"]["tools"]} == expected(holder, name)
        for tool in registry.load(name).tools:
            told = pipes.call(tool.name, holder.arguments(name, tool.name), identity=9)
            assert told["id"] == 9
            if allowed(holder.scope, name, tool.name):
                assert ran(told), told
            else:
                assert told["error"]["code"] == FORBIDDEN, told


@pytest.mark.parametrize("era", [OLD, NEW])
def test_what_is_listed_can_be_called(holder: Holder, era: str) -> None:
    for name in registry.names():
        for client, path in holder.ways(name):
            listed = {tool["name"] for tool in client.listed(era, path)}
            assert listed == expected(holder, name)


@pytest.mark.parametrize("way", ["token", "cookie"])
def test_routes_let_through_what_the_scope_allows(holder: Holder, way: str) -> None:
    client = holder.client if way == "token" else holder.by_cookie
    assert client is not None
    for path, row in ROUTES.items():
        if "operation" not in row:
            continue
        dialect, operation = row["operation"]
        named = holder.own["being" if dialect == "being" else "kept"]
        sample = row.get("sample", path).replace("$id", named)
        body = json.loads(json.dumps(row.get("body")).replace("$id", named))
        answer = client.request(row.get("methods", ["GET"])[0], sample, body)
        if allowed(holder.scope, dialect, operation):
            # What some routes name is not there, and they say so.
            assert answer.status < 300 or answer.status == row.get("answers"), answer.body
        else:
            assert answer.status == 403
            assert "insufficient_scope" in (answer.header("www-authenticate") or "")
            told = answer.json  # in the shape of its contract
            if dialect == "being":
                assert told == {"error": "Read-only token cannot perform this action"}
                continue
            error = told["error"] if isinstance(told["error"], dict) else told
            assert error["code"] == "FORBIDDEN"


def test_every_method_of_a_beings_routes_lets_through_what_the_scope_allows(
    holder: Holder,
) -> None:
    memory = Commonplace(library=holder.server.parts.library, space=holder.caller.space)
    before: dict[str, str] | None = None  # what there is, as long as nothing was let through
    for client in filter(None, (holder.client, holder.as_being, holder.by_cookie)):
        for method, path, operation, status in BEING_ROUTES:
            if operation in ("delete_being", "delete_llm_key"):
                before = None
            own = {**holder.own, "own": holder.own["being"]}
            if operation == "delete_being":
                own["own"] = beings.create(memory, "Brief").id
            if operation == "delete_llm_key":
                being_runtime(memory.library).keys().put(memory.name, "sk-ant-nobody")
            row = ROWS["being"][operation]
            rest = {k: own[v[1:]] if str(v)[:1] == "$" else v for k, v in row["arguments"].items()}
            sample = path.format(**rest)
            body = {k: v for k, v in rest.items() if f"{{{k}}}" not in path}
            reads = method in ("GET", "DELETE")
            lets = allowed(holder.scope, "being", operation)
            if not lets and before is None:
                before = holder.content()
            answer = client.request(
                method, sample, None if reads else body, {"x-llm-api-key": "sk-ant-nobody"}
            )
            if lets:
                before = None
                assert answer.status == row.get("answers", status), (path, answer.body)
            else:
                assert (answer.status, answer.json) == (403, {"error": NO_ACTION}), path
                assert f'scope="{row["scope"]}"' in (answer.header("www-authenticate") or "")
                assert holder.content() == before
            if "write" not in CREDENTIALS[holder.scope] and method in ("POST", "PUT"):
                assert answer.status == 403


def test_nothing_of_a_batch_runs_if_one_of_it_is_refused(holder: Holder) -> None:
    for name in registry.names():
        tools = [tool.name for tool in registry.load(name).tools]
        batch = [
            message(tool, holder.arguments(name, tool), identity=number)
            for number, tool in enumerate(tools)
        ]
        before = holder.content()
        for (client, path), era in product(holder.ways(name)[:2], ("2025-03-26", OLD)):
            answer = client.request("POST", path, batch, headers_of(era, "tools/call"))
            refused = [
                number for number, tool in enumerate(tools) if not allowed(holder.scope, name, tool)
            ]
            if name == "being" and "write" not in CREDENTIALS[holder.scope]:
                assert (answer.status, answer.json) == (403, {"error": NO_TOOL})
            elif refused:
                assert answer.status == 403
                assert [one["id"] for one in answer.json] == list(range(len(tools)))
                assert {one["error"]["code"] for one in answer.json} == {FORBIDDEN}
                beyond = [
                    one["id"]
                    for one in answer.json
                    if not one["error"]["message"].startswith("Not carried out")
                ]
                assert beyond == refused
            else:
                assert answer.status == 400  # no version that is spoken here has batches
            assert holder.content() == before


def test_a_reader_changes_nothing_whatever_is_sent(server: Running) -> None:
    space = "read-only"
    memory = Commonplace(library=server.parts.library, space=space)
    own = memory.remember("as it was").id
    client = server.client(server.token(space, {"read"}))
    before = content_of(server.file(space), BOOKKEEPING)
    remember = message("remember", {"text": "x"})
    sneaky: list[Any] = [
        remember,
        {**remember, "id": None},
        {key: value for key, value in remember.items() if key != "id"},
        {**remember, "method": "tools\u002fcall"},
        [remember],
        [[remember]],
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": remember},
        message("REMEMBER", {"text": "x"}),
        message("remember ", {"text": "x"}),
        message("commonplace.remember", {"text": "x"}),
        message("recall", {"query": "x", "undo": own}),
        message("read", {"id": own, "text": "changed"}),
        message("revise", {"id": own, "text": "changed"}),
        message("forget", {"ids": [own]}),
        message("feedback", {"ids": [own], "useful": False}),
    ]
    raw = [
        b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call",'
        b'"params":{"name":"remember","arguments":{"text":"x"}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recall",'
        b'"name":"remember","arguments":{"text":"x"}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"remember",'
        b'"arguments":{"text":"x"},"_meta":{"n":' + b"9" * 5_000 + b"}}}",
        b"\xef\xbb\xbf" + json.dumps(remember).encode(),
        json.dumps(remember).encode("utf-16"),
    ]
    for body in [*sneaky, *raw]:
        for era in (OLD, NEW):
            for path in ("/mcp", "/mcp/commonplace", "/mcp/somebody"):
                answer = client.request("POST", path, body, headers_of(era, "tools/call"))
                assert answer.status < 500, answer.body
    for method in ("PUT", "PATCH", "DELETE"):
        client.request(method, "/mcp/commonplace", remember)
    assert content_of(server.file(space), BOOKKEEPING) == before


def test_an_operation_without_a_scope_does_not_start(server: Running) -> None:
    from dataclasses import replace

    for scope in ("", "none", "root", None, "READ"):
        odd = lab()
        odd = replace(odd, tools=(replace(odd.tools[0], scope=scope),))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="declares no scope"):
            Gate(server.parts.library, server.parts.system, [odd])


def test_the_same_name_twice_does_not_start(server: Running) -> None:
    from dataclasses import replace

    odd = lab()
    with pytest.raises(ValueError, match="declared twice"):
        twice = replace(odd, tools=(odd.tools[0], odd.tools[0]))
        Gate(server.parts.library, server.parts.system, [twice])


def test_a_credential_for_one_dialect_is_none_for_another(server: Running) -> None:
    token = server.token("elsewhere", ALL_SCOPES, dialects=frozenset({"mama"}))
    client = server.client(token)
    assert client.listed() == []
    assert client.call("recall", {"query": "x"}).status == 403


BEING, OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7", "00000000-7425-40de-944b-e07fc1f90ae7"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("/mcp", True),
        (f"/mcp/{BEING}", True),
        (f"/mcp?being_id={BEING}", True),
        (f"/mcp/{BEING}?being_id={BEING}", True),
        (f"/mcp/{OTHER}", False),
        (f"/mcp/{BEING.upper()}", False),
        (f"/mcp/{BEING[:-1]}", False),
        (f"/mcp/{BEING}%20", False),
        (f"/mcp?being_id={OTHER}", False),
        ("/mcp?being_id=", False),
        (f"/mcp/{BEING}?being_id={OTHER}", False),
        (f"/mcp/{OTHER}?being_id={BEING}", False),
        (f"/mcp?being_id={BEING}&being_id={OTHER}", False),
        (f"/mcp?being_id={OTHER}&being_id={BEING}", False),
        (f"/mcp?being%5Fid={OTHER}", False),
    ],
)
def test_a_path_that_names_another_being_than_the_token_is_not_there(
    server: Running, address: str, found: bool
) -> None:
    memory = Commonplace(library=server.parts.library, space="beings")
    if not memory.browse(kinds=["being"])[0]:
        memory.remember("Aria", kind="being", title="Aria", id=BEING)
    client = server.client(server.token("beings", subject=BEING))
    for method, body in (("POST", message("recall", {"user_message": "x"})), ("DELETE", None)):
        answer = client.request(method, address, body)
        assert answer.status == (200 if found else 401), answer.body
    if not found:
        assert answer.json == {"error": "Unauthorized"}
