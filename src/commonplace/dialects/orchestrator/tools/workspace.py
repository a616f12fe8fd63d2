"""User context: who the user is, what the workspace has, what was said in it."""

from __future__ import annotations

from typing import Annotated, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import layers, workspaces
from commonplace.dialects.orchestrator.answering import Answer, clamped, operation, tool
from commonplace.dialects.orchestrator.shapes import records
from commonplace.engine.commonplace import Commonplace
from commonplace.errors import Conflict, InvalidInput

FOUND, MOST_FOUND = 20, 50
SHOWN_CHARS = 500
PAGE, MOST_PAGE = 50, 200

Name = Annotated[str, {"type": "string", "maxLength": 200}]
Title = Annotated[str, {"type": "string", "maxLength": 500}]


@tool(
    "read",
    {
        "id": "",
        "email": "",
        "nickname": "",
        "name": "",
        "surname": "",
        "country_code": "",
        "created_at": "",
    },
)
def get_user_profile(
    call: Call, *, include_preferences: Annotated[bool, "With theme, language, currency."] = False
) -> Answer:
    """Fetch the user's name, email, nickname, and preferences."""
    return workspaces.profile_of_caller(call, preferences=include_preferences)


@tool("read", {"id": "", "name": "", "created_at": ""})
def get_workspace_info(
    call: Call, *, include_agents: Annotated[bool, "With its agents."] = False
) -> Answer:
    """Get the workspace's details and its agents."""
    info: Answer = dict(workspaces.info(call.memory))
    if include_agents:
        info["agents"] = [agent.brief() for agent in workspaces.agents(call.memory)]
    return info


@tool("read", {"conversations": []})
def list_conversations(
    call: Call, *, include_archived: Annotated[bool, "Has no effect."] = False
) -> Answer:
    """List all conversations with titles and timestamps."""
    del include_archived
    return {"conversations": workspaces.conversations(call.memory)}


@tool("read", {"messages": [], "count": 0})
def search_past_messages(
    call: Call,
    *,
    conversation_id: Annotated[str, "The conversation to search."],
    query: Annotated[str, "A text that the messages contain, whatever its case."],
    limit: Annotated[int, f"How many; at most {MOST_FOUND}."] = FOUND,
) -> Answer:
    """Search messages of a conversation by keyword, the newest first."""
    record = workspaces.conversation(call.memory, conversation_id)
    most = clamped(limit, FOUND, MOST_FOUND)
    found = call.memory.conversations.find(record.id, query, limit=most)
    messages = [workspaces.shown_message(message, SHOWN_CHARS) for message in found]
    return {"messages": messages, "count": len(messages)}


# What REST does


@operation("admin", {})
def create_workspace(call: Call, *, id: Name, name: Name = "") -> Answer:
    """Found a workspace; its id is the name of its space."""
    memory = call.memory.at(id)
    if id in call.memory.library.spaces() and records.find(memory, "workspace"):
        raise Conflict(f"there is a workspace {id} already", field="id")
    return dict(workspaces.shown(workspaces.founded(memory, identity=id, name=name)))


@operation("read", {"workspaces": []})
def list_workspaces(call: Call) -> Answer:
    """The caller's workspace; for an administrator, all there are."""
    if "admin" not in call.caller.scopes:
        return {"workspaces": [workspaces.info(call.memory)]}
    return {"workspaces": all_workspaces(call.memory)}


def all_workspaces(memory: Commonplace) -> list[dict[str, str]]:
    """Every space that is a workspace."""
    found = (
        records.find(memory.at(space), workspaces.WORKSPACE_REF)
        for space in memory.library.spaces()
    )
    return [workspaces.shown(record) for record in found if record is not None]


@operation("read", {})
def show_workspace(call: Call) -> Answer:
    """The workspace with its agents."""
    shown: dict[str, Any] = dict(workspaces.info(call.memory))
    return {**shown, "agents": [agent.brief() for agent in workspaces.agents(call.memory)]}


@operation("read", {"wake_up": ""})
def show_wake_up(call: Call) -> Answer:
    """What an agent is told first."""
    return {"wake_up": layers.wake_up(call.memory)}


@operation("read", {"agents": []})
def list_agents(call: Call) -> Answer:
    """All agents."""
    return {"agents": [agent.as_dict() for agent in workspaces.agents(call.memory)]}


@operation("write", {})
def create_agent(
    call: Call,
    *,
    name: Name,
    slug: Name = "",
    role: Name = workspaces.SUB_AGENT,
    system_prompt: str = "",
    model: Name = "",
) -> Answer:
    """A new agent."""
    agent = workspaces.add_agent(
        call.memory, name, slug=slug, role=role, system_prompt=system_prompt, model=model
    )
    return dict(agent.as_dict())


@operation("read", {"users": []})
def list_users(call: Call) -> Answer:
    """Everybody who has a profile here."""
    people = workspaces.people(call.memory)
    return {"users": [workspaces.profile(one.attrs, one.created_at) for one in people]}


@operation("write", {})
def create_user(
    call: Call,
    *,
    id: Name,
    email: Name = "",
    nickname: Name = "",
    name: Name = "",
    surname: Name = "",
    country_code: Name = "",
    theme: Name = "",
    language: Name = "",
    currency: Name = "",
) -> Answer:
    """Somebody's profile, new or changed."""
    about = {
        "email": email, "nickname": nickname, "name": name, "surname": surname,
        "country_code": country_code, "theme": theme, "language": language, "currency": currency,
    }  # fmt: skip
    person = workspaces.add_person(call.memory, id, about)
    return workspaces.profile(person.attrs, person.created_at)


@operation("write", {})
def create_conversation(
    call: Call, *, title: Title, type: Name = "swarm", agent_slug: Name = ""
) -> Answer:
    """A new conversation."""
    record = workspaces.add_conversation(call.memory, title, type=type, agent_slug=agent_slug)
    return dict(workspaces.shown_conversation(record, record.created_at))


@operation("read", {"conversations": []})
def all_conversations(call: Call) -> Answer:
    """All conversations."""
    return {"conversations": workspaces.conversations(call.memory)}


@operation("write", {})
def add_message(
    call: Call, *, conversation_id: Name, text: str, role: Name = "user", agent_slug: Name = ""
) -> Answer:
    """A new message of a conversation."""
    if role not in workspaces.SPEAKERS:
        raise InvalidInput(f"role must be one of {', '.join(workspaces.SPEAKERS)}", field="role")
    speaker = role
    if role == "agent":
        speaker = workspaces.agent_named(call.memory, slug=agent_slug).slug
    return dict(
        workspaces.shown_message(workspaces.say(call.memory, conversation_id, speaker, text))
    )


@operation("read", {"messages": []})
def list_messages(call: Call, *, conversation_id: Name, limit: int = PAGE) -> Answer:
    """The newest messages of a conversation, the oldest of them first."""
    record = workspaces.conversation(call.memory, conversation_id)
    lines = call.memory.conversations.history(record.id, limit=clamped(limit, PAGE, MOST_PAGE))
    return {"messages": [workspaces.shown_message(line) for line in lines]}
