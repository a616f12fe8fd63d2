"""The workflow engine: several agents, one step after the other."""

from __future__ import annotations

from typing import Annotated, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import workflows, workspaces
from commonplace.dialects.orchestrator.answering import Answer, operation, tool
from commonplace.dialects.orchestrator.shapes import records

Steps = Annotated[
    Any,
    {"type": ["string", "array"]},
    "JSON array of steps, each with name, agent_slug, prompt_template, and optionally timeout_secs,"
    " requires_approval, on_failure (stop, skip, retry), output_key, max_retries. {{key}} in a"
    " template stands for the output of the step with that output_key.",
]


@tool("write", {"workflow_id": "", "info": ""})
def create_workflow(
    call: Call,
    *,
    name: Annotated[str, {"type": "string", "maxLength": 500}, "Its name."],
    steps: Steps,
    description: Annotated[str, "What it is for."] = "",
) -> Answer:
    """Define a multi-step agent workflow; its steps run one after the other."""
    record = workflows.create(call.memory, name, description, steps)
    count = len(record.attrs["steps"])
    return {"workflow_id": record.id, "info": f'workflow "{name}" created with {count} steps'}


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
    conversation = workspaces.conversation_of(call, conversation_id)
    execution = workflows.trigger(
        call.memory, workflow_id, call.caller.user, conversation, initial_context
    )
    name = execution.attrs["name"]
    told = f'workflow "{name}" triggered, execution {execution.id} started'
    return {"execution_id": execution.id, "info": told}


@tool(
    "read",
    {"execution_id": "", "status": "", "current_step": 0, "error": "", "steps": [], "info": ""},
)
def check_workflow_status(
    call: Call, *, execution_id: Annotated[str, "The execution, as trigger_workflow gave it."]
) -> Answer:
    """Check the progress of a workflow's execution, step by step."""
    return workflows.status(call.memory, execution_id)


@tool("read", {"workflows": [], "info": ""})
def list_workflows(
    call: Call, *, include_inactive: Annotated[bool, "Has no effect."] = False
) -> Answer:
    """List all workflow definitions of the workspace."""
    del include_inactive
    found = records.listing(call.memory, workflows.WORKFLOW)
    return {"workflows": [workflows.shown(record) for record in found]}


# What REST does


@operation("read", {})
def show_execution(call: Call, *, execution_id: str) -> Answer:
    """How far an execution is."""
    return workflows.status(call.memory, execution_id)


@operation("write", {})
def approve_execution(call: Call, *, execution_id: str) -> Answer:
    """Let an execution go on that waits for a person."""
    workflows.approve(call.memory, execution_id)
    return workflows.status(call.memory, execution_id)


@operation("write", {})
def cancel_execution(call: Call, *, execution_id: str) -> Answer:
    """End an execution."""
    workflows.cancel(call.memory, execution_id)
    return workflows.status(call.memory, execution_id)


@operation("write", {})
def change_workflow(call: Call, *, workflow_id: str, is_active: bool) -> Answer:
    """Let a workflow be triggered, or no longer."""
    record = workflows.defined(call.memory, workflow_id)
    return workflows.shown(records.change(call.memory, record, is_active=is_active))
