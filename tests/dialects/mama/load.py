"""Loads on a server of its own: what was answered, and how much memory it took."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from commonplace import Commonplace
from commonplace.dialects.mama.platform import cron, runs
from commonplace.dialects.mama.platform.files import records
from conftest import wait_until
from dialects.orchestrator.fake_model import FakeModel
from server.harness import Process

# In a process of its own, which does not wait for the many threads of a load.
ASKING = """
import http.client, json, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
while True:
    time.sleep(0.05)
    try:
        begun = time.monotonic()
        connection.request("GET", "/health")
        assert json.load(connection.getresponse())["status"] == "ok"
        print(time.monotonic() - begun, flush=True)
    except Exception as error:
        print(repr(error), flush=True)
        connection.close()
"""


class Busy:
    """A server under load, whose /health is asked all the time."""

    def __init__(self, data: Path, server: Process, model: FakeModel) -> None:
        self.data = data
        self.url = f"http://127.0.0.1:{server.ready()}"
        self.model = model
        self.seconds: list[float] = []
        """How long each answer of /health took."""
        self.failures: list[str] = []
        self._server = server
        self._asking = subprocess.Popen(
            [sys.executable, "-c", ASKING, self.url.rpartition(":")[2]],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read_answers)
        self._reader.start()

    def _read_answers(self) -> None:
        """Read how long each answer of /health took, or what went wrong."""
        assert self._asking.stdout is not None
        for line in self._asking.stdout:
            try:
                self.seconds.append(float(line))
            except ValueError:
                self.failures.append(line)

    def health(self) -> str:
        """How long /health took: the middle, one of a hundred, and the longest."""
        taken = sorted(1000 * each for each in self.seconds)
        middle, high = (taken[int(len(taken) * share)] for share in (0.5, 0.99))
        return f"{len(taken)} answers in {middle:.0f}, {high:.0f} and at most {taken[-1]:.0f} ms"

    def megabytes(self) -> int:
        """The most memory that the server has had."""
        text = Path(f"/proc/{self._server.process.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) // 1024

    def stop(self) -> None:
        self._asking.kill()
        self._asking.wait()
        self._reader.join(60)
        if self._asking.stdout is not None:
            self._asking.stdout.close()
        self._server.kill()


@contextlib.contextmanager
def busy(data: Path) -> Iterator[Busy]:
    """A server with a model on loopback; /health must answer throughout."""
    with FakeModel() as model:
        environ = {
            "COMMONPLACE_LLM_PROVIDER": "openai", "COMMONPLACE_LLM_OPENAI_URL": model.url,
            "COMMONPLACE_LLM_MODEL": "gpt-4o-mini", "COMMONPLACE_RATE": "1000000",
            "COMMONPLACE_BURST": "1000000",
        }  # fmt: skip
        with Process(data, environ=environ) as server:
            made = Busy(data, server, model)
            try:
                yield made
            finally:
                made.stop()
            assert made.failures == [] and made.seconds


def jobs_due_at_once(load: Busy, count: int) -> list[dict[str, Any]]:
    """The runs of jobs that are due in one second; no more than four of them at once."""
    together, most = 0, 0
    lock = threading.Lock()

    def reply(_: Any) -> str:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        time.sleep(0.02)
        with lock:
            together -= 1
        return "Done."

    load.model.reply = reply
    with Commonplace(load.data, embedding="none") as memory:
        ids = _store_jobs(memory, count)
        wait_until(lambda: all(_ended(memory, each) for each in ids), 900)
        found = [records.listing(memory, runs.KIND, f"job:{each}") for each in ids]
    assert 1 <= most <= 4
    return [{"runs": len(each), **each[0].attrs} for each in found]


def _store_jobs(memory: Commonplace, count: int) -> list[str]:
    """Store jobs that will all be due in one second, which is not over when they are stored."""
    memory.library.coordination.expect_work()
    seconds = 8
    while True:
        due = datetime.now() + timedelta(seconds=seconds)
        expression = f"{due.second} {due.minute} {due.hour} * * *"
        with memory.unit("store jobs"):
            jobs = [cron.add_job(memory, f"{n}", expression, "Go", True) for n in range(count)]
        if datetime.now() < due - timedelta(seconds=2):
            return [str(job.ref) for job in jobs]
        for job in jobs:
            records.delete(memory, job)
        seconds *= 2


def _ended(memory: Commonplace, job: str) -> bool:
    found = records.listing(memory, runs.KIND, f"job:{job}")
    return bool(found) and found[0].attrs["status"] != "running"


def sockets_at_once(load: Busy, count: int) -> Counter[str]:
    """How many chat sockets were let in and answered, and how many were refused with 4029."""
    start = threading.Barrier(count)
    done = threading.Barrier(count)

    def talk(number: int) -> str:
        start.wait(60)
        address = load.url.replace("http", "ws") + "/ws"
        with connect(address, open_timeout=60) as socket:
            try:
                first = json.loads(socket.recv(timeout=60))
                if first["type"] == "error":
                    socket.recv(timeout=60)
            except ConnectionClosed as closed:
                done.wait(120)
                return str(closed.rcvd and closed.rcvd.code)
            done.wait(120)  # so that no place becomes free for another
            socket.send(json.dumps({"type": "send", "content": f"Hello {number}"}))
            while True:
                kind = json.loads(socket.recv(timeout=120))["type"]
                if kind in ("stream_end", "error"):
                    return str(kind)

    return Counter(_together(talk, count))


def uploads_at_once(load: Busy, count: int, size: int) -> Counter[int]:
    """The statuses of uploads that come at once; every one that is accepted is served whole."""
    start = threading.Barrier(count)
    accepted: list[tuple[str, bytes]] = []

    def upload(number: int) -> int:
        content = f"{number} ".encode() * (size // 4)
        with httpx.Client(timeout=120) as client:
            start.wait(60)
            answer = client.post(load.url + "/api/upload", files={"file": ("a.txt", content)})
            if answer.status_code == 200:
                accepted.append((answer.json()["mediaUrl"], content))
            return answer.status_code

    statuses = Counter(_together(upload, count))
    for path, content in accepted:
        assert httpx.get(load.url + path, timeout=60).content == content
    assert len({path for path, _ in accepted}) == len(accepted)
    return statuses


def _together(act: Callable[[int], Any], count: int) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(act, range(count)))
