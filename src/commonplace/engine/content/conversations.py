"""Conversations: messages are memories with a speaker, a session and a position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from commonplace.engine import checks
from commonplace.engine.content import memories
from commonplace.engine.content.projects import Project, checked_project
from commonplace.engine.finding.listing import NEEDLE_CHARS, numbers_possibly_containing
from commonplace.engine.history.timeline import (
    memories_at,
    need_memory,
    read_as_of,
    rows_at,
)
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import LIVE_STATES, Memory, Message, Origin, When
from commonplace.errors import InvalidInput, NotFound, StorageCorrupt
from commonplace.storage import messages
from commonplace.storage.ports import Rows
from commonplace.storage.tables import MESSAGES, Row
from commonplace.text.analysis import fold

KIND = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A message that is not stored yet."""

    speaker: str
    text: str
    at: datetime | str | None = None
    session: str = ""
    ref: str | None = None
    trust: str = "stated"
    tags: Sequence[str] = ()
    attrs: Mapping[str, Any] | None = None
    vectors: Sequence[bytes] | None = None


def add(
    space: OpenSpace,
    conversation: str,
    *lines: Line,
    origin: Origin | None = None,
    project: Project | None = None,
) -> list[Message]:
    """Append messages to a conversation in the given order: all of them, or none."""
    origin = checks.origin(origin)
    checks.text(conversation, "conversation", max_chars=checks.NAME_CHARS)
    if project is not None:
        checked_project(project)
    prepared = []
    for line in lines:
        if not isinstance(line, Line):
            raise InvalidInput("Each message must be a Line.", hint="Use Line.", field="lines")
        checks.text(line.speaker, "speaker", max_chars=checks.NAME_CHARS)
        checks.optional_text(line.session, "session")
        draft = memories.Draft(
            text=line.text,
            kind=KIND,
            occurred_at=line.at,
            ref=line.ref,
            trust=line.trust,
            tags=line.tags if project is None else project.label(checks.tags(line.tags)),
            attrs=line.attrs,
            vectors=line.vectors,
        )
        prepared.append(memories.prepare(space, draft, origin, line.speaker))
    if not prepared:
        return []
    memories.embed_now(space, prepared)
    with space.write("add messages", origin) as unit:
        position = messages.newest_position(unit.connection, space.name, conversation)
        added = []
        for line, row in zip(lines, memories.insert_prepared(space, unit, prepared), strict=True):
            position += 1
            message = {
                "memory": row["num"],
                "conversation": conversation,
                "session": line.session,
                "position": position,
                "speaker": line.speaker,
            }
            added.append(_message_of_rows(row, MESSAGES.insert(unit, message)))
        return added


def _message_of_rows(memory: Row, message: Row) -> Message:
    return Message(
        Memory.of(memory),
        message["conversation"],
        message["session"],
        message["position"],
        message["speaker"],
    )


def of_memory(space: OpenSpace, identity: str, *, as_of: When | None = None) -> Message:
    """Return the message that a memory stores; with `as_of`, as it was at that time."""
    with read_as_of(space, as_of) as (connection, seq):
        row = need_memory(connection, space.name, identity, seq)
        for message in rows_at(connection, space.name, MESSAGES, seq, memory=row["num"]):
            return _message_of_rows(row, message)
        raise NotFound("This memory is not a message of a conversation.", field="id")


def _messages_of_rows(
    connection: Rows, space: str, rows: Sequence[Row], seq: int | None = None
) -> list[Message]:
    found = memories_at(connection, space, [row["memory"] for row in rows], seq)
    return [_message_of_rows(found[row["memory"]], row) for row in rows if row["memory"] in found]


def _live_messages_at(connection: Rows, space: str, seq: int, **having: object) -> list[Message]:
    """Return the messages that were live after an operation, in their order."""
    found = _messages_of_rows(
        connection, space, rows_at(connection, space, MESSAGES, seq, **having), seq
    )
    live = [line for line in found if line.memory.state in LIVE_STATES]
    return sorted(live, key=lambda line: (line.conversation, line.position))


def history(
    space: OpenSpace,
    conversation: str,
    *,
    session: str | None = None,
    limit: int = 50,
    before: int | None = None,
    as_of: When | None = None,
) -> list[Message]:
    """Return the newest messages of a conversation, oldest first.

    With `before`, return only messages before that position.
    """
    checks.limit(limit)
    wanted: dict[str, object] = {"conversation": checks.optional_text(conversation, "conversation")}
    if session is not None:
        wanted["session"] = checks.optional_text(session, "session")
    if before is not None:
        checks.integer(before, "before")
    with read_as_of(space, as_of) as (connection, seq):
        if seq is not None:
            lines = _live_messages_at(connection, space.name, seq, **wanted)
            return [line for line in lines if before is None or line.position < before][-limit:]
        rows = messages.newest(connection, space.name, wanted, before, limit)
        return _messages_of_rows(connection, space.name, rows[::-1])


def window(
    space: OpenSpace, identity: str, *, before: int = 2, after: int = 2, as_of: When | None = None
) -> list[Message]:
    """Return a message with up to `before` messages before it and `after` messages after it."""
    checks.integer(before, "before")
    checks.integer(after, "after")
    here = of_memory(space, identity, as_of=as_of)
    first, last = here.position - before, here.position + after
    with read_as_of(space, as_of) as (connection, seq):
        if seq is not None:
            lines = _live_messages_at(connection, space.name, seq, conversation=here.conversation)
            return [line for line in lines if first <= line.position <= last]
        rows = messages.between(connection, space.name, here.conversation, first, last)
        return _messages_of_rows(connection, space.name, rows)


def find(
    space: OpenSpace,
    conversation: str,
    needle: str,
    *,
    limit: int = 50,
    as_of: When | None = None,
) -> list[Message]:
    """Return the messages of a conversation that contain this text, ignoring case, newest first."""
    checks.limit(limit)
    checks.optional_text(conversation, "conversation")
    folded = fold(checks.text(needle, "needle", max_chars=NEEDLE_CHARS))
    found: list[Message] = []
    with read_as_of(space, as_of) as (connection, seq):
        if seq is not None:
            lines = _live_messages_at(connection, space.name, seq, conversation=conversation)
            return [line for line in lines[::-1] if folded in fold(line.memory.text)][:limit]
        wanted = set(numbers_possibly_containing(connection, space.name, folded))
        places = messages.live_memories(connection, space.name, conversation)
        for num in [num for num in places if num in wanted]:
            for message in MESSAGES.where(connection, space.name, memory=num):
                line = _messages_of_rows(connection, space.name, [message])
                if line and folded in fold(line[0].memory.text):
                    found += line
            if len(found) >= limit:
                break
    return found


def names(space: OpenSpace, *, as_of: When | None = None) -> list[tuple[str, int]]:
    """Return pairs of a conversation's name and its number of messages, by name."""
    with read_as_of(space, as_of) as (connection, seq):
        if seq is not None:
            lines = _live_messages_at(connection, space.name, seq)
            return sorted(Counter(line.conversation for line in lines).items())
        found = messages.conversations(connection, space.name)
        for name, _ in found:  # The names come from an index, whose rows have no hashes.
            line = MESSAGES.first(connection, space.name, conversation=name)
            if line is None or line["conversation"] != name:
                raise StorageCorrupt(
                    "The index of conversations names a conversation that has no messages.",
                    hint="Run 'commonplace doctor --repair'.",
                )
        return found
