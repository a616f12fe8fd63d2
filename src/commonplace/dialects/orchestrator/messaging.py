"""The history of agents, and messages between agents."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import drawers, runtimes, workspaces
from commonplace.dialects.orchestrator.answering import (
    Answer,
    Unsuccessful,
    clamp_limit,
    operation,
    stamp,
    tool,
)
from commonplace.dialects.orchestrator.workspaces import records
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive
from commonplace.text.prose import neutralise

if TYPE_CHECKING:
    from commonplace.dialects.orchestrator.workspaces import Agent
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.model import Memory

HISTORY_EVENT = "agent_history"
TITLE_CHARS = 500
PAGE, MOST_PAGE = 50, 500
KIND = "agent_message"
RUNNING, COMPLETED, FAILED = "running", "completed", "failed"
MAX_DEPTH = 3
RESPONSE_BYTES = 32_768
TRUNCATION_MARK = "\n[truncated]"
RESPONSE_SECONDS = 300.0
RECENT_MESSAGES = 20
RECENT_CHARS = 500
# A message that is active for longer must have ended with its process.
LONGEST_RUN = timedelta(minutes=30)


@tool("write", {"created": False, "info": ""})
def create_agent_history(
    call: Call,
    *,
    title: Annotated[str, {"type": "string", "maxLength": TITLE_CHARS}, "What happened."],
    agent_id: Annotated[str, "Whose history."] = "",
    agent_slug: Annotated[str, "Its slug; one of the two is required."] = "",
    subtitle: Annotated[str, {"type": "string", "maxLength": 2_000}, "More about it."] = "",
    conversation_id: Annotated[str, "The conversation it belongs to."] = "",
) -> Answer:
    """Record a notable event in an agent's history log."""
    agent = workspaces.get_agent(call.memory, agent_id, agent_slug)
    conversation = workspaces.conversation_id_of(call, conversation_id)
    event = {"title": title, "subtitle": subtitle, "conversation_id": conversation}
    call.memory.events.record(HISTORY_EVENT, agent.id, event)
    return {"created": True, "info": "agent history created"}


@tool(
    "write",
    {"success": False, "agent_slug": "", "response": "", "message_id": "", "error": ""},
    open_world=True,
    stepwise=True,
    session_part=workspaces.calling_agent,
)
def send_message_to_agent(
    call: Call,
    *,
    agent_slug: Annotated[str, "Whom to ask."],
    message: Annotated[str, "What to ask."],
    conversation_id: Annotated[str, "The conversation it belongs to."] = "",
) -> Answer:
    """Send a message to another agent of the workspace and get its response."""
    # A retry under the same key continues the first call's message: the agent's effects are not
    # repeated.
    conversation = workspaces.conversation_id_of(call, conversation_id)
    runtime = runtimes.runtime_of(call.memory.library)
    if runtime is None:
        raise InvalidInput("agent messaging not configured on this server")
    message = message.strip()
    agent = _get_recipient(call, agent_slug)
    key = f"message:{call.retry_key}" if call.retry_key else ""
    record = _begin_message(call, agent, message, conversation, key)
    answer: Answer = {"agent_slug": agent.slug, "message_id": record.id}
    if record.attrs["status"] == COMPLETED:
        return {**answer, "success": True, "response": record.attrs["response"]}
    ask = runtimes.AgentPrompt(
        agent=agent, prompt=agent_prompt(call.memory, message, conversation),
        space=call.caller.space, user=call.caller.user, seconds=RESPONSE_SECONDS,
        conversation_id=conversation, key=key,
    )  # fmt: skip
    begun = time.monotonic()
    try:
        response = runtimes.answer_of(runtime, ask)
    except CommonplaceError as error:
        _finish_message(call.memory, record, begun, status=FAILED, error=error.message)
        raise Unsuccessful(error.message, **answer) from error
    except Exception:  # a message that stayed running would count for the depth of later ones
        _finish_message(call.memory, record, begun, status=FAILED, error="internal server error")
        raise
    _finish_message(
        call.memory, record, begun, status=COMPLETED, response=truncate_response(response)
    )
    return {**answer, "success": True, "response": response}


@tool("write", {}, over_mcp=False, open_world=True, stepwise=True)
def message_agent(
    call: Call, *, agent_slug: str, message: str, conversation_id: str = ""
) -> Answer:
    """Send a message of the caller to an agent and return its response."""
    return send_message_to_agent(
        call, agent_slug=agent_slug, message=message, conversation_id=conversation_id
    )


def _get_recipient(call: Call, slug: str) -> Agent:
    everybody = workspaces.agents(call.memory)
    agent = next((each for each in everybody if each.slug == slug.strip()), None)
    if agent is None:
        others = [each.slug for each in everybody if each.role != workspaces.MANAGER]
        raise NotFound(f"unknown agent '{slug}'. Available: {', '.join(others)}")
    if workspaces.calling_agent(call) == agent.slug:
        raise Conflict("an agent cannot send a message to itself")
    return agent


def _begin_message(call: Call, agent: Agent, message: str, conversation: str, key: str) -> Memory:
    """Store the record of a message before the agent runs; a retry continues the first record."""
    memory = call.memory
    with exclusive(memory, "send message to agent"):
        existing = records.find(memory, key, KIND) if key else None
        if existing is not None and existing.attrs["status"] == FAILED:
            retried = {**existing.attrs, "status": RUNNING, "error": ""}
            return memory.revise(existing.id, attrs=retried, tags=(RUNNING,))
        if existing is not None:
            return existing
        since = datetime.now(UTC) - LONGEST_RUN
        depths = (
            record.attrs["depth"]
            for record in records.listing(memory, KIND, RUNNING)
            if record.attrs["conversation_id"] == conversation and record.created_at > since
        )
        depth = 1 + max(depths, default=-1)
        if depth >= MAX_DEPTH:
            raise Conflict(
                f"agent chain depth limit reached ({depth}/{MAX_DEPTH}). Cannot delegate further"
            )
        attrs = {
            "conversation_id": conversation, "from_agent_slug": workspaces.calling_agent(call),
            "to_agent_slug": agent.slug, "to_agent_id": agent.id, "request": message,
            "status": RUNNING, "depth": depth, "response": "", "error": "", "duration_ms": 0,
        }  # fmt: skip
        return records.add(memory, KIND, key or None, f"message to {agent.slug}", attrs, RUNNING)


def _finish_message(memory: Commonplace, record: Memory, begun: float, **attrs: Any) -> None:
    took = int((time.monotonic() - begun) * 1000)
    memory.revise(record.id, attrs={**record.attrs, **attrs, "duration_ms": took}, tags=())


def truncate_response(response: str) -> str:
    """Truncate a response to the maximum stored length."""
    data = response.encode()
    if len(data) <= RESPONSE_BYTES:
        return response
    return data[:RESPONSE_BYTES].decode(errors="ignore") + TRUNCATION_MARK


def agent_prompt(memory: Commonplace, message: str, conversation: str) -> str:
    """Return the prompt for an agent: the wake-up text, the last messages, then the message."""
    known = drawers.wake_up_text(memory)
    room = drawers.PROMPT_CHARS - len(known)
    parts = [known, _recent_messages(memory, conversation, room) if conversation else "", message]
    return "\n\n".join(part for part in parts if part)


def _recent_messages(memory: Commonplace, conversation: str, chars: int) -> str:
    lines: list[str] = []
    heading = "## Conversation\nThe last messages, the oldest first:"
    room = chars - len(heading)
    for line in reversed(memory.conversations.history(conversation, limit=RECENT_MESSAGES)):
        text = neutralise(drawers.truncate(line.memory.text, RECENT_CHARS))
        # Later lines are indented, so that they cannot pose as a message of another speaker.
        said = f"- {line.speaker}: " + "\n  ".join(text.splitlines())
        room -= len(said) + 1
        if room < 0:
            break
        lines.append(said)
    return "\n".join([heading, *reversed(lines)]) if lines else ""


@operation("read", {"history": [], "calls": []})
def show_history(call: Call, *, agent_slug: str = "", limit: int = PAGE, before: int = 0) -> Answer:
    """Return the events and calls of one agent or of all agents, newest first."""
    most = clamp_limit(limit, PAGE, MOST_PAGE)
    slugs = {agent.id: agent.slug for agent in workspaces.agents(call.memory)}
    subject = workspaces.get_agent(call.memory, slug=agent_slug).id if agent_slug else None
    events = call.memory.events.all(kind=HISTORY_EVENT, subject=subject, limit=most, newest=True)
    history = [
        {
            "agent_slug": slugs.get(event.subject, ""),
            **(event.payload or {}),
            "created_at": stamp(event.at),
        }
        for event in events
    ]
    return {"history": history, "calls": _agent_calls(call, agent_slug, most, before)}


def _agent_calls(call: Call, slug: str, limit: int, before: int) -> list[dict[str, Any]]:
    """Return the audited calls of one agent or of all agents."""
    found: list[dict[str, Any]] = []
    with lease(call.memory) as space:
        last = before or None
        while len(found) < limit:
            page = audit.listing(space.store, before=last, limit=1_000)
            if not page:
                break
            last = page[-1].num
            found += [
                _call_to_dict(each)
                for each in page
                if not slug or each.session.partition(":")[2] == slug
            ]
    return found[:limit]


def _call_to_dict(each: audit.Call) -> dict[str, Any]:
    return {
        "id": each.num,
        "tool_name": each.tool,
        "input": each.arguments,
        "output": each.result,
        "user_id": each.caller,
        "session_id": each.session,
        "success": each.success,
        "error_message": each.error,
        "duration_ms": each.milliseconds,
        "remote_addr": each.address,
        "created_at": stamp(each.at),
    }
