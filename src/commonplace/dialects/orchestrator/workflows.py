"""Workflows: agents carry out steps in sequence; a step can use the output of earlier steps.

A definition, an execution and each of its steps are records of the space. A step's output is stored
in the transaction that marks the step as done, so repeating a step after a crash changes nothing.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import runtimes, workspaces
from commonplace.dialects.orchestrator.answering import (
    LARGE_BYTES,
    Answer,
    clamp_limit,
    operation,
    stamp,
    tool,
)
from commonplace.dialects.orchestrator.messaging import MOST_PAGE, PAGE, truncate_response
from commonplace.dialects.orchestrator.workspaces import records
from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.memories import count_by_attrs
from commonplace.engine.content.write_policy import RECORD_STATE
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError, Conflict, InvalidInput
from commonplace.platform import durable
from commonplace.platform.exclusive import exclusive

if TYPE_CHECKING:
    from commonplace.dialects.orchestrator.runtimes import Runtime
    from commonplace.engine.library import Library
    from commonplace.engine.model import Memory

WORKFLOW, EXECUTION, STEP = "workflow", "workflow_execution", "workflow_step"
STEPS_BYTES = 128 * 1024
MOST_STEPS = 100
PROMPT_CHARS = 1_000_000
STEP_SECONDS = 300
MAX_DURATION = timedelta(minutes=30)
MOST_SECONDS = int(MAX_DURATION.total_seconds())  # the longest timeout of a step
MOST_RETRIES = 10
ON_FAILURE = ("stop", "skip", "retry")
FINAL_STATUSES = ("completed", "failed", "cancelled")
APPROVAL_VARIABLE = "COMMONPLACE_WORKFLOW_APPROVAL"
ORIGIN = Origin(client="commonplace", tool="workflow")
_PLACEHOLDER = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
_STEP_KEYS: Mapping[str, Any] = {
    "name": "", "agent_slug": "", "prompt_template": "", "timeout_secs": STEP_SECONDS,
    "requires_approval": False, "on_failure": "stop", "output_key": "", "max_retries": 0,
}  # fmt: skip

NO_WORKFLOW = "workflow not found"

Steps = Annotated[
    Any,
    {"type": ["string", "array"]},
    "JSON array of steps, each with name, agent_slug, prompt_template, and optionally timeout_secs,"
    " requires_approval, on_failure (stop, skip, retry), output_key, max_retries. {{key}} in a"
    " template stands for the output of the step with that output_key.",
]

log = logging.getLogger(__name__)


# Definitions


def parse_steps(steps: object) -> list[dict[str, Any]]:
    """Parse steps from JSON text or a list."""
    if isinstance(steps, str):
        if len(steps.encode()) > STEPS_BYTES:
            raise InvalidInput("steps exceeds maximum allowed size")
        try:
            steps = json.loads(steps)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"invalid steps JSON: {error}") from None
    elif len(json.dumps(steps, ensure_ascii=False).encode()) > STEPS_BYTES:
        raise InvalidInput("steps exceeds maximum allowed size")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise InvalidInput("invalid steps JSON: it must be an array of objects")
    checks.attrs({"steps": steps}, "steps")  # JSON text may hold half of a character
    if not steps:
        raise InvalidInput("steps array must not be empty")
    if len(steps) > MOST_STEPS:
        raise InvalidInput(f"a workflow may have at most {MOST_STEPS} steps")
    return [_checked_step(index, step) for index, step in enumerate(steps)]


def _checked_step(index: int, given: Mapping[str, Any]) -> dict[str, Any]:
    step = {**_STEP_KEYS, **{k: v for k, v in given.items() if k in _STEP_KEYS and v is not None}}
    needed = ("name", "agent_slug", "prompt_template")
    if not all(isinstance(step[name], str) and step[name].strip() for name in needed):
        raise InvalidInput(f"step {index}: name, agent_slug, and prompt_template are required")
    for name, default in _STEP_KEYS.items():
        if type(step[name]) is not type(default):
            raise InvalidInput(f"step {index}: {name} must be a {type(default).__name__}")
    if step["on_failure"] not in ON_FAILURE:
        raise InvalidInput(f"step {index}: on_failure must be stop, skip or retry")
    if not 0 <= step["max_retries"] <= MOST_RETRIES:
        raise InvalidInput(f"step {index}: max_retries must be 0 to {MOST_RETRIES}")
    if not 0 <= step["timeout_secs"] <= MOST_SECONDS:
        allowed = f"1 to {MOST_SECONDS}, or 0 for the usual {STEP_SECONDS}"
        raise InvalidInput(f"step {index}: timeout_secs must be {allowed}")
    step["timeout_secs"] = step["timeout_secs"] or STEP_SECONDS
    return step


@tool("write", {"workflow_id": "", "info": ""})
def create_workflow(
    call: Call,
    *,
    name: Annotated[str, {"type": "string", "maxLength": 500}, "Its name."],
    steps: Steps,
    description: Annotated[str, "What it is for."] = "",
) -> Answer:
    """Define a multi-step agent workflow; its steps run one after the other."""
    attrs = {
        "name": name, "description": description, "steps": parse_steps(steps), "is_active": True,
    }  # fmt: skip
    record = records.add(call.memory, WORKFLOW, None, name, attrs)
    count = len(record.attrs["steps"])
    return {"workflow_id": record.id, "info": f'workflow "{name}" created with {count} steps'}


@tool("read", {"workflows": [], "info": ""}, response_bytes=LARGE_BYTES)
def list_workflows(
    call: Call, *, include_inactive: Annotated[bool, "Has no effect."] = False
) -> Answer:
    """List all workflow definitions of the workspace."""
    del include_inactive
    return {
        "workflows": [
            _workflow_to_dict(record) for record in records.listing(call.memory, WORKFLOW)
        ]
    }


@operation("read", {"workflows": []}, response_bytes=LARGE_BYTES)
def all_workflows(call: Call) -> Answer:
    """Return all workflow definitions."""
    return list_workflows(call)


@operation("write", {})
def change_workflow(call: Call, *, workflow_id: str, is_active: bool) -> Answer:
    """Enable or disable a workflow."""
    record = records.get(call.memory, workflow_id, WORKFLOW, NO_WORKFLOW)
    return _workflow_to_dict(records.change(call.memory, record, is_active=is_active))


def _workflow_to_dict(record: Memory) -> dict[str, Any]:
    attrs = record.attrs
    return {
        "id": record.id,
        **{name: attrs[name] for name in ("name", "description", "is_active")},
        "step_count": len(attrs["steps"]),
        "created_at": stamp(record.created_at),
    }


# Executions


@tool("write", {"execution_id": "", "info": ""}, open_world=True)
def trigger_workflow(
    call: Call,
    *,
    workflow_id: Annotated[str, "The workflow to start."],
    conversation_id: Annotated[str, "The conversation it belongs to."] = "",
    initial_context: Annotated[
        Any, {"type": ["string", "object"]}, "JSON object of texts that templates may use."
    ] = "",
) -> Answer:
    """Start a workflow, with optional initial context; it runs in the background."""
    memory = call.memory
    conversation = workspaces.conversation_id_of(call, conversation_id)
    workflow = records.get(memory, workflow_id, WORKFLOW, NO_WORKFLOW)
    name = workflow.attrs["name"]
    if not workflow.attrs["is_active"]:
        raise Conflict("workflow is inactive")
    if not durable.is_dbos_installed():
        raise InvalidInput("workflows not configured on this server: DBOS is not installed")
    attrs = {
        "workflow_id": workflow.id, "name": name, "steps": workflow.attrs["steps"],
        "context": _parse_context(initial_context), "user": call.caller.user,
        "conversation_id": conversation, "status": "pending", "current_step": 0, "error": "",
        "turn": 0, "started_at": "",
    }  # fmt: skip
    execution = records.add(memory, EXECUTION, None, name, attrs)
    # Request it before the commit: the process that runs workflows waits for the row.
    durable.request_workflow(memory.library, memory.name, execution.id)
    info = f'workflow "{name}" triggered, execution {execution.id} started'
    return {"execution_id": execution.id, "info": info}


def _parse_context(given: object) -> dict[str, str]:
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else {}
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"invalid initial_context JSON: {error}") from None
    if not isinstance(given, dict) or not all(isinstance(v, str) for v in given.values()):
        raise InvalidInput("invalid initial_context JSON: it must be an object of texts")
    checks.attrs(given, "initial_context")
    return given


def get_execution(memory: Commonplace, identity: str) -> Memory:
    """Return an execution of this workspace by its id; raise NotFound if there is none."""
    return records.get(memory, identity, EXECUTION, "workflow execution not found")


@tool(
    "read",
    {"execution_id": "", "status": "", "current_step": 0, "error": "", "steps": [], "info": ""},
)
def check_workflow_status(
    call: Call, *, execution_id: Annotated[str, "The execution, as trigger_workflow gave it."]
) -> Answer:
    """Check the progress of a workflow's execution, step by step."""
    return execution_progress(call.memory, execution_id)


@operation("read", {})
def show_execution(call: Call, *, execution_id: str) -> Answer:
    """Return the progress of an execution."""
    return execution_progress(call.memory, execution_id)


@operation("read", {"executions": []})
def list_executions(call: Call, *, waiting: bool = False, limit: int = PAGE) -> Answer:
    """Return executions, newest first; with `waiting`, only those that wait for approval."""
    found = records.listing(call.memory, EXECUTION)
    shown = (_execution_to_dict(call.memory, each) for each in reversed(found))
    chosen = (each for each in shown if each["waits_for"] or not waiting)
    return {"executions": list(itertools.islice(chosen, clamp_limit(limit, PAGE, MOST_PAGE)))}


def _execution_to_dict(memory: Commonplace, execution: Memory) -> dict[str, Any]:
    """Return the fields of an execution; `waits_for` is the step to approve, or None."""
    attrs = execution.attrs
    step = None
    if attrs["status"] not in FINAL_STATUSES:
        begun = _step_record(memory, execution.id, attrs["current_step"])
        if begun is not None and begun.attrs["status"] == "waiting_approval":
            step = attrs["steps"][begun.attrs["step_index"]]
    waits_for = step and {
        "name": step["name"], "agent_slug": step["agent_slug"],
        "prompt": _prompt_to_show(step, attrs["context"]),
    }  # fmt: skip
    return {
        "execution_id": execution.id, "name": attrs["name"], "status": attrs["status"],
        "current_step": attrs["current_step"], "steps": len(attrs["steps"]),
        "error": attrs["error"], "created_at": stamp(execution.created_at),
        "waits_for": waits_for,
    }  # fmt: skip


def _prompt_to_show(step: Mapping[str, Any], context: Mapping[str, str]) -> str:
    """Return the prompt of a step to approve; the template if the prompt is too long."""
    template: str = step["prompt_template"]
    try:
        return fill_template(template, context)
    except InvalidInput:
        return template


@operation("write", {})
def approve_execution(call: Call, *, execution_id: str) -> Answer:
    """Approve the step at which an execution waits."""
    approve(call.memory, execution_id)
    return execution_progress(call.memory, execution_id)


@operation("write", {})
def cancel_execution(call: Call, *, execution_id: str) -> Answer:
    """Cancel an execution."""
    cancel(call.memory, execution_id)
    return execution_progress(call.memory, execution_id)


def execution_progress(memory: Commonplace, identity: str) -> dict[str, Any]:
    """Return the progress of an execution, without steps that have not begun."""
    execution = get_execution(memory, identity)
    attrs = execution.attrs
    steps = []
    for index in range(len(attrs["steps"])):
        step = _step_record(memory, execution.id, index)
        if step is not None:
            names = ["step_index", "step_name", "agent_slug", "status"]
            if step.attrs["duration_ms"] is not None:
                names.append("duration_ms")
            steps.append({name: step.attrs[name] for name in names})
    progress = {name: attrs[name] for name in ("status", "current_step", "error")}
    return {"execution_id": execution.id, **progress, "steps": steps}


def approve(memory: Commonplace, identity: str) -> None:
    """Approve the step at which an execution waits."""
    with exclusive(memory, "approve workflow"):
        execution = get_execution(memory, identity)
        step = _step_record(memory, execution.id, execution.attrs["current_step"])
        over = execution.attrs["status"] in FINAL_STATUSES
        if over or step is None or step.attrs["status"] != "waiting_approval":
            raise Conflict("the execution does not wait for approval")
        waited = (datetime.now(UTC) - step.updated_at).total_seconds()
        records.change(memory, step, status="approved")
        turn = execution.attrs["turn"] + 1
        # the time of waiting for approval does not count as running time
        waited += execution.attrs.get("waited", 0.0)
        records.change(memory, execution, turn=turn, waited=waited)
        durable.request_workflow(memory.library, memory.name, execution.id, turn)


def cancel(memory: Commonplace, identity: str) -> None:
    """Cancel an execution; the output of a running step is discarded."""
    with exclusive(memory, "cancel workflow"):
        execution = get_execution(memory, identity)
        if execution.attrs["status"] in FINAL_STATUSES:
            raise Conflict(f"the execution is {execution.attrs['status']} already")
        _fail_open_step(memory, execution, "cancelled")
        records.change(memory, execution, status="cancelled", error="cancelled")
        memory.events.record("workflow.cancelled", execution.id)


def fill_template(template: str, context: Mapping[str, str]) -> str:
    """Replace known names in the template by their values; leave unknown names unchanged.

    Raise InvalidInput if the result is too long, since many names may stand for one long value.
    """
    chars = len(template) + sum(
        len(context.get(match[1], match[0])) - len(match[0])
        for match in _PLACEHOLDER.finditer(template)
    )
    if chars > PROMPT_CHARS:
        raise InvalidInput(f"the prompt exceeds max length of {PROMPT_CHARS}")
    return _PLACEHOLDER.sub(lambda match: context.get(match[1], match[0]), template)


# Running executions


def _step_record(memory: Commonplace, execution: str, index: int) -> Memory | None:
    return records.find(memory, f"workflow_step:{execution}:{index}", STEP)


def _fail_open_step(memory: Commonplace, execution: Memory, why: str) -> None:
    """Mark the step that an execution has begun and not finished as failed."""
    step = _step_record(memory, execution.id, execution.attrs["current_step"])
    if step is not None and step.attrs["status"] not in ("completed", "failed"):
        records.change(memory, step, status="failed", error=why)


class Executions:
    """The executions of a library's spaces, as durable work (`platform/durable.py`)."""

    def __init__(self, library: Library, *, manual: bool = False) -> None:
        self._library = library
        self._manual = manual

    def _space_memory(self, space: str) -> Commonplace:
        return Commonplace(space=space, origin=ORIGIN, library=self._library)

    def count_steps(self, space: str, identity: str) -> int | None:
        """Return the number of steps of an execution."""
        if not self._library.exists(space):
            return None
        record = records.find(self._space_memory(space), identity, EXECUTION)
        return None if record is None else len(record.attrs["steps"])

    def step(self, space: str, identity: str, index: int) -> bool:
        """Run a step unless it is done; return whether to continue with the next step."""
        memory = self._space_memory(space)
        with exclusive(memory, "workflow step"):
            execution = get_execution(memory, identity)
            if execution.attrs["status"] in FINAL_STATUSES:
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
            step = self._begin_step(memory, execution, index)
            if step.attrs["status"] in ("completed", "failed"):
                return True  # reached only if a failed step was skipped
            if step.attrs["status"] == "waiting_approval":
                return False
        return self._run_step(memory, execution, step)

    def _begin_step(self, memory: Commonplace, execution: Memory, index: int) -> Memory:
        """Return the record of a step; create it when the step begins."""
        existing = _step_record(memory, execution.id, index)
        if existing is not None:
            if existing.attrs["status"] == "approved":
                return records.change(memory, existing, status="running")
            return existing
        step = execution.attrs["steps"][index]
        event = {"step_index": index, "step_name": step["name"]}
        attrs = {
            **event, "execution_id": execution.id, "agent_slug": step["agent_slug"],
            "status": "running", "duration_ms": None, "output": "", "error": "", "attempts": 0,
        }  # fmt: skip
        if step["requires_approval"]:
            memory.events.record("workflow.step.approval_required", execution.id, event)
            attrs["status"] = "waiting_approval" if self._manual else "running"
        memory.events.record("workflow.step.started", execution.id, event)
        ref = f"workflow_step:{execution.id}:{index}"
        return records.add(memory, STEP, ref, step["name"], attrs)

    def _run_step(self, memory: Commonplace, execution: Memory, record: Memory) -> bool:
        step = execution.attrs["steps"][record.attrs["step_index"]]
        tries = 1 + (step["max_retries"] if step["on_failure"] == "retry" else 0)
        begun = time.monotonic()
        error = record.attrs["error"]
        attempt = record.attrs["attempts"]
        while attempt < tries:
            attempt += 1  # stored after a failure; an attempt that a crash ended is not counted
            try:
                output = self._ask_agent(memory, execution, step, record.attrs["step_index"])
            except CommonplaceError as failed:
                error = failed.message
                stored = get_execution(memory, execution.id)
                if stored.attrs["status"] in FINAL_STATUSES:  # it was cancelled meanwhile
                    return False
                record = records.change(memory, record, attempts=attempt, error=error)
                continue
            return self._finish_step(memory, execution, record, begun, attempt, output, "")
        return self._finish_step(
            memory, execution, record, begun, attempt, "", error or "no retries are left"
        )

    def _ask_agent(
        self, memory: Commonplace, execution: Memory, step: Mapping[str, Any], index: int
    ) -> str:
        runtime: Runtime | None = runtimes.runtime_of(self._library)
        if runtime is None:
            raise InvalidInput("runtime client not configured")
        started = datetime.fromisoformat(execution.attrs["started_at"])
        left = (started + MAX_DURATION - datetime.now(UTC)).total_seconds()
        left += execution.attrs.get("waited", 0.0)
        if left <= 0:
            raise InvalidInput("the execution took longer than 30 minutes")
        ask = runtimes.AgentPrompt(
            agent=workspaces.get_agent(memory, slug=step["agent_slug"]),
            prompt=fill_template(step["prompt_template"], execution.attrs["context"]),
            space=memory.name,
            user=execution.attrs["user"],
            seconds=min(float(step["timeout_secs"]), left),
            conversation_id=execution.attrs["conversation_id"],
            key=f"workflow:{execution.id}:step:{index}",  # the same key for all attempts
        )
        return runtimes.answer_of(runtime, ask)

    def _finish_step(
        self,
        memory: Commonplace,
        before: Memory,
        record: Memory,
        begun: float,
        attempts: int,
        output: str,
        error: str,
    ) -> bool:
        """Store a step's output and status in one transaction; return whether to continue."""
        index = record.attrs["step_index"]
        step = before.attrs["steps"][index]
        with exclusive(memory, "workflow step"):
            execution = get_execution(memory, before.id)
            if execution.attrs["status"] in FINAL_STATUSES:
                return False
            context = dict(execution.attrs["context"])
            if not error and step["output_key"]:
                context[step["output_key"]] = truncate_response(output)
                try:
                    checks.attrs({**execution.attrs, "context": context}, "the context")
                except InvalidInput as too_large:
                    error, context = too_large.message, execution.attrs["context"]
            records.change(
                memory, record, status="failed" if error else "completed",
                output=truncate_response(output), error=error, attempts=attempts,
                duration_ms=int((time.monotonic() - begun) * 1000),
            )  # fmt: skip
            event = {"step_index": index, "step_name": step["name"]}
            if error and step["on_failure"] != "skip":
                why = f"step {index} ({step['name']}) failed: {error}"
                records.change(memory, execution, status="failed", error=why)
                memory.events.record("workflow.failed", execution.id, {**event, "error": error})
                return False
            records.change(memory, execution, context=context, current_step=index + 1)
            memory.events.record("workflow.step.completed", execution.id, {**event, "error": error})
        return True

    def mark_failed(self, space: str, identity: str) -> None:
        """Mark an execution as failed because of an internal error."""
        memory = self._space_memory(space)
        with exclusive(memory, "workflow end"):
            execution = get_execution(memory, identity)
            if execution.attrs["status"] not in FINAL_STATUSES:
                why = "internal server error; see the log"
                _fail_open_step(memory, execution, why)
                records.change(memory, execution, status="failed", error=why)
                memory.events.record("workflow.failed", identity, {"error": why})

    def unfinished(self, given_up: Callable[[], bool]) -> Iterator[tuple[str, str, int]]:
        """Yield the executions that have not ended and do not wait for approval."""
        for space in self._library.spaces():
            if given_up():
                return
            memory = self._space_memory(space)
            try:
                counted = engine_call(
                    memory, count_by_attrs, ["status"], [EXECUTION], [RECORD_STATE]
                )
                if all(status in FINAL_STATUSES for (status,) in counted):
                    continue  # all executions have ended, so the space's index need not be loaded
                for execution in records.listing(memory, EXECUTION):
                    if execution.attrs["status"] in FINAL_STATUSES:
                        continue
                    step = _step_record(memory, execution.id, execution.attrs["current_step"])
                    if step is None or step.attrs["status"] != "waiting_approval":
                        yield space, execution.id, execution.attrs["turn"]
            except CommonplaceError as error:
                if given_up():
                    return
                log.warning("the workflows of a space could not be read", extra={"why": error.code})

    def tick(self) -> None:
        """Do nothing: workflows have no schedule."""

    def end(self, space: str, identity: str) -> None:
        """Mark an execution as completed if all of its steps are done."""
        memory = self._space_memory(space)
        with exclusive(memory, "workflow end"):
            execution = get_execution(memory, identity)
            attrs = execution.attrs
            if attrs["status"] not in FINAL_STATUSES and attrs["current_step"] >= len(
                attrs["steps"]
            ):
                records.change(memory, execution, status="completed")
                memory.events.record("workflow.completed", identity, {"name": attrs["name"]})
