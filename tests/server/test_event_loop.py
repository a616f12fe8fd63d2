"""Nothing that takes long holds up other requests: it happens in another thread, or not at all.

What is slow is made to wait for the test. While it waits, the server must go on answering.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.dialects import registry
from commonplace.dialects.being import beings, bridges
from commonplace.dialects.rest import Rejected
from commonplace.server import door, gate, request
from server.harness import MCP, Answer, Running, message, running, wait_until

ARTIFACTS = "/api/v2/artifacts"
MOST = 16 * 1024 * 1024


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    with running(shared_data) as one:
        yield one


class Held:
    """Calls of a function that wait until the test lets them go on."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._go_on = threading.Event()
        self.waiting = 0
        self.threads: list[str] = []

    def __call__(self, *given: Any, **more: Any) -> Any:
        self.waiting += 1
        self.threads.append(threading.current_thread().name)
        assert self._go_on.wait(30)
        return self._function(*given, **more)

    def let_go(self) -> None:
        self._go_on.set()


def meanwhile(held: Held, server: Running, request: Callable[[], Answer]) -> Answer:
    """The answer to a request that is held up; others were answered while it was."""
    with ThreadPoolExecutor(1) as pool:
        asked: Future[Answer] = pool.submit(request)
        try:
            wait_until(lambda: held.waiting)
            for _ in range(20):
                assert server.client().request("GET", "/health").status == 200
                assert server.client().request("GET", "/graph").status == 200
            assert not asked.done()
        finally:
            held.let_go()
        return asked.result(30)


@pytest.fixture
def being(server: Running) -> tuple[str, str]:
    """A token for a Being, and its id."""
    made = beings.create(Commonplace(space="alive", library=server.parts.library), "Aria").id
    return server.token("alive", dialects=frozenset({"being"}), subject=made), made


@pytest.mark.parametrize("asked", ["tools/list", "tools/call"])
def test_dynamic_tools_are_looked_up_beside_the_loop(
    server: Running, being: tuple[str, str], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    held = Held(bridges._registered_capabilities)
    monkeypatch.setattr(bridges, "_registered_capabilities", held)
    client = server.client(being[0], "/mcp")
    body = message("act_lamp", {"action": "on"})
    if asked == "tools/list":
        body = {"jsonrpc": "2.0", "id": 1, "method": asked}
    answer = meanwhile(held, server, lambda: client.request("POST", "/mcp", body))
    assert (answer.status, held.waiting) == (200, 1)
    if asked == "tools/call":
        assert "There is no tool 'act_lamp'" in answer.json["error"]["message"]


def test_a_declared_tool_is_found_without_the_database(
    server: Running, being: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(bridges._registered_capabilities)
    monkeypatch.setattr(bridges, "_registered_capabilities", held)
    answer = server.client(being[0], "/mcp").call("get_current_time")
    assert answer.status == 200 and not answer.json["result"].get("isError")
    assert held.waiting == 0


def test_whether_a_call_may_pass_is_decided_once(
    server: Running, being: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[str] = []
    refused: list[str] = []
    decide, not_permitted = gate.Gate.decide, gate.not_permitted

    def counted(self: gate.Gate, caller: Any, dialect: str, name: str, **more: Any) -> Any:
        decided.append(name)
        return decide(self, caller, dialect, name, **more)

    def told(caller: Any, dialect: str, tool: Any) -> Any:
        refused.append(tool.name)
        return not_permitted(caller, dialect, tool)

    monkeypatch.setattr(gate.Gate, "decide", counted)
    monkeypatch.setattr(gate, "not_permitted", told)
    assert server.client(server.token("once")).call("recall", {"query": "x"}).status == 200
    server.client(being[0], "/mcp").call("act_lamp", {"action": "on"})
    assert server.client(server.token("once")).request("GET", "/graph").status == 200
    assert (decided, refused) == (["recall", "act_lamp", "http_graph"], [])
    assert server.client(server.token("once", {"read"})).call("remember").status == 403
    assert (decided[3:], refused) == (["remember"], ["remember"])


def head(server: Running, path: str, token: str, length: int) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1", f"host: 127.0.0.1:{server.port}", f"authorization: Bearer {token}",
        "content-type: application/json", f"content-length: {length}",
    )  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@pytest.mark.parametrize("path", [ARTIFACTS, MCP, "/mcp", "/v1/beings", "/nothing/here"])
def test_the_body_of_nobody_known_is_not_waited_for(
    server: Running, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("somebody unknown has their body read")

    monkeypatch.setattr(door, "read_body", never)
    monkeypatch.setattr(door, "parse_body", never)
    size = MOST if path == ARTIFACTS else 1_000_000
    with socket.create_connection(("127.0.0.1", server.port), 20) as wire:
        wire.sendall(head(server, path, "cpt_wrong", size) + b"[" * 1_000)
        answered = b""
        while b"\r\n\r\n" not in answered:  # though most of the body was never sent
            answered += wire.recv(65_536)
        assert answered.startswith(b"HTTP/1.1 401 ")
        found = re.search(rb"content-length: (\d+)", answered)
        assert found
        rest = answered.partition(b"\r\n\r\n")[2]
        while len(rest) < int(found[1]):
            rest += wire.recv(65_536)
        # Who sends all of it nevertheless can go on with the same connection.
        wire.sendall(b"[" * (size - 1_000))
        wire.sendall(f"GET /health HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert wire.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_a_large_body_is_checked_beside_the_loop(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(request.parse_body)
    monkeypatch.setattr(door, "parse_body", held)
    client = server.client(server.token("large"))
    deep = meanwhile(held, server, lambda: client.request("POST", ARTIFACTS, b"[" * MOST))
    assert deep.status == 400 and b"64 levels" in deep.body
    (thread,) = held.threads
    assert thread.startswith("commonplace-call")


@pytest.mark.parametrize(
    ("size", "inline"),
    [
        (request.INLINE_BYTES - 1, True),
        (request.INLINE_BYTES, True),
        (request.INLINE_BYTES + 1, False),
    ],
)
@pytest.mark.parametrize("path", [MCP, "/api/mama/save"])
def test_where_a_body_is_parsed_depends_on_its_size(
    server: Running, monkeypatch: pytest.MonkeyPatch, path: str, size: int, inline: bool
) -> None:
    held = Held(request.parse_body)
    held.let_go()
    monkeypatch.setattr(door, "parse_body", held)
    body: Any = message("recall", {"query": "x", "pad": ""})
    if path != MCP:
        body = {"topic": "t", "decision": "d", "reasoning": "r", "pad": ""}
    written = json.dumps(body)
    written = written.replace('"pad": ""', '"pad": "' + "x" * (size - len(written)) + '"')
    assert len(written) == size
    server.client(server.token("sizes")).request("POST", path, written.encode())
    (thread,) = held.threads  # once
    assert thread.startswith("commonplace-call") != inline


def test_the_check_of_the_depth_stops_at_the_first_level_too_deep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = 0

    class Counting:
        def finditer(self, body: bytes) -> Iterator[re.Match[bytes]]:
            nonlocal seen
            for mark in marks.finditer(body):
                seen += 1
                yield mark

    marks = request._STRINGS_AND_BRACKETS
    monkeypatch.setattr(request, "_STRINGS_AND_BRACKETS", Counting())
    with pytest.raises(Rejected, match="levels deep"):
        request.check_nesting(b"[" * MOST)
    assert seen == request.MOST_DEPTH + 1


# How much of the bodies is held in memory.


def test_bodies_have_a_share_of_memory_in_total_and_by_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "MOST_ADDRESS_BYTES", 100)
    monkeypatch.setattr(request, "MOST_BUFFERED_BYTES", 150)
    buffers = request.Buffers()
    assert buffers.take("a", 99) and buffers.take("a", 1) and not buffers.take("a", 1)
    assert buffers.take("b", 49) and buffers.take("b", 1) and not buffers.take("b", 1)
    buffers.give_back("a", 1)
    assert not buffers.take("b", 2) and buffers.take("b", 1)
    buffers.give_back("a", 99)
    buffers.give_back("b", 51)
    assert buffers.take("c", 100) and not buffers.take("c", 1)


def test_a_body_that_memory_has_no_room_for_is_refused_and_the_room_given_back(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = json.dumps(message("recall", {"query": "room"})).encode()
    client = server.client(server.token("room"))
    for room, status in ((len(written) - 1, 503), (len(written), 200), (len(written), 200)):
        monkeypatch.setattr(request, "MOST_ADDRESS_BYTES", room)
        answer = client.request("POST", MCP, written)
        assert answer.status == status
    monkeypatch.setattr(request, "MOST_ADDRESS_BYTES", len(written) - 1)
    refused = client.request("POST", MCP, written)
    assert refused.json["error"]["code"] == "BUSY" and refused.header("retry-after")
    assert [call.tool for call in server.calls("room")][:1] == [f"POST {MCP}"]
    assert server.door._buffers._of == {}


def test_of_two_bodies_that_have_no_room_together_the_first_is_read(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = server.token("room")
    written = json.dumps(message("recall", {"query": "room"})).encode()
    monkeypatch.setattr(request, "MOST_ADDRESS_BYTES", len(written) * 3 // 2)
    with socket.create_connection(("127.0.0.1", server.port), 20) as first:
        accepts = b"accept: application/json, text/event-stream\r\n\r\n"
        begun = head(server, MCP, token, len(written)).removesuffix(b"\r\n") + accepts
        first.sendall(begun + written[:1])
        wait_until(lambda: server.door._buffers._of)
        with socket.create_connection(("127.0.0.1", server.port), 20) as second:
            second.sendall(begun)  # refused by what it declares
            assert second.recv(65_536).startswith(b"HTTP/1.1 503 ")
        first.sendall(written[1:])
        assert first.recv(65_536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("dialect", "path"),
    [("being", "/v1/beings"), ("penfield", ARTIFACTS), ("orchestrator", "/v1/workspaces")],
)
def test_a_body_without_room_is_refused_in_the_format_of_its_contract(
    server: Running, monkeypatch: pytest.MonkeyPatch, dialect: str, path: str
) -> None:
    monkeypatch.setattr(request, "MOST_BUFFERED_BYTES", 1)
    answer = server.client(server.token("room")).request("POST", path, {"name": "Mia"})
    refuse = registry.load(dialect).format_refusal
    assert refuse is not None and answer.status == 503
    told = "Too many large requests are open. Try again in a moment."
    wanted = refuse(503, "BUSY", told, str(answer.header("x-request-id")))
    assert answer.json.keys() == json.loads(json.dumps(wanted)).keys()
    assert answer.header("retry-after") == "1"
