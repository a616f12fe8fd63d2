"""Servers and pipes are killed at random while clients write over stdio.

Nothing acknowledged is lost, nothing is stored twice, and while only the server is killed no client
sees an error.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from client.harness import Agent, kill_server
from commonplace import Commonplace

from .progress import counted

CLIENTS = 8
ALL, SOME = 200, 10  # kills in `make soak`, and in `make test`
ROOT = Path(__file__).parents[2]

# Run first in every process: the server dies after it has stored a call, before it answers it.
DIES_BEFORE_ANSWERING = """
import os
if "COMMONPLACE_BACKGROUND" in os.environ:
    from commonplace.server import calls
    outcome = calls.Workers.perform_for_outcome
    async def dying(self, admitted, dialect, name, arguments, decision=None):
        done = await outcome(self, admitted, dialect, name, arguments, decision)
        mark = os.path.join(os.environ["TEST_MARKS"], str(arguments.get("text")))
        if name == "remember" and not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(9)
        return done
    calls.Workers.perform_for_outcome = dying
"""
WITHOUT_KEYS = """
from commonplace.client import pipe
pipe.Pipe._add_key = lambda *_: None
"""
WITHOUT_REPEATING = """
from commonplace.client import static_answers
load = static_answers.StaticAnswers.load.__func__
def nothing_repeatable(cls, *given):
    found = load(cls, *given)
    found.repeatable_tools = frozenset()
    return found
static_answers.StaticAnswers.load = classmethod(nothing_repeatable)
"""


@dataclass
class Written:
    """What the clients of a run have written, and what they were told."""

    acknowledged: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    longest: float = 0.0
    """The longest wait for an answer, in seconds."""

    def faults(self, data: Path) -> list[str]:
        """What must not have happened."""
        with Commonplace(data, embedding="none") as memory:
            total = memory.browse(limit=1)[1]
            texts: Counter[str] = Counter()
            for offset in range(0, total, 1_000):
                page, _ = memory.browse(limit=1_000, offset=offset)
                texts.update(each.text for each in page)
        lost = [text for text in self.acknowledged if not texts[text]]
        twice = [text for text, count in texts.items() if count > 1]
        return [
            *(f"error: {text}" for text in self.errors),
            *(f"lost: {text}" for text in lost),
            *(f"twice: {text}" for text in twice),
        ]


class Writers:
    """Clients that write until they are told to end. A client whose pipe is killed starts anew."""

    def __init__(self, data: Path, clients: int = CLIENTS) -> None:
        self.written = Written()
        self._data = data
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._agents: dict[int, Agent] = {}
        self._killed: set[int] = set()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    def _write(self, number: int) -> None:
        line = 0
        while not self._ending.is_set():
            try:
                with Agent(self._data) as agent:
                    with self._lock:
                        self._agents[number] = agent
                    while not self._ending.is_set():
                        line += 1
                        self._store(agent, f"client {number} line {line}")
            except (EOFError, OSError, AssertionError, RuntimeError) as error:
                if agent.process.pid not in self._killed:
                    self.written.errors.append(f"client {number}: {error!r}")
                    return

    def _store(self, agent: Agent, text: str) -> None:
        begun = time.monotonic()
        agent.call("remember", text=text)
        with self._lock:
            self.written.longest = max(self.written.longest, time.monotonic() - begun)
            self.written.acknowledged.append(text)

    def kill_a_pipe(self, chance: random.Random) -> None:
        with self._lock:
            agent = self._agents[chance.choice(sorted(self._agents))]
            self._killed.add(agent.process.pid)
        agent.process.kill()

    def end(self) -> Written:
        self._ending.set()
        for thread in self._threads:
            thread.join(180)
            assert not thread.is_alive()
        return self.written


def kill_servers(data: Path, times: int, seed: int) -> Written:
    """Kill the server again and again, each time after it has answered some calls."""
    chance = random.Random(seed)
    writers = Writers(data)
    for _ in counted(range(times), times, "kills"):
        _after_some(writers, chance)
        kill_server(data)
    _after_some(writers, chance)
    return writers.end()


def kill_pipes(data: Path, times: int, seed: int) -> Written:
    """Kill pipes at random moments."""
    chance = random.Random(seed)
    writers = Writers(data)
    for _ in counted(range(times), times, "kills"):
        _after_some(writers, chance)
        writers.kill_a_pipe(chance)
    _after_some(writers, chance)
    return writers.end()


def _after_some(writers: Writers, chance: random.Random) -> None:
    before, until = len(writers.written.acknowledged), time.monotonic() + 180
    while len(writers.written.acknowledged) < before + 4 and not writers.written.errors:
        assert time.monotonic() < until, "no call is answered any more"
        time.sleep(0.01)
    time.sleep(chance.random() * 0.2)


def told(written: Written, times: int, what: str, seed: int) -> str:
    return (
        f"{times} {what} killed under {CLIENTS} clients: {len(written.acknowledged)} stored,"
        f" longest wait {written.longest:.1f} s, seed {seed}"
    )


@pytest.mark.parametrize(
    ("times", "seed"), [(SOME, 1), pytest.param(ALL, 2, marks=pytest.mark.soak)]
)
def test_killed_servers_lose_nothing_and_no_client_sees_an_error(
    tmp_path: Path, publish: Callable[[str], None], times: int, seed: int
) -> None:
    written = kill_servers(tmp_path, times, seed)
    publish(told(written, times, "servers", seed))
    assert written.faults(tmp_path) == []
    assert len(written.acknowledged) >= times


@pytest.mark.parametrize(
    ("times", "seed"), [(SOME, 1), pytest.param(ALL, 2, marks=pytest.mark.soak)]
)
def test_killed_pipes_lose_nothing(
    tmp_path: Path, publish: Callable[[str], None], times: int, seed: int
) -> None:
    written = kill_pipes(tmp_path, times, seed)
    publish(told(written, times, "pipes", seed))
    assert written.faults(tmp_path) == []


def test_a_client_that_does_not_wait_for_answers_is_detected(tmp_path: Path) -> None:
    """The mutant: what was only sent counts as acknowledged."""
    with Agent(tmp_path) as agent:
        agent.call("remember", text="answered")
        kill_server(tmp_path)
        params = {"name": "remember", "arguments": {"text": "sent"}}
        agent.tell({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params})
        agent.kill()  # before another server can have started
    assert Written(acknowledged=["answered", "sent"]).faults(tmp_path) == ["lost: sent"]


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Let every process that is started run some code first; the data directory for it."""

    def run(code: str) -> Path:
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(code)
        (tmp_path / "marks").mkdir()
        monkeypatch.setenv("TEST_MARKS", str(tmp_path / "marks"))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT / "src")]))
        return tmp_path / "data"

    return run


@pytest.mark.parametrize(
    ("mutant", "fault"),
    [("", ""), (WITHOUT_KEYS, "twice"), (WITHOUT_REPEATING, "error")],
    ids=["as it is", "without keys", "without repeating"],
)
def test_a_server_that_dies_before_it_answers(
    first: Callable[[str], Path], mutant: str, fault: str
) -> None:
    """Each call is stored by a server that dies, and sent again; two mutants are detected."""
    data = first(DIES_BEFORE_ANSWERING + mutant)
    written = Written()
    with contextlib.suppress(RuntimeError), Agent(data) as agent:
        for line in range(2):
            try:
                agent.call("remember", text=f"line {line}")
            except RuntimeError as error:
                written.errors.append(str(error))
                raise
            written.acknowledged.append(f"line {line}")
        agent.end()
    faults = written.faults(data)
    assert [each.partition(":")[0] for each in faults][:1] == ([fault] if fault else [])
