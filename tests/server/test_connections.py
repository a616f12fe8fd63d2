"""T19: how many connections there are, and how long each may take."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from commonplace.server import calls, connections, door, request, serving
from commonplace.server.connections import Connections
from commonplace.server.settings import Settings
from server.harness import Process, Running, running, wait_until

LIMITED = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024));"
    "from commonplace.cli.app import run; sys.exit(run(sys.argv[1:]))"
)


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    with running(shared_data) as one:
        yield one


@pytest.fixture(scope="module")
def being(server: Running) -> str:
    made = server.client().request("POST", "/v1/beings", {"name": "Mia"})
    return str(made.json["id"])


@contextlib.contextmanager
def bridge(server: Running, being: str) -> Iterator[ClientConnection]:
    """A bridge that was let in."""
    with connect(f"ws://127.0.0.1:{server.port}/v1/beings/{being}/bridge/ws") as opened:
        assert json.loads(opened.recv(timeout=10))["type"] == "connected"
        yield opened


def alive(opened: ClientConnection) -> bool:
    opened.send("{}")
    return bool(json.loads(opened.recv(timeout=10))["message"] == "Unknown message type.")


def test_a_bridge_outlives_the_time_for_the_head_of_a_request(
    server: Running, being: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    with bridge(server, being) as opened:
        for _ in range(4):
            time.sleep(0.3)
            assert alive(opened)


def half_sent(port: int) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port), 10)
    opened.sendall(f"GET /health HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx-slow: ".encode())
    return opened


def asked(port: int, timeout: float = 10) -> bytes:
    """The first line of the answer to a request on a new connection."""
    with socket.create_connection(("127.0.0.1", port), timeout) as opened:
        opened.sendall(f"GET /health HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
        return opened.recv(65_536).partition(b"\r\n")[0]


def test_half_sent_requests_do_not_keep_others_out(data: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with (
        contextlib.ExitStack() as stack,
        Process(data, program=("-c", LIMITED)) as process,
    ):
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        port = process.ready()
        for _ in range(1_100):
            stack.enter_context(half_sent(port))
        begun = time.monotonic()
        assert asked(port) == b"HTTP/1.1 200 OK"
        assert time.monotonic() - begun < 5 < connections.HEADER_SECONDS


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    raised = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, 500));"
        "from commonplace.server import connections as c; c.raise_file_limit();"
        "print(*r.getrlimit(r.RLIMIT_NOFILE), *c.connection_limits())"
    )
    done = subprocess.run([sys.executable, "-c", raised], capture_output=True, text=True)
    assert done.stdout.split() == ["500", "500", "250", "125"], done.stderr


@dataclass(eq=False)
class Fake:
    """A connection as far as it is counted."""

    client: tuple[str, int]
    aborted: list[str] = field(default_factory=list)

    @property
    def transport(self) -> Any:
        return self

    def abort(self) -> None:
        self.aborted.append("aborted")


def made(counted: Connections, address: str, count: int) -> list[Fake]:
    added = [Fake((address, number)) for number in range(count)]
    assert all(counted.add(one) for one in added)
    return added


def test_an_address_has_so_many_connections_and_the_one_that_waits_longest_gives_way() -> None:
    counted = Connections(10, 3)
    first, second, third = made(counted, "192.0.2.1", 3)
    for waiting in (second, first, third):
        counted.mark_idle(waiting)
    made(counted, "192.0.2.2", 3)
    assert not any(one.aborted for one in (first, second, third))
    made(counted, "192.0.2.1", 1)
    assert second.aborted and not first.aborted and not third.aborted
    counted.mark_busy(first)
    made(counted, "192.0.2.1", 1)
    assert third.aborted and not first.aborted
    assert not counted.add(Fake(("192.0.2.1", 9)))  # all others are served
    counted.discard(first)
    assert counted.add(Fake(("192.0.2.1", 10)))


def test_the_server_has_so_many_connections_of_all_addresses() -> None:
    counted = Connections(4, 3)
    one, *_ = made(counted, "192.0.2.1", 2)
    made(counted, "192.0.2.2", 2)
    assert not counted.add(Fake(("192.0.2.3", 1)))
    counted.mark_idle(one)
    assert counted.add(Fake(("192.0.2.3", 1))) and one.aborted
    assert not counted.add(Fake(("192.0.2.3", 2)))


def test_a_network_of_ipv6_is_one_address_and_a_proxy_is_none() -> None:
    counted = Connections(15, 1, proxies=("192.0.2.9", "fd00::5"))
    made(counted, "2001:db8::1", 1)
    assert not counted.add(Fake(("2001:db8::2", 1)))
    assert counted.add(Fake(("2001:db8:0:1::1", 1)))
    for proxy in ("192.0.2.9", "::ffff:192.0.2.9", "fd00::5"):
        made(counted, proxy, 4)


def test_who_has_all_their_connections_in_use_is_told(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_ADDRESS_CONNECTIONS", 3)
    with contextlib.ExitStack() as stack, running(data) as few:
        host = f"host: 127.0.0.1:{few.port}\r\n"
        head = f"GET /mcp HTTP/1.1\r\n{host}accept: text/event-stream\r\n\r\n"
        for _ in range(3):
            stream = socket.create_connection(("127.0.0.1", few.port), 10)
            stack.enter_context(stream).sendall(head.encode())
            assert stream.recv(65_536).startswith(b"HTTP/1.1 200")
        with socket.create_connection(("127.0.0.1", few.port), 10) as fourth:
            told = b"".join(iter(lambda: fourth.recv(65_536), b""))
        assert told.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1\r\n" in told
        assert json.loads(told.partition(b"\r\n\r\n")[2])["error"]["code"] == "BUSY"
        stream.close()
        wait_until(lambda: asked(few.port) == b"HTTP/1.1 200 OK")


def test_a_refused_websocket_that_does_not_close_gives_way(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_ADDRESS_CONNECTIONS", 3)
    with contextlib.ExitStack() as stack, running(data, require_token=True) as few:
        head = (
            f"GET /v1/beings/x/bridge/ws HTTP/1.1\r\nhost: 127.0.0.1:{few.port}\r\n"
            "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        for _ in range(6):
            opened = socket.create_connection(("127.0.0.1", few.port), 10)
            stack.enter_context(opened).sendall(head.encode())
            told = b""
            while b"Unauthorized" not in told:
                told += opened.recv(65_536)
        assert asked(few.port) == b"HTTP/1.1 200 OK"


def test_nothing_of_a_connection_is_left_when_it_has_gone(server: Running, being: str) -> None:
    async def timers() -> int:
        loop = asyncio.get_running_loop()
        return sum(
            "_on_header_timeout" in repr(timer) and not timer.cancelled()
            for timer in loop._scheduled  # type: ignore[attr-defined]
        )

    def waiting() -> int:
        return asyncio.run_coroutine_threadsafe(timers(), server.loop).result(10)

    before = waiting()
    half_sent(server.port).close()
    with bridge(server, being):
        wait_until(lambda: waiting() <= before, 5)


def test_the_pages_on_the_server_name_every_setting_and_limit() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "serving.md").read_text()
    told = set(re.findall(r"`(\w+)`", (docs / "settings.md").read_text()))
    assert {each.name for each in fields(Settings)} - told == {"data"}
    for limit in (
        f"{connections.MOST_CONNECTIONS:,}, {connections.MOST_ADDRESS_CONNECTIONS} of one address",
        f"{serving.HEADER_BYTES // 1024} KiB, in {connections.HEADER_SECONDS:g} s",
        f"in {request.BODY_SECONDS:g} s",
        f"{request.MOST_BUFFERED_BYTES >> 20} MiB,"
        f" {request.MOST_ADDRESS_BYTES >> 20} MiB of one address",
        f"{request.MOST_DEPTH} levels, {request.MOST_CONTAINERS:,} arrays and objects",
        f"{connections.MOST_STREAMS}, {connections.MOST_CREDENTIAL_STREAMS} of one credential",
        f"message on a WebSocket | {serving.WEBSOCKET_BYTES // 1024} KiB",
        f"calls in one message | {calls.MOST_CALLS} |",
        f"{door.FAILURES_A_MINUTE} a minute",
    ):
        assert limit in page, limit
