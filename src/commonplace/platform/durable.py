"""Work in steps that goes on after a crash: DBOS, on a file of its own in the data directory.

What is due is a small file in `workflows/due`, so that any process can ask for it without loading
DBOS; the one process that holds the lock carries it out. DBOS is told ids only, and remembers which
steps are over; the steps themselves keep what they did in the space, keyed, so that a step which
was over but not yet known to be so changes nothing when it is taken again.
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
WAIT_SECONDS = 60.0  # for what was asked for to be stored
STOP_SECONDS = 10
PAUSES = (0.2, 1.0, 0.0)  # after each try of a step that a fault prevented
NAME = "commonplace"
ENDED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")  # as DBOS says it

log = logging.getLogger(__name__)


class Work(Protocol):
    """One kind of work, done in steps. Each may be called again, and must then change nothing."""

    def steps(self, space: str, identity: str) -> int | None:
        """How many steps there are; None if there is no such work."""

    def step(self, space: str, identity: str, index: int) -> bool:
        """Take a step; whether to go on."""

    def end(self, space: str, identity: str) -> None:
        """No step is left, or one said not to go on."""

    def failed(self, space: str, identity: str) -> None:
        """It cannot go on, for a fault that the log has."""

    def unfinished(self, given_up: Callable[[], bool]) -> Iterator[tuple[str, str, int]]:
        """(space, id, turn) of all that should be on its way, until nobody wants to know."""

    def tick(self) -> None:
        """Called several times a second by the process that holds the lock: to ask for work whose
        time has come."""


class _Stopping(BaseException):
    """The process stops: the step is not over, and DBOS must not take it for that."""


class Durable:
    """Carries work out in this process while it holds the lock of the data directory."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "workflows"
        self._due = self._folder / "due"
        self._works: dict[str, Work] = {}
        self._new: list[str] = []  # kinds of work that were added and not looked at yet
        self._stop = threading.Event()
        self._taken: set[object] = set()  # steps that are on their way
        self._told: set[str] = set()  # what could not be begun
        self._thread: threading.Thread | None = None

    def add(self, kind: str, work: Work) -> None:
        """Carry out a kind of work, too; its ids begin with the kind (`named`)."""
        self._works[kind] = work
        self._new.append(kind)

    def remove(self, kind: str) -> bool:
        """Carry out a kind of work no more; whether that was the last."""
        if len(self._works) > 1:
            del self._works[kind]
            return False
        return True

    def start(self) -> None:
        """Carry out what is due, until it is stopped."""
        self._thread = threading.Thread(target=self._run, name="commonplace-workflows", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let what is being carried out come to its end, but not for ever."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=STOP_SECONDS + 5)

    def _work(self, identity: str) -> Work | None:
        kind, mark, _ = identity.partition(_MARK)
        return self._works.get(kind if mark else WORKFLOWS)

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            works = list(self._works.values())
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
                left += self._left()
                due = self._waiting()
                if not launched and (due or left):
                    try:
                        _launch(self._folder / "dbos.sqlite", self)
                    except Exception:
                        log.exception("workflows cannot be carried out; it is tried again")
                        self._stop.wait(AGAIN_SECONDS)
                        continue
                    stack.callback(_destroy)
                    launched = True
                while launched and left:
                    space, identity, turn = left.pop()
                    self._try(identity, partial(_go_on, space, identity, turn))
                for file in due:
                    self._try(file.stem, partial(self._begin, file))
                self._stop.wait(LOOK_SECONDS)

    def _try(self, what: str, begin: Callable[[], None]) -> None:
        """Begin something; what cannot be begun is told once, and keeps nothing else from it."""
        try:
            begin()
        except Exception:
            if what not in self._told:
                self._told.add(what)
                log.exception("work that is due cannot be begun", extra={"work": what})

    def _tick(self) -> None:
        for kind, work in list(self._works.items()):
            try:
                work.tick()
                self._told.discard(kind)
            except Exception:
                if kind not in self._told and not self._stop.is_set():
                    self._told.add(kind)
                    log.exception("work that may be due was not looked for", extra={"work": kind})

    def _left(self) -> Iterator[tuple[str, str, int]]:
        """What another process left in the middle, as the rows have it, of each new kind."""
        while self._new:
            work = self._works.get(self._new.pop())
            if work is not None:
                yield from work.unfinished(self._stop.is_set)

    def _waiting(self) -> list[Path]:
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
            if time.time() - begun > WAIT_SECONDS:  # it was asked for, and then not stored
                file.unlink(missing_ok=True)
            return
        _start(f"{space}:{identity}:{turn}", space, identity)
        file.unlink(missing_ok=True)

    # What DBOS calls

    def steps(self, space: str, identity: str) -> int:
        """How many steps there are."""
        work = self._work(identity)
        return 0 if work is None else int(self._guarded(lambda: work.steps(space, identity) or 0))

    def step(self, space: str, identity: str, index: int) -> bool:
        """Take one; what a fault of ours or of the disk prevents is tried again, then failed."""
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
        """After the last."""
        if (work := self._work(identity)) is not None:
            self._guarded(lambda: work.end(space, identity))

    def wait_for_steps(self) -> None:
        """Let those that are being taken come to their end, but not for ever."""
        until = time.monotonic() + STOP_SECONDS
        while self._taken and time.monotonic() < until:
            time.sleep(0.01)

    def _guarded(self, act: Callable[[], Any]) -> Any:
        if self._stop.is_set():
            raise _Stopping
        mine = object()
        self._taken.add(mine)
        try:
            return act()
        except Exception:
            if self._stop.is_set():
                raise _Stopping from None
            raise
        finally:
            self._taken.discard(mine)


_MARK = "~"  # between the kind of work and its id
WORKFLOWS = "workflow"  # whose ids stand alone
_running: dict[Path, Durable] = {}
_starting = threading.Lock()


def named(kind: str, identity: str) -> str:
    """The id of work of a kind, among all that is carried out."""
    return identity if kind == WORKFLOWS else f"{kind}{_MARK}{identity}"


@contextlib.contextmanager
def carrying_out(data: Path, kind: str, work: Work) -> Iterator[None]:
    """Carry out what is due of a kind of work until the block is left.

    One thread a data directory does it for every kind.
    """
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
            if durable.remove(kind):
                del _running[data]
                durable.stop()


def installed() -> bool:
    """Whether there is something to carry work out with."""
    return find_spec("dbos") is not None


def ask(data: Path, space: str, identity: str, turn: int = 0) -> None:
    """Have work carried out by whoever holds the lock of a data directory; durable on return."""
    folder = data / "workflows" / "due"
    make_private(folder)
    file = folder / f"{identity}.{turn}.json"
    with replacing(file) as stream:
        stream.write(json.dumps({"space": space, "id": identity, "turn": turn}).encode())


_here: Durable | None = None  # DBOS knows functions of a process, not objects
_registered: list[Any] = []


def _launch(file: Path, durable: Durable) -> None:
    """Start DBOS, which goes on with what was left in the middle."""
    global _here
    from dbos import DBOS
    from dbos._serialization import Serializer

    class AsJson(Serializer):
        """Nothing of DBOS is ever unpickled."""

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
        # Work of an older release is carried on by a newer one.
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
        # What it knows is only which steps are over, and that the steps know as well.
        log.exception("what DBOS noted cannot be read; it is put aside")
        _put_aside(file)
        DBOS(config=config)
        DBOS.launch()


def _register() -> None:
    """Tell DBOS once what there is to carry out."""
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


def _go_on(space: str, identity: str, turn: int) -> None:
    """Have work carried out that should be on its way.

    What DBOS has begun it goes on with by itself. What it does not know (its file was lost), or
    takes to be over (the space is older than its file), begins anew: steps that are over say so.
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
    # Not left to DBOS, which waits a whole second for what is over at once.
    DBOS.destroy(workflow_completion_timeout_sec=0)
    _here = None
