"""A server as tests meet it: in a thread, with its parts in hand, or as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import http.client
import io
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import apsw
import pytest
from starlette.routing import Route
from starlette.types import ASGIApp

import postgres_engine
from commonplace.access.caller import ALL_SCOPES, Caller
from commonplace.access.credentials import Grant
from commonplace.dialects import registry
from commonplace.dialects.contract import Dialect, RequestInfo
from commonplace.engine.history import audit
from commonplace.server import serving
from commonplace.server.calls import AdmittedRequest, Workers
from commonplace.server.door import Door
from commonplace.server.gate import Gate
from commonplace.server.http import ApplicationParts
from commonplace.server.observing import JsonLines, TextLines, quieten_libraries
from commonplace.server.pipes import Pipes, open_lines
from commonplace.server.protocol import build_server
from commonplace.server.refusals import Refusals
from commonplace.server.settings import Settings

VECTORS = Path(__file__).parent / "vectors"
MCP = "/mcp/commonplace"
OLD, NEW = "2025-11-25", "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def vectors(name: str) -> Any:
    """A table of this folder."""
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


def matrix(section: str) -> dict[str, Any]:
    """The rows of every dialect: `tests/dialects/NAME/matrix.json`, and the server's own.

    `operations` are by dialect and name, `routes` by path. A route without a row gets one that says
    only what its declaration says.
    """
    own = vectors("server.json")[section]
    rows = {name: _rows(name)[section] for name in registry.names()}
    if section == "operations":
        return {**rows, "server": own}
    merged = dict(own)
    for name, given in rows.items():
        merged |= {**_declared(registry.load(name)), **given}
    return merged


def _rows(dialect: str) -> dict[str, Any]:
    file = VECTORS.parents[1] / "dialects" / dialect / "matrix.json"
    rows: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return rows


def _declared(dialect: Dialect) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for route in dialect.rest.routes if dialect.rest else ():
        for path in route.paths:
            if route.method != "WEBSOCKET":
                row = found.setdefault(
                    path, {"methods": [], "sample": re.sub(r"{\w+}", "$id", path)}
                )
                row["methods"].append(route.method)
                row["public"] = route.public
    if dialect.rest is not None and dialect.rest.openapi is not None:
        found[dialect.rest.openapi.path] = {"public": True}
    return found


@dataclass(frozen=True)
class Answer:
    """What came back over the wire."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def result(self) -> Any:
        """The `structuredContent` of a call that went well."""
        assert self.status == 200, self.body
        told = self.json["result"]
        assert not told["isError"], told
        return told["structuredContent"]

    @property
    def error(self) -> str:
        """The text of a call that did not."""
        told = self.json["result"]
        assert told["isError"], told
        return str(told["content"][0]["text"])


def message(
    tool: str,
    arguments: Any,
    *,
    identity: Any = 1,
    era: str = OLD,
    key: str | None = None,
) -> dict[str, Any]:
    """A `tools/call`, as a client of either era sends it."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    meta = dict(_META) if era == NEW else {}
    if key is not None:
        meta["commonplace/idempotency-key"] = key
    if meta:
        params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}


def headers_of(era: str, method: str, name: str = "") -> dict[str, str]:
    """What a client of that era says beside the body."""
    headers = {"mcp-protocol-version": era}
    if era == NEW:
        headers["mcp-method"] = method
        if name:
            headers["mcp-name"] = name
    return headers


Request = tuple[str, str, Any, Mapping[str, str]]
"""Method, path, body and headers."""


def calling(
    tool: str,
    arguments: Any = None,
    *,
    era: str = OLD,
    identity: Any = 1,
    key: str | None = None,
    meta_key: str | None = None,
    path: str = MCP,
    headers: Mapping[str, str] | None = None,
) -> Request:
    """The request of a `tools/call`."""
    sent = {**headers_of(era, "tools/call", tool), **(headers or {})}
    if key is not None:
        sent["idempotency-key"] = key
    body = message(tool, arguments or {}, identity=identity, era=era, key=meta_key)
    return "POST", path, body, sent


class Wire:
    """HTTP over one socket, written and read by hand: http.client takes longer than the server."""

    def __init__(self, port: int, timeout: float) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._from = self._socket.makefile("rb")
        self._host = f"127.0.0.1:{port}"

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, Any]
    ) -> tuple[Answer, bool]:
        """The answer, and whether another request can follow; a stream's is without its body."""
        sent = {"host": self._host, "accept-encoding": "identity", **headers}
        if "transfer-encoding" not in sent and (body or method in ("POST", "PUT", "PATCH")):
            sent["content-length"] = str(len(body or b""))
        lines = [f"{method} {path} HTTP/1.1".encode("ascii")]
        lines += [name.encode("ascii") + b": " + _bytes(value) for name, value in sent.items()]
        assert not any(b"\r" in line or b"\n" in line for line in lines), lines
        self._socket.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + (body or b""))
        status, told = self._head()
        while status < 200:
            status, told = self._head()
        known = {name.lower(): value for name, value in told}
        stays = known.get("connection", "").lower() != "close"
        if known.get("content-type", "").startswith("text/event-stream"):
            return Answer(status, told, b""), False
        if method == "HEAD" or status in (204, 304):
            return Answer(status, told, b""), stays
        if known.get("transfer-encoding", "").lower() == "chunked":
            return Answer(status, told, self._chunks()), stays
        if "content-length" in known:
            return Answer(status, told, self._exactly(int(known["content-length"]))), stays
        return Answer(status, told, self._from.read()), False

    def closed_by_peer(self) -> bool:
        """Whether the server has ended the connection, as it does with one that is long idle."""
        waiting = select.poll()  # select() knows only 1,024 files
        waiting.register(self._socket, select.POLLIN)
        readable = waiting.poll(0)
        return bool(readable) and self._socket.recv(1, socket.MSG_PEEK) == b""

    def _head(self) -> tuple[int, list[tuple[str, str]]]:
        first = self._from.readline()
        if not first:
            raise http.client.RemoteDisconnected("there is no answer")
        version, number = first.split(b" ", 2)[:2]
        if version != b"HTTP/1.1" or len(number) != 3 or not first.endswith(b"\r\n"):
            raise http.client.BadStatusLine(first.decode("latin-1"))
        headers = []
        while (line := self._line()) != b"":
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or name != name.strip():
                raise http.client.HTTPException(f"{line!r} is no header")
            headers.append((name, value.strip(" \t")))
        return int(number), headers

    def _line(self) -> bytes:
        line = self._from.readline()
        if not line.endswith(b"\r\n"):
            raise http.client.IncompleteRead(line)
        return line[:-2]

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self._line().partition(b";")[0], 16):
            parts.append(self._exactly(size))
            self._line()
        self._line()
        return b"".join(parts)

    def _exactly(self, size: int) -> bytes:
        read = self._from.read(size)
        if len(read) < size:
            raise http.client.IncompleteRead(read, size - len(read))
        return read

    def close(self) -> None:
        self._from.close()
        self._socket.close()


class Client:
    """One caller over HTTP, on one connection."""

    def __init__(self, port: int, token: str | None = None, path: str = MCP) -> None:
        self.port = port
        self.token = token
        self.path = path
        self.headers: dict[str, str] = {}
        """Sent with every request; those of a browser that has signed in, for example."""
        self._wire: Wire | None = None

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = 30,
    ) -> Answer:
        body, sent = self._written(body, headers or {})
        if self._wire is not None and self._wire.closed_by_peer():
            self.close()
        if self._wire is None:
            self._wire = Wire(self.port, timeout)
        try:
            told, stays = self._wire.ask(method, path, body, sent)
        except BaseException:
            self.close()
            raise
        if not stays:
            self.close()
        return told

    def _written(self, body: Any, headers: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
        """A body and the headers as they are sent."""
        sent = {"accept": "application/json, text/event-stream", "user-agent": "tests/1"}
        if body is not None:
            sent["content-type"] = "application/json"
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        if self.token is not None:
            sent["authorization"] = f"Bearer {self.token}"
        return body, {**sent, **self.headers, **headers}

    def each(self, requests: Iterable[Request]) -> list[Answer]:
        """The answers to some requests, made one after the other."""
        return [self.request(*one) for one in requests]

    def call(
        self, tool: str, arguments: Any = None, *, path: str | None = None, **how: Any
    ) -> Answer:
        return self.request(*calling(tool, arguments, path=path or self.path, **how))

    def listed(self, era: str = OLD, path: str | None = None) -> list[dict[str, Any]]:
        """What `tools/list` shows."""
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        if era == NEW:
            body["params"] = {"_meta": _META}
        answer = self.request("POST", path or self.path, body, headers_of(era, "tools/list"))
        assert answer.status == 200, answer.body
        tools: list[dict[str, Any]] = answer.json["result"]["tools"]
        return tools

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


class Direct(Client):
    """One caller without a socket: the server's own application, called in the server's own loop.

    All that decides about a request or acts on it is the same: the door, the limits, the protocol,
    the gate. Only the reading and writing of HTTP is left out, at both ends.
    """

    def __init__(
        self, port: int, token: str | None, path: str, app: ASGIApp, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(port, token, path)
        self._app, self._loop = app, loop

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = 30,
    ) -> Answer:
        return self._in_loop([(method, path, body, headers or {})], timeout)[0]

    def each(self, requests: Iterable[Request]) -> list[Answer]:
        return self._in_loop(list(requests), 300)

    def _in_loop(self, requests: list[Request], timeout: float) -> list[Answer]:
        async def answers() -> list[Answer]:
            return [await self._answer(*one) for one in requests]

        return asyncio.run_coroutine_threadsafe(answers(), self._loop).result(timeout)

    async def _answer(
        self, method: str, target: str, body: Any, headers: Mapping[str, str]
    ) -> Answer:
        content, sent = self._written(body, headers)
        sent = {"host": f"127.0.0.1:{self.port}", "accept-encoding": "identity", **sent}
        if content is not None:
            sent["content-length"] = str(len(content))
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": ("127.0.0.1", self.port),
            "client": ("127.0.0.1", 1),
            "scheme": "http",
            "method": method,
            "root_path": "",
            "path": unquote(path),
            "raw_path": path.encode("ascii"),
            "query_string": query.encode("ascii"),
            "headers": [(key.lower().encode(), _bytes(value)) for key, value in sent.items()],
            "state": {},
        }
        waiting = [{"type": "http.request", "body": content or b"", "more_body": False}]
        over = asyncio.Event()
        status, told, parts = 0, [], []

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status, told
            if message["type"] == "http.response.start":
                status = message["status"]
                told = [(key.decode(), text.decode("latin-1")) for key, text in message["headers"]]
                if dict(told).get("content-type", "").startswith("text/event-stream"):
                    over.set()  # it has no end; whoever asked has seen enough
            elif not over.is_set():
                parts.append(message.get("body", b""))
                if not message.get("more_body"):
                    over.set()

        await self._app(scope, receive, send)
        return Answer(status, told, b"" if method == "HEAD" else b"".join(parts))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("latin-1")


class Older:
    """A client of the oldest transport: a stream of events, and posts beside it."""

    def __init__(self, port: int, token: str | None = None, path: str = MCP) -> None:
        self._posts = Client(port, token)
        self._stream = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        sent = {"accept": "text/event-stream"}
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        self._stream.request("GET", path, headers=sent)
        self._answer = self._stream.getresponse()
        assert self._answer.status == 200, self._answer.read()
        kind, self.endpoint = self.event()
        assert kind == "endpoint"
        hello = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "older", "version": "1"},
        }
        self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        self.event()
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def event(self) -> tuple[str, str]:
        """The next event of the stream."""
        kind = ""
        while True:
            line = self._answer.readline().decode().rstrip("\r\n")
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                return kind, line[6:]
            elif not line and self._answer.closed:
                raise EOFError

    def send(self, body: Any) -> Answer:
        return self._posts.request("POST", self.endpoint, body)

    def call(self, tool: str, arguments: Any, *, identity: Any = 1) -> Any:
        """The JSON-RPC answer, or the HTTP answer of a post that was not accepted."""
        answer = self.send(message(tool, arguments, identity=identity))
        if answer.status != 202:
            return answer
        return json.loads(self.event()[1])

    def close(self) -> None:
        self._posts.close()
        self._answer.close()
        self._stream.close()


class Stdio:
    """A client at the other end of two pipes; who calls is given, as the command line gives it."""

    def __init__(
        self, gate: Gate, dialect: Dialect, caller: Caller, seconds: float = 30, era: str = OLD
    ) -> None:
        theirs, ours = os.pipe()
        back, answers = os.pipe()
        self._to = os.fdopen(ours, "wb")
        self._from = os.fdopen(back, encoding="utf-8")
        ends = os.fdopen(theirs, "rb"), os.fdopen(answers, "w", encoding="utf-8")
        self._thread = threading.Thread(
            target=self._serve, args=(gate, dialect, caller, seconds, *ends)
        )
        self._thread.start()
        if era == NEW:  # which has no handshake; the first request decides
            listing = {"_meta": dict(_META)}
            self.ask({"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": listing})
            return
        hello = {
            "protocolVersion": OLD,
            "capabilities": {},
            "clientInfo": {"name": "pipes", "version": "1"},
        }
        self.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    @staticmethod
    def _serve(
        gate: Gate, dialect: Dialect, caller: Caller, seconds: float, incoming: Any, outgoing: Any
    ) -> None:
        from mcp.server.stdio import stdio_server

        async def run() -> None:
            workers = Workers(gate, seconds)
            local = AdmittedRequest(caller, RequestInfo(session="stdio-test"))
            server = build_server(dialect, workers)
            async with (
                open_lines(incoming) as heard,
                stdio_server(heard, anyio.wrap_file(outgoing)) as pair,
            ):
                pipes = Pipes(*pair, dialect, Refusals(gate, workers), local, seconds)
                await pipes.serve(server)
            workers.close()

        with incoming, outgoing:
            asyncio.run(run())

    def tell(self, body: Any) -> None:
        """Send a message, or the bytes of a line."""
        line = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._to.write(line + b"\n")
        self._to.flush()

    def ask(self, body: Any) -> Any:
        self.tell(body)
        return json.loads(self._from.readline())

    def call(self, tool: str, arguments: Any, **how: Any) -> Any:
        return self.ask(message(tool, arguments, **how))

    def close(self) -> None:
        self._to.close()
        self._thread.join(10)
        self._from.close()


@dataclass
class Running:
    """A server in a thread."""

    settings: Settings
    parts: ApplicationParts
    door: Door
    loop: asyncio.AbstractEventLoop
    log: Log
    _clients: list[Any] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.settings.port

    @property
    def gate(self) -> Gate:
        return self.door._gate

    def client(self, token: str | None = None, path: str = MCP) -> Client:
        client = Client(self.port, token, path)
        self._clients.append(client)
        return client

    def direct(self, token: str | None = None, path: str = MCP) -> Direct:
        return Direct(self.port, token, path, self.door, self.loop)

    def older(self, token: str | None = None, path: str = MCP) -> Older:
        client = Older(self.port, token, path)
        self._clients.append(client)
        return client

    def stdio(self, caller: Caller, dialect: str = "commonplace", era: str = OLD) -> Stdio:
        client = Stdio(self.gate, registry.load(dialect), caller, self.settings.call_seconds, era)
        self._clients.append(client)
        return client

    def token(self, space: str = "default", scopes: Any = ALL_SCOPES, **grant: Any) -> str:
        """A new token."""
        scopes = frozenset(scopes)
        made = self.parts.tokens.credentials.create(Grant(space=space, scopes=scopes, **grant))
        return made.token

    def signed_in(self, client: Client, **fields: str) -> Client:
        """The client as a browser that signs in by a name and password, or by a token."""
        origin = {"origin": f"http://127.0.0.1:{self.port}"}
        answer = self.client().request("POST", "/sign-in", fields, origin)
        assert answer.status == 200, answer.body
        cookie = (answer.header("set-cookie") or "").partition(";")[0]
        csrf = answer.json["csrf_token"]
        client.headers = {**origin, "cookie": cookie, "x-csrf-token": csrf}
        return client

    def routes(self) -> list[str]:
        """Every path there is."""
        return [route.path for route in self.door._app.routes if isinstance(route, Route)]

    def calls(self, space: str = "default", **conditions: Any) -> list[audit.Call]:
        """The audited calls of a space, the newest first; `system` for those of none."""
        if space == "system":
            return audit.listing(self.parts.system, limit=1000, **conditions)
        with self.parts.library.lease(space) as opened:
            return audit.listing(opened.store, limit=1000, **conditions)

    def verdict(self, space: str = "default") -> audit.Verdict:
        with self.parts.library.lease(space) as opened:
            return audit.verify(opened.store)

    def file(self, space: str) -> Any:
        """Where the rows of a space are, for `content_of`: its file, or its place in a database."""
        library = self.parts.library
        if library.database is not None:
            return postgres_engine.Place(library.database, space)
        return library.file(space)


@contextlib.contextmanager
def running(
    data: Path, prepare: Callable[[serving.OpenServer], None] | None = None, **options: Any
) -> Iterator[Running]:
    """A server on loopback; without limits on rates unless some are given."""
    given = {"port": 0, "embedding": "none", "rate": 1e6, "burst": 1_000_000, **options}
    with (
        capture() as log,
        pytest.MonkeyPatch.context() as environment,
        serving.open_server(_unhurried(environment, Settings.load({}, data=data, **given))) as made,
    ):
        assert isinstance(made.app, Door)
        if prepare is not None:
            prepare(made)
        server = serving.StoppableServer(made.app)
        loop = asyncio.new_event_loop()

        def serve() -> None:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(server.serve(sockets=[made.listening]))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        one = Running(made.settings, made.parts, made.app, loop, log)
        try:
            wait_until(lambda: server.started)
            yield one
        finally:
            server.should_exit = True
            thread.join(20)
            for client in one._clients:
                client.close()
            assert not thread.is_alive(), "the server does not stop"


def _unhurried(environment: pytest.MonkeyPatch, settings: Settings) -> Settings:
    """The settings, once the one contract with a rate of its own has none either."""
    environment.setenv("COMMONPLACE_PENFIELD_RATE", "1000000")
    return settings


@contextlib.contextmanager
def capture() -> Iterator[Log]:
    """Everything that is logged, in both forms.

    Whoever else listens, as pytest does for its reports, hears of what went wrong alone: a line
    for each of thousands of requests, written twice, is what many a test would spend most on.
    """
    log = Log()
    root = logging.getLogger()
    level, others = root.level, {other: other.level for other in root.handlers}
    root.setLevel(logging.INFO)
    quieten_libraries()
    for other in others:
        other.setLevel(max(other.level, logging.WARNING))
    root.addHandler(log)
    try:
        yield log
    finally:
        root.setLevel(level)
        root.removeHandler(log)
        for other, before in others.items():
            other.setLevel(before)


class Log(logging.Handler):
    """What is logged, to be read as the server can write it: as JSON, and as text."""

    def __init__(self) -> None:
        super().__init__()
        self._records: list[tuple[logging.LogRecord, contextvars.Context]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append((record, contextvars.copy_context()))  # formatted if it is asked for

    def getvalue(self) -> str:
        """All of it, each record in both forms."""
        forms = JsonLines(), TextLines()
        return "".join(
            f"{context.run(form.format, record)}\n"
            for record, context in self._records
            for form in forms
        )


class Process:
    """`commonplace serve` as a process of its own."""

    def __init__(
        self,
        data: Path,
        *options: str,
        environ: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "commonplace.cli"),
    ) -> None:
        settings = ["serve", "--data", str(data), "--embedding", "none", "--log", "json"]
        if "--port" not in options:
            settings += ["--port", "0"]
        # A file: a server waits as soon as a pipe that nobody reads is full of its log.
        self._log = tempfile.TemporaryFile("a+", encoding="utf-8")  # noqa: SIM115 -- `end` closes it
        self.process = subprocess.Popen(
            [sys.executable, *program, *settings, *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=clean_environment(environ),
        )
        self._errors = ""

    @property
    def errors(self) -> str:
        """What it has written on stderr."""
        if not self._log.closed:
            self._log.seek(0)
            self._errors = self._log.read()
        return self._errors

    def ready(self) -> int:
        """Wait until it listens; the port."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.search(r"listening on http://\S+:(\d+)", line)
            if found:
                return int(found[1])
        raise AssertionError(self.end())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.end()
        return self.process.returncode

    def end(self, timeout: float = 25) -> str:
        """Wait for the end; what it wrote on stderr."""
        try:
            self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        errors = self.errors
        self._log.close()
        return errors

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without settings of whoever runs the tests."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if "COMMONPLACE_" not in name
        or name.startswith("COMMONPLACE_TEST_")
        or name == "COMMONPLACE_IDLE_SECONDS"
    }
    return {**kept, "USER": "tester", **(more or {})}


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def cli(*arguments: str) -> Ended:
    """Run one command to its end, in this process."""
    from commonplace.cli.app import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return Ended(code, out.getvalue(), err.getvalue())


BOOKKEEPING = ("audit", "audit_head", "counters", "answers")


def content_of(path: Path | postgres_engine.Place, without: Sequence[str] = ()) -> dict[str, str]:
    """A digest of each table of a file, or of a space's rows in each table of a database."""
    if isinstance(path, postgres_engine.Place):
        return path.content(without)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    found: dict[str, str] = {}
    try:
        connection.execute("BEGIN")
        names = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
            )
        ]
        for name in names:
            if name not in without:
                rows = sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))
                found[name] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
        connection.execute("ROLLBACK")
    finally:
        connection.close()
    return found


def wait_until(condition: Callable[[], Any], seconds: float = 15.0) -> None:
    """Look again and again; fail when it never comes true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)


# A dialect for tests: tools that are slow, faulty, large or leaky.


def _nap(call: Any, *, seconds: float, text: str = "") -> Any:
    stored = call.memory.remember(text).id if text else ""
    time.sleep(seconds)
    return {"id": stored}


HELD = threading.Barrier(21)
"""Where calls of `hold` wait: for each other, and for the test."""


def _hold(call: Any) -> Any:
    HELD.wait(30)
    return {}


def _break(call: Any, *, text: str) -> Any:
    call.memory.remember(text)
    raise ValueError(text)


def _large(call: Any, *, size: int, text: str = "") -> str:
    if text:
        call.memory.remember(text)
    around = len(json.dumps({"content": [{"type": "text", "text": ""}], "isError": False}))
    around -= 6  # the dialect writes JSON without spaces
    return "x" * (size - around)


def _peek(call: Any, *, id: str) -> Any:
    return {"text": call.memory.at("alice").get(id).text}


def _takes(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def lab() -> Dialect:
    """The dialect."""
    from commonplace.dialects.contract import Tool

    text = {"type": "string"}
    told = {"title": "Test", "description": "Only in tests."}
    return Dialect(
        name="lab",
        title="Lab",
        paths=("/mcp/lab",),
        server="lab",
        version="1",
        instructions="",
        tools=(
            Tool(
                name="nap", scope="write", handler=_nap, **told,
                input=_takes("seconds", seconds={"type": "number"}, text=text),
            ),
            Tool(name="hold", scope="read", handler=_hold, input=_takes(), **told),
            Tool(
                name="break", scope="write", handler=_break, **told,
                input=_takes("text", text=text),
            ),
            Tool(
                name="large", scope="write", handler=_large, **told,
                input=_takes("size", size={"type": "integer"}, text=text),
            ),
            Tool(name="peek", scope="read", handler=_peek, input=_takes("id", id=text), **told),
        ),
    )  # fmt: skip


@contextlib.contextmanager
def registered(dialect: Dialect) -> Iterator[None]:
    """Serve one dialect more, at /mcp/NAME."""
    import types

    package = types.ModuleType(f"served_in_tests_{dialect.name}")
    module = types.ModuleType(f"{package.__name__}.dialect")
    module.DIALECT = dialect  # type: ignore[attr-defined]
    sys.modules |= {each.__name__: each for each in (package, module)}
    found = EntryPoint(dialect.name, package.__name__, registry.ENTRY_POINT_GROUP)
    registry._entry_points()[dialect.name] = found
    try:
        yield
    finally:
        del registry._entry_points()[dialect.name]
        del sys.modules[package.__name__], sys.modules[module.__name__]
