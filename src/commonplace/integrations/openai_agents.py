"""A `Session` of the OpenAI Agents SDK whose items are messages of a conversation.

>>> from agents import Agent, Runner
>>> from commonplace import Commonplace
>>> from commonplace.integrations.openai_agents import CommonplaceSession
>>> session = CommonplaceSession("support-42", Commonplace("~/.commonplace"))
>>> await Runner.run(Agent(name="Assistant"), "Hello", session=session)

Items are returned exactly as they were added. Other clients of the memory can find their text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

from agents.items import TResponseInputItem
from agents.memory import SessionSettings

from commonplace import Commonplace, InvalidInput, Line, Message

PREFIX = "openai-agents:"
PAGE_SIZE = 1_000
TRUST = {"user": "stated", "assistant": "inferred"}


class CommonplaceSession:
    """The history of one session."""

    def __init__(
        self,
        session_id: str,
        memory: Commonplace,
        *,
        session_settings: SessionSettings | None = None,
    ) -> None:
        if not session_id:
            raise InvalidInput("session_id is empty.", hint="Name the session.", field="session_id")
        self.session_id = session_id
        self.session_settings = session_settings
        self.memory = memory

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest items, oldest first; all of them without a limit."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit <= 0:
            return []
        found = await asyncio.to_thread(lambda: list(self._messages(limit)))
        return [_item(message) for message in reversed(found)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items in one transaction."""
        lines = [_line(cast(dict[str, Any], item), self.session_id) for item in items]
        if lines:
            await asyncio.to_thread(self.memory.conversations.add, self._conversation_name, *lines)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item from the session and return it."""
        return await asyncio.to_thread(self._pop)

    async def clear_session(self) -> None:
        """Remove all items; undo restores them."""
        await asyncio.to_thread(self._clear)

    @property
    def _conversation_name(self) -> str:
        return PREFIX + self.session_id

    def _messages(self, limit: int | None) -> Iterator[Message]:
        """Yield the newest messages, newest first."""
        before: int | None = None
        while limit is None or limit > 0:
            size = PAGE_SIZE if limit is None else min(limit, PAGE_SIZE)
            found = self.memory.conversations.history(
                self._conversation_name, limit=size, before=before
            )
            yield from reversed(found)
            if len(found) < size:
                return
            before = found[0].position
            limit = None if limit is None else limit - len(found)

    def _pop(self) -> TResponseInputItem | None:
        # A nested unit takes the write lock at once.
        with self.memory.unit("pop item"), self.memory.unit("pop item"):
            for message in self._messages(1):
                self.memory.forget(message.memory.id)
                return _item(message)
        return None

    def _clear(self) -> None:
        with self.memory.unit("clear session"), self.memory.unit("clear session"):
            if found := [message.memory.id for message in self._messages(None)]:
                self.memory.forget(*found)


def _line(item: dict[str, Any], session: str) -> Line:
    role = str(item.get("role") or item.get("type") or "item")
    text = "\n".join(_texts(item.get("content"))) or json.dumps(item, ensure_ascii=False)
    trust = "external" if role.endswith("_output") else TRUST.get(role, "inferred")
    return Line(speaker=role, text=text, session=session, trust=trust, attrs={"item": item})


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str) and content.strip():
        yield content
    elif isinstance(content, Sequence) and not isinstance(content, str):
        for part in content:
            if isinstance(part, dict):
                yield from _texts(part.get("text"))


def _item(message: Message) -> TResponseInputItem:
    return cast(TResponseInputItem, dict(message.memory.attrs["item"]))
