"""The ways in: two eras of streamable HTTP, the older stream of events, and standard input."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import time
import uuid
from typing import Any

import pytest

from commonplace.access.caller import Caller
from commonplace.dialects import registry
from commonplace.dialects.being import beings
from commonplace.engine.commonplace import Commonplace
from server.harness import (
    MCP,
    NEW,
    OLD,
    Answer,
    Request,
    Running,
    calling,
    matrix,
    message,
    wait_until,
)

ROUTES: dict[str, dict[str, Any]] = matrix("routes")
OURS = {path: row for path, row in ROUTES.items() if row.get("mcp") and "dialect" not in row}
ENDPOINTS = [row.get("sample", path) for path, row in OURS.items()]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("way", [OLD, "2025-06-18", "2025-03-26", NEW, "older"])
def test_every_endpoint_speaks_every_version(server: Running, path: str, way: str) -> None:
    token = server.token("versions")
    text = f"{way} at {path}"
    if way == "older":
        older = server.older(token, path)
        assert "result" in older.call("remember", {"text": text})
        older.close()
    else:
        client = server.client(token, path)
        assert client.call("remember", {"text": text}, era=way).result["id"]
        assert client.listed(way)
    found = server.client(token).call("recall", {"query": text, "limit": 50}).result["memories"]
    assert text in [one["text"] for one in found]


@pytest.mark.parametrize("way", [OLD, "2025-06-18", "2025-03-26", NEW, "older"])
def test_a_being_of_the_caller_is_spoken_to_at_its_own_path(server: Running, way: str) -> None:
    being = beings.create(Commonplace(library=server.parts.library, space="owner"), "Aria").id
    for grant in ({}, {"dialects": frozenset({"being"})}):
        token, path = server.token("owner", **grant), f"/mcp/{being}"
        if way == "older":
            for address in (path, f"/mcp?being_id={being}"):
                older = server.older(token, address)
                assert being in json.dumps(older.call("get_context", {}))
                older.close()
        else:
            client = server.client(token, path)
            assert being in client.call("get_context", {}, era=way).body.decode()
            assert "get_context" in [tool["name"] for tool in client.listed(way)]


def test_an_address_that_names_no_being_of_the_caller_says_what_there_is(server: Running) -> None:
    other = beings.create(Commonplace(library=server.parts.library, space="other"), "Brin").id
    mine = beings.create(Commonplace(library=server.parts.library, space="mine"), "Cleo").id
    body = message("remember", {"text": "to nobody"})
    callers = {
        "anybody at this machine": None,
        "the owner of another": server.token("mine"),
        "one dialect only": server.token("mine", dialects=frozenset({"commonplace"})),
    }
    for who, token in callers.items():
        client = server.client(token)
        addresses = [f"/mcp/{other}", "/mcp/comonplace", "/mcp/..", f"/mcp?being_id={other}"]
        if who == "one dialect only":
            addresses.append(f"/mcp/{mine}")
        for address in addresses:
            for method, sent in (("POST", body), ("GET", None), ("DELETE", None)):
                answer = client.request(method, address, sent)
                assert (answer.status, answer.json["error"]["code"]) == (404, "NOT_FOUND"), who
                told = answer.json["error"]["message"]
                for path in (
                    "/mcp,",
                    *(one for name in registry.names() for one in registry.load(name).paths),
                ):
                    assert path in told
        deeper = client.request("POST", "/mcp/commonplace/deeper", body)
        assert deeper.status == 404 and "/mcp/commonplace," in deeper.json["error"]["message"]
        assert client.call("recall", {"query": "nobody"}).result["memories"] == []


def test_at_another_dialects_address_a_token_is_told_how_to_make_one(server: Running) -> None:
    client = server.client(server.token("mine", dialects=frozenset({"commonplace"})))
    answer = client.request("POST", "/mcp/mama", message("search", {}))
    assert answer.status == 403
    assert answer.json["error"]["message"].endswith("'commonplace token create --dialect mama'.")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_connects(server: Running, mode: str) -> None:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def talk() -> list[str]:
        url = f"http://127.0.0.1:{server.port}/mcp/commonplace"
        async with (
            streamable_http_client(url) as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            stored = await session.call_tool("remember", {"text": f"by the sdk {mode}"})
            assert stored.structured_content["id"]
            return [tool.name for tool in (await session.list_tools()).tools]

    assert "remember" in asyncio.run(talk())


def test_only_known_versions_are_spoken(server: Running) -> None:
    client = server.client()
    for version in ("1999-01-01", "2026-07-28x", "", "latest"):
        body = message("recall", {"query": "x"})
        answer = client.request("POST", "/mcp", body, {"mcp-protocol-version": version})
        assert answer.status in (200, 400) and (answer.status == 400 or version == "")


def test_there_is_no_session_to_take_over(server: Running) -> None:
    client = server.client()
    answer = client.call("recall", {"query": "x"})
    assert answer.header("mcp-session-id") is None
    for given in ("x", uuid.uuid4().hex):
        assert (
            client.call("recall", {"query": "x"}, headers={"mcp-session-id": given}).status == 200
        )
        assert client.request("DELETE", "/mcp", headers={"mcp-session-id": given}).json == {}
    headers = {"mcp-protocol-version": OLD, "last-event-id": "1"}
    assert client.request("GET", "/mcp", headers=headers).status == 405


def test_the_stream_of_another_is_as_if_it_did_not_exist(server: Running) -> None:
    older = server.older(server.token("mine", user="ann"))
    body = message("remember", {"text": "forged"})
    missing = f"/mcp/commonplace?session_id={uuid.uuid4().hex}"
    for other in (
        server.token("theirs", user="bob"),
        server.token("mine", user="ann"),  # another credential of the same person
        None,
    ):
        client = server.client(other)
        answers = [client.request("POST", path, body) for path in (older.endpoint, missing)]
        assert [answer.status for answer in answers] == [404, 404]
        assert answers[0].body == answers[1].body
    assert "result" in older.call("recall", {"query": "forged"})
    assert (
        older.call("recall", {"query": "forged"})["result"]["structuredContent"]["memories"] == []
    )
    older.close()


def test_a_stream_ends_with_its_credential(server: Running) -> None:
    from commonplace.access.credentials import Grant

    credentials = server.parts.tokens.credentials
    made = credentials.create(Grant(space="ends"))
    older = server.older(made.token)
    credentials.revoke(made.credential.id)
    assert older.send(message("remember", {"text": "x"})).status == 401
    begun = time.monotonic()
    assert older._answer.read() is not None
    assert time.monotonic() - begun < 5
    older.close()
    assert "Exception in ASGI" not in server.log.getvalue()
    assert "without completing" not in server.log.getvalue()
    assert "request failed" not in server.log.getvalue()
    gc.collect()


def test_streams_are_counted_and_given_back(server: Running) -> None:
    def opened() -> str:
        metrics = server.client().request("GET", "/metrics").body.decode()
        return next(x for x in metrics.splitlines() if x.startswith("commonplace_open_streams "))

    wait_until(lambda: opened().endswith(" 0.0"), 10)
    streams = [server.older() for _ in range(3)]
    assert opened().endswith(" 3.0")
    for stream in streams:
        stream.close()
    wait_until(lambda: opened().endswith(" 0.0"), 10)


def test_a_page_in_a_browser_is_not_a_client(server: Running) -> None:
    answer = server.client().request("GET", "/mcp", headers={"accept": "text/html"})
    assert answer.status == 405 and answer.header("allow")


def test_calls_on_one_pipe_run_side_by_side_and_keep_their_ids(server: Running) -> None:
    pipes = server.stdio(Caller(space="side-by-side", user="ann"))
    for number in range(40):
        pipes.tell(message("remember", {"text": f"line {number}"}, identity=f"id-{number}"))
    answers = [json.loads(pipes._from.readline()) for _ in range(40)]
    assert {answer["id"] for answer in answers} == {f"id-{number}" for number in range(40)}
    assert len({answer["result"]["structuredContent"]["id"] for answer in answers}) == 40
    assert len(server.calls("side-by-side")) == 40


def test_what_is_no_message_does_not_end_a_pipe(server: Running) -> None:
    pipes = server.stdio(Caller(space="noise"))
    for noise in ("", "x", "{", "[]", "null", '{"jsonrpc":"2.0"}', "\u2028"):
        pipes.tell(noise.encode())
    pipes.tell(message("recall", {"query": "x"}, identity="after"))
    for _ in range(10):
        answer = json.loads(pipes._from.readline())
        if answer.get("id") == "after":
            break
    assert answer["id"] == "after" and "result" in answer


def test_every_line_of_a_pipe_that_asks_is_answered_with_its_id(server: Running) -> None:
    pipes = server.stdio(Caller(space="answers"))
    half = json.dumps(message("remember", {"text": "half \ud83d"}, identity=7))
    lines: list[tuple[str, int | str | None, int]] = [
        (half, 7, -32700),
        ("{", None, -32700),
        ("[" * 200_000, None, -32700),
        ('[{"jsonrpc":"2.0","id":2,"method":"ping"}]', None, -32600),
        ('{"jsonrpc":"2.0","id":"p","method":"tools/call","params":[]}', "p", -32600),
        ('{"jsonrpc":"2.0","id":9}', 9, -32600),
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600),
        ('{"jsonrpc":"2.0","id":true,"method":"tools/list"}', None, -32600),
        ('{"jsonrpc":"2.0","method":"ping"}', None, -32600),
    ]
    for line, identity, code in lines:
        answer = pipes.ask(b"\n" + line.encode())  # an empty line asks for nothing
        assert answer["id"] == identity and answer["error"]["code"] == code, line[:80]
        assert "pydantic" not in answer["error"]["message"]
    assert pipes.call("recall", {"query": "half"})["result"]["structuredContent"]["memories"] == []


def test_a_line_that_is_not_utf_8_is_refused_and_changes_nothing(server: Running) -> None:
    pipes = server.stdio(Caller(space="bytes"))
    whole = json.dumps(message("remember", {"text": "caf?"}, identity=3)).encode()
    for odd in (b"\xff", b"\xe9", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf0\x9f\x98"):
        answer = pipes.ask(whole.replace(b"?", odd))
        assert (answer["id"], answer["error"]["code"]) == (3, -32700)
        assert "UTF-8" in answer["error"]["message"]
    assert pipes.ask(b"\xff\xfe")["id"] is None
    assert pipes.call("recall", {"query": "caf"})["result"]["structuredContent"]["memories"] == []
    told = pipes.call("remember", {"text": "caf\ufffd is a sign like any other"})
    assert told["result"]["isError"] is False


def test_a_pipe_that_closes_gets_its_answers_first(server: Running) -> None:
    pipes = server.stdio(Caller(space="closing"))
    for number in range(20):
        pipes.tell(message("remember", {"text": f"line {number}"}, identity=number + 1))
    pipes._to.close()
    answers = [json.loads(line) for line in pipes._from]
    assert {answer["id"] for answer in answers if "result" in answer} == set(range(1, 21))


@pytest.mark.parametrize(
    ("body", "identity"),
    [
        ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": "p", "method": "tools/call", "params": []}, "p"),
        ({"jsonrpc": "2.0", "id": 9}, 9),
        ({"jsonrpc": "1.0", "id": 3, "method": "ping"}, 3),
        ([{"jsonrpc": "2.0", "id": 2, "method": "ping"}], None),
        ("ping", None),
    ],
)
def test_what_is_no_message_is_refused_and_says_why(
    server: Running, body: object, identity: int | str | None
) -> None:
    answer = server.client().request("POST", "/mcp/commonplace", body)
    assert answer.status == 400
    told = answer.json
    assert told["id"] == identity and told["error"]["code"] == -32600
    assert "validation error" not in told["error"]["message"]


def test_the_application_answers_the_same_without_a_socket(server: Running) -> None:
    """What matrices of thousands of requests go by."""
    token, reader = server.token("alike"), server.token("alike", {"read"})
    requests: list[tuple[str | None, Request]] = [
        (token, calling("recall", {"query": "x"})),
        (token, calling("recall", {"query": "x"}, era=NEW)),
        (token, calling("recall", {"nothing": 1})),
        (token, calling("no_such_tool")),
        (token, calling("recall", {"query": "x" * 20_000_000})),
        (reader, calling("remember", {"text": "x"})),
        ("cpt_wrong", calling("recall", {"query": "x"})),
        (token, ("GET", "/nothing/%41?x=%ff", None, {})),
        (token, ("GET", "/health", None, {"host": "evil.com"})),
        (token, ("GET", MCP, None, {})),  # a stream of events
        (token, ("HEAD", "/health", None, {})),
        (token, ("DELETE", MCP, None, {})),
        (token, ("POST", MCP, b"{", {})),
        (token, ("POST", MCP, b"{}", {"content-type": "text/plain"})),
        (None, ("GET", "/health", None, {"x-request-id": "mine"})),
    ]
    for who, request in requests:
        wire, direct = (
            client.request(*request) for client in (server.client(who), server.direct(who))
        )
        assert alike(direct) == alike(wire), request[:2]


def alike(answer: Answer) -> tuple[int, set[tuple[str, str]], bytes]:
    """An answer without what uvicorn adds, and without its id and the time."""
    added = ("date", "connection", "transfer-encoding", "x-request-id")
    told = {(key.lower(), value) for key, value in answer.headers if key.lower() not in added}
    return answer.status, told, re.sub(rb"[0-9a-f]{32}|\d+", b"N", answer.body)
