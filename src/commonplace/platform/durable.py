"""Durable workflows, which continue after a crash, based on DBOS.

Any process can request a workflow (`ports.Coordination`) without loading DBOS; the process that
holds the lock runs it. DBOS stores only ids and the finished steps. A step stores its results in
the space and must be idempotent, since DBOS may repeat it. A process that loses the lock stops DBOS
and writes nothing more.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from commonplace.engine.library import Library
from commonplace.errors import CommonplaceError
from commonplace.platform.loading import import_modules
from commonplace.storage.locking import LockLost
from commonplace.storage.ports import Coordination, ProcessLock, WorkRequest

LOCK_NAME = "workflows"
POLL_SECONDS = 0.2
TRY_LOCK_SECONDS = 2.0
RETRY_SECONDS = 10.0
WAIT_SECONDS = 60.0  # how long to wait until the row of a requested workflow is committed
STOP_SECONDS = 10
STEP_PAUSES = (0.2, 1.0, 0.0)  # seconds to wait after each failed attempt of a step
DBOS_NAME = "commonplace"
# final states of a DBOS workflow
FINAL_STATES = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")

log = logging.getLogger(__name__)


class Work(Protocol):
    """One kind of workflow. All methods must be idempotent."""

    def count_steps(self, space: str, identity: str) -> int | None:
        """Return the number of steps; None if there is no such workflow."""

    def step(self, space: str, identity: str, index: int) -> bool:
        """Run a step; return whether to continue with the next."""

    def end(self, space: str, identity: str) -> None:
        """Finish the workflow; called after the last step, or after a step that returned False."""

    def mark_failed(self, space: str, identity: str) -> None:
        """Mark the workflow as failed; called when a step failed repeatedly (the log has the
        reason)."""

    def unfinished(self, given_up: Callable[[], bool]) -> Iterator[tuple[str, str, int]]:
        """Yield (space, id, turn) of all unfinished workflows, until `given_up` returns True."""

    def tick(self) -> None:
        """Request scheduled workflows that are due; the process that holds the lock calls this
        several times a second."""


class _Stopping(BaseException):
    """The process stops, or has lost the lock; DBOS must not record the step as done."""


class Durable:
    """Runs workflows while this process holds the lock of the installation."""

    def __init__(self, shared: Coordination) -> None:
        self._shared = shared
        self._lock: ProcessLock | None = None
        self._works: list[tuple[str, Work]] = []
        self._new: list[Work] = []  # kinds whose unfinished workflows have not been looked up yet
        self._stop = threading.Event()
        self._steps_running: set[object] = set()
        self._logged: set[str] = set()  # failures that were already logged
        self._thread: threading.Thread | None = None

    def add(self, kind: str, work: Work) -> None:
        """Add a kind of workflow; its ids begin with the kind (`workflow_id`).

        Two servers in one process may add the same kind; the first one runs it.
        """
        self._works.append((kind, work))
        self._new.append(work)

    def remove(self, work: Work) -> bool:
        """Remove a kind of workflow; return whether none is left."""
        if len(self._works) > 1:
            self._works = [each for each in self._works if each[1] is not work]
            return False
        return True

    def start(self) -> None:
        """Run workflows in a thread, until `stop` is called."""
        self._thread = threading.Thread(target=self._run, name="commonplace-workflows", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait a limited time for running steps."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=STOP_SECONDS + 5)

    def _find_work(self, identity: str) -> Work | None:
        kind, mark, _ = identity.partition(_KIND_SEPARATOR)
        return self._work_of_kind(kind if mark else WORKFLOWS)

    def _work_of_kind(self, kind: str) -> Work | None:
        return next((work for each, work in self._works if each == kind), None)

    def _run(self) -> None:
        works = [work for _, work in self._works]
        if not self._shared.work_expected and any(
            True for work in works for _ in work.unfinished(self._stop.is_set)
        ):
            self._shared.expect_work()
        while not self._stop.is_set():
            lock = self._try_lock()
            if lock is None:
                self._stop.wait(TRY_LOCK_SECONDS if self._shared.work_expected else POLL_SECONDS)
                continue
            if not is_dbos_installed():
                lock.release()
                return
            self._lock = lock
            self._new = [work for _, work in self._works]
            with contextlib.ExitStack() as stack:
                stack.callback(lock.release)
                self._carry_out(lock, stack)

    def _try_lock(self) -> ProcessLock | None:
        try:
            return self._shared.try_lock(LOCK_NAME) if self._shared.work_expected else None
        except CommonplaceError as error:  # the database is not available
            self._log_once(LOCK_NAME, error)
            return None

    def _carry_out(self, lock: ProcessLock, stack: contextlib.ExitStack) -> None:
        """Start requested and unfinished workflows, as long as this process holds the lock."""
        launched = False
        left: list[tuple[str, str, int]] = []
        while not self._stop.is_set() and lock.is_held:
            try:
                with lock.guard_writes():
                    self._tick()
                left += self._newly_unfinished()
                due = self._shared.requests()
            except CommonplaceError as error:
                self._log_once(LOCK_NAME, error)
                self._stop.wait(TRY_LOCK_SECONDS)
                continue
            if not launched and (due or left):
                try:
                    _launch(self._shared, self)
                except Exception:
                    log.exception("DBOS cannot be started; trying again")
                    self._stop.wait(RETRY_SECONDS)
                    continue
                stack.callback(_destroy)
                launched = True
            while launched and left:
                space, identity, turn = left.pop()
                self._try_start(identity, partial(_resume, space, identity, turn))
            for request in due:
                self._try_start(request.identity, partial(self._begin, request))
            self._stop.wait(POLL_SECONDS)

    def _log_once(self, what: str, error: CommonplaceError) -> None:
        if what not in self._logged:
            self._logged.add(what)
            log.warning("workflows cannot be run now", extra={"why": error.message})

    def _try_start(self, what: str, begin: Callable[[], None]) -> None:
        """Start a workflow; log a failure once, and go on with other workflows."""
        try:
            begin()
        except Exception:
            if what not in self._logged:
                self._logged.add(what)
                log.exception("a workflow cannot be started", extra={"work": what})

    def _tick(self) -> None:
        for kind in {kind for kind, _ in self._works}:
            try:
                if (work := self._work_of_kind(kind)) is not None:
                    work.tick()
                self._logged.discard(kind)
            except Exception:
                if kind not in self._logged and not self._stop.is_set():
                    self._logged.add(kind)
                    log.exception("due workflows cannot be looked up", extra={"work": kind})

    def _newly_unfinished(self) -> Iterator[tuple[str, str, int]]:
        """Yield unfinished workflows of each newly added kind, such as those of a killed
        process."""
        while self._new:
            work = self._new.pop()
            if any(each is work for _, each in self._works):
                yield from work.unfinished(self._stop.is_set)

    def _begin(self, request: WorkRequest) -> None:
        space, identity, turn, age = request
        work = self._find_work(identity)
        if work is None or work.count_steps(space, identity) is None:
            if age > WAIT_SECONDS:  # the requested workflow was never committed
                self._shared.forget_request(request)
            return
        _resume(space, identity, turn)
        self._shared.forget_request(request)

    # Called by DBOS

    def count_steps(self, space: str, identity: str) -> int:
        """Return the number of steps."""
        work = self._find_work(identity)
        return (
            0
            if work is None
            else int(self._run_guarded(lambda: work.count_steps(space, identity) or 0))
        )

    def step(self, space: str, identity: str, index: int) -> bool:
        """Run a step; retry it if it raises, and finally mark the workflow as failed."""
        work = self._find_work(identity)
        if work is None:
            return False
        for pause in STEP_PAUSES:  # _guarded raises _Stopping if a retry is useless
            try:
                return bool(self._run_guarded(lambda: work.step(space, identity, index)))
            except Exception:
                log.exception("a step of a workflow failed", extra={"work": identity})
                self._stop.wait(pause)
        self._run_guarded(lambda: work.mark_failed(space, identity))
        return False

    def end(self, space: str, identity: str) -> None:
        """Finish the workflow after its last step."""
        if (work := self._find_work(identity)) is not None:
            self._run_guarded(lambda: work.end(space, identity))

    def wait_for_steps(self) -> None:
        """Wait a limited time for running steps."""
        until = time.monotonic() + STOP_SECONDS
        while self._steps_running and time.monotonic() < until:
            time.sleep(0.01)

    def _run_guarded(self, act: Callable[[], Any]) -> Any:
        lock = self._lock
        if self._stop.is_set() or lock is None or not lock.is_held:
            raise _Stopping
        mine = object()
        self._steps_running.add(mine)
        try:
            with lock.guard_writes():
                return act()
        except LockLost:
            raise _Stopping from None
        except Exception:
            if self._stop.is_set():
                raise _Stopping from None
            raise
        finally:
            self._steps_running.discard(mine)


_KIND_SEPARATOR = "~"  # separates the kind of workflow and its id
WORKFLOWS = "workflow"  # this kind has ids without a prefix
_running: dict[tuple[Path, str | None], Durable] = {}
_starting = threading.Lock()


def workflow_id(kind: str, identity: str) -> str:
    """Return a workflow id that is unique among all kinds."""
    return identity if kind == WORKFLOWS else f"{kind}{_KIND_SEPARATOR}{identity}"


@contextlib.contextmanager
def running_workflows(library: Library, kind: str, work: Work) -> Iterator[None]:
    """Run a kind of workflow during the block, in one thread for each installation."""
    key = (library.path, library.database)
    with _starting:
        durable = _running.get(key)
        if durable is None:
            durable = _running[key] = Durable(library.coordination)
            durable.add(kind, work)
            durable.start()
        else:
            durable.add(kind, work)
    try:
        yield
    finally:
        with _starting:
            if durable.remove(work):
                del _running[key]
                durable.stop()


def is_dbos_installed() -> bool:
    """Return whether DBOS is installed."""
    return find_spec("dbos") is not None


def request_workflow(library: Library, space: str, identity: str, turn: int = 0) -> None:
    """Request a workflow, which the process that holds the lock runs.

    The request is committed on return, or with the open transaction. A workflow runs once for each
    `turn`.
    """
    with library.lease(space) as opened:
        library.coordination.request(opened.store, identity, turn)


_durable: Durable | None = None  # DBOS calls module functions, not methods
_database_engine: Any = None  # the SQLAlchemy engine, if the database is PostgreSQL
_registered_workflow: list[Any] = []


def _launch(shared: Coordination, durable: Durable) -> None:
    """Start DBOS, which resumes unfinished workflows."""
    global _durable, _database_engine
    import_modules("dbos")
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

    _durable = durable
    config: Any = {
        "name": DBOS_NAME,
        **shared.dbos_settings(),
        "serializer": AsJson(),
        # A newer release must resume the workflows of an older one.
        "application_version": "1",
        "executor_id": "local",
        "log_level": "ERROR",
        "enable_otlp": False,
    }
    _database_engine = config.get("system_database_engine")
    DBOS(config=config)
    _register()
    try:
        DBOS.launch()
    except Exception:
        DBOS.destroy()
        _close_connections()
        # No data is lost: the spaces also record which steps are done.
        if not shared.replace_damaged_dbos():
            raise
        log.exception("the file of DBOS was damaged; it is renamed, and a new one is created")
        DBOS(config=config)
        DBOS.launch()


def _register() -> None:
    """Register the workflow with DBOS once."""
    if _registered_workflow:
        return
    from dbos import DBOS

    @DBOS.step(name="steps")
    def steps(space: str, identity: str) -> int:
        assert _durable is not None
        return _durable.count_steps(space, identity)

    @DBOS.step(name="step")
    def step(space: str, identity: str, index: int) -> bool:
        assert _durable is not None
        return _durable.step(space, identity, index)

    @DBOS.step(name="end")
    def end(space: str, identity: str) -> None:
        assert _durable is not None
        _durable.end(space, identity)

    @DBOS.workflow(name="carry_out")
    def carry_out(space: str, identity: str) -> None:
        for index in range(steps(space, identity)):
            if not step(space, identity, index):
                break
        end(space, identity)

    _registered_workflow.append(carry_out)


def _resume(space: str, identity: str, turn: int) -> None:
    """Start or resume a workflow.

    DBOS resumes workflows that it has started. A workflow that is missing in its tables, or that is
    finished there but not in the space (which was restored from a backup), starts again; finished
    steps then have no effect.
    """
    from dbos import DBOS

    key = f"{space}:{identity}:{turn}"
    again = 0
    while (known := DBOS.get_workflow_status(key)) is not None:
        if known.status not in FINAL_STATES:
            return
        again += 1
        key = f"{space}:{identity}:{turn}:{again}"
    _start(key, space, identity)


def _start(key: str, space: str, identity: str) -> None:
    from dbos import DBOS, SetWorkflowID

    with SetWorkflowID(key):
        DBOS.start_workflow(_registered_workflow[0], space, identity)


def _destroy() -> None:
    from dbos import DBOS

    global _durable
    if _durable is not None:
        _durable.wait_for_steps()
    # DBOS itself would wait a whole second.
    DBOS.destroy(workflow_completion_timeout_sec=0)
    _close_connections()
    _durable = None


def _close_connections() -> None:
    """Close the connections of the engine passed to DBOS, which closes only its own engine."""
    if _database_engine is not None:
        _database_engine.dispose()
