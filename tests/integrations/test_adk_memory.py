"""Google ADK's memory service, with its own sessions and runner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai.types import Content, Part

from commonplace import Commonplace
from commonplace.integrations.adk_memory import CommonplaceMemoryService

ALICE: dict[str, Any] = {"app_name": "shop", "user_id": "alice"}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path, embedding="none") as opened:
        yield opened


def said(author: str, text: str) -> Event:
    """An event in which somebody says something."""
    return Event(author=author, content=Content(role="user", parts=[Part(text=text)]))


async def session_of(*events: Event, **owner: Any) -> Any:
    """A session of ADK with these events."""
    service = InMemorySessionService()
    session = await service.create_session(**(owner or ALICE))
    for event in events:
        await service.append_event(session, event)
    return session


def found(service: CommonplaceMemoryService, query: str, **owner: Any) -> list[MemoryEntry]:
    """What a search returns."""
    return asyncio.run(service.search_memory(query=query, **(owner or ALICE))).memories


def test_a_session_is_found_by_its_user_alone(memory: Commonplace) -> None:
    service = CommonplaceMemoryService(memory)
    session = asyncio.run(session_of(said("user", "My cat is called Miso"), said("bot", "Noted")))
    asyncio.run(service.add_session_to_memory(session))
    entry = found(service, "Miso cat")[0]
    assert entry.author == "user"
    assert (
        entry.content.parts is not None and entry.content.parts[0].text == "My cat is called Miso"
    )
    assert found(service, "Miso cat", app_name="shop", user_id="bob") == []
    assert found(service, "Miso cat", app_name="other", user_id="alice") == []
    assert found(service, " ") == []


def test_adding_a_session_again_adds_only_what_is_new(memory: Commonplace) -> None:
    service = CommonplaceMemoryService(memory)
    first, second = said("user", "The cat sleeps"), said("user", "The dog barks")

    async def twice() -> None:
        session = await session_of(first)
        await service.add_session_to_memory(session)
        session.events.append(second)
        await service.add_session_to_memory(session)
        await service.add_events_to_memory(events=[second], session_id=session.id, **ALICE)

    asyncio.run(twice())
    assert memory.browse(kinds=["message"])[1] == 2


def test_a_deleted_memory_does_not_come_back(memory: Commonplace) -> None:
    service = CommonplaceMemoryService(memory)
    session = asyncio.run(session_of(said("user", "The cat sleeps")))
    asyncio.run(service.add_session_to_memory(session))
    (entry,) = found(service, "cat")
    asyncio.run(service.delete_memory(memory_id=entry.id, app_name="shop", user_id="bob"))
    assert len(found(service, "cat")) == 1
    asyncio.run(service.delete_memory(memory_id=entry.id, **ALICE))
    asyncio.run(service.add_session_to_memory(session))
    assert found(service, "cat") == []


def test_memories_are_stored_as_they_are(memory: Commonplace) -> None:
    service = CommonplaceMemoryService(memory)
    entry = MemoryEntry(
        content=Content(parts=[Part(text="Alice is vegetarian")]),
        author="bot",
        timestamp="2026-05-01T00:00:00+00:00",
        custom_metadata={"topic": "food"},
    )
    asyncio.run(service.add_memory(memories=[entry], **ALICE))
    (back,) = found(service, "vegetarian")
    assert (back.author, back.timestamp) == ("bot", entry.timestamp)
    assert back.custom_metadata == {"topic": "food"}
