"""One agent asks another: what it is told, how deep that may go, and what is kept of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import layers, runtimes, workspaces
from commonplace.dialects.orchestrator.answering import Unsuccessful
from commonplace.dialects.orchestrator.shapes import records
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive
from commonplace.text.prose import neutral

if TYPE_CHECKING:
    from commonplace.dialects.orchestrator.workspaces import Agent
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.model import Memory

KIND = "agent_message"
RUNNING, COMPLETED, FAILED = "running", "completed", "failed"
DEPTH = 3
RESPONSE_BYTES = 32_768
TRUNCATED = "\n[truncated]"
SECONDS = 300.0
RECENT = 20
RECENT_CHARS = 500
FORGOTTEN_AFTER = timedelta(minutes=30)  # one that still runs then was cut off with its process


def send(call: Call, slug: str, message: str, conversation: str) -> dict[str, Any]:
    """Have an agent answer a message; the answer is stored.

    A call that is made again under its key, because the first was cut off, goes on with the message
    of the first: what the agent did already is not done again.
    """
    runtime = runtimes.of(call.memory.library)
    if runtime is None:
        raise InvalidInput("agent messaging not configured on this server")
    agent = _addressed(call, slug)
    key = f"message:{call.retry_key}" if call.retry_key else ""
    record = _begun(call, agent, message, conversation, key)
    answer: dict[str, Any] = {"agent_slug": agent.slug, "message_id": record.id}
    if record.attrs["status"] == COMPLETED:
        return {**answer, "success": True, "response": record.attrs["response"]}
    ask = runtimes.Ask(
        agent=agent, prompt=prompted(call.memory, message, conversation),
        space=call.caller.space, user=call.caller.user, seconds=SECONDS,
        conversation_id=conversation, key=key,
    )  # fmt: skip
    begun = time.monotonic()
    try:
        response = runtime.converse(ask)
    except CommonplaceError as error:
        _ended(call.memory, record, begun, status=FAILED, error=error.message)
        raise Unsuccessful(error.message, **answer) from error
    _ended(call.memory, record, begun, status=COMPLETED, response=capped(response))
    return {**answer, "success": True, "response": response}


def _addressed(call: Call, slug: str) -> Agent:
    everybody = workspaces.agents(call.memory)
    agent = next((each for each in everybody if each.slug == slug.strip()), None)
    if agent is None:
        others = [each.slug for each in everybody if each.role != workspaces.MANAGER]
        raise NotFound(f"unknown agent '{slug}'. Available: {', '.join(others)}")
    if workspaces.calling_agent(call) == agent.slug:
        raise Conflict("an agent cannot send a message to itself")
    return agent


def _begun(call: Call, agent: Agent, message: str, conversation: str, key: str) -> Memory:
    """The message's record, committed before the agent runs, so that those it asks see it."""
    memory = call.memory
    with exclusive(memory, "send message to agent"):
        there = records.find(memory, key, KIND) if key else None
        if there is not None and there.attrs["status"] == FAILED:
            again = {**there.attrs, "status": RUNNING, "error": ""}
            return memory.revise(there.id, attrs=again, tags=(RUNNING,))
        if there is not None:
            return there
        depth = 1 + max(_depths(memory, conversation), default=-1)
        if depth >= DEPTH:
            raise Conflict(
                f"agent chain depth limit reached ({depth}/{DEPTH}). Cannot delegate further"
            )
        attrs = {
            "conversation_id": conversation, "from_agent_slug": workspaces.calling_agent(call),
            "to_agent_slug": agent.slug, "to_agent_id": agent.id, "request": message,
            "status": RUNNING, "depth": depth, "response": "", "error": "", "duration_ms": 0,
        }  # fmt: skip
        return records.add(memory, KIND, key or None, f"message to {agent.slug}", attrs, RUNNING)


def _depths(memory: Commonplace, conversation: str) -> list[int]:
    since = datetime.now(UTC) - FORGOTTEN_AFTER
    return [
        record.attrs["depth"]
        for record in records.listing(memory, KIND, RUNNING)
        if record.attrs["conversation_id"] == conversation and record.created_at > since
    ]


def _ended(memory: Commonplace, record: Memory, begun: float, **attrs: Any) -> None:
    took = int((time.monotonic() - begun) * 1000)
    memory.revise(record.id, attrs={**record.attrs, **attrs, "duration_ms": took}, tags=())


def capped(response: str) -> str:
    """What is kept of an answer."""
    data = response.encode()
    if len(data) <= RESPONSE_BYTES:
        return response
    return data[:RESPONSE_BYTES].decode(errors="ignore") + TRUNCATED


def prompted(memory: Commonplace, message: str, conversation: str) -> str:
    """The message behind what the agent should know: the wake-up, and what was said last."""
    known = layers.wake_up(memory)
    room = layers.ALL_CHARS - len(known)
    parts = [known, _recent(memory, conversation, room) if conversation else "", message]
    return "\n\n".join(part for part in parts if part)


def _recent(memory: Commonplace, conversation: str, chars: int) -> str:
    lines: list[str] = []
    heading = "## Conversation\nThe last messages, the oldest first:"
    room = chars - len(heading)
    for line in reversed(memory.conversations.history(conversation, limit=RECENT)):
        said = f"- {line.speaker}: {neutral(layers.cut(line.memory.text, RECENT_CHARS))}"
        room -= len(said) + 1
        if room < 0:
            break
        lines.append(said)
    return "\n".join([heading, *reversed(lines)]) if lines else ""
