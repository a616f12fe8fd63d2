"""Store and search the messages of conversations with a being."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from commonplace.dialects.being import sight
from commonplace.dialects.being.recalling import truncate
from commonplace.dialects.being.scenes import is_day
from commonplace.dialects.being.sight import HISTORY_TAG, being_of
from commonplace.dialects.contract import Call
from commonplace.engine import checks
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.conversations import KIND, Line
from commonplace.engine.finding.filters import Filters
from commonplace.engine.model import Message
from commonplace.errors import InvalidInput
from commonplace.text.prose import neutralise

ROLES = ("user", "assistant", "system")
DEFAULT_RESULTS, MAX_RESULTS = 10, 50
SHOWN_CHARS = 100
COMPARED_MESSAGES = 1_000
"""How many stored messages are compared with new messages to skip repeated ones."""


def store_messages(
    memory: Commonplace, being: str, messages: Sequence[Mapping[str, Any]], *, new: bool = False
) -> list[Message]:
    """Store messages and return them.

    Unless `new` is set, leading messages that repeat the last stored ones are skipped.
    """
    lines = [
        (str(each["role"]), str(each["content"]), each.get("created_at"))
        for each in messages
        if str(each["content"]).strip()
    ]
    name = sight.being_tag(being)
    if not new and lines:
        stored = [(line.speaker, line.memory.text) for line in
                memory.conversations.history(name, limit=COMPARED_MESSAGES)]  # fmt: skip
        received = [(role, text) for role, text, _ in lines]
        for count in range(min(len(stored), len(received)), 0, -1):
            if stored[-count:] == received[:count]:
                lines = lines[count:]
                break
    return memory.conversations.add(
        name,
        *(
            Line(speaker=role, text=text, at=at, trust="external" if role == "system" else
                 "stated" if role == "user" else "inferred",
                 tags=[sight.being_tag(being), HISTORY_TAG])
            for role, text, at in lines
        ),
    )  # fmt: skip


def check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raise InvalidInput if a message cannot be stored."""
    for number, each in enumerate(messages):
        checks.time(each.get("created_at"), f"messages[{number}].created_at")
        if each["content"].strip():
            checks.text(each["content"], f"messages[{number}].content")


def search_history(
    call: Call,
    *,
    query: str | None = None,
    date_from: str | None = None,
    date_to: str | None = None,
    limit: float = DEFAULT_RESULTS,
) -> str:
    """Search messages by a text and a range of dates; list the newest first."""
    for name, given in (("date_from", date_from), ("date_to", date_to)):
        if given and not is_day(given):
            return f"error: {name} must be a date in the form YYYY-MM-DD."
    count = max(1, min(int(limit), MAX_RESULTS))
    filters = Filters(
        kinds=[KIND],
        tags_all=[sight.being_tag(being_of(call)), HISTORY_TAG],
        since=date_from or None,
        until=date_to or None,
    )
    if query and query.strip():
        found, _ = call.memory.find_text(
            query[:1_000], limit=count, order="latest", in_text=True, filters=filters
        )
    else:
        found, _ = call.memory.browse(filters=filters, order="latest", limit=count)
    if not found:
        return "No messages were found."
    blocks = []
    for memory in found:
        line = call.memory.conversations.of(memory.id)
        at = (memory.occurred_at or memory.created_at).astimezone(UTC)
        text = neutralise(memory.text[:SHOWN_CHARS]) + (
            "…" if len(memory.text) > SHOWN_CHARS else ""
        )
        blocks.append(f"[{at:%Y/%m/%d %H:%M}] {line.speaker}: {text}")
    return truncate("\n\n".join(blocks))


def add_messages(call: Call, being_id: str, *, messages: list[dict[str, Any]]) -> Any:
    """Store messages of a conversation in the given order."""
    if not messages:
        raise InvalidInput("messages must not be empty.", field="messages")
    stored = store_messages(call.memory, being_id, messages, new=True)
    return {"ok": True, "added": len(stored), "ids": [line.memory.id for line in stored]}
