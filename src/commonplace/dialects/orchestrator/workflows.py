"""Workflows: steps that agents take one after the other, each with what the ones before gave.

A definition, an execution and each of its steps are records of the space. What a step gave is
stored with the fact that it is over, in one unit, so that a step which is taken again after a
crash finds that out and does nothing.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from commonplace.dialects.orchestrator import runtimes, workspaces
from commonplace.dialects.orchestrator.answering import stamp
from commonplace.dialects.orchestrator.messaging import capped
from commonplace.dialects.orchestrator.shapes import records
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.memories import tally
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound
from commonplace.platform import durable
from commonplace.platform.exclusive import exclusive
from commonplace.platform.records import STATE

if TYPE_CHECKING:
    from commonplace.dialects.orchestrator.runtimes import Runtime
    from commonplace.engine.library import Library
    from commonplace.engine.model import Memory

WORKFLOW, EXECUTION, STEP = "workflow", "workflow_execution", "workflow_step"
STEPS_BYTES = 128 * 1024
MOST_STEPS = 100
STEP_SECONDS = 300
LONGEST = timedelta(minutes=30)
MOST_SECONDS = int(LONGEST.total_seconds())  # of a step: no execution has more
MOST_RETRIES = 10
ON_FAILURE = ("stop", "skip", "retry")
OVER = ("completed", "failed", "cancelled")
SETTING = "COMMONPLACE_WORKFLOW_APPROVAL"
ORIGIN = Origin(client="commonplace", tool="workflow")
_PLACE = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
_STEP_KEYS: Mapping[str, Any] = {
    "name": "", "agent_slug": "", "prompt_template": "", "timeout_secs": STEP_SECONDS,
    "requires_approval": False, "on_failure": "stop", "output_key": "", "max_retries": 0,
}  # fmt: skip

log = logging.getLogger(__name__)


# Definitions


def parsed(steps: object) -> list[dict[str, Any]]:
    """Steps as they are kept, from JSON text or as they are."""
    if isinstance(steps, str):
        if len(steps.encode()) > STEPS_BYTES:
            raise InvalidInput("steps exceeds maximum allowed size")
        try:
            steps = json.loads(steps)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"invalid steps JSON: {error}") from None
    elif len(json.dumps(steps).encode()) > STEPS_BYTES:
        raise InvalidInput("steps exceeds maximum allowed size")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise InvalidInput("invalid steps JSON: it must be an array of objects")
    if not steps:
        raise InvalidInput("steps array must not be empty")
    if len(steps) > MOST_STEPS:
        raise InvalidInput(f"a workflow may have {MOST_STEPS} steps")
    return [_step(index, step) for index, step in enumerate(steps)]


def _step(index: int, given: Mapping[str, Any]) -> dict[str, Any]:
    step = {**_STEP_KEYS, **{k: v for k, v in given.items() if k in _STEP_KEYS and v is not None}}
    needed = ("name", "agent_slug", "prompt_template")
    if not all(isinstance(step[name], str) and step[name].strip() for name in needed):
        raise InvalidInput(f"step {index}: name, agent_slug, and prompt_template are required")
    for name, usual in _STEP_KEYS.items():
        if type(step[name]) is not type(usual):
            raise InvalidInput(f"step {index}: {name} must be a {type(usual).__name__}")
    if step["on_failure"] not in ON_FAILURE:
        raise InvalidInput(f"step {index}: on_failure must be stop, skip or retry")
    if not 0 <= step["max_retries"] <= MOST_RETRIES:
        raise InvalidInput(f"step {index}: max_retries must be 0 to {MOST_RETRIES}")
    if not 0 <= step["timeout_secs"] <= MOST_SECONDS:
        told = f"1 to {MOST_SECONDS}, or 0 for the usual {STEP_SECONDS}"
        raise InvalidInput(f"step {index}: timeout_secs must be {told}")
    step["timeout_secs"] = step["timeout_secs"] or STEP_SECONDS
    return step


def create(memory: Commonplace, name: str, description: str, steps: object) -> Memory:
    """A new definition."""
    attrs = {
        "name": name, "description": description, "steps": parsed(steps), "is_active": True,
    }  # fmt: skip
    return records.add(memory, WORKFLOW, None, name, attrs)


def defined(memory: Commonplace, identity: str) -> Memory:
    """A definition of this workspace."""
    record = records.find(memory, identity, WORKFLOW)
    if record is None:
        raise NotFound("workflow not found")
    return record


def shown(record: Memory) -> dict[str, Any]:
    """A definition as it is listed."""
    attrs = record.attrs
    return {
        "id": record.id,
        "name": attrs["name"],
        "description": attrs["description"],
        "is_active": attrs["is_active"],
        "step_count": len(attrs["steps"]),
        "created_at": stamp(record.created_at),
    }


# Executions


def trigger(
    memory: Commonplace, identity: str, user: str, conversation: str, given: object
) -> Memory:
    """A new execution, which begins once this is stored."""
    workflow = defined(memory, identity)
    if not workflow.attrs["is_active"]:
        raise Conflict("workflow is inactive")
    if not durable.installed():
        raise InvalidInput("workflows not configured on this server: DBOS is not installed")
    attrs = {
        "workflow_id": workflow.id, "name": workflow.attrs["name"],
        "steps": workflow.attrs["steps"], "context": _context(given), "user": user,
        "conversation_id": conversation, "status": "pending", "current_step": 0, "error": "",
        "turn": 0, "started_at": "",
    }  # fmt: skip
    execution = records.add(memory, EXECUTION, None, workflow.attrs["name"], attrs)
    # Asked for before it is stored: whoever carries it out waits until it is there, or never is.
    durable.ask(memory.library.path, memory.name, execution.id)
    return execution


def _context(given: object) -> dict[str, str]:
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else {}
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"invalid initial_context JSON: {error}") from None
    if not isinstance(given, dict) or not all(isinstance(v, str) for v in given.values()):
        raise InvalidInput("invalid initial_context JSON: it must be an object of texts")
    return given


def executed(memory: Commonplace, identity: str) -> Memory:
    """An execution of this workspace."""
    record = records.find(memory, identity, EXECUTION)
    if record is None:
        raise NotFound("workflow execution not found")
    return record


def status(memory: Commonplace, identity: str) -> dict[str, Any]:
    """How far an execution is; only of steps that have begun."""
    execution = executed(memory, identity)
    steps = []
    for index in range(len(execution.attrs["steps"])):
        step = _record(memory, execution.id, index)
        if step is not None:
            shown_step = {
                name: step.attrs[name]
                for name in ("step_index", "step_name", "agent_slug", "status")
            }
            if step.attrs["duration_ms"] is not None:
                shown_step["duration_ms"] = step.attrs["duration_ms"]
            steps.append(shown_step)
    attrs = execution.attrs
    return {
        "execution_id": execution.id,
        "status": attrs["status"],
        "current_step": attrs["current_step"],
        "error": attrs["error"],
        "steps": steps,
    }


def approve(memory: Commonplace, identity: str) -> None:
    """Let an execution go on that waits for a person."""
    with exclusive(memory, "approve workflow"):
        execution = executed(memory, identity)
        step = _record(memory, execution.id, execution.attrs["current_step"])
        over = execution.attrs["status"] in OVER
        if over or step is None or step.attrs["status"] != "waiting_approval":
            raise Conflict("the execution does not wait for approval")
        waited = (datetime.now(UTC) - step.updated_at).total_seconds()
        records.change(memory, step, status="approved")
        turn = execution.attrs["turn"] + 1
        waited += execution.attrs.get("waited", 0.0)  # a person's time is not the execution's
        records.change(memory, execution, turn=turn, waited=waited)
        durable.ask(memory.library.path, memory.name, execution.id, turn)


def cancel(memory: Commonplace, identity: str) -> None:
    """End an execution: the step that runs is the last, and what it gives is not kept."""
    with exclusive(memory, "cancel workflow"):
        execution = executed(memory, identity)
        if execution.attrs["status"] in OVER:
            raise Conflict(f"the execution is {execution.attrs['status']} already")
        records.change(memory, execution, status="cancelled", error="cancelled")
        memory.events.record("workflow.cancelled", execution.id)


def filled(template: str, context: Mapping[str, str]) -> str:
    """The template with what is known; a name that nobody knows stays as it is."""
    return _PLACE.sub(lambda place: context.get(place[1], place[0]), template)


# Carrying out


def _record(memory: Commonplace, execution: str, index: int) -> Memory | None:
    return records.find(memory, f"workflow_step:{execution}:{index}", STEP)


class Executions:
    """The workflows of a library's spaces, as work in steps."""

    def __init__(self, library: Library, *, manual: bool = False) -> None:
        self._library = library
        self._manual = manual

    def _memory(self, space: str) -> Commonplace:
        return Commonplace(space=space, origin=ORIGIN, library=self._library)

    def steps(self, space: str, identity: str) -> int | None:
        """How many steps an execution has."""
        if not self._library.exists(space):
            return None
        record = records.find(self._memory(space), identity, EXECUTION)
        return None if record is None else len(record.attrs["steps"])

    def step(self, space: str, identity: str, index: int) -> bool:
        """Take a step, unless it is over; whether to go on."""
        memory = self._memory(space)
        with exclusive(memory, "workflow step"):
            execution = executed(memory, identity)
            if execution.attrs["status"] in OVER:
                return False
            if execution.attrs["status"] == "pending":
                execution = records.change(
                    memory,
                    execution,
                    status="running",
                    started_at=datetime.now(UTC).isoformat(),
                )
                memory.events.record(
                    "workflow.started", identity, {"name": execution.attrs["name"]}
                )
            step = self._begun(memory, execution, index)
            if step.attrs["status"] in ("completed", "failed"):
                return True  # a failed one was skipped: otherwise the execution would be over
            if step.attrs["status"] == "waiting_approval":
                return False
        return self._take(memory, execution, step)

    def _begun(self, memory: Commonplace, execution: Memory, index: int) -> Memory:
        """The step's record, at least running, or waiting for approval."""
        there = _record(memory, execution.id, index)
        if there is not None:
            if there.attrs["status"] == "approved":
                return records.change(memory, there, status="running")
            return there
        step = execution.attrs["steps"][index]
        told = {"step_index": index, "step_name": step["name"]}
        attrs = {
            **told, "execution_id": execution.id, "agent_slug": step["agent_slug"],
            "status": "running", "duration_ms": None, "output": "", "error": "", "attempts": 0,
        }  # fmt: skip
        if step["requires_approval"]:
            memory.events.record("workflow.step.approval_required", execution.id, told)
            attrs["status"] = "waiting_approval" if self._manual else "running"
        memory.events.record("workflow.step.started", execution.id, told)
        ref = f"workflow_step:{execution.id}:{index}"
        return records.add(memory, STEP, ref, step["name"], attrs)

    def _take(self, memory: Commonplace, execution: Memory, record: Memory) -> bool:
        step = execution.attrs["steps"][record.attrs["step_index"]]
        tries = 1 + (step["max_retries"] if step["on_failure"] == "retry" else 0)
        begun = time.monotonic()
        error = record.attrs["error"]
        attempt = record.attrs["attempts"]
        while attempt < tries:
            attempt += 1  # noted once it failed: one that a crash cut off is no try
            try:
                output = self._ask(memory, execution, step, record.attrs["step_index"])
            except CommonplaceError as failed:
                error = failed.message
                record = records.change(memory, record, attempts=attempt, error=error)
                continue
            return self._over(memory, execution, record, begun, attempt, output, "")
        return self._over(memory, execution, record, begun, attempt, "", error or "no try was left")

    def _ask(
        self, memory: Commonplace, execution: Memory, step: Mapping[str, Any], index: int
    ) -> str:
        runtime: Runtime | None = runtimes.of(self._library)
        if runtime is None:
            raise InvalidInput("runtime client not configured")
        started = datetime.fromisoformat(execution.attrs["started_at"])
        left = (started + LONGEST - datetime.now(UTC)).total_seconds()
        left += execution.attrs.get("waited", 0.0)
        if left <= 0:
            raise InvalidInput("the execution took longer than 30 minutes")
        return runtime.converse(
            runtimes.Ask(
                agent=workspaces.agent_named(memory, slug=step["agent_slug"]),
                prompt=filled(step["prompt_template"], execution.attrs["context"]),
                space=memory.name,
                user=execution.attrs["user"],
                seconds=min(float(step["timeout_secs"]), left),
                conversation_id=execution.attrs["conversation_id"],
                key=f"workflow:{execution.id}:step:{index}",  # one for all tries
            )
        )

    def _over(
        self,
        memory: Commonplace,
        before: Memory,
        record: Memory,
        begun: float,
        attempts: int,
        output: str,
        error: str,
    ) -> bool:
        """Store what a step gave together with the fact that it is over; whether to go on."""
        index = record.attrs["step_index"]
        step = before.attrs["steps"][index]
        with exclusive(memory, "workflow step"):
            execution = executed(memory, before.id)
            if execution.attrs["status"] in OVER:
                return False
            records.change(
                memory, record, status="failed" if error else "completed", output=capped(output),
                error=error, attempts=attempts,
                duration_ms=int((time.monotonic() - begun) * 1000),
            )  # fmt: skip
            context = dict(execution.attrs["context"])
            if not error and step["output_key"]:
                context[step["output_key"]] = capped(output)
            told = {"step_index": index, "step_name": step["name"]}
            if error and step["on_failure"] != "skip":
                why = f"step {index} ({step['name']}) failed: {error}"
                records.change(memory, execution, status="failed", error=why)
                memory.events.record("workflow.failed", execution.id, {**told, "error": error})
                return False
            records.change(memory, execution, context=context, current_step=index + 1)
            memory.events.record("workflow.step.completed", execution.id, {**told, "error": error})
        return True

    def failed(self, space: str, identity: str) -> None:
        """End an execution that cannot go on for a fault of this server."""
        memory = self._memory(space)
        with exclusive(memory, "workflow end"):
            execution = executed(memory, identity)
            if execution.attrs["status"] not in OVER:
                why = "the server could not go on with it; its log says why"
                records.change(memory, execution, status="failed", error=why)
                memory.events.record("workflow.failed", identity, {"error": why})

    def unfinished(self, given_up: Callable[[], bool]) -> Iterator[tuple[str, str, int]]:
        """Executions that are not over and do not wait for a person."""
        for space in self._library.spaces():
            if given_up():
                return
            memory = self._memory(space)
            try:
                counted = engine_call(memory, tally, ["status"], [EXECUTION], [STATE])
                if all(status in OVER for (status,) in counted):
                    continue  # found out without loading the space's index
                for execution in records.listing(memory, EXECUTION):
                    if execution.attrs["status"] in OVER:
                        continue
                    step = _record(memory, execution.id, execution.attrs["current_step"])
                    if step is None or step.attrs["status"] != "waiting_approval":
                        yield space, execution.id, execution.attrs["turn"]
            except CommonplaceError as error:
                if given_up():
                    return
                log.warning("a space was not looked at for workflows", extra={"why": error.code})

    def tick(self) -> None:
        """Nothing is due by the clock."""

    def end(self, space: str, identity: str) -> None:
        """Complete an execution whose steps are all over; one that waits, goes on waiting."""
        memory = self._memory(space)
        with exclusive(memory, "workflow end"):
            execution = executed(memory, identity)
            attrs = execution.attrs
            if attrs["status"] not in OVER and attrs["current_step"] >= len(attrs["steps"]):
                records.change(memory, execution, status="completed")
                memory.events.record("workflow.completed", identity, {"name": attrs["name"]})
