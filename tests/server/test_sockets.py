"""WebSockets and event streams: how many, how often, how deep, and for how long."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from commonplace.access.credentials import Grant
from commonplace.dialects.mama import exporting
from commonplace.server import connections, door, request, rest
from server.harness import Running, running, wait_until


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    with running(shared_data) as one:
        yield one


class Bridges:
    """Bridges of one credential to a being."""

    def __init__(self, server: Running, space: str) -> None:
        self.server = server
        self.space = space
        self.token = server.token(space)
        made = server.client(self.token).request("POST", "/v1/beings", {"name": "Mia"})
        self.being = str(made.json["id"])

    @contextlib.contextmanager
    def socket(self, token: str = "") -> Iterator[ClientConnection]:
        headers = {"authorization": f"Bearer {token or self.token}"}
        path = f"/v1/beings/{self.being}/bridge/ws"
        url = f"ws://127.0.0.1:{self.server.port}{path}"
        with connect(url, additional_headers=headers) as opened:
            yield opened

    @contextlib.contextmanager
    def bridge(self, token: str = "") -> Iterator[ClientConnection]:
        with self.socket(token) as opened:
            assert hear(opened)["type"] == "connected"
            yield opened


def hear(socket: ClientConnection) -> Any:
    return json.loads(socket.recv(timeout=15))


def ask(socket: ClientConnection, text: str = "{}") -> str:
    """What a message is answered with; the shortest one is of no kind."""
    socket.send(text)
    return str(hear(socket)["message"])


def test_a_websocket_ends_with_its_credential(server: Running) -> None:
    home = Bridges(server, "ends")
    credentials = server.parts.tokens.credentials
    made = credentials.create(Grant(space="ends"))
    with home.bridge() as stays, home.bridge(made.token) as ends:
        credentials.revoke(made.credential.id)
        begun = time.monotonic()
        assert hear(ends) == {"type": "error", "message": "Unauthorized"}
        with pytest.raises(ConnectionClosed) as closed:
            ends.recv(timeout=15)
        assert time.monotonic() - begun < 5
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        assert ask(stays) == "Unknown message type."
    assert "Exception in ASGI" not in server.log.getvalue()


def test_a_download_ends_with_its_credential(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "RECHECK_SECONDS", 0.0)
    monkeypatch.setattr(exporting, "PIECE_CHARS", 100)
    credentials = server.parts.tokens.credentials
    made = credentials.create(Grant(space="downloads"))
    client = server.client(made.token)
    for number in range(3):
        saved = {"topic": f"t{number}", "decision": "d", "reasoning": "r"}
        assert client.request("POST", "/api/mama/save", saved).status in (200, 201)
    assert client.request("GET", "/api/memory/export?format=csv").body.count(b"\n") == 4
    pieces = rest._Exchange.perform

    async def revoked(self: Any, *arguments: Any) -> Any:
        found = await pieces(self, *arguments)
        credentials.revoke(made.credential.id)
        return found

    monkeypatch.setattr(rest._Exchange, "perform", revoked)
    with pytest.raises((http.client.HTTPException, ValueError)):  # the last chunk never comes
        client.request("GET", "/api/memory/export?format=csv")


def websockets(server: Running) -> Any:
    home = Bridges(server, "sockets")
    other = server.token("sockets")

    @contextlib.contextmanager
    def opened(mine: bool) -> Iterator[str]:
        with home.socket("" if mine else other) as socket:
            first = hear(socket)
            yield "" if first["type"] == "connected" else first["message"]

    return opened


def event_streams(server: Running) -> Any:
    tokens = server.token("streams"), server.token("streams")

    @contextlib.contextmanager
    def opened(mine: bool) -> Iterator[str]:
        client = server.client(tokens[0 if mine else 1])
        body, sent = client._written(None, {"accept": "text/event-stream"})
        wire = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
        wire.request("GET", "/mcp/commonplace", body, sent)
        answer = wire.getresponse()
        if answer.status == 200:
            yield ""
        else:
            assert answer.getheader("retry-after")
            yield json.loads(answer.read())["error"]["message"]
        answer.close()
        wire.close()

    return opened


@pytest.mark.parametrize("kind", [websockets, event_streams])
def test_a_credential_and_the_server_have_so_many_open(
    server: Running, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Running], Any]
) -> None:
    opened = kind(server)
    for streams in (server.door._streams, server.door._sockets):
        wait_until(lambda s=streams: not s._open)  # type: ignore[misc]
    monkeypatch.setattr(connections, "MOST_CREDENTIAL_STREAMS", 2)
    monkeypatch.setattr(connections, "MOST_STREAMS", 3)
    with opened(True) as first, opened(True) as second:
        assert (first, second) == ("", "")
        with opened(True) as third:
            assert third.startswith("This credential has 2 ")
        with opened(False) as theirs:
            assert theirs == ""
            with opened(False) as beyond:
                assert beyond.startswith("Too many ")
    wait_until(lambda: not server.door._sockets._open and not server.door._streams._open)
    with opened(True) as again:
        assert again == ""


def test_messages_on_a_websocket_have_a_rate(data: Path) -> None:
    with running(data, rate=0.5, burst=12) as slow:
        home = Bridges(slow, "rates")
        with home.bridge() as socket:
            told = [ask(socket) for _ in range(13)]
            allowed = told.count("Unknown message type.")
            # Requests and messages have one rate: two were for the being and the connection.
            assert allowed == 10 and told[10:] == ["Too many requests; wait 2 s."] * 3
            time.sleep(2.1)
            assert ask(socket) == "Unknown message type."
        refused = [call for call in slow.calls("rates") if not call.success]
        assert [call.error.partition(":")[0] for call in refused] == ["RATE_LIMITED"] * 3


@pytest.mark.parametrize(
    "levels", [request.MOST_DEPTH - 1, request.MOST_DEPTH, request.MOST_DEPTH + 1]
)
def test_messages_on_a_websocket_have_a_depth(server: Running, levels: int) -> None:
    deep = '{"x":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"
    with Bridges(server, "depth").bridge() as socket:
        told = ask(socket, deep)
        assert told.startswith("JSON may be at most 64 levels deep") == (
            levels > request.MOST_DEPTH
        )
        assert ask(socket) == "Unknown message type."


def test_a_large_message_is_checked_beside_the_loop(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    check = request.check_nesting

    def noted(body: bytes) -> None:
        threads.append(threading.current_thread().name)
        check(body)

    monkeypatch.setattr(door, "check_nesting", noted)
    with Bridges(server, "large").bridge() as socket:
        for size, beside in ((request.INLINE_BYTES, False), (request.INLINE_BYTES + 1, True)):
            threads.clear()
            ask(socket, '{"x":"' + "y" * (size - 8) + '"}')
            (thread,) = threads
            assert thread.startswith("commonplace-call") == beside


def test_the_tools_of_bridges_share_one_label(server: Running) -> None:
    home = Bridges(server, "labels")
    capabilities = [{"id": f"zq{n}", "type": "act", "name": f"zq{n}"} for n in range(3)]
    client = server.client(home.token, f"/mcp/{home.being}")
    with home.bridge() as socket:
        socket.send(json.dumps({"type": "register", "capabilities": capabilities}))
        assert hear(socket)["type"] == "registered"
        for number in range(3):
            client.call(f"act_zq{number}", {"action": "on", "timeout_ms": 1})
    metrics = server.client().request("GET", "/metrics").body.decode()
    assert "zq" not in metrics and 'tool="dynamic"' in metrics


def test_a_server_that_stops_closes_its_websockets_and_streams(data: Path) -> None:
    with contextlib.ExitStack() as stack:
        with running(data) as stops:
            socket = stack.enter_context(Bridges(stops, "stops").bridge())
            stream = stops.older(stops.token("stops"))
            begun = time.monotonic()
        assert time.monotonic() - begun < 5
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=15)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
        stream.close()
        assert "Exception" not in stops.log.getvalue()
