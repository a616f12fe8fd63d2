"""T30: what is refused before it reaches the gate has its row too, and a flood does not write."""

from __future__ import annotations

import asyncio
import copy
import json
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from commonplace.access.caller import Caller
from commonplace.dialects.contract import RequestInfo, TooManyCalls
from commonplace.engine.history import audit
from commonplace.errors import StorageFull, StorageUnavailable
from commonplace.server import calls, door, refusals
from server.harness import (
    MCP,
    NEW,
    OLD,
    Running,
    headers_of,
    matrix,
    message,
    running,
    wait_until,
)

ROUTES: dict[str, dict[str, Any]] = matrix("routes")


@pytest.fixture(autouse=True, scope="module")
def short_seconds() -> Iterator[None]:
    """A flood is told of when its second is over; these are over sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refusals, "FLUSH_SECONDS", 0.05)
        yield


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    with running(shared_data, body_bytes=4_096) as one:
        yield one


@pytest.fixture(scope="module")
def wide(shared_data: Path) -> Iterator[Running]:
    """One that reads longer bodies."""
    with running(shared_data) as one:
        yield one


@pytest.fixture
def space(request: pytest.FixtureRequest) -> str:
    """A space of the test's own, so that its rows can be counted."""
    return f"s{zlib.crc32(request.node.name.encode())}"


def rows(server: Running, space: str, count: int = 1) -> list[audit.Call]:
    """The rows of a space, the oldest first, once they are as many as they should be."""
    wait_until(lambda: len(server.calls(space)) >= count, 5)
    time.sleep(0.03)
    found = server.calls(space)[::-1]
    assert len(found) == count, [(call.tool, call.error) for call in found]
    return found


def above(server: Running, after: int) -> list[audit.Call]:
    """What was written above the spaces after so many rows, the oldest first."""
    return server.calls("system")[::-1][after:]


# Calls of somebody known: a row each, in their space.

MALFORMED: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "no params": ({"params": None}, "", {}),
    "no name": ({"params": {"arguments": {"a": 1}}}, "", {"a": 1}),
    "a name that is none": ({"params": {"name": 5, "arguments": {}}}, "", {}),
    "arguments that are a list": ({"params": {"name": "recall", "arguments": [1]}}, "recall", {}),
    "no id": ({"params": {"name": "recall", "arguments": {"query": "x"}}, "id": None}, "recall",
              {"query": "x"}),
    "an id that is none": ({"params": {"name": "recall", "arguments": {"query": "x"}}, "id": 1.5},
                           "recall", {"query": "x"}),
    "another JSON-RPC": ({"params": {"name": "recall", "arguments": {"query": "x"}},
                          "jsonrpc": "1.0"}, "recall", {"query": "x"}),
    "params that are a list": ({"params": ["recall"]}, "", {}),
}  # fmt: skip
WAYS = ("streamable", "2026", "older", "stdio", "stdio, 2026")


def send(server: Running, space: str, way: str, sent: Any, count: int = 1) -> None:
    """Send a message, or the bytes of one, to a space of ann's."""
    era = NEW if "2026" in way else OLD
    ann = Caller(space=space, user="ann")
    if way.startswith("stdio"):
        server.stdio(ann, era=era).tell(sent)
        return
    token = server.token(space, user="ann")
    if way == "older":
        older = server.older(token)
        older.send(sent)
        rows(server, space, count)
        older.close()
        return
    called = sent if isinstance(sent, dict) else {}
    name = calls.tool_and_arguments(called.get("params"))[0]
    server.client(token).request("POST", MCP, sent, headers_of(era, "tools/call", name))


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_is_none_of_mcp_has_one_row(
    server: Running, space: str, kind: str, way: str
) -> None:
    told, tool, arguments = MALFORMED[kind]
    sent = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", **copy.deepcopy(told)}
    if sent["id"] is None:
        del sent["id"]  # nobody could be answered
    if sent["params"] is None:
        del sent["params"]
    elif "2026" in way and isinstance(sent["params"], dict):
        sent["params"] |= {"_meta": message("x", {}, era=NEW)["params"]["_meta"]}
    send(server, space, way, sent)
    (call,) = rows(server, space)
    assert (call.tool, call.arguments, call.success, call.caller) == (tool, arguments, False, "ann")
    assert call.error.startswith("INVALID_INPUT")
    assert server.verdict(space).faults == ()


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("era", ["the other era", "no era"])
def test_a_call_of_another_era_than_its_connection_has_one_row(
    server: Running, space: str, way: str, era: str
) -> None:
    other = OLD if "2026" in way else NEW
    sent = message("remember", {"text": "x"}, era=other)
    if era == "no era":
        sent = message("remember", {"text": "x"}, era=NEW)
        sent["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "1999-01-01"
    send(server, space, way, sent)
    (call,) = rows(server, space)
    assert (call.tool, call.success, call.caller) == ("remember", False, "ann")
    assert call.arguments == {"text": "x"}


UNREAD = "what it calls is not known"
BODIES: dict[str, tuple[bytes, list[str]]] = {
    "no JSON": (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", ', [UNREAD]),
    "no UTF-8": (json.dumps(message("remember", {"text": "?"})).encode().replace(b"?", b"\xff"),
                 [UNREAD]),
    "half a character": (json.dumps(message("remember", {"text": "\ud83d"})).encode(),
                         ["remember"]),
    "two calls": (json.dumps([message("recall", {}), message("read", {})]).encode(),
                  ["recall", "read"]),
    "too many calls": (json.dumps([message("", {})] * (calls.MOST_CALLS + 1)).encode(),
                       [UNREAD]),
}  # fmt: skip


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("way", WAYS)
def test_what_cannot_be_read_has_its_rows(wide: Running, space: str, kind: str, way: str) -> None:
    sent, tools = BODIES[kind]
    send(wide, space, way, sent, len(tools))
    unread = f"POST {MCP}"
    if way.startswith("stdio"):  # where odd bytes are told from what stands around them
        unread = "remember" if kind == "no UTF-8" else "stdio"
    calls = rows(wide, space, len(tools))
    assert [call.tool for call in calls] == [unread if each == UNREAD else each for each in tools]
    assert not any(call.success for call in calls)
    assert wide.verdict(space).faults == ()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"accept": "text/plain"}, 406),
        ({"mcp-protocol-version": "1999-01-01"}, 400),
        ({**headers_of(NEW, "tools/call", "recall"), "mcp-name": "forget"}, 400),
        ({**headers_of(NEW, "tools/list")}, 400),
    ],
)
def test_a_call_that_its_headers_refuse_has_one_row(
    server: Running, space: str, headers: dict[str, str], status: int
) -> None:
    era = headers.get("mcp-protocol-version", "2025-11-25")
    sent = message("recall", {"query": "x"}, era=era if era == NEW else "2025-11-25")
    assert server.client(server.token(space)).request("POST", MCP, sent, headers).status == status
    (call,) = rows(server, space)
    assert (call.tool, call.success, call.arguments) == ("recall", False, {"query": "x"})


def test_every_call_of_a_message_that_is_refused_has_a_row(server: Running, space: str) -> None:
    batch = [message(tool, {"n": 1}) for tool in ("recall", "read")]
    assert server.client(server.token(space)).request("POST", MCP, batch).status == 400
    assert [call.tool for call in rows(server, space, 2)] == ["recall", "read"]


def test_what_calls_nothing_has_no_row(server: Running, space: str) -> None:
    client = server.client(server.token(space))
    before = len(server.calls("system"))
    for method, path, body in (
        ("POST", MCP, {"jsonrpc": "2.0", "id": 1}),
        ("POST", MCP, {"jsonrpc": "2.0", "id": 1, "method": 5}),
        ("PUT", MCP, {}),
        ("GET", "/nothing/here", None),
        ("GET", "/.well-known/nothing", None),
    ):
        assert client.request(method, path, body).status >= 400
    assert client.request("GET", "/health").status == 200
    time.sleep(0.05)
    assert server.calls(space) == []
    assert len(server.calls("system")) == before


def bodied() -> list[tuple[str, str]]:
    """Every route of a dialect that takes a body, and how."""
    return [
        (method, path)
        for path, row in ROUTES.items()
        for method in row.get("methods", ())
        if row.get("body") is not None and not row.get("mcp") and not row.get("public")
        if method in ("POST", "PUT", "PATCH")
    ]


@pytest.mark.parametrize(("method", "path"), bodied())
def test_a_body_that_no_route_can_read_has_one_row(
    server: Running, space: str, method: str, path: str
) -> None:
    sample = ROUTES[path].get("sample", path).replace("$id", "3f2b8c1e-0000-4000-8000-000000000001")
    answer = server.client(server.token(space)).request(method, sample, b'{"half": ')
    assert 400 <= answer.status < 500
    (call,) = rows(server, space)
    assert not call.success and call.address == "127.0.0.1"


def test_every_call_over_a_credentials_rate_has_its_row(data: Path) -> None:
    with running(data) as server:
        token = server.token("one")
    with running(data, rate=0.01, burst=3, proxies=("127.0.0.1",)) as server:
        client = server.client(token)

        def ask(number: int) -> int:
            """Each from another machine, so that no address has a rate to pass."""
            elsewhere = {"x-forwarded-for": f"192.0.2.{number}"}
            return client.call("recall", {"query": str(number)}, headers=elsewhere).status

        assert [ask(number) for number in range(5)] == [200] * 3 + [429] * 2
        calls = rows(server, "one", 5)
        assert [call.success for call in calls] == [True] * 3 + [False] * 2
        assert [call.arguments["query"] for call in calls] == ["0", "1", "2", "3", "4"]
        assert [call.error[:12] for call in calls[3:]] == ["RATE_LIMITED"] * 2
        assert [call.address for call in calls[3:]] == ["192.0.2.3", "192.0.2.4"]
        assert server.verdict("one").faults == ()


# Requests of nobody known: above the spaces, and few rows for many.


REFUSED: dict[str, tuple[str, Any, Mapping[str, str], int, str]] = {
    "another host": (MCP, message("recall", {}), {"host": "evil.example"}, 421, "ADDRESS"),
    "another origin": (MCP, message("recall", {}), {"origin": "http://evil.example"}, 403,
                       "ADDRESS"),
    "too large": (MCP, b'"' + b"x" * 5_000 + b'"', {}, 413, "TOO_LARGE"),
    "no JSON": (MCP, b"x", {"content-type": "text/plain"}, 415, "CONTENT_TYPE"),
    "compressed": (MCP, b"x", {"content-encoding": "gzip"}, 415, "CONTENT_ENCODING"),
    "a route, too large": ("/api/mama/save", b'"' + b"x" * 5_000 + b'"', {}, 413, "TOO_LARGE"),
}  # fmt: skip
READ_FIRST: dict[str, tuple[str, Any, Mapping[str, str], int, str]] = {
    "too deep": (MCP, b"[" * 70 + b"]" * 70, {}, 400, "TOO_DEEP"),
    "a long batch": (MCP, [{"method": "tools/call"}] * (calls.MOST_CALLS + 1), {}, 413,
                     "TOO_LARGE"),
}  # fmt: skip
"""What is refused for what the body holds: nobody unknown gets so far."""


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_unread_has_one_row_above_the_spaces(server: Running, kind: str) -> None:
    path, body, headers, status, code = REFUSED[kind]
    wait_until(lambda: not server.door._refusals._floods, 5)  # no second is open
    before = len(server.calls("system"))
    answer = server.client("cpt_wrong").request("POST", path, body, headers)
    assert answer.status == status, answer.body
    (call,) = above(server, before)
    assert (call.tool, call.success, call.caller) == (f"POST {path}", False, "")
    assert (call.address, call.error.partition(":")[0]) == ("127.0.0.1", code)
    assert call.request == answer.header("x-request-id")
    assert audit.verify(server.parts.system).faults == ()


@pytest.mark.parametrize("kind", READ_FIRST)
def test_the_body_of_nobody_known_is_not_read_and_has_a_row_by_its_path(
    server: Running, kind: str
) -> None:
    path, body, headers, _, _ = READ_FIRST[kind]
    before = len(server.calls("system"))
    assert server.client("cpt_wrong").request("POST", path, body, headers).status == 401
    (call,) = above(server, before)
    assert (call.tool, call.arguments, call.success) == (f"POST {path}", {}, False)
    assert call.error.startswith("UNAUTHORIZED")


@pytest.mark.parametrize("kind", REFUSED | READ_FIRST)
def test_what_somebody_known_sent_and_is_refused_unread_has_a_row_of_theirs(
    server: Running, space: str, kind: str
) -> None:
    path, body, headers, status, code = (REFUSED | READ_FIRST)[kind]
    client = server.client(server.token(space, user="ann"))
    before = len(server.calls("system"))
    assert [client.request("POST", path, body, headers).status for _ in range(3)] == [status] * 3
    for call in rows(server, space, 3):
        assert (call.tool, call.success, call.caller) == (f"POST {path}", False, "ann")
        assert call.error.partition(":")[0] == code
    assert len(server.calls("system")) == before
    assert server.verdict(space).faults == ()


def test_what_is_refused_is_so_though_nobody_can_be_looked_up(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client(server.token("whoever"))

    def fails(*_: Any, **__: Any) -> Caller:
        raise StorageUnavailable("The disk is away.")

    monkeypatch.setattr(server.parts.tokens, "recognise", fails)
    for kind in ("another host", "too large"):
        path, body, headers, status, _ = REFUSED[kind]
        assert client.request("POST", path, body, headers).status == status


def test_nobody_is_taken_for_the_person_here_by_another_sites_request(server: Running) -> None:
    before = len(server.calls("default"))
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        assert server.client().call("recall", {"query": "x"}, headers=headers).status in (403, 421)
    assert server.client().request("POST", MCP, b"x", {"content-type": "text/plain"}).status == 415
    (call,) = server.calls("default")[: len(server.calls("default")) - before]
    assert call.error.startswith("CONTENT_TYPE")


@pytest.mark.parametrize("over", [0, 1, 2, 40])
def test_an_address_over_its_rate_has_few_rows_that_tell_of_all(data: Path, over: int) -> None:
    with running(data, rate=0.01, burst=4) as server:
        client = server.client("cpt_wrong")
        statuses = [client.call("recall", {"query": "x"}).status for _ in range(4 + over)]
        assert statuses == [401] * 4 + [429] * over
        told = told_of(server, 4 + over)
    assert told == {"UNAUTHORIZED": 4, "RATE_LIMITED": over}


@pytest.mark.parametrize("who", ["a token", "the person here"])
def test_every_call_of_somebody_known_over_an_addresss_rate_has_its_row(
    data: Path, who: str
) -> None:
    with running(data, rate=0.01, burst=4) as server:
        client = server.client(server.token("default") if who == "a token" else None)
        statuses = [client.call("recall", {"query": str(n)}).status for n in range(8)]
        assert statuses == [200] * 4 + [429] * 4
        calls = rows(server, "default", 8)
        assert [call.arguments["query"] for call in calls] == [str(n) for n in range(8)]
        assert [call.error[:12] for call in calls] == [""] * 4 + ["RATE_LIMITED"] * 4
        assert server.calls("system") == []


def told_of(server: Running, refused: int) -> dict[str, int]:
    """How many requests the rows above the spaces tell of, by their code."""

    def sums() -> dict[str, int]:
        found = {"RATE_LIMITED": 0, "UNAUTHORIZED": 0}
        for call in server.calls("system"):
            code = call.error.partition(":")[0]
            found[code] += call.arguments.get("requests", 1)
        return found

    wait_until(lambda: sum(sums().values()) >= refused, 5)
    return sums()


def test_wrong_tokens_beyond_their_rate_have_few_rows_that_tell_of_all(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "FLUSH_SECONDS", 1.0)
    with running(data) as server:
        client = server.client("cpt_wrong")
        for _ in range(door.FAILURES_A_MINUTE + 25):
            client.call("recall", {"query": "x"})
        told = told_of(server, door.FAILURES_A_MINUTE + 25)
        assert told == {"UNAUTHORIZED": door.FAILURES_A_MINUTE, "RATE_LIMITED": 25}
        assert len(server.calls("system")) <= door.FAILURES_A_MINUTE + 10


def test_what_a_flood_has_not_told_yet_is_told_at_the_end(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "FLUSH_SECONDS", 1_000.0)
    with running(data, rate=0.01, burst=1) as server:
        client = server.client("cpt_wrong")
        for _ in range(10):
            client.call("recall", {"query": "x"})
        assert len(server.calls("system")) == 2
    with running(data) as server:
        told = [call.arguments for call in above(server, 0)]
        assert told == [{}, {}, {"requests": 8}]


def test_names_that_somebody_invents_do_not_make_rows(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "FLUSH_SECONDS", 1.0)
    with running(data) as server:
        client = server.client("cpt_wrong")
        for _ in range(door.FAILURES_A_MINUTE):
            client.call("recall", {"query": "x"})
        before = len(server.calls("system"))
        for number in range(10):
            batch = [message(f"invented {number} {other}", {}) for other in range(50)]
            assert client.request("POST", MCP, batch).status == 429
            assert client.request(f"INVENT{number}", "/api/mama/save", {}).status == 429
        told_of(server, door.FAILURES_A_MINUTE + 20)
        rows = above(server, before)
        assert {call.tool for call in rows} == {f"POST {MCP}", "other /api/mama/save"}
        assert sum(call.arguments.get("requests", 1) for call in rows) == 20
        assert len(rows) < 20


def test_a_flood_from_everywhere_is_told_by_few_rows(server: Running) -> None:
    noting = refusals.Refusals(server.gate, server.door._workers)
    before = len(server.calls("system"))

    async def flood() -> None:
        for number in range(1_000):
            request_info = RequestInfo(address=f"2001:db8:0:{number:x}::1", request="r")
            error = TooManyCalls("Too many requests.")
            await noting.audit_unknown(request_info, "mama", "POST /mcp/mama", error)
        await noting.flush()
        await noting.flush()  # and nothing is told twice

    asyncio.run(flood())
    calls = [call for call in above(server, before) if call.tool == "POST /mcp/mama"]
    assert len(calls) == refusals.MOST_FLOODS + 2
    assert sum(call.arguments.get("requests", 1) for call in calls) == 1_000
    assert {call.address for call in calls[-2:]} == {refusals.SEVERAL}


def test_a_refusal_that_cannot_be_written_down_is_one_still(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise StorageFull("No room.")

    monkeypatch.setattr(audit, "append", full)
    assert server.client("cpt_nobody").call("recall", {"query": "x"}).status == 401
    reader = server.client(server.token("reader", {"read"}))
    assert reader.call("remember", {"text": "x"}).status == 403
    assert server.log.getvalue().count('"a refusal could not be audited"') == 2
