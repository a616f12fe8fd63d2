"""Workspaces: their users, agents and conversations, with the tools and operations for them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import RESERVED, drawers
from commonplace.dialects.orchestrator.answering import (
    LARGE_BYTES,
    Answer,
    clamp_limit,
    operation,
    stamp,
    tool,
)
from commonplace.engine.content.conversations import Line
from commonplace.engine.model import Memory, Message, Origin
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive
from commonplace.platform.records import Records

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

WORKSPACE, AGENT, PERSON, CONVERSATION = "workspace", "agent", "person", "conversation"
WORKSPACE_REF = "workspace"
MANAGER, SUB_AGENT = "manager", "sub-agent"
ROLES = (MANAGER, SUB_AGENT)
CONVERSATION_TYPES = ("swarm", "agent")
USER, SYSTEM = "user", "system"
SPEAKERS = (USER, "agent", SYSTEM)
TEXT_CHARS = 100_000
PROMPT_CHARS = 50_000
CONVERSATION_HEADER = "x-conversation-id"
PROFILE_FIELDS = ("email", "nickname", "name", "surname", "country_code")
DEFAULT_PREFERENCES = {"theme": "system", "language": "en", "currency": "USD"}
DEFAULT_RESULTS, MAX_RESULTS = 20, 50
SHOWN_CHARS = 500
PAGE, MOST_PAGE = 50, 200

Name = Annotated[str, {"type": "string", "maxLength": 200}]
Title = Annotated[str, {"type": "string", "maxLength": 500}]

records = Records(RESERVED)

_AGENT_FIELDS = ("slug", "name", "role", "system_prompt", "model")
# the namespace for the UUIDs of default agents
_NAMESPACE = uuid.UUID("0a1f5c52-8d0b-5c53-9a43-7d1f5a0f2c11")
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?")
_DEFAULT_AGENTS = (
    ("manager", "Manager", MANAGER, "You coordinate the agents of this workspace and answer."),
    ("wally", "Wally", SUB_AGENT, "You are Wally, who researches and writes things down."),
    ("eve", "Eve", SUB_AGENT, "You are Eve, who plans and keeps an eye on what is due."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent of a workspace."""

    id: str
    slug: str
    name: str
    role: str
    system_prompt: str
    model: str
    created_at: datetime

    @classmethod
    def of(cls, record: Memory) -> Agent:
        """Return the agent that a record describes."""
        attrs = {name: record.attrs[name] for name in _AGENT_FIELDS}
        return cls(id=record.id, created_at=record.created_at, **attrs)

    def brief(self) -> dict[str, str]:
        """Return the main fields of the agent, for lists."""
        return {"id": self.id, "name": self.name, "role": self.role, "slug": self.slug}

    def as_dict(self) -> dict[str, str]:
        """Return all fields of the agent."""
        return {
            **self.brief(),
            "system_prompt": self.system_prompt,
            "model": self.model,
            "created_at": stamp(self.created_at),
        }


# The workspace


def ensure_workspace(memory: Commonplace, *, identity: str = "", name: str = "") -> Memory:
    """Return the record of the workspace; create it with the default agents if missing."""
    existing = records.find(memory, WORKSPACE_REF, WORKSPACE)
    if existing is not None:
        return existing
    attrs = {"id": identity or memory.name, "name": name or identity or memory.name}
    try:
        with memory.unit("create workspace"):
            record = records.add(memory, WORKSPACE, WORKSPACE_REF, attrs["name"], attrs)
            for agent in _default_agents(memory):
                about = {name: getattr(agent, name) for name in _AGENT_FIELDS}
                records.add(memory, AGENT, f"agent:{agent.slug}", agent.name, about, id=agent.id)
    except Conflict:  # another call has created the record
        existing = records.find(memory, WORKSPACE_REF, WORKSPACE)
        if existing is None:
            raise
        return existing
    return record


def _default_agents(memory: Commonplace) -> list[Agent]:
    """Return the default agents of a workspace, which exist even before they are stored."""
    now = datetime.now(UTC)
    return [
        Agent(
            id=str(uuid.uuid5(_NAMESPACE, f"{memory.name}:{slug}")), slug=slug, name=name,
            role=role, system_prompt=prompt, model="", created_at=now,
        )
        for slug, name, role, prompt in _DEFAULT_AGENTS
    ]  # fmt: skip


def workspace_info(memory: Commonplace) -> dict[str, Any]:
    """Return the fields of the workspace without storing anything."""
    there = records.find(memory, WORKSPACE_REF, WORKSPACE)
    if there is not None:
        return workspace_to_dict(there)
    oldest, _ = memory.browse(order="oldest", limit=1)
    since = oldest[0].created_at if oldest else datetime.now(UTC)
    return {"id": memory.name, "name": memory.name, "created_at": stamp(since)}


def workspace_to_dict(record: Memory) -> dict[str, Any]:
    """Return the fields of a stored workspace."""
    attrs = record.attrs
    return {"id": attrs["id"], "name": attrs["name"], "created_at": stamp(record.created_at)}


def all_workspaces(memory: Commonplace) -> list[dict[str, Any]]:
    """Return every space of the library that is a workspace."""
    spaces = memory.library.spaces()
    found = (records.find(memory.at(space), WORKSPACE_REF) for space in spaces)
    return [workspace_to_dict(record) for record in found if record is not None]


@tool("read", {"id": "", "name": "", "created_at": ""})
def get_workspace_info(
    call: Call, *, include_agents: Annotated[bool, "With its agents."] = False
) -> Answer:
    """Get the workspace's details and its agents."""
    return show_workspace(call) if include_agents else workspace_info(call.memory)


@operation("read", {})
def show_workspace(call: Call) -> Answer:
    """Return the workspace with its agents."""
    return {
        **workspace_info(call.memory),
        "agents": [agent.brief() for agent in agents(call.memory)],
    }


@operation("admin", {})
def create_workspace(call: Call, *, id: Name, name: Name = "") -> Answer:
    """Create a workspace; its id is the name of its space."""
    memory = call.memory.at(id)
    if id in call.memory.library.spaces() and records.find(memory, WORKSPACE_REF):
        raise Conflict(f"there is a workspace {id} already", field="id")
    return workspace_to_dict(ensure_workspace(memory, identity=id, name=name))


@operation("read", {"workspaces": []})
def list_workspaces(call: Call) -> Answer:
    """Return the caller's workspace; for an administrator, all workspaces."""
    if "admin" not in call.caller.scopes:
        return {"workspaces": [workspace_info(call.memory)]}
    return {"workspaces": all_workspaces(call.memory)}


@operation("read", {"wake_up": ""})
def show_wake_up(call: Call) -> Answer:
    """Return the wake-up text of agents."""
    return {"wake_up": drawers.wake_up_text(call.memory)}


# Agents


def agents(memory: Commonplace) -> list[Agent]:
    """Return all agents, oldest first."""
    if records.find(memory, WORKSPACE_REF, WORKSPACE) is None:
        return _default_agents(memory)
    return [Agent.of(record) for record in records.listing(memory, AGENT)]


def add_agent(
    memory: Commonplace,
    name: str,
    *,
    slug: str = "",
    role: str = SUB_AGENT,
    system_prompt: str = "",
    model: str = "",
) -> Agent:
    """Store a new agent; raise Conflict if the slug is in use."""
    ensure_workspace(memory)
    slug = slug or re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64].rstrip("-")
    if not _SLUG.fullmatch(slug):
        raise InvalidInput("slug must be 1 to 64 of a-z, 0-9, '-' and '_'", field="slug")
    if slug in (USER, SYSTEM):  # the agent's messages would count as the user's or the system's
        raise InvalidInput(f"slug must not be {USER} or {SYSTEM}", field="slug")
    if role not in ROLES:
        raise InvalidInput(f"role must be {' or '.join(ROLES)}", field="role")
    if len(system_prompt) > PROMPT_CHARS:
        raise InvalidInput(f"system_prompt exceeds max length of {PROMPT_CHARS}")
    if records.find(memory, f"agent:{slug}") is not None:
        raise Conflict(f"there is an agent {slug} already", field="slug")
    attrs = {
        "slug": slug, "name": name, "role": role, "system_prompt": system_prompt, "model": model,
    }  # fmt: skip
    return Agent.of(records.add(memory, AGENT, f"agent:{slug}", name, attrs))


def get_agent(memory: Commonplace, identity: str = "", slug: str = "") -> Agent:
    """Return the agent with this id or slug; raise NotFound if there is none."""
    if not identity and not slug:
        raise InvalidInput("agent_id or agent_slug is required")
    record = records.find(memory, identity or f"agent:{slug}", AGENT)
    if record is not None:
        return Agent.of(record)
    if records.find(memory, WORKSPACE_REF, WORKSPACE) is None:
        for agent in _default_agents(memory):
            if (identity or slug) in (agent.id, agent.slug):
                return agent
    raise NotFound("agent not found")


def calling_agent(call: Call) -> str:
    """Return the slug of the calling agent, the end of its session id, or "" for none."""
    _, colon, slug = call.request_info.session.partition(":")
    return slug if colon else ""


@operation("read", {"agents": []}, response_bytes=LARGE_BYTES)
def list_agents(call: Call) -> Answer:
    """Return all agents."""
    return {"agents": [agent.as_dict() for agent in agents(call.memory)]}


@operation("write", {})
def create_agent(
    call: Call,
    *,
    name: Name,
    slug: Name = "",
    role: Name = SUB_AGENT,
    system_prompt: str = "",
    model: Name = "",
) -> Answer:
    """Create an agent."""
    agent = add_agent(
        call.memory, name, slug=slug, role=role, system_prompt=system_prompt, model=model
    )
    return dict(agent.as_dict())


# Users


def add_person(memory: Commonplace, identity: str, about: Mapping[str, str]) -> Memory:
    """Create or change a user's profile in this workspace."""
    if not identity.strip() or ":" in identity:
        raise InvalidInput("a user's id must not be empty and must not contain a colon", field="id")
    ensure_workspace(memory)
    known = {name: value for name, value in about.items() if value}
    unknown = known.keys() - {*PROFILE_FIELDS, *DEFAULT_PREFERENCES}
    if unknown:
        raise InvalidInput(f"a profile has no field {min(unknown)}", field=min(unknown))
    with exclusive(memory, "add person"):
        there = records.find(memory, f"person:{identity}", PERSON)
        if there is not None:
            return records.change(memory, there, **known)
        about = {"id": identity, **known}
        return records.add(memory, PERSON, f"person:{identity}", identity, about)


def profiles(memory: Commonplace) -> list[dict[str, Any]]:
    """Return the profiles of all users."""
    return [profile_to_dict(one.attrs, one.created_at) for one in records.listing(memory, PERSON)]


def profile_to_dict(
    attrs: Mapping[str, Any], created_at: datetime, *, preferences: bool = True
) -> dict[str, Any]:
    """Return the fields of a profile."""
    shown: dict[str, Any] = {"id": attrs["id"]}
    shown |= {name: attrs.get(name, "") for name in PROFILE_FIELDS}
    shown["created_at"] = stamp(created_at)
    if preferences:
        shown["preferences"] = {name: attrs.get(name, "") for name in DEFAULT_PREFERENCES}
    return shown


@tool("read", {"id": "", **dict.fromkeys(PROFILE_FIELDS, ""), "created_at": ""})
def get_user_profile(
    call: Call, *, include_preferences: Annotated[bool, "With theme, language, currency."] = False
) -> Answer:
    """Fetch the user's name, email, nickname, and preferences."""
    identity = call.caller.user
    record = records.find(call.memory, f"person:{identity}", PERSON)
    if record is None:
        if call.caller.credential:
            raise NotFound("user not found")
        # The local user always has a profile.
        if "write" not in call.caller.scopes:
            about = {"id": identity, **DEFAULT_PREFERENCES}
            return profile_to_dict(about, datetime.now(UTC), preferences=include_preferences)
        record = add_person(call.memory, identity, DEFAULT_PREFERENCES)
    return profile_to_dict(record.attrs, record.created_at, preferences=include_preferences)


@operation("read", {"users": []}, response_bytes=LARGE_BYTES)
def list_users(call: Call) -> Answer:
    """Return the profiles of all users."""
    return {"users": profiles(call.memory)}


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
    """Create or change a user's profile."""
    about = {
        "email": email, "nickname": nickname, "name": name, "surname": surname,
        "country_code": country_code, "theme": theme, "language": language, "currency": currency,
    }  # fmt: skip
    person = add_person(call.memory, id, about)
    return profile_to_dict(person.attrs, person.created_at)


# Conversations


def add_conversation(
    memory: Commonplace, title: str, *, type: str = "swarm", agent_slug: str = ""
) -> dict[str, Any]:
    """Create a conversation with all agents, or with one agent."""
    if type not in CONVERSATION_TYPES:
        raise InvalidInput(f"type must be {' or '.join(CONVERSATION_TYPES)}", field="type")
    if type == "agent" and not agent_slug:
        raise InvalidInput("agent_slug is required for a conversation with one agent")
    agent = get_agent(memory, slug=agent_slug).id if agent_slug else ""
    attrs = {"title": title, "type": type, "agent_id": agent}
    record = records.add(memory, CONVERSATION, None, title, attrs)
    return _conversation_to_dict(record, record.created_at)


def get_conversation(memory: Commonplace, identity: str) -> Memory:
    """Return a conversation of this workspace; raise NotFound if there is none."""
    missing = "conversation not found in this workspace"
    return records.get(memory, identity, CONVERSATION, missing)


def conversations(memory: Commonplace) -> list[dict[str, Any]]:
    """Return all conversations; the one with the newest message is first."""
    found = []
    for record in records.listing(memory, CONVERSATION):
        last = memory.conversations.history(record.id, limit=1)
        updated = max(
            record.updated_at, *(line.memory.created_at for line in last), record.created_at
        )
        found.append((updated, _conversation_to_dict(record, updated)))
    found.sort(key=lambda each: each[0], reverse=True)
    return [each for _, each in found]


def _conversation_to_dict(record: Memory, updated: datetime) -> dict[str, Any]:
    return {
        "id": record.id,
        **{name: record.attrs[name] for name in ("title", "type", "agent_id")},
        "created_at": stamp(record.created_at),
        "updated_at": stamp(updated),
    }


def conversation_id_of(call: Call, argument: str) -> str:
    """Return the conversation of the argument, or else of the header X-Conversation-Id, or ""."""
    if argument:
        return get_conversation(call.memory, argument).id
    active = call.request_info.headers.get(CONVERSATION_HEADER, "")
    record = records.find(call.memory, active, CONVERSATION) if active else None
    return record.id if record is not None else ""


def append_message(
    memory: Commonplace,
    conversation_id: str,
    speaker: str,
    text: str,
    *,
    tags: tuple[str, ...] = (),
    origin: Origin | None = None,
) -> dict[str, Any]:
    """Add a message; the speaker is `user`, `system`, or an agent's slug."""
    record = get_conversation(memory, conversation_id)
    if len(text) > TEXT_CHARS:
        raise InvalidInput(f"text exceeds max length of {TEXT_CHARS}")
    trust = "stated" if speaker == USER else "inferred"
    line = Line(speaker=speaker, text=text, trust=trust, tags=tags)
    return message_to_dict(memory.conversations.add(record.id, line, origin=origin)[0])


def message_to_dict(message: Message, chars: int | None = None) -> dict[str, Any]:
    """Return the fields of a message; a text longer than `chars` is truncated."""
    speaker, text = message.speaker, message.memory.text
    if chars is not None and len(text) > chars:
        text = text[:chars] + "..."
    return {
        "id": message.memory.id,
        "role": speaker if speaker in (USER, SYSTEM) else "agent",
        "text": text,
        "created_at": stamp(message.memory.created_at),
    }


@tool("read", {"conversations": []}, response_bytes=LARGE_BYTES)
def list_conversations(
    call: Call, *, include_archived: Annotated[bool, "Has no effect."] = False
) -> Answer:
    """List all conversations with titles and timestamps."""
    del include_archived
    return {"conversations": conversations(call.memory)}


@tool("read", {"messages": [], "count": 0})
def search_past_messages(
    call: Call,
    *,
    conversation_id: Annotated[str, "The conversation to search."],
    query: Annotated[str, "A text that the messages contain, whatever its case."],
    limit: Annotated[int, f"How many; at most {MAX_RESULTS}."] = DEFAULT_RESULTS,
) -> Answer:
    """Search messages of a conversation by keyword, the newest first."""
    record = get_conversation(call.memory, conversation_id)
    most = clamp_limit(limit, DEFAULT_RESULTS, MAX_RESULTS)
    found = call.memory.conversations.find(record.id, query, limit=most)
    return {
        "messages": [message_to_dict(message, SHOWN_CHARS) for message in found],
        "count": len(found),
    }


@operation("write", {})
def create_conversation(
    call: Call, *, title: Title, type: Name = "swarm", agent_slug: Name = ""
) -> Answer:
    """Create a conversation."""
    return add_conversation(call.memory, title, type=type, agent_slug=agent_slug)


@operation("read", {"conversations": []}, response_bytes=LARGE_BYTES)
def all_conversations(call: Call) -> Answer:
    """Return all conversations."""
    return {"conversations": conversations(call.memory)}


@operation("write", {})
def add_message(
    call: Call, *, conversation_id: Name, text: str, role: Name = "user", agent_slug: Name = ""
) -> Answer:
    """Add a message to a conversation."""
    if role not in SPEAKERS:
        raise InvalidInput(f"role must be one of {', '.join(SPEAKERS)}", field="role")
    speaker = get_agent(call.memory, slug=agent_slug).slug if role == "agent" else role
    return append_message(call.memory, conversation_id, speaker, text)


@operation("read", {"messages": []})
def list_messages(call: Call, *, conversation_id: Name, limit: int = PAGE) -> Answer:
    """Return the newest messages of a conversation in chronological order."""
    record = get_conversation(call.memory, conversation_id)
    lines = call.memory.conversations.history(record.id, limit=clamp_limit(limit, PAGE, MOST_PAGE))
    return {"messages": [message_to_dict(line) for line in lines]}
