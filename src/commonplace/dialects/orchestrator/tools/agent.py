"""Agents together: what they note in their history, and what they say to each other."""

from __future__ import annotations

from typing import Annotated, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import messaging, workspaces
from commonplace.dialects.orchestrator.answering import Answer, clamped, operation, stamp, tool
from commonplace.engine.binding import lease
from commonplace.engine.history import audit

HISTORY = "agent_history"
TITLE_CHARS = 500
PAGE, MOST_PAGE = 50, 500


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
    agent = workspaces.agent_named(call.memory, agent_id, agent_slug)
    told = {
        "title": title,
        "subtitle": subtitle,
        "conversation_id": workspaces.conversation_of(call, conversation_id),
    }
    call.memory.events.record(HISTORY, agent.id, told)
    return {"created": True, "info": "agent history created"}


@tool(
    "write",
    {"success": False, "agent_slug": "", "response": "", "message_id": "", "error": ""},
    open_world=True,
    stepwise=True,
    session=workspaces.calling_agent,
)
def send_message_to_agent(
    call: Call,
    *,
    agent_slug: Annotated[str, "Whom to ask."],
    message: Annotated[str, "What to ask."],
    conversation_id: Annotated[str, "The conversation it belongs to."] = "",
) -> Answer:
    """Send a message to another agent of the workspace and get its response."""
    conversation = workspaces.conversation_of(call, conversation_id)
    return messaging.send(call, agent_slug, message.strip(), conversation)


@operation("read", {"history": [], "calls": []})
def show_history(call: Call, *, agent_slug: str = "", limit: int = PAGE, before: int = 0) -> Answer:
    """An agent's notable events and its calls, or those of all; the newest first."""
    most = clamped(limit, PAGE, MOST_PAGE)
    return {
        "history": history(call, agent_slug, most),
        "calls": calls(call, agent_slug, most, before),
    }


def history(call: Call, slug: str, limit: int) -> list[dict[str, Any]]:
    """Notable events."""
    slugs = {agent.id: agent.slug for agent in workspaces.agents(call.memory)}
    subject = workspaces.agent_named(call.memory, slug=slug).id if slug else None
    events = call.memory.events.all(kind=HISTORY, subject=subject, limit=limit, newest=True)
    return [
        {
            "agent_slug": slugs.get(event.subject, ""),
            **(event.payload or {}),
            "created_at": stamp(event.at),
        }
        for event in events
    ]


def calls(call: Call, slug: str, limit: int, before: int) -> list[dict[str, Any]]:
    """Calls as the audit has them."""
    found: list[dict[str, Any]] = []
    with lease(call.memory) as space:
        last = before or None
        while len(found) < limit:
            page = audit.listing(space.store, before=last, limit=1_000)
            if not page:
                break
            last = page[-1].num
            found += [_call(each) for each in page if not slug or _by(each, slug)]
    return found[:limit]


def _by(each: audit.Call, slug: str) -> bool:
    return each.session.partition(":")[2] == slug


def _call(each: audit.Call) -> dict[str, Any]:
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
