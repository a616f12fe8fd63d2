"""Locks and requests that servers share: one does the work, and one that has lost its lock stores
nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.engine.library import Library
from commonplace.errors import InvalidInput
from commonplace.platform import durable
from commonplace.storage.locking import Busy, LockLost
from commonplace.storage.postgres import store
from commonplace.storage.postgres.connections import Pool
from commonplace.storage.postgres.coordination import LockRow, RowCoordination
from conftest import texts, wait_until

WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture
def libraries(address: str, tmp_path: Path) -> Iterator[tuple[Library, Library]]:
    """Two servers of one database, whose locks last a second."""
    made = [
        Library(
            tmp_path / name, embedder=None, database=f"{address}&lease=1&application_name={name}"
        )
        for name in ("one", "two")
    ]
    yield made[0], made[1]
    for each in made:
        each.close()


def test_one_server_holds_a_lock_and_lets_it_go(libraries: tuple[Library, Library]) -> None:
    one, two = (each.coordination for each in libraries)
    held = one.try_lock("patrol")
    assert held is not None and held.is_held
    assert two.try_lock("patrol") is None
    assert one.try_lock("patrol") is None, "not even the same server has it twice"
    other = two.try_lock("another")
    assert other is not None
    time.sleep(2.5)  # longer than it lasts: it is renewed
    assert held.is_held and two.try_lock("patrol") is None
    held.release()
    taken = two.try_lock("patrol")
    assert taken is not None
    taken.release()
    other.release()


def test_a_renewal_that_comes_after_the_release_does_not_take_the_lock_again(
    libraries: tuple[Library, Library],
) -> None:
    one, two = (each.coordination for each in libraries)
    assert isinstance(one, RowCoordination)
    held = one.try_lock("patrol")
    assert isinstance(held, LockRow)
    held.release()
    one._renew_one(held)  # it was in the list of those to renew
    taken = two.try_lock("patrol")
    assert taken is not None and taken.is_held and not held.is_held
    taken.release()


def test_who_waits_for_a_lock_gets_it_or_is_told(libraries: tuple[Library, Library]) -> None:
    one, two = (each.coordination for each in libraries)
    seen: list[object] = []

    def wait() -> None:
        with two.lock("patrol", 60):
            seen.append(one.try_lock("patrol"))

    with one.lock("patrol", 0):
        with pytest.raises(Busy), two.lock("patrol", 0.3):
            pass
        waiting = threading.Thread(target=wait)
        waiting.start()
    waiting.join(60)
    assert seen == [None]


def _stale_lock(one: Library, two: Library, monkeypatch: pytest.MonkeyPatch) -> object:
    """A lock of one server that the other has taken, while the first believes to have it."""
    monkeypatch.setattr("commonplace.storage.postgres.coordination.RENEWALS", 0.001)
    held = one.coordination.try_lock("work")
    assert held is not None
    wait_until(lambda: two.coordination.try_lock("work") is not None, 60)
    return held


def test_a_holder_past_its_time_stores_nothing(
    libraries: tuple[Library, Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = libraries
    memory = Commonplace(space="team", library=one)
    memory.remember("before")
    held = _stale_lock(one, two, monkeypatch)
    with held.guard_writes():  # type: ignore[attr-defined]
        with pytest.raises(LockLost):
            memory.remember("too late")
        with pytest.raises(LockLost), memory.unit("several"):
            memory.remember("too late as well")
        with pytest.raises(LockLost), lease(memory) as space, space.store.maintain():
            pass
        assert texts(memory.browse()) == ["before"], "reading goes on"
    memory.remember("without the lock")
    assert sorted(texts(memory.browse())) == ["before", "without the lock"]


def test_a_write_without_a_fence_is_detected(
    libraries: tuple[Library, Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: a unit does not look whether the lock is still held."""
    monkeypatch.setattr(store.PostgresStore, "_check_unit", lambda self, connection: None)
    one, two = libraries
    memory = Commonplace(space="team", library=one)
    held = _stale_lock(one, two, monkeypatch)
    with held.guard_writes():  # type: ignore[attr-defined]
        memory.remember("too late")
    assert texts(memory.browse()) == ["too late"]


def test_nobody_takes_a_lock_while_a_unit_is_stored_under_it(
    libraries: tuple[Library, Library],
) -> None:
    one, two = libraries
    memory = Commonplace(space="team", library=one)
    held = one.coordination.try_lock("work")
    assert held is not None
    taken: list[float] = []

    def take() -> None:
        wait_until(lambda: two.coordination.try_lock("work") is not None, 60)
        taken.append(time.monotonic())

    with held.guard_writes(), memory.unit("several"):
        memory.remember("one")
        thread = threading.Thread(target=take)
        thread.start()
        time.sleep(2.5)
        memory.remember("two")
        assert not taken
    ended = time.monotonic()
    held.release()
    thread.join(60)
    assert taken and taken[0] > ended - 0.5


def test_a_request_is_there_exactly_if_its_unit_is(libraries: tuple[Library, Library]) -> None:
    one, two = libraries
    memory = Commonplace(space="team", library=one)
    with pytest.raises(RuntimeError), memory.unit("a call"):
        memory.remember("asked")
        durable.request_workflow(one, "team", "job~one")
        raise RuntimeError
    assert two.coordination.requests() == []
    with memory.unit("a call"):
        memory.remember("asked")
        durable.request_workflow(one, "team", "job~one")
        durable.request_workflow(one, "team", "job~one")
        assert two.coordination.requests() == [], "it is stored with the call"
    (request,) = two.coordination.requests()
    assert request[:3] == ("team", "job~one", 0) and request.age >= 0
    one.coordination.forget_request(request)
    assert two.coordination.requests() == []


class Server:
    """A worker in a process of its own."""

    def __init__(self, address: str, data: Path, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), f"{address}&lease=2", str(data), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.wait_for("ready")

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.said.append(line.strip())

    def wait_for(self, line: str) -> None:
        wait_until(lambda: line in self.said, 60)

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self._listener.join(60)
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def start(address: str, tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    started: list[Server] = []

    def one(name: str) -> Server:
        started.append(Server(address, tmp_path / name, name))
        return started[-1]

    yield one
    for each in started:
        each.end()


def _ask(team: Commonplace, slow: float) -> None:
    with team.unit("a call"):
        team.remember(f"slow {slow}")
        team.remember("asked")
        durable.request_workflow(team.library, "team", "job~one")


def _steps(team: Commonplace) -> list[str]:
    return sorted(text for text in texts(team.browse()) if text.startswith("step"))


def test_work_is_done_once_by_two_servers(
    team: Commonplace, start: Callable[[str], Server]
) -> None:
    servers = [start("one"), start("two")]
    _ask(team, 0)
    wait_until(lambda: any("end" in each.said for each in servers), 60)
    time.sleep(1)
    assert sorted(len(each.said) for each in servers) == [1, 1 + 2 * 3 + 1]
    assert len(_steps(team)) == 3
    assert team.library.coordination.requests() == []


def test_another_server_goes_on_where_a_killed_one_was(
    team: Commonplace, start: Callable[[str], Server]
) -> None:
    one = start("one")
    _ask(team, 1)
    one.wait_for("step 1")
    one.process.kill()
    two = start("two")
    two.wait_for("end")
    assert _steps(team) == ["step 0 by one", "step 1 by two", "step 2 by two"]
    assert two.said[1] == "step 1", "DBOS knows that the first step is done"


def test_a_server_that_was_stopped_past_its_time_is_fenced(
    team: Commonplace, start: Callable[[str], Server]
) -> None:
    one = start("one")
    _ask(team, 1)
    one.wait_for("step 1")
    one.process.send_signal(signal.SIGSTOP)
    two = start("two")
    two.wait_for("end")
    done = _steps(team)
    assert done == ["step 0 by one", "step 1 by two", "step 2 by two"]
    one.process.send_signal(signal.SIGCONT)
    one.wait_for("refused 1")
    two.process.kill()
    team.remember("asked again")
    with team.unit("another call"):
        durable.request_workflow(team.library, "team", "job~one", 1)
    one.wait_for("end")  # it takes the lock again, and works as before
    assert _steps(team) == done


@pytest.mark.parametrize("lease", ["0", "3601", "-1", "soon"])
def test_a_lease_that_is_none_is_refused(address: str, lease: str) -> None:
    with pytest.raises(InvalidInput):
        Pool(f"{address}&lease={lease}")
    Pool(f"{address}&lease=1")
    Pool(f"{address}&lease=3600")
