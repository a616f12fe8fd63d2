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
from commonplace.engine.library import Library
from commonplace.server import calls
from commonplace.server.calls import JSON_BODY, UNREADABLE, AdmittedRequest, Workers
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


def test_the_sdk_and_we_give_the_same_answers(wire: Wire) -> None:
    told = [
        HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"},
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
            ("recall", {"query": "x"}, {"mcp-protocol-version": "1999-01-01"}),
            ("recall", {"query": "x"}, {"accept": "application/json"}),
            ("recall", {"query": "x"}, {"accept": "text/html"}),
        ):  # fmt: skip
            given = {"mcp-protocol-version": "2025-11-25", **headers}
            answer = server.client().call(name, arguments, headers=given)
            found.append((answer.status, answer.header("content-type"), answer.json))
        return found

    ours = answers()
    monkeypatch.setattr(calls, "IS_TRACED", True)  # so that the SDK handles all of them
    assert ours == answers()


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
