"""A memory service for Google's Agent Development Kit.

>>> from commonplace import Commonplace
>>> from commonplace.integrations.adk_memory import CommonplaceMemoryService
>>> runner = Runner(…, memory_service=CommonplaceMemoryService(Commonplace("~/.commonplace")))

Events become messages of a conversation. A search finds only events of the same user and
application.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai.types import Content, Part

from commonplace import Commonplace, Line, Memory, NotFound

RESULTS = 10
KIND = "adk_memory"


class CommonplaceMemoryService(BaseMemoryService):
    """Long-term memory of agents, stored in Commonplace."""

    def __init__(self, memory: Commonplace, *, results: int = RESULTS) -> None:
        self.memory = memory
        self.results = results

    async def add_session_to_memory(self, session: Session) -> None:
        """Store the events of a session that are not stored yet."""
        await asyncio.to_thread(
            self._add_events, session.app_name, session.user_id, session.id, session.events, None
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store some events of a session."""
        await asyncio.to_thread(
            self._add_events, app_name, user_id, session_id or "", events, custom_metadata
        )

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store memories as they are."""
        await asyncio.to_thread(self._add_entries, app_name, user_id, memories, custom_metadata)

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Return memories of this user and application that match a query."""
        if not query.strip():
            return SearchMemoryResponse()
        hits = await asyncio.to_thread(
            self.memory.recall, query, limit=self.results, tags_all=[_scope_tag(app_name, user_id)]
        )
        return SearchMemoryResponse(memories=[_memory_entry(hit.memory) for hit in hits])

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Hide one memory of this user; adding its session again does not restore it."""
        if memory_id:
            await asyncio.to_thread(self._delete, app_name, user_id, memory_id)

    def _add_events(
        self,
        app: str,
        user: str,
        session: str,
        events: Sequence[Event],
        metadata: Mapping[str, object] | None,
    ) -> None:
        scope = _scope_tag(app, user)
        # Two nested units take the write lock at once, so that no event is added twice.
        with self.memory.unit("add session"), self.memory.unit("add session"):
            lines = []
            for event in events:
                ref = f"{scope}:{_digest(session, event.id)}"
                text = _text_of_content(event.content)
                if text and not self._is_stored(ref):
                    lines.append(_line(event, text, session, scope, ref, metadata))
            if lines:
                self.memory.conversations.add(f"{scope}:{_digest(session)}", *lines)

    def _add_entries(
        self,
        app: str,
        user: str,
        entries: Sequence[MemoryEntry],
        metadata: Mapping[str, object] | None,
    ) -> None:
        with self.memory.unit("add memories"):
            for entry in entries:
                if text := _text_of_content(entry.content):
                    attrs = {**(metadata or {}), **entry.custom_metadata}
                    self.memory.remember(
                        text,
                        kind=KIND,
                        tags=[_scope_tag(app, user)],
                        trust="inferred",
                        occurred_at=entry.timestamp,
                        attrs={"author": entry.author, "metadata": attrs},
                    )

    def _is_stored(self, ref: str) -> bool:
        try:
            self.memory.get(ref, count=False)
        except NotFound:
            return False
        return True

    def _delete(self, app: str, user: str, identity: str) -> None:
        try:
            found = self.memory.get(identity, count=False)
        except NotFound:
            return
        if _scope_tag(app, user) in found.tags:
            self.memory.forget(found.id)


def _scope_tag(app: str, user: str) -> str:
    return f"adk:{_digest(app, user)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _text_of_content(content: Content | None) -> str:
    parts = (content.parts if content is not None else None) or []
    return "\n".join(part.text for part in parts if part.text and part.text.strip())


def _line(
    event: Event,
    text: str,
    session: str,
    scope: str,
    ref: str,
    metadata: Mapping[str, object] | None,
) -> Line:
    attrs: dict[str, Any] = {"author": event.author, "event": event.id}
    if metadata:
        attrs["metadata"] = dict(metadata)
    return Line(
        speaker=event.author or "unknown",
        text=text,
        at=datetime.fromtimestamp(event.timestamp, UTC),
        session=session,
        ref=ref,
        trust="stated" if event.author == "user" else "inferred",
        tags=[scope],
        attrs=attrs,
    )


def _memory_entry(memory: Memory) -> MemoryEntry:
    author = memory.attrs.get("author")
    role = "user" if author == "user" else "model"
    return MemoryEntry(
        id=memory.id,
        content=Content(role=role, parts=[Part(text=memory.text)]),
        author=author,
        timestamp=(memory.occurred_at or memory.created_at).isoformat(),
        custom_metadata=dict(memory.attrs.get("metadata") or {}),
    )
