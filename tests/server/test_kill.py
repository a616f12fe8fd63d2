"""R1 through the server: what a client saw acknowledged outlives any kill; and stops in order."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.server import serving
from commonplace.storage.system import open_system
from server.harness import (
    MCP,
    Client,
    Older,
    Process,
    clean_environment,
    message,
    running,
    wait_until,
)

CLIENTS = 32
V1 = Path(__file__).parent.parent / "fixtures" / "v1.db.gz"


class Writers:
    """Clients that write until the server is gone, and note what was acknowledged."""

    def __init__(self, port: int, run: int, clients: int = CLIENTS) -> None:
        self.acknowledged: dict[str, str] = {}
        self.odd: list[str] = []
        self._port, self._run = port, run
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    def _write(self, number: int) -> None:
        client = Client(self._port)
        written = 0
        while True:
            text = f"run {self._run} client {number} line {written}"
            try:
                answer = client.call("remember", {"text": text}, identity=1)
            except OSError:
                break
            except Exception as error:  # half an answer
                if type(error).__module__ != "http.client":
                    self.odd.append(repr(error))
                break
            if answer.status != 200:
                self.odd.append(repr(answer))
                break
            self.acknowledged[answer.result["id"]] = text
            written += 1
        client.close()

    def join(self) -> dict[str, str]:
        for thread in self._threads:
            thread.join(30)
        assert self.odd == []
        return self.acknowledged


def check(data: Path, acknowledged: dict[str, str]) -> int:
    """Everything acknowledged is there, and has its row; the chain is whole."""
    with Commonplace(data, embedding="none") as memory, lease(memory) as space:
        for identity, text in acknowledged.items():
            assert memory.get(identity, count=False).text == text
        verdict = audit.verify(space.store)
        assert verdict.faults == ()
        with space.store.read() as connection:
            rows = connection.execute("SELECT count(*) FROM audit WHERE success = 1").fetchone()
        stored = memory.browse(limit=1)[1]
        assert rows == (stored,)  # neither an effect without a row nor a row without its effect
        return stored


def test_a_killed_server_loses_nothing_that_a_client_saw_acknowledged(data: Path) -> None:
    acknowledged: dict[str, str] = {}
    for run in range(2):
        with Process(data) as server:
            writers = Writers(server.ready(), run)
            wait_until(lambda writers=writers: len(writers.acknowledged) > 150, 20)
            server.kill()
            acknowledged |= writers.join()
        assert check(data, acknowledged) >= len(acknowledged)
    assert len(acknowledged) > 100


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_asked_to_stop_finishes_what_it_began(data: Path, number: int) -> None:
    with Process(data) as server:
        port = server.ready()
        idle, stream = Client(port), Older(port)
        assert idle.request("GET", "/health").status == 200
        writers = Writers(port, 0, clients=8)
        wait_until(lambda: len(writers.acknowledged) > 20, 20)
        begun = time.monotonic()
        code = server.stop(number)
        seconds = time.monotonic() - begun
        acknowledged = writers.join()
        idle.close()
        assert stream._answer.read().strip() == b""  # it has an end, and is not cut off
        stream.close()
    assert code == 0, server.errors
    assert seconds < 15
    assert "all acknowledged calls are stored" in server.errors
    assert "Traceback" not in server.errors
    assert '"level": "error"' not in server.errors
    assert len(acknowledged) > 20
    check(data, acknowledged)


def test_a_second_signal_does_not_wait_and_still_ends_in_order(data: Path) -> None:
    with Process(data) as server:
        writers = Writers(server.ready(), 0, clients=8)
        wait_until(lambda: len(writers.acknowledged) > 20, 20)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        code = server.stop(signal.SIGINT)
        acknowledged = writers.join()
    assert code == 0, server.errors
    assert "all acknowledged calls are stored" in server.errors
    assert "Traceback" not in server.errors
    assert '"level": "error"' not in server.errors
    check(data, acknowledged)


@pytest.mark.parametrize("path", ["/mcp", MCP])
def test_a_stop_does_not_wait_for_open_streams_and_ends_them(data: Path, path: str) -> None:
    with running(data) as server:
        streams = [server.older(path=path) for _ in range(3)]
        assert "result" in streams[0].call("remember", {"text": "x"})
        begun = time.monotonic()
    assert time.monotonic() - begun < serving.DRAIN_SECONDS / 2
    for word in ("without completing", "Cancel ", "Exception", "request failed"):
        assert word not in server.log.getvalue()


def test_a_directory_of_an_older_release_is_served(data: Path) -> None:
    file = data / "spaces" / "default.db"
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.decompress(V1.read_bytes()))
    with running(data) as server:
        client = server.client()
        assert client.call("recall", {"query": "Ann tea"}).result["memories"]
        assert client.call("remember", {"text": "new"}, key="k").result["id"]
        assert len(server.calls()) == 2
        assert server.verdict().faults == ()
    assert list(file.parent.glob("default.before-*.db"))


class Mcp:
    """`commonplace mcp` as a client starts it."""

    def __init__(self, data: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "commonplace.cli", "mcp", "--data", str(data),
             "--embedding", "none", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=clean_environment(),
        )  # fmt: skip

    def ask(self, body: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(body) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline()) if "id" in body else None

    def hello(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": {},
                  "clientInfo": {"name": "desk", "version": "2"}}  # fmt: skip
        self.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.ask({"jsonrpc": "2.0", "method": "notifications/initialized"})


def test_a_stdio_server_stops_in_order_however_it_is_asked(data: Path) -> None:
    ways = ["SIGTERM", "SIGINT", "read only"]
    started = {way: Mcp(data, *(["--read-only"] if way == "read only" else [])) for way in ways}
    told: dict[str, tuple[int, str, float]] = {}
    try:
        for way, mcp in started.items():
            mcp.hello()
            answer = mcp.ask(message("remember", {"text": way}, identity=1))
            if way == "read only":
                assert answer["error"]["code"] == -32003
            else:
                assert answer["result"]["isError"] is False
        for way, mcp in started.items():
            begun = time.monotonic()
            if way.startswith("SIG"):
                mcp.process.send_signal(getattr(signal, way))
            else:
                assert mcp.process.stdin is not None
                mcp.process.stdin.close()
            code = mcp.process.wait(15)
            assert mcp.process.stderr is not None
            told[way] = code, mcp.process.stderr.read(), time.monotonic() - begun
    finally:
        for mcp in started.values():
            mcp.process.kill()
            mcp.process.wait()
            for pipe in (mcp.process.stdin, mcp.process.stdout, mcp.process.stderr):
                assert pipe is not None
                pipe.close()
    for way, (code, errors, seconds) in told.items():
        assert code in ((0, 130) if way == "SIGINT" else (0,)), (way, code, errors)
        assert "Traceback" not in errors, (way, errors)
        assert seconds < 8, way
    with Commonplace(data, embedding="none") as memory, lease(memory) as space:
        assert {one.text for one in memory.browse()[0]} == set(ways) - {"read only"}
        calls = audit.listing(space.store)
        assert len(calls) == 3
        assert {call.caller for call in calls} == {"tester"}
        assert {call.client for call in calls} == {"desk 2"}
        assert all(call.session.startswith("stdio-") for call in calls)
        assert audit.verify(space.store).faults == ()
    with closing(open_system(data)) as system:
        assert audit.listing(system) == []
