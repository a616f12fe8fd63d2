"""Runs of a prompt: each is a record with the result, which an agent produces."""

from __future__ import annotations

import secrets
import string
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from commonplace.dialects.mama.platform import agents, service
from commonplace.dialects.mama.platform.files import records
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.memories import count_by_attrs
from commonplace.engine.content.write_policy import RECORD_STATE
from commonplace.engine.model import Memory, Origin
from commonplace.errors import CommonplaceError
from commonplace.platform import durable
from commonplace.platform.exclusive import exclusive

if TYPE_CHECKING:
    from commonplace.dialects.mama.platform.service import Service

KIND = "schedule_run"
OUTPUT_CHARS = 20_000
MAX_PARALLEL_RUNS = 4
LONGEST_SECONDS = 600.0
MAX_STORED_RUNS = 1_000
"""The maximum number of stored runs of a job; older ones are deleted."""
ORIGIN = Origin(client="commonplace", tool="schedule")
_BASE36 = string.digits + string.ascii_lowercase


def new_id(prefix: str) -> str:
    """Return a new id with the time in milliseconds, in the contract's format."""
    return f"{prefix}_{time.time_ns() // 1_000_000}_{_random_suffix()}"


def _random_suffix() -> str:
    return "".join(secrets.choice(_BASE36) for _ in range(6))


def add_run(memory: Commonplace, identity: str, job: str, prompt: str, agent: str) -> Memory:
    """Store a new run; Conflict if its id exists."""
    attrs = {
        "job": job, "prompt": prompt, "agent": agent, "status": "running",
        "started_at": int(time.time()), "finished_at": None, "output": None, "error": None,
    }  # fmt: skip
    return records.add(memory, KIND, identity, f"run of {job}", attrs, f"job:{job}")


def request_execution(memory: Commonplace, identity: str) -> None:
    """Request the execution of a run by the process that holds the lock."""
    durable.request_workflow(memory.library, memory.name, durable.workflow_id(KIND, identity))


def is_running(memory: Commonplace, job: str) -> bool:
    """Return whether a run of a job is unfinished."""
    newest = records.page(memory, KIND, f"job:{job}", limit=MAX_PARALLEL_RUNS)
    return any(run.attrs["status"] == "running" for run in newest)


def finish_run(memory: Commonplace, identity: str, output: str | None, error: str | None) -> None:
    """Store the result of a run, unless it has ended."""
    with exclusive(memory, "finish run", ORIGIN):
        run = records.find(memory, identity, KIND)
        if run is not None and run.attrs["status"] == "running":
            records.change(
                memory, run, status="failed" if error else "success", finished_at=int(time.time()),
                output=None if output is None else output[:OUTPUT_CHARS], error=error,
            )  # fmt: skip
            records.keep_newest(memory, KIND, f"job:{run.attrs['job']}", most=MAX_STORED_RUNS)


class Runs:
    """The runs of the operator's space, as durable work of one step each."""

    def __init__(
        self,
        running: Service,
        clock: Callable[[Commonplace], None],
        act_on_answer_of: Callable[[Commonplace, Memory, str], None],
    ) -> None:
        self._running = running
        self._clock = clock
        self._act_on_answer_of = act_on_answer_of
        self._slots = threading.BoundedSemaphore(MAX_PARALLEL_RUNS)

    def _memory(self) -> Commonplace:
        library = self._running.setting.library
        return Commonplace(space=service.OWNER_SPACE, origin=ORIGIN, library=library)

    def _find_run(self, identity: str) -> Memory | None:
        return records.find(self._memory(), identity.partition("~")[2], KIND)

    def count_steps(self, space: str, identity: str) -> int | None:
        """Return the number of steps, which is one, or None if there is no such run."""
        if space != service.OWNER_SPACE or not self._running.setting.library.exists(space):
            return None
        return None if self._find_run(identity) is None else 1

    def step(self, space: str, identity: str, index: int) -> bool:
        """Execute a run, unless it has ended."""
        del space, index
        with self._slots:
            run, memory = self._find_run(identity), self._memory()
            if run is None or run.attrs["status"] != "running":
                return False
            assert run.ref is not None
            try:
                answer = agents.ask_agent(
                    self._running, run.attrs["prompt"], agent=run.attrs.get("agent") or "cron",
                    seconds=LONGEST_SECONDS, key=run.ref,
                )  # fmt: skip
                self._act_on_answer_of(memory, run, answer)
            except CommonplaceError as error:
                finish_run(memory, run.ref, None, str(error))
            else:
                finish_run(memory, run.ref, answer, None)
        return True

    def end(self, space: str, identity: str) -> None:
        """Do nothing: a run has no cleanup."""

    def mark_failed(self, space: str, identity: str) -> None:
        """Mark a run as failed because this server cannot execute it."""
        del space
        message = "The server could not execute the run; see the server's log."
        finish_run(self._memory(), identity.partition("~")[2], None, message)

    def unfinished(self, given_up: Callable[[], bool]) -> Iterator[tuple[str, str, int]]:
        """Yield runs that have not ended."""
        memory = self._memory()
        if given_up() or not self._running.setting.library.exists(service.OWNER_SPACE):
            return
        counted = engine_call(memory, count_by_attrs, ["status"], [KIND], [RECORD_STATE])
        if not any(status == "running" for (status,) in counted):
            return
        for run in records.listing(memory, KIND):
            if run.attrs["status"] == "running" and run.ref is not None:
                yield service.OWNER_SPACE, durable.workflow_id(KIND, run.ref), 0

    def tick(self) -> None:
        """Start the runs of jobs that are due."""
        if self._running.setting.library.exists(service.OWNER_SPACE):
            self._clock(self._memory())


def to_dict(run: Memory) -> dict[str, Any]:
    """Return the fields of a run for the log of its job."""
    names = ("started_at", "finished_at", "status", "output", "error")
    return {"id": run.ref, **{name: run.attrs[name] for name in names}}
