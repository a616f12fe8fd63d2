"""Calls that are answered without the protocol SDK: which ones, and with the same answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from commonplace.access.caller import ALL_SCOPES, Caller
from commonplace.client.static_answers import StaticAnswers
from commonplace.dialects import registry
from commonplace.dialects.contract import RequestInfo
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.history import audit
from commonplace.engine.library import Library
from commonplace.server import calls
from commonplace.server.calls import (
    JSON_BODY,
    RESERVED_META,
    UNREADABLE,
    AdmittedRequest,
    Workers,
)
from commonplace.server.gate import Gate
from commonplace.server.protocol import build_server
from commonplace.server.refusals import Refusals
from commonplace.server.session import LocalSession
from server.harness import Running

HELLO = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    },
}  # fmt: skip
CALL = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/call",
    "params": {"name": "recall", "arguments": {"query": "x"}},
}  # fmt: skip


ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "roots": {}},
}


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "\\ud800"}', b'{"text": "\\uD83D\\uDE00"}', b"\xff", b"{", b"[" * 101,
        b'{"number": NaN}', b'{"number": ' + b"9" * 5_000 + b"}",
    ],
)  # fmt: skip
def test_lines_that_the_sdk_reads_otherwise_are_left_to_it(line: bytes) -> None:
    assert calls.parse_line(line) is UNREADABLE


def test_usual_lines_are_parsed() -> None:
    assert calls.parse_line(b'{"text": "\\u00e9", "of": [1, 2.5, null]}\n') == {
        "text": "é", "of": [1, 2.5, None],
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"jsonrpc": "1.0"}, {"id": None}, {"id": True}, {"id": 1.5}, {"method": "tools/list"},
        {"more": 1}, {"params": None}, {"params": []}, {"params": {"arguments": {}}},
        {"params": {"name": 1}}, {"params": {"name": "a", "arguments": []}},
        {"params": {"name": "a", "task": {}}}, {"params": {"name": "a", "_meta": None}},
        {"params": {"name": "a", "_meta": {"progressToken": True}}},
        {"params": {"name": "a", "_meta": {"io.modelcontextprotocol/protocolVersion": "x"}}},
        *(
            {"params": {"name": "a", "_meta": {**ENVELOPE, RESERVED_META + key: value}}}
            for key, value in (
                ("protocolVersion", "2025-11-25"), ("protocolVersion", None), ("logLevel", "info"),
                ("clientInfo", None), ("clientInfo", {"name": "a"}),
                ("clientInfo", {"name": "a", "version": 1}),
                ("clientInfo", {"name": "a", "version": "1", "icons": []}),
                ("clientCapabilities", None), ("clientCapabilities", []),
                ("clientCapabilities", {"sampling": True}),
                ("clientCapabilities", {"experimental": {"x": 1}}),
            )
        ),
        {"params": {"name": "a", "_meta": {"io.modelcontextprotocol/clientCapabilities": {}}}},
    ],
)  # fmt: skip
def test_unusual_calls_are_left_to_the_sdk(change: Any) -> None:
    assert calls.UsualCall.read({**CALL, **change}) is None
    assert calls.UsualCall.read(CALL) is not None


class Wire:
    """A connection to a session in this process."""

    def __init__(self, data: Path) -> None:
        self.library = Library(data, embedder=None)
        self.system = self.library.open_system()
        self.dialect = registry.load("commonplace")
        gate = Gate(self.library, self.system, [self.dialect])
        self.workers = Workers(gate, 30)
        self.refusals = Refusals(gate, self.workers)
        self.loaded = 0

    def load(self) -> Any:
        self.loaded += 1
        return build_server(self.dialect, self.workers)

    async def converse(self, messages: list[Any], *, direct: bool = True) -> list[Any]:
        """The answers to messages, each sent when the one before was answered."""
        listening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            session = LocalSession(
                self.dialect, self.workers, self.refusals,
                AdmittedRequest(Caller(space="default", scopes=ALL_SCOPES), RequestInfo()),
                static=StaticAnswers.load("commonplace" if direct else "none", "", False),
                load=self.load, writer=writer, seconds=30,
            )  # fmt: skip
            try:
                await session.serve(reader)
                listening.set_result(None)
            except Exception as error:
                listening.set_exception(error)
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        answers = []
        for message in messages:
            writer.write(message if isinstance(message, bytes) else json.dumps(message).encode())
            writer.write(b"\n")
            if isinstance(message, bytes) or "id" in message:
                answers.append(json.loads(await asyncio.wait_for(reader.readline(), 60)))
        writer.write_eof()
        await listening
        assert await reader.read() == b"", "an answer too many"
        writer.close()
        server.close()
        return answers

    def close(self) -> None:
        self.workers.close()
        self.system.close()
        self.library.close()


@pytest.fixture
def wire(data: Path) -> Any:
    made = Wire(data)
    yield made
    made.close()


def called(number: int, name: Any, arguments: Any = None, **more: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, **more}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_the_sdk_and_we_give_the_same_answers(wire: Wire, version: str) -> None:
    hello = {**HELLO, "params": {**HELLO["params"], "protocolVersion": version}}
    told = [
        hello, {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": "p", "method": "ping"},
        called(1, "recall", {"query": "nothing"}), called(2, "recall"), called(3, "no such tool"),
        called(4, "recall", {"query": 5}), called(5, "recall", {"query": "x", "unknown": 1}),
        called(6, "read", {"ids": ["none"]}), called(7, "recall", {"query": "x"}, _meta={"a": 1}),
    ]  # fmt: skip
    ours = asyncio.run(wire.converse(told))
    assert wire.loaded == 0
    theirs = asyncio.run(wire.converse(told, direct=False))
    assert wire.loaded == 1
    assert ours == theirs


def stateless_calls(**more: Any) -> list[dict[str, Any]]:
    """Calls of a client that sends no `initialize`."""
    given = [
        ("recall", {"query": "nothing"}), ("recall", None), ("no such tool", None),
        ("recall", {"query": 5}), ("recall", {"query": "x", "unknown": 1}),
        ("read", {"id": "none"}), ("tour", {}),
    ]  # fmt: skip
    meta = {**ENVELOPE, **more}
    return [
        called(number, name, arguments, _meta=meta)
        for number, (name, arguments) in enumerate(given)
    ]


def test_without_initialize_the_sdk_and_we_give_the_same_answers(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [*stateless_calls(), *stateless_calls(other=1, progressToken="a")]
    nameless = {key: value for key, value in ENVELOPE.items() if not key.endswith("clientInfo")}
    told.append(called(90, "recall", {"query": "x"}, _meta=nameless))
    ours = asyncio.run(wire.converse(told))
    assert wire.loaded == 0
    assert ours[0]["result"]["resultType"] == "complete"
    with monkeypatch.context() as patched:
        patched.setattr(calls, "IS_TRACED", True)  # so that the SDK handles all of them
        theirs = asyncio.run(wire.converse(told))
    assert wire.loaded == 1
    assert ours == theirs


def test_a_client_that_sent_initialize_gets_no_stateless_answer(wire: Wire) -> None:
    for first in (HELLO, {**HELLO, "params": {**HELLO["params"], "more": 1}}):
        wire.loaded = 0
        asyncio.run(wire.converse([first, called(1, "recall", {"query": "x"}, _meta=ENVELOPE)]))
        assert wire.loaded == 1


def test_stateless_calls_go_on_beside_what_the_sdk_answers(wire: Wire) -> None:
    answers = asyncio.run(
        wire.converse([
            called(1, "remember", {"text": "before"}, _meta=ENVELOPE),
            {"jsonrpc": "2.0", "id": 2, "method": "nothing/here", "params": {"_meta": ENVELOPE}},
            called(3, "recall", {"query": "before"}, _meta=ENVELOPE),
        ])
    )  # fmt: skip
    assert [each["id"] for each in answers] == [1, 2, 3]
    assert answers[1]["error"]["code"] == -32601
    assert "before" in answers[2]["result"]["content"][0]["text"]


def test_a_cancelled_stateless_call_is_not_answered(wire: Wire) -> None:
    cancelled = {
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9},
    }  # fmt: skip
    waits = called(9, "remember", {"text": "waits for the lock"}, _meta=ENVELOPE)
    reads = called(10, "recall", {"query": "x"}, _meta=ENVELOPE)
    together = b"\n".join(json.dumps(each).encode() for each in (waits, cancelled, reads))
    with Commonplace(library=wire.library).unit("held"):
        answers = asyncio.run(wire.converse([together]))
    assert [each["id"] for each in answers] == [10]
    assert wire.loaded == 0


def test_the_client_of_a_stateless_call_is_audited(wire: Wire) -> None:
    asyncio.run(wire.converse([called(1, "recall", {"query": "x"}, _meta=ENVELOPE)]))
    with wire.library.lease("default") as space:
        assert [entry.client for entry in audit.listing(space.store)] == ["tests 1"]


def test_what_is_unusual_is_answered_by_the_sdk_on_the_same_connection(wire: Wire) -> None:
    answers = asyncio.run(
        wire.converse([
            HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"},
            called(1, "remember", {"text": "before"}), b"not JSON",
            {"jsonrpc": "2.0", "id": 2, "method": "nothing/here"},
            called(3, "remember", {"text": "\ud83d\ude00"}),
            called(4, "recall", {"query": "before"}),
        ])
    )  # fmt: skip
    assert [each.get("id") for each in answers] == [0, 1, None, 2, 3, 4]
    assert [each["error"]["code"] for each in answers[2:4]] == [-32700, -32601]
    assert not answers[4]["result"]["isError"] and not answers[5]["result"]["isError"]
    assert wire.loaded == 1


def test_a_cancelled_call_is_not_answered(wire: Wire) -> None:
    cancelled = {
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9},
    }  # fmt: skip
    ping = {"jsonrpc": "2.0", "id": 10, "method": "ping"}
    waits = called(9, "remember", {"text": "waits for the lock"})
    together = b"\n".join(json.dumps(each).encode() for each in (waits, cancelled, ping))
    with Commonplace(library=wire.library).unit("held"):
        answers = asyncio.run(wire.converse([HELLO, together]))
    assert [each["id"] for each in answers] == [0, 10]
    assert wire.loaded == 0


def test_over_http_the_sdk_and_we_give_the_same_answers(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers() -> list[Any]:
        found = []
        for name, arguments, headers in (
            ("recall", {"query": "x"}, {}), ("recall", None, {}), ("recall", {"query": 1}, {}),
            ("no such tool", {}, {}), ("recall", {"query": "x", "other": 1}, {}),
            ("recall", {"query": "\ud83d\ude00"}, {}), ("recall", {"query": "x" * 20_000}, {}),
            ("recall", {"query": "x"}, {"mcp-protocol-version": "2025-03-26"}),
            ("recall", {"query": "x"}, {"mcp-protocol-version": "2024-11-05"}),
            ("no such tool", {}, {"mcp-protocol-version": "2024-11-05"}),
            ("recall", {"query": "x"}, {"mcp-protocol-version": "1999-01-01"}),
            ("recall", {"query": "x"}, {"accept": "application/json"}),
            ("recall", {"query": "x"}, {"accept": "text/html"}),
        ):  # fmt: skip
            given = {"mcp-protocol-version": "2025-11-25", **headers}
            answer = server.client().call(name, arguments, headers=given)
            found.append((answer.status, answer.header("content-type"), answer.json))
        return found

    def stateless_answers() -> list[Any]:
        found = []
        for call in stateless_calls():
            name = call["params"]["name"]
            routed = {"mcp-method": "tools/call", "mcp-name": name}
            for headers in (
                routed, {"mcp-method": "tools/call"}, {**routed, "mcp-name": "other"},
                {**routed, "mcp-method": "tools/list"},
                {**routed, "mcp-protocol-version": "2025-11-25"},
            ):  # fmt: skip
                client, given = server.client(), {"mcp-protocol-version": "2026-07-28", **headers}
                answer = client.request("POST", client.path, call, given)
                found.append((answer.status, answer.header("content-type"), answer.json))
        return found

    ours = answers(), stateless_answers()
    monkeypatch.setattr(calls, "IS_TRACED", True)  # so that the SDK handles all of them
    assert ours == (answers(), stateless_answers())


BOTH = (b"accept", b"application/json, text/event-stream")
VERSION = (b"mcp-protocol-version", b"2025-11-25")


@pytest.mark.parametrize(
    "headers",
    [
        [BOTH], [VERSION], [BOTH, (VERSION[0], b"2026-07-28")], [BOTH, VERSION, VERSION],
        [(b"accept", b"application/json"), VERSION], [BOTH, (VERSION[0], b"\xff")],
    ],
)  # fmt: skip
def test_unusual_headers_are_left_to_the_sdk(headers: list[tuple[bytes, bytes]]) -> None:
    scope = {JSON_BODY: CALL, "headers": headers}
    assert calls.usual_call_of_request(scope) is None
    assert calls.usual_call_of_request({**scope, "headers": [BOTH, VERSION]}) is not None
    assert calls.usual_call_of_request({"headers": [BOTH, VERSION]}) is None


ROUTED = [BOTH, (VERSION[0], b"2026-07-28"), (b"mcp-method", b"tools/call")]
NAMED = (b"mcp-name", b"recall")


def test_stateless_calls_need_their_headers() -> None:
    def usual(headers: list[tuple[bytes, bytes]], name: str = "recall") -> bool:
        message = called(1, name, {"query": "x"}, _meta=ENVELOPE)
        return calls.usual_call_of_request({JSON_BODY: message, "headers": headers}) is not None

    assert usual([*ROUTED, NAMED])
    assert not usual([*ROUTED, NAMED, NAMED])
    assert not usual([*ROUTED, ROUTED[2], NAMED])
    assert not usual([*ROUTED, NAMED], name="read")
    for odd in ("é", "=?base64?eA==?="):
        assert not usual([*ROUTED, (b"mcp-name", odd.encode())], name=odd)
    for missing in range(3):
        assert not usual([*ROUTED[:missing], *ROUTED[missing + 1 :], NAMED])
    assert not usual(ROUTED)
