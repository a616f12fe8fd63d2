"""Work in steps that continues after a crash, on DBOS with its own file in the data directory.

A request is a small file in `workflows/due`, so that any process can make one without loading DBOS;
the one process that holds the lock carries it out. DBOS gets ids only, and records which steps are
done. A step stores its results in the space, so that a step which DBOS repeats changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from commonplace.storage.directories import make_private, replacing
from commonplace.storage.locking import open_locked
from commonplace.storage.sqlite import foreign

LOOK_SECONDS = 0.2
LOCK_SECONDS = 2.0
AGAIN_SECONDS = 10.0
WAIT_SECONDS = 60.0  # how long to wait for the row of a request
STOP_SECONDS = 10
PAUSES = (0.2, 1.0, 0.0)  # seconds of pause after each failed attempt of a step
NAME = "commonplace"
# final states of a DBOS workflow
ENDED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")

log = logging.getLogger(__name__)


class Work(Protocol):
    """One kind of work in steps. A method that is called again must change nothing."""

    def steps(self, space: str, identity: str) -> int | None:
        """The number of steps; None if there is no such work."""

    def step(self, space: str, identity: str, index: int) -> bool:
        """Run a step; return whether to continue with the next."""

    def end(self, space: str, identity: str) -> None:
        """Called after the last step, or after one that returned False."""

    def failed(self, space: str, identity: str) -> None:
        """Called when a step failed repeatedly; the log has the reason."""

    def unfinished(self, given_up: Callable[[], bool]) -> Iterator[tuple[str, str, int]]:
        """(space, id, turn) of all unfinished work, until `given_up` returns True."""

    def tick(self) -> None:
        """Called several times a second by the process that holds the lock, to request work that
        is due by the clock."""


class _Stopping(BaseException):
    """The process stops; DBOS must not record the step as done."""


class Durable:
    """Carries out work while this process holds the lock of the data directory."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "workflows"
        self._due = self._folder / "due"
        self._works: list[tuple[str, Work]] = []
        self._new: list[Work] = []  # whose unfinished work is not looked up yet
        self._stop = threading.Event()
        self._steps_running: set[object] = set()
        self._logged: set[str] = set()  # failures that were logged
        self._thread: threading.Thread | None = None

    def add(self, kind: str, work: Work) -> None:
        """Add a kind of work; its ids begin with the kind (`named`).

        Two servers in one process may add the same kind: the first one carries it out.
        """
        self._works.append((kind, work))
        self._new.append(work)

    def remove(self, work: Work) -> bool:
        """Remove work that was added; whether it was the last."""
        if len(self._works) > 1:
            self._works = [each for each in self._works if each[1] is not work]
            return False
        return True

    def start(self) -> None:
        """Carry out work in a thread, until `stop`."""
        self._thread = threading.Thread(target=self._run, name="commonplace-workflows", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait a limited time for running steps."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=STOP_SECONDS + 5)

    def _work(self, identity: str) -> Work | None:
        kind, mark, _ = identity.partition(_MARK)
        return self._of_kind(kind if mark else WORKFLOWS)

    def _of_kind(self, kind: str) -> Work | None:
        return next((work for each, work in self._works if each == kind), None)

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            works = [work for _, work in self._works]
            if not self._folder.exists() and any(
                True for work in works for _ in work.unfinished(self._stop.is_set)
            ):
                make_private(self._folder)
            while not self._stop.is_set():
                lock = open_locked(self._folder / "lock") if self._folder.exists() else None
                if lock is not None:
                    stack.callback(os.close, lock)
                    break
                self._stop.wait(LOCK_SECONDS if self._folder.exists() else LOOK_SECONDS)
            if not installed() or self._stop.is_set():
                return
            launched = False
            left: list[tuple[str, str, int]] = []
            while not self._stop.is_set():
                self._tick()
                left += self._unfinished()
                due = self._requests()
                if not launched and (due or left):
                    try:
                        _launch(self._folder / "dbos.sqlite", self)
                    except Exception:
                        log.exception("DBOS cannot be started; trying again")
                        self._stop.wait(AGAIN_SECONDS)
                        continue
                    stack.callback(_destroy)
                    launched = True
                while launched and left:
                    space, identity, turn = left.pop()
                    self._try(identity, partial(_resume, space, identity, turn))
                for file in due:
                    self._try(file.stem, partial(self._begin, file))
                self._stop.wait(LOOK_SECONDS)

    def _try(self, what: str, begin: Callable[[], None]) -> None:
        """Start work; a failure is logged once and does not affect other work."""
        try:
            begin()
        except Exception:
            if what not in self._logged:
                self._logged.add(what)
                log.exception("work cannot be started", extra={"work": what})

    def _tick(self) -> None:
        for kind in {kind for kind, _ in self._works}:
            try:
                if (work := self._of_kind(kind)) is not None:
                    work.tick()
                self._logged.discard(kind)
            except Exception:
                if kind not in self._logged and not self._stop.is_set():
                    self._logged.add(kind)
                    log.exception("due work cannot be looked up", extra={"work": kind})

    def _unfinished(self) -> Iterator[tuple[str, str, int]]:
        """Unfinished work of each kind that was added, such as that of a killed process."""
        while self._new:
            work = self._new.pop()
            if any(each is work for _, each in self._works):
                yield from work.unfinished(self._stop.is_set)

    def _requests(self) -> list[Path]:
        if not self._due.exists():
            return []
        return sorted(file for file in self._due.iterdir() if file.suffix == ".json")

    def _begin(self, file: Path) -> None:
        try:
            asked = json.loads(file.read_text())
            space, identity, turn = asked["space"], asked["id"], asked["turn"]
            begun = file.stat().st_mtime
        except (OSError, ValueError, KeyError):
            file.unlink(missing_ok=True)
            return
        work = self._work(identity)
        if work is None or work.steps(space, identity) is None:
            if time.time() - begun > WAIT_SECONDS:  # requested, but never stored
                file.unlink(missing_ok=True)
            return
        _start(f"{space}:{identity}:{turn}", space, identity)
        file.unlink(missing_ok=True)

    # Called by DBOS

    def steps(self, space: str, identity: str) -> int:
        """The number of steps."""
        work = self._work(identity)
        return 0 if work is None else int(self._guarded(lambda: work.steps(space, identity) or 0))

    def step(self, space: str, identity: str, index: int) -> bool:
        """Run a step; one that raises is retried, then the work fails."""
        work = self._work(identity)
        if work is None:
            return False
        for pause in PAUSES:
            try:
                return bool(self._guarded(lambda: work.step(space, identity, index)))
            except Exception:
                log.exception("a step of a workflow failed", extra={"work": identity})
                self._stop.wait(pause)
        self._guarded(lambda: work.failed(space, identity))
        return False

    def end(self, space: str, identity: str) -> None:
        """Called after the last step."""
        if (work := self._work(identity)) is not None:
            self._guarded(lambda: work.end(space, identity))

    def wait_for_steps(self) -> None:
        """Wait a limited time for running steps."""
        until = time.monotonic() + STOP_SECONDS
        while self._steps_running and time.monotonic() < until:
            time.sleep(0.01)

    def _guarded(self, act: Callable[[], Any]) -> Any:
        if self._stop.is_set():
            raise _Stopping
        mine = object()
        self._steps_running.add(mine)
        try:
            return act()
        except Exception:
            if self._stop.is_set():
                raise _Stopping from None
            raise
        finally:
            self._steps_running.discard(mine)


_MARK = "~"  # separates the kind of work and its id
WORKFLOWS = "workflow"  # ids of workflows have no prefix
_running: dict[Path, Durable] = {}
_starting = threading.Lock()


def named(kind: str, identity: str) -> str:
    """The id of work among all kinds."""
    return identity if kind == WORKFLOWS else f"{kind}{_MARK}{identity}"


@contextlib.contextmanager
def executing(data: Path, kind: str, work: Work) -> Iterator[None]:
    """Execute a kind of work during the block, in one thread for each data directory."""
    with _starting:
        durable = _running.get(data)
        if durable is None:
            durable = _running[data] = Durable(data)
            durable.add(kind, work)
            durable.start()
        else:
            durable.add(kind, work)
    try:
        yield
    finally:
        with _starting:
            if durable.remove(work):
                del _running[data]
                durable.stop()


def installed() -> bool:
    """Whether DBOS is installed."""
    return find_spec("dbos") is not None


def ask(data: Path, space: str, identity: str, turn: int = 0) -> None:
    """Request work, which the process that holds the lock carries out; durable on return.

    Work is carried out once for each `turn`.
    """
    folder = data / "workflows" / "due"
    make_private(folder)
    file = folder / f"{identity}.{turn}.json"
    with replacing(file) as stream:
        stream.write(json.dumps({"space": space, "id": identity, "turn": turn}).encode())


_here: Durable | None = None  # DBOS calls functions, not methods
_registered: list[Any] = []


def _launch(file: Path, durable: Durable) -> None:
    """Start DBOS, which resumes unfinished work."""
    global _here
    from dbos import DBOS
    from dbos._serialization import Serializer

    class AsJson(Serializer):
        """DBOS's default is pickle, which is not safe to load."""

        def serialize(self, data: Any) -> str:
            return json.dumps(data, default=str)

        def deserialize(self, serialized_data: str) -> Any:
            return json.loads(serialized_data)

        def name(self) -> str:
            return "commonplace_json"

    _here = durable
    config: Any = {
        "name": NAME,
        "system_database_url": f"sqlite:///{file}",
        "serializer": AsJson(),
        # A newer release resumes the work of an older one.
        "application_version": "1",
        "executor_id": "local",
        "log_level": "ERROR",
        "enable_otlp": False,
    }
    DBOS(config=config)
    _register()
    try:
        DBOS.launch()
    except Exception:
        DBOS.destroy()
        if foreign.is_sound(file):
            raise
        # DBOS's file only records which steps are done; the spaces record that, too.
        log.exception("the file of DBOS is damaged; it is renamed, and a new one is created")
        _put_aside(file)
        DBOS(config=config)
        DBOS.launch()


def _register() -> None:
    """Register the workflow with DBOS once."""
    if _registered:
        return
    from dbos import DBOS

    @DBOS.step(name="steps")
    def steps(space: str, identity: str) -> int:
        assert _here is not None
        return _here.steps(space, identity)

    @DBOS.step(name="step")
    def step(space: str, identity: str, index: int) -> bool:
        assert _here is not None
        return _here.step(space, identity, index)

    @DBOS.step(name="end")
    def end(space: str, identity: str) -> None:
        assert _here is not None
        _here.end(space, identity)

    @DBOS.workflow(name="carry_out")
    def carry_out(space: str, identity: str) -> None:
        for index in range(steps(space, identity)):
            if not step(space, identity, index):
                break
        end(space, identity)

    _registered.append(carry_out)


def _put_aside(file: Path) -> None:
    for each in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
        if each.exists():
            each.replace(each.with_name(f"{each.name}.unreadable-{time.time_ns()}"))


def _resume(space: str, identity: str, turn: int) -> None:
    """Carry out unfinished work.

    DBOS resumes work that it has started. Work that it does not know (its file was lost) or takes
    for ended (the space is older than its file) starts again: steps that are done change nothing.
    """
    from dbos import DBOS

    key = f"{space}:{identity}:{turn}"
    again = 0
    while (known := DBOS.get_workflow_status(key)) is not None:
        if known.status not in ENDED:
            return
        again += 1
        key = f"{space}:{identity}:{turn}:{again}"
    _start(key, space, identity)


def _start(key: str, space: str, identity: str) -> None:
    from dbos import DBOS, SetWorkflowID

    with SetWorkflowID(key):
        DBOS.start_workflow(_registered[0], space, identity)


def _destroy() -> None:
    from dbos import DBOS

    global _here
    if _here is not None:
        _here.wait_for_steps()
    # DBOS would wait a whole second.
    DBOS.destroy(workflow_completion_timeout_sec=0)
    _here = None
