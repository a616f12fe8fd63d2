"""What a workspace is made of: its people, its agents, its conversations and their messages."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator.answering import stamp
from commonplace.dialects.orchestrator.shapes import records
from commonplace.engine.content.conversations import Line
from commonplace.engine.model import Memory, Message, Origin
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

WORKSPACE, AGENT, PERSON, CONVERSATION = "workspace", "agent", "person", "conversation"
WORKSPACE_REF = "workspace"
MANAGER, SUB_AGENT = "manager", "sub-agent"
ROLES = (MANAGER, SUB_AGENT)
TYPES = ("swarm", "agent")
USER, SYSTEM = "user", "system"
SPEAKERS = (USER, "agent", SYSTEM)
TEXT_CHARS = 100_000
PROMPT_CHARS = 50_000
CONVERSATION_HEADER = "x-conversation-id"
PROFILE = ("email", "nickname", "name", "surname", "country_code")
PREFERENCES = ("theme", "language", "currency")
DEFAULT_PREFERENCES = {"theme": "system", "language": "en", "currency": "USD"}

_AGENT = ("slug", "name", "role", "system_prompt", "model")
_NAMES = uuid.UUID("0a1f5c52-8d0b-5c53-9a43-7d1f5a0f2c11")  # of the agents that are always there
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?")
_FOUNDERS = (
    ("manager", "Manager", MANAGER, "You coordinate the agents of this workspace and answer."),
    ("wally", "Wally", SUB_AGENT, "You are Wally, who researches and writes things down."),
    ("eve", "Eve", SUB_AGENT, "You are Eve, who plans and keeps an eye on what is due."),
)


@dataclass(frozen=True, slots=True)
class Agent:
    """One who works in the workspace."""

    id: str
    slug: str
    name: str
    role: str
    system_prompt: str
    model: str
    created_at: datetime

    @classmethod
    def of(cls, record: Memory) -> Agent:
        """From its record."""
        attrs = record.attrs
        return cls(
            record.id, attrs["slug"], attrs["name"], attrs["role"], attrs["system_prompt"],
            attrs["model"], record.created_at,
        )  # fmt: skip

    def brief(self) -> dict[str, str]:
        """As the workspace's list shows it."""
        return {"id": self.id, "name": self.name, "role": self.role, "slug": self.slug}

    def as_dict(self) -> dict[str, str]:
        """All of it."""
        return {
            **self.brief(),
            "system_prompt": self.system_prompt,
            "model": self.model,
            "created_at": stamp(self.created_at),
        }


# The workspace


def founded(memory: Commonplace, *, identity: str = "", name: str = "") -> Memory:
    """The workspace's record; with its first agents, if nobody has used it before."""
    there = records.find(memory, WORKSPACE_REF, WORKSPACE)
    if there is not None:
        return there
    attrs = {"id": identity or memory.name, "name": name or identity or memory.name}
    try:
        record = records.add(memory, WORKSPACE, WORKSPACE_REF, attrs["name"], attrs)
    except Conflict:  # somebody else was first
        there = records.find(memory, WORKSPACE_REF, WORKSPACE)
        if there is None:
            raise
        return there
    for agent in _founders(memory):
        attrs = {name: getattr(agent, name) for name in _AGENT}
        records.add(memory, AGENT, f"agent:{agent.slug}", agent.name, attrs, id=agent.id)
    return record


def _founders(memory: Commonplace) -> list[Agent]:
    """The agents that a workspace begins with; they are there before anything was stored."""
    now = datetime.now(UTC)
    return [
        Agent(str(uuid.uuid5(_NAMES, f"{memory.name}:{slug}")), slug, name, role, prompt, "", now)
        for slug, name, role, prompt in _FOUNDERS
    ]


def info(memory: Commonplace) -> dict[str, str]:
    """The workspace; reading it stores nothing."""
    there = records.find(memory, WORKSPACE_REF, WORKSPACE)
    if there is not None:
        return shown(there)
    oldest, _ = memory.browse(order="oldest", limit=1)
    since = oldest[0].created_at if oldest else datetime.now(UTC)
    return {"id": memory.name, "name": memory.name, "created_at": stamp(since)}


def shown(record: Memory) -> dict[str, str]:
    """A workspace that was founded."""
    return {
        "id": record.attrs["id"],
        "name": record.attrs["name"],
        "created_at": stamp(record.created_at),
    }


# Agents


def agents(memory: Commonplace) -> list[Agent]:
    """All agents, the oldest first."""
    found = [Agent.of(record) for record in records.listing(memory, AGENT)]
    if records.find(memory, WORKSPACE_REF, WORKSPACE) is None:
        return _founders(memory)
    return found


def add_agent(
    memory: Commonplace,
    name: str,
    *,
    slug: str = "",
    role: str = SUB_AGENT,
    system_prompt: str = "",
    model: str = "",
) -> Agent:
    """A new agent; a slug that is taken is a Conflict."""
    founded(memory)
    slug = slug or re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64]
    if not _SLUG.fullmatch(slug):
        raise InvalidInput("slug must be 1 to 64 of a-z, 0-9, '-' and '_'", field="slug")
    if role not in ROLES:
        raise InvalidInput(f"role must be {' or '.join(ROLES)}", field="role")
    if len(system_prompt) > PROMPT_CHARS:
        raise InvalidInput(f"system_prompt exceeds max length of {PROMPT_CHARS}")
    if records.find(memory, f"agent:{slug}") is not None:
        raise Conflict(f"there is an agent {slug} already", field="slug")
    return _add_agent(memory, slug, name, role, system_prompt, model)


def _add_agent(
    memory: Commonplace, slug: str, name: str, role: str, prompt: str, model: str
) -> Agent:
    attrs = {"slug": slug, "name": name, "role": role, "system_prompt": prompt, "model": model}
    return Agent.of(records.add(memory, AGENT, f"agent:{slug}", name, attrs))


def agent_named(memory: Commonplace, identity: str = "", slug: str = "") -> Agent:
    """The agent of an id or a slug; it must be of this workspace."""
    if not identity and not slug:
        raise InvalidInput("agent_id or agent_slug is required")
    record = records.find(memory, identity or f"agent:{slug}", AGENT)
    if record is not None:
        return Agent.of(record)
    if records.find(memory, WORKSPACE_REF, WORKSPACE) is None:
        for agent in _founders(memory):
            if (identity or slug) in (agent.id, agent.slug):
                return agent
    raise NotFound("agent not found")


def calling_agent(call: Call) -> str:
    """The slug of the agent that calls, which its session's id ends with; empty for none."""
    _, colon, slug = call.request_info.session.partition(":")
    return slug if colon else ""


def by_agent(call: Call, slug: str) -> Origin:
    """The origin of what an agent does."""
    return replace(call.origin, client=f"agent:{slug}")


def agent_of(origin: Origin) -> str:
    """The agent that an origin names."""
    return origin.client.removeprefix("agent:") if origin.client.startswith("agent:") else ""


# People


def add_person(memory: Commonplace, identity: str, about: Mapping[str, str]) -> Memory:
    """Somebody's profile in this workspace, new or changed."""
    if not identity.strip() or ":" in identity:
        raise InvalidInput("a user's id must have no colon and not be empty", field="id")
    founded(memory)
    known = {name: value for name, value in about.items() if value}
    unknown = known.keys() - {*PROFILE, *PREFERENCES}
    if unknown:
        raise InvalidInput(f"a profile has no {min(unknown)}", field=min(unknown))
    with exclusive(memory, "add person"):
        there = records.find(memory, f"person:{identity}", PERSON)
        if there is not None:
            return records.change(memory, there, **known)
        about = {"id": identity, **known}
        return records.add(memory, PERSON, f"person:{identity}", identity, about)


def profile_of_caller(call: Call, *, preferences: bool) -> dict[str, Any]:
    """The caller's profile; the person at this machine gets one with their first call."""
    identity = call.caller.user
    record = records.find(call.memory, f"person:{identity}", PERSON)
    if record is None and call.caller.credential:
        raise NotFound("user not found")
    if record is None and "write" not in call.caller.scopes:
        about = {"id": identity, **DEFAULT_PREFERENCES}
        return profile(about, datetime.now(UTC), preferences=preferences)
    record = record or add_person(call.memory, identity, DEFAULT_PREFERENCES)
    return profile(record.attrs, record.created_at, preferences=preferences)


def people(memory: Commonplace) -> list[Memory]:
    """Everybody's records."""
    return records.listing(memory, PERSON)


def profile(
    attrs: Mapping[str, Any], created_at: datetime, *, preferences: bool = True
) -> dict[str, Any]:
    """A profile as it is shown."""
    shown: dict[str, Any] = {"id": attrs["id"]}
    shown |= {name: attrs.get(name, "") for name in PROFILE}
    shown["created_at"] = stamp(created_at)
    if preferences:
        shown["preferences"] = {name: attrs.get(name, "") for name in PREFERENCES}
    return shown


# Conversations


def add_conversation(
    memory: Commonplace, title: str, *, type: str = "swarm", agent_slug: str = ""
) -> Memory:
    """A new conversation: with all agents, or with one."""
    if type not in TYPES:
        raise InvalidInput(f"type must be {' or '.join(TYPES)}", field="type")
    if type == "agent" and not agent_slug:
        raise InvalidInput("agent_slug is required for a conversation with one agent")
    agent = agent_named(memory, slug=agent_slug).id if agent_slug else ""
    attrs = {"title": title, "type": type, "agent_id": agent}
    return records.add(memory, CONVERSATION, None, title, attrs)


def conversation(memory: Commonplace, identity: str) -> Memory:
    """A conversation of this workspace."""
    record = records.find(memory, identity, CONVERSATION)
    if record is None:
        raise NotFound("conversation not found in this workspace")
    return record


def conversations(memory: Commonplace) -> list[dict[str, str]]:
    """All conversations, the one that was last spoken in first."""
    found = []
    for record in records.listing(memory, CONVERSATION):
        last = memory.conversations.history(record.id, limit=1)
        updated = max(
            record.updated_at, *(line.memory.created_at for line in last), record.created_at
        )
        found.append((updated, shown_conversation(record, updated)))
    found.sort(key=lambda each: each[0], reverse=True)
    return [each for _, each in found]


def shown_conversation(record: Memory, updated: datetime) -> dict[str, str]:
    """A conversation as it is listed."""
    attrs = record.attrs
    return {
        "id": record.id,
        "title": attrs["title"],
        "type": attrs["type"],
        "agent_id": attrs["agent_id"],
        "created_at": stamp(record.created_at),
        "updated_at": stamp(updated),
    }


def conversation_of(call: Call, given: str) -> str:
    """The conversation that a call names, or the one in which it is made; empty for none."""
    if given:
        return conversation(call.memory, given).id
    active = call.request_info.headers.get(CONVERSATION_HEADER, "")
    record = records.find(call.memory, active, CONVERSATION) if active else None
    return record.id if record is not None else ""


def say(
    memory: Commonplace,
    conversation_id: str,
    speaker: str,
    text: str,
    *,
    tags: tuple[str, ...] = (),
    origin: Origin | None = None,
) -> Message:
    """Add a message; the speaker is `user`, `system`, or an agent's slug."""
    record = conversation(memory, conversation_id)
    if len(text) > TEXT_CHARS:
        raise InvalidInput(f"text exceeds max length of {TEXT_CHARS}")
    trust = "stated" if speaker == USER else "inferred"
    line = Line(speaker=speaker, text=text, trust=trust, tags=tags)
    return memory.conversations.add(record.id, line, origin=origin)[0]


def shown_message(message: Message, chars: int | None = None) -> dict[str, str]:
    """A message, its text cut if it is longer."""
    speaker, text = message.speaker, message.memory.text
    if chars is not None and len(text) > chars:
        text = text[:chars] + "..."
    return {
        "id": message.memory.id,
        "role": speaker if speaker in (USER, SYSTEM) else "agent",
        "text": text,
        "created_at": stamp(message.memory.created_at),
    }
