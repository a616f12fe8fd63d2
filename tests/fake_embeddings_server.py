"""A small OpenAI-compatible embeddings endpoint on loopback that can be told to misbehave."""

from __future__ import annotations

import hashlib
import json
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    client_port: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def vector_of(text: str, dimensions: int) -> list[float]:
    """Always the same vector for a text, and not of length one."""
    numbers = random.Random(hashlib.sha256(text.encode()).digest())
    return [numbers.uniform(-2.0, 2.0) for _ in range(dimensions)]


class Exchange:
    """One request being answered: what a behaviour works with."""

    def __init__(
        self, handler: BaseHTTPRequestHandler, server: FakeEmbeddings, asked: Asked
    ) -> None:
        self.handler = handler
        self.server = server
        self.asked = asked
        self.texts: list[str] = asked.body.get("input", [])

    def data(self) -> list[dict[str, Any]]:
        return [
            {
                "object": "embedding",
                "index": at,
                "embedding": vector_of(text, self.server.dimensions),
            }
            for at, text in enumerate(self.texts)
        ]

    def send_json(self, data: Any, status: int = 200, **headers: str) -> None:
        body = json.dumps({"object": "list", "data": data, "model": "fake"}).encode()
        self.send(body, status, **headers)

    def send(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.handler.send_response(status)
        self.handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()
        self.handler.wfile.write(body)

    def pause(self, seconds: float) -> bool:
        """Waits, but not longer than the server lives; whether to go on."""
        return not self.server.closing.wait(seconds)


Behaviour = Callable[[Exchange], None]


def good(exchange: Exchange) -> None:
    exchange.send_json(exchange.data())


def slow(seconds: float) -> Behaviour:
    def behave(exchange: Exchange) -> None:
        if exchange.pause(seconds):
            good(exchange)

    return behave


def together(count: int) -> Behaviour:
    """Right answers, but none before so many are waiting for one."""
    gate = threading.Barrier(count)

    def behave(exchange: Exchange) -> None:
        try:
            gate.wait(30.0)
        except threading.BrokenBarrierError:
            exchange.handler.close_connection = True
        else:
            good(exchange)

    return behave


def hung(exchange: Exchange) -> None:
    exchange.pause(30.0)
    exchange.handler.close_connection = True


def trickling_headers(exchange: Exchange) -> None:
    """A header without end, a byte at a time."""
    exchange.handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while exchange.pause(0.01):
        exchange.handler.wfile.write(b"x")
    exchange.handler.close_connection = True


def trickling_body(exchange: Exchange) -> None:
    """A right answer, a byte at a time."""
    body = json.dumps({"data": exchange.data()}).encode()
    exchange.handler.send_response(200)
    exchange.handler.send_header("Content-Length", str(len(body)))
    exchange.handler.end_headers()
    for at in range(len(body)):
        if not exchange.pause(0.01):
            break
        exchange.handler.wfile.write(body[at : at + 1])
    exchange.handler.close_connection = True


def status(code: int, **headers: str) -> Behaviour:
    """An error that repeats the key, as careless servers do."""

    def behave(exchange: Exchange) -> None:
        key = exchange.asked.headers.get("authorization", "")
        exchange.send(json.dumps({"error": {"message": f"no: {key}"}}).encode(), code, **headers)

    return behave


def body(content: bytes) -> Behaviour:
    return lambda exchange: exchange.send(content)


def too_few(exchange: Exchange) -> None:
    exchange.send_json(exchange.data()[:-1])


def wrong_dimensions(exchange: Exchange) -> None:
    exchange.send_json([{**item, "embedding": item["embedding"][1:]} for item in exchange.data()])


def ragged(exchange: Exchange) -> None:
    data = exchange.data()
    data[0]["embedding"] = data[0]["embedding"][1:]
    exchange.send_json(data)


def filled_with(value: Any) -> Behaviour:
    """Every number of the last vector is `value`."""

    def behave(exchange: Exchange) -> None:
        data = exchange.data()
        data[-1]["embedding"] = [value] * exchange.server.dimensions
        exchange.send_json(data)

    return behave


def one_number_is(value: Any) -> Behaviour:
    def behave(exchange: Exchange) -> None:
        data = exchange.data()
        data[-1]["embedding"][3] = value
        exchange.send_json(data)

    return behave


def shuffled(exchange: Exchange) -> None:
    exchange.send_json(exchange.data()[::-1])


def without_index(exchange: Exchange) -> None:
    exchange.send_json([{"embedding": item["embedding"]} for item in exchange.data()])


def same_index(exchange: Exchange) -> None:
    exchange.send_json([{**item, "index": 0} for item in exchange.data()])


def enormous(exchange: Exchange) -> None:
    """Ten megabytes, until the other side has had enough."""
    try:
        exchange.send(b'{"data": [' + b" " * 10_000_000 + b"]}")
    except OSError:
        exchange.handler.close_connection = True


def reset(exchange: Exchange) -> None:
    """The connection is torn down without an answer."""
    linger = struct.pack("ii", 1, 0)
    exchange.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    exchange.handler.connection.close()
    exchange.handler.close_connection = True


@dataclass
class FakeEmbeddings:
    """Serves `good` answers, but the next ones as `then` says, or all as `always` says."""

    dimensions: int = 8
    always: Behaviour = good
    asked: list[Asked] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    _next: deque[Behaviour] = field(default_factory=deque)

    def then(self, *behaviours: Behaviour) -> None:
        self._next.extend(behaviours)

    @property
    def base_url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/v1"

    def __enter__(self) -> Self:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                content = json.loads(self.rfile.read(length))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.client_address[1], self.path, headers, content)
                fake.asked.append(asked)
                behave = fake._next.popleft() if fake._next else fake.always
                try:
                    behave(Exchange(self, fake, asked))
                except OSError:
                    self.close_connection = True

            def finish(self) -> None:
                try:
                    super().finish()
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                """Tests are quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that give up are what is being tested."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
