"""The server against the SDK's own, with nothing behind it, and against another memory server."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import platform
import re
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from bench import report, speed
from bench.report import Row, Section, milliseconds, say
from commonplace import Commonplace, Draft
from commonplace.client import connection
from commonplace.engine.binding import engine_call
from commonplace.engine.maintenance import upkeep

SIZE = 10_000
CALLS, CALLS_QUICK = 300, 100
ROUNDS = 7
STARTS = 9
CLIENTS = 32
STORES = 50  # of each of many clients, in a round
LOOKS = 100
BLOCK = 20  # stores of one side before the other's turn
# What a call may take of the other memory server's, by memories stored.
TARGETS_BESIDE = {
    1_000: {"store": 0.7, "recall, query asked before": 0.7, "recall, new query": 1.5},
    5_000: {"store": 0.2, "recall, query asked before": 0.35, "recall, new query": 0.8},
}
HANDSHAKE, NEWEST = "2025-11-25", "2026-07-28"
HERE = Path(__file__).parent
ECHO = [sys.executable, str(HERE / "echo.py")]
OURS = [str(Path(sys.executable).with_name("commonplace"))]
PACKAGES = HERE.parent / "tests" / "clients" / "node_modules"
OTHER = PACKAGES / "@modelcontextprotocol" / "server-memory" / "dist" / "index.js"
_ADDRESS = re.compile(r"http://([\d.]+:\d+)")
_CLIENT = {"name": "bench", "version": "1"}


# --- processes and what they cost ----------------------------------------------------------------


def environment(**more: str) -> dict[str, str]:
    """This process's environment without settings of Commonplace; Python may write bytecode."""
    unwanted = ("PYTHONDONTWRITEBYTECODE", "COMMONPLACE_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    return {**kept, **more}


def cpu_seconds(process: subprocess.Popen[Any]) -> float:
    """Seconds of CPU that a running process has used, all threads and none of its children."""
    if sys.platform == "linux":  # MAKE_PROCESS_CPUCLOCK of the kernel: nanoseconds, not ticks
        return time.clock_gettime((~process.pid << 3) | 2)
    told = subprocess.run(
        ["ps", "-o", "time=", "-p", str(process.pid)], capture_output=True, text=True, check=True
    )
    parts = [float(part) for part in told.stdout.strip().replace("-", ":").split(":")]
    return sum(
        part * unit for part, unit in zip(reversed(parts), (1, 60, 3600, 86400), strict=False)
    )


@contextlib.contextmanager
def _running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory on the disk the project lies on, where a sync is a sync."""
    report.RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=report.RESULTS) as directory:
        yield Path(directory)


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


# --- over HTTP -----------------------------------------------------------------------------------


class _Http:
    """A server process, and one connection to it that stays open."""

    def __init__(self, process: subprocess.Popen[str], path: str) -> None:
        self.process = process
        self._path = path
        self.where = _printed_address(process.stdout)
        self._connection = http.client.HTTPConnection(self.where, timeout=60)
        self._numbers = itertools.count(1)

    def call(self, tool: str, arguments: dict[str, Any], version: str) -> dict[str, Any]:
        """Send one `tools/call` as a client of that protocol version; return its result."""
        body, headers = self._request(tool, arguments, version)
        self._connection.request("POST", self._path, body, headers)
        with self._connection.getresponse() as answer:
            return _result(answer.read())

    def request_bytes(self, tool: str, arguments: dict[str, Any]) -> bytes:
        """Return the same request as it goes over a socket."""
        body, headers = self._request(tool, arguments, HANDSHAKE)
        headers |= {"host": self.where, "content-length": str(len(body))}
        lines = [f"POST {self._path} HTTP/1.1", *(": ".join(pair) for pair in headers.items())]
        return "\r\n".join([*lines, "", body]).encode()

    def _request(
        self, tool: str, arguments: dict[str, Any], version: str
    ) -> tuple[str, dict[str, str]]:
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": version,
        }
        if version == NEWEST:
            prefix = "io.modelcontextprotocol/"
            params["_meta"] = {
                f"{prefix}protocolVersion": version,
                f"{prefix}clientInfo": _CLIENT,
                f"{prefix}clientCapabilities": {},
            }
            headers |= {"mcp-method": "tools/call", "mcp-name": tool}
        message = {
            "jsonrpc": "2.0", "id": next(self._numbers), "method": "tools/call", "params": params
        }  # fmt: skip
        return json.dumps(message), headers

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _printed_address(told: IO[str] | None) -> str:
    for line in told or ():
        if found := _ADDRESS.search(line):
            return found[1]
    raise RuntimeError("the server did not start")


def _result(body: str | bytes) -> dict[str, Any]:
    answer = json.loads(body)
    result: dict[str, Any] = answer.get("result") or {}
    if "error" in answer or result.get("isError"):
        raise RuntimeError(f"a call failed: {body!r}")
    return result


@contextlib.contextmanager
def connected_http(command: Sequence[str], path: str, **variables: str) -> Iterator[_Http]:
    with (
        _running(command, env=environment(**variables)) as process,
        contextlib.closing(_Http(process, path)) as server,
    ):
        yield server


def cpu_per_call(server: _Http, calls: Sequence[Callable[[], object]]) -> float:
    """Return the server's CPU seconds for one of the calls."""
    before = cpu_seconds(server.process)
    for call in calls:
        call()
    return (cpu_seconds(server.process) - before) / len(calls)


def measure_http(plan: speed.Plan) -> Section:
    """CPU of the server process for one call, beside a bare echo tool in the same minutes."""
    size = min(SIZE, plan.largest)
    corpus = plan.corpus.first(size)
    count = min(len(corpus.queries), 100)
    calls, rounds = (CALLS, ROUNDS) if plan.rounds > 2 else (CALLS_QUICK, 3)
    with scratch_directory() as scratch:
        data = scratch / "data"
        shutil.copytree(speed.store_of(size, corpus), data)
        with Commonplace(data) as memory:
            ids = [one.id for one in memory.browse(limit=100)[0]]
        unlimited = {"COMMONPLACE_RATE": "1000000", "COMMONPLACE_BURST": "1000000"}
        ours_command = [*OURS, "serve", "--data", str(data), "--port", "0"]
        with (
            connected_http([*ECHO, "http"], "/mcp") as echo,
            connected_http(ours_command, "/mcp/commonplace", **unlimited) as ours,
        ):
            say(f"warming {count} queries over {size:,} memories")
            queries: list[Any] = [{"query": q, "minimum": 0} for q in corpus.queries[:count]]
            for query in queries:
                found = ours.call("recall", query, NEWEST)["structuredContent"]
                assert len(found["memories"]) == 10
                assert "degraded" not in found
            rows = []
            for version in (NEWEST, HANDSHAKE):
                kinds: dict[str, tuple[_Http, str, list[Any]]] = {
                    "echo": (echo, "echo", [{"text": identity} for identity in ids]),
                    "read": (ours, "read", [{"id": identity} for identity in ids]),
                    "recall": (ours, "recall", queries),
                }
                taken: dict[str, list[float]] = {kind: [] for kind in kinds}
                for number in range(rounds + 1):
                    say(f"calls over HTTP, {version}, round {number + 1} of {rounds + 1}")
                    for kind, (server, tool, arguments) in kinds.items():
                        given = itertools.islice(itertools.cycle(arguments), calls)
                        asked = [partial(server.call, tool, each, version) for each in given]
                        taken[kind].append(cpu_per_call(server, asked))
                rows += _http_rows(version, size, {k: v[1:] for k, v in taken.items()})
    notes = [
        "CPU of the server process; both servers run at the same time, rounds in turn, medians",
        "the queries are a fixed list, asked before: their vectors come from the query cache",
        f"stateless, JSON answers, one connection, {calls} calls a round, {rounds} rounds",
        "every call of ours also commits an audit row before it answers, without a sync",
    ]
    return Section("Server over streamable HTTP", rows, notes)


def _http_rows(version: str, size: int, taken: dict[str, list[float]]) -> list[Row]:
    rows = []
    floor = statistics.median(taken["echo"])
    for kind, most in (("read", 1.5), ("recall", 5.0)):
        ratio = statistics.median(
            mine / bare for mine, bare in zip(taken[kind], taken["echo"], strict=True)
        )
        middle = statistics.median(taken[kind])
        among = f" among {size:,}" if kind == "recall" else ""
        rows.append(
            Row(
                name=f"{kind}{among}, {version}, CPU a call",
                measured=milliseconds(middle),
                against=f"SDK echo {milliseconds(floor)}",
                ratio=ratio,
                target=f"≤ {most:g}×",
                ok=ratio <= most,
                values={kind: middle, "echo": floor},
            )
        )
    return rows


def measure_many_clients(plan: speed.Plan) -> Section:
    """Stores of many clients at once, beside as many clients of a bare echo tool."""
    each, rounds = (STORES, ROUNDS) if plan.rounds > 2 else (5, 1)
    unlimited = {"COMMONPLACE_RATE": "1000000", "COMMONPLACE_BURST": "1000000"}
    texts = itertools.cycle(plan.corpus.texts)
    taken: dict[str, list[tuple[float, float]]] = {}
    with contextlib.ExitStack() as stack:
        servers = {"echo": (stack.enter_context(connected_http([*ECHO, "http"], "/mcp")), "echo")}
        for embedding in ("none", "builtin"):
            data = stack.enter_context(scratch_directory()) / "data"
            command = [*OURS, "serve", "--data", str(data), "--port", "0"]
            command += ["--embedding", embedding]
            server = stack.enter_context(connected_http(command, "/mcp/commonplace", **unlimited))
            servers[embedding] = (server, "remember")
        for number in range(rounds + 1):  # the first loads what the servers load late
            say(f"{CLIENTS} clients over HTTP, round {number} of {rounds}")
            for kind, (server, tool) in servers.items():
                given = [{"text": next(texts)} for _ in range(CLIENTS * each)]
                figures = _calls_at_once(server, tool, given)
                _wait_until_idle(server)
                if number:
                    taken.setdefault(kind, []).append(figures)
    rates, cpu = (
        {kind: statistics.median(one[at] for one in figures) for kind, figures in taken.items()}
        for at in (0, 1)
    )
    rows = [
        Row(
            name=f"{CLIENTS} clients storing, {name}",
            measured=f"{rates[kind]:,.0f}/s, CPU {milliseconds(cpu[kind])}",
            against=f"SDK echo {rates['echo']:,.0f}/s, CPU {milliseconds(cpu['echo'])}",
            ratio=rates[kind] / rates["echo"],
            target="≥ 0.5×",
            ok=rates[kind] / rates["echo"] >= 0.5,
            values={"rate": rates[kind], "floor rate": rates["echo"], "cpu": cpu[kind]},
        )
        for kind, name in (("none", "words alone"), ("builtin", "with the model"))
    ]
    notes = [
        f"{each} calls of each client in a round, {rounds} rounds in turn, medians",
        "the clients are sockets of one thread beside the server; ours is on disk when it answers",
        "CPU of the server for one call, with the embedding that had begun by then",
    ]
    return Section("Many clients of the server over HTTP", rows, notes)


def _calls_at_once(
    server: _Http, tool: str, given: Sequence[dict[str, Any]]
) -> tuple[float, float]:
    """Share the calls between many clients; return calls a second and CPU seconds for a call.

    All clients are sockets of one thread that sends requests made before and reads each answer to
    its end, so that the clients take as little as possible of what is measured.
    """
    host, _, port = server.where.rpartition(":")
    waiting = [server.request_bytes(tool, arguments) for arguments in given]
    answers: list[bytes] = []
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as ready:
        for _ in range(CLIENTS):
            client = stack.enter_context(socket.create_connection((host, int(port)), 60))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.register(client, selectors.EVENT_READ, bytearray())
        began, used = time.perf_counter(), cpu_seconds(server.process)
        for key in list(ready.get_map().values()):
            _socket_of(key).sendall(waiting.pop())
        while len(answers) < len(given):
            for key, _ in ready.select(60):
                client, received = _socket_of(key), key.data
                received += client.recv(65_536)
                if body := _whole_body(received):
                    answers.append(body)
                    received.clear()
                    if waiting:
                        client.sendall(waiting.pop())
        seconds, used = time.perf_counter() - began, cpu_seconds(server.process) - used
    for body in answers:
        _result(body)
    return len(given) / seconds, used / len(given)


def _socket_of(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


def _whole_body(received: bytearray) -> bytes:
    """Return the body of an answer, or nothing while a part of it is still to come."""
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bytes(body) if length and len(body) == int(length[1]) else b""


def _wait_until_idle(server: _Http) -> None:
    """Wait until the server has embedded what was stored, so that nobody else pays for it."""
    used = -1.0
    while cpu_seconds(server.process) - used > 0.02:
        used = cpu_seconds(server.process)
        time.sleep(0.5)


# --- over stdio ----------------------------------------------------------------------------------


class _Stdio:
    """A server that was started by its client, and the handshake with it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._in, self._out = process.stdin, process.stdout
        self._numbers = itertools.count(1)
        self.ask(
            "initialize",
            {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": _CLIENT},
        )
        self._send({"method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        self._in.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._in.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of one request."""
        self._send({"id": next(self._numbers), "method": method, "params": params})
        for line in self._out:
            if '"id"' in line:
                return _result(line)
        raise RuntimeError("the server went away")

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of one tool."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})


@contextlib.contextmanager
def connected_stdio(command: Sequence[str], **variables: str) -> Iterator[_Stdio]:
    pipes = {"stdin": subprocess.PIPE, "env": environment(**variables)}
    with _running(command, **pipes) as process:
        try:
            yield _Stdio(process)
        finally:
            process.kill()  # a client that goes away may leave a reader waiting for its input


@contextlib.contextmanager
def background_variables(data: Path) -> Iterator[dict[str, str]]:
    """Yield the environment for clients of a data directory; stop their server at the end."""
    with tempfile.TemporaryDirectory(prefix="cp-") as folder:
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = folder
        try:
            yield {"XDG_RUNTIME_DIR": folder}
        finally:
            connection.ask(connection.place_of(str(data)), {"kind": "stop"})
            if before is None:
                del os.environ["XDG_RUNTIME_DIR"]
            else:
                os.environ["XDG_RUNTIME_DIR"] = before


def server_pid(data: Path) -> int:
    """The process of the server that runs."""
    answer = connection.ask(connection.place_of(str(data)), {"kind": "status"})
    assert answer is not None
    return int(answer["pid"])


def cpu_seconds_of_pid(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    return time.clock_gettime((~pid << 3) | 2)


def cpu_to_first_answer(
    command: Sequence[str], tool: str, arguments: dict[str, Any], **variables: str
) -> float:
    """Return the CPU seconds of a new process until its first tool call is answered."""
    with connected_stdio(command, **variables) as server:
        server.call(tool, arguments)
        return cpu_seconds(server.process)


def measure_cold_start(plan: speed.Plan) -> Section:
    """A client starts the server and calls one tool that needs no embedding."""
    starts = max(STARTS if plan.rounds > 2 else 3, 1)
    with scratch_directory() as scratch:
        data = scratch / "data"
        with Commonplace(data, embedding="none") as memory:
            identity = memory.remember("The heron nests by the weir.").id
        command = [*OURS, "mcp", "--data", str(data), "--in-process"]
        mine, bare = [], []
        for number in range(starts + 1):  # the first compiles what is not compiled yet
            say(f"cold start {number} of {starts}")
            bare.append(cpu_to_first_answer([*ECHO, "stdio"], "echo", {"text": identity}))
            mine.append(cpu_to_first_answer(command, "read", {"id": identity}))
    ratio = statistics.median(m / b for m, b in zip(mine[1:], bare[1:], strict=True))
    middle, floor = statistics.median(mine[1:]), statistics.median(bare[1:])
    row = Row(
        name="commonplace mcp --in-process to the first answer, CPU",
        measured=milliseconds(middle),
        against=f"SDK echo {milliseconds(floor)}",
        ratio=ratio,
        target="≤ 1.3×",
        ok=ratio <= 1.3,
        values={"commonplace": middle, "echo": floor},
    )
    notes = [f"initialize, then read; bytecode is compiled; medians of {starts} starts in turn"]
    return Section("Server started over stdio", [row], notes)


# --- beside another memory server ----------------------------------------------------------------


@contextlib.contextmanager
def _our_server(scratch: Path, texts: Sequence[str]) -> Iterator[_Stdio]:
    """Run our pipe and its server with the built-in model, over a filled and embedded space."""
    data = scratch / "ours"
    with Commonplace(data, embedding="builtin") as memory:
        memory.remember_many([Draft(text=text) for text in texts])
        engine_call(memory, upkeep.embed_all)
    command = [*OURS, "mcp", "--data", str(data), "--embedding", "builtin"]
    with background_variables(data) as variables, connected_stdio(command, **variables) as server:
        server.call("recall", {"query": "warm"})
        yield server


def _entity(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "entityType": "note", "observations": [text]}


@contextlib.contextmanager
def _their_server(scratch: Path, texts: Sequence[str]) -> Iterator[_Stdio]:
    file = scratch / "memory.jsonl"
    lines = [
        json.dumps({"type": "entity", **_entity(f"memory {number}", text)})
        for number, text in enumerate(texts)
    ]
    file.write_text("\n".join(lines))
    with connected_stdio([node_program(), str(OTHER)], MEMORY_FILE_PATH=str(file)) as server:
        yield server


def _medians_beside(
    scratch: Path, texts: Sequence[str], more: Sequence[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the medians of one call of each kind, ours and theirs, over the same texts.

    The two servers are called in turn.

    Stores take turns in blocks, after a sync of the disk: a sync of ours would otherwise also wait
    for the file that theirs has just rewritten and left in the cache of the system.
    """
    taken: list[dict[str, list[float]]] = [{}, {}]

    def timed(side: int, what: str, call: Callable[[], object]) -> None:
        taken[side].setdefault(what, []).append(_timed(call))

    def found(server: _Stdio, query: str) -> None:
        answer = server.call("recall", {"query": query, "minimum": 0})
        assert answer["structuredContent"]["memories"]

    with _our_server(scratch, texts) as ours, _their_server(scratch, texts) as theirs:
        for start in range(0, len(more), BLOCK):
            block = more[start : start + BLOCK]
            os.sync()
            for text in block:
                timed(0, "store", partial(ours.call, "remember", {"text": text}))
            os.sync()
            for number, text in enumerate(block, start):
                entity = _entity(f"new memory {number}", text)
                timed(1, "store", partial(theirs.call, "create_entities", {"entities": [entity]}))
        for text in more:
            # Theirs looks for the query as a part of a text, so it is asked for one word.
            query = " ".join(sorted(text.rstrip(".").lower().split(), key=len)[-4:])
            timed(0, "recall, new query", partial(found, ours, query))
            timed(0, "recall, query asked before", partial(found, ours, query))
            timed(1, "recall", partial(theirs.call, "search_nodes", {"query": query.split()[0]}))
        for number, text in enumerate(more):
            again = f"{text} {number}"
            timed(0, "then store", partial(ours.call, "remember", {"text": again}))
            timed(0, "then recall", partial(found, ours, f"which is {text.lower()}"))
    mine, other = ({k: statistics.median(v) for k, v in side.items()} for side in taken)
    return mine, other


def node_program() -> str:
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "")
    there = PACKAGES / f"node-{sys.platform}-{machine}" / "bin" / "node"
    return str(there) if there.exists() else "node"


def measure_beside(plan: speed.Plan) -> Section:
    """The same calls to the official memory server and to ours, in turn."""
    title = "Beside @modelcontextprotocol/server-memory, over stdio, with the model"
    if not OTHER.exists():
        say("the other memory server is left out: make tests/clients/node_modules/.installed")
        return Section(title, [], ["left out: its npm package is not installed"])
    rows = []
    for size, targets in TARGETS_BESIDE.items():
        if size + LOOKS > plan.largest:
            continue
        say(f"calls beside the other memory server, {size:,} memories in each")
        with scratch_directory() as scratch:
            texts = plan.corpus.texts
            mine, other = _medians_beside(scratch, texts[:size], texts[size : size + LOOKS])
        for what, target in targets.items():
            theirs = other[what.split(",")[0]]
            rows.append(
                Row(
                    name=f"{what}, {size:,} memories, p50",
                    measured=milliseconds(mine[what]),
                    against=f"server-memory {milliseconds(theirs)}",
                    ratio=mine[what] / theirs,
                    target=f"≤ {target:g}×".replace("0.", "."),
                    ok=mine[what] / theirs <= target,
                    values={"commonplace": mine[what], "server-memory": theirs},
                )
            )
        both = mine["then store"] + mine["then recall"]
        rows.append(
            Row(
                name=f"store and at once recall by a new query, {size:,} memories, sum of p50",
                measured=milliseconds(both),
                values={"commonplace": both},
            )
        )
    notes = [
        f"{LOOKS} calls of each kind in turn, stores in blocks of {BLOCK} after a sync; "
        "ours is on disk when it answers, "
        "theirs rewrites its file unsynced",
        "theirs finds parts of words, ours words and meaning",
    ]
    return Section(title, rows, notes)


PARTS: dict[str, Callable[[speed.Plan], Section]] = {
    "server-http": measure_http,
    "server-clients": measure_many_clients,
    "server-cold": measure_cold_start,
    "server-beside": measure_beside,
}
