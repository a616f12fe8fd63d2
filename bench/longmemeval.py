"""Quality on LongMemEval-S: are the sessions that hold the answer found, by the public API?"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from commonplace import Commonplace, Library, Line
from commonplace.engine.binding import engine_call
from commonplace.engine.maintenance import upkeep

TOP = 10


@dataclass(frozen=True)
class Chat:
    """One question, with the sessions among which its answer is looked for."""

    name: str
    kind: str
    question: str
    asked_at: datetime
    gold: frozenset[str]
    sessions: tuple[tuple[Line, ...], ...]


@dataclass(frozen=True)
class Outcome:
    """What was found for one question."""

    chat: Chat
    turns: tuple[str, ...]
    """The session of each turn found, best first."""
    sessions: tuple[str, ...]

    @property
    def first(self) -> bool:
        """The first session found holds the answer, or a part of it."""
        return self.sessions[:1] != () and self.sessions[0] in self.chat.gold

    @property
    def any_of_five(self) -> bool:
        """One of the first five sessions does."""
        return bool(self.chat.gold & set(self.sessions[:5]))

    @property
    def all_in_five(self) -> bool:
        """Every session that does is among the first five."""
        return self.chat.gold <= set(self.sessions[:5])

    @property
    def all_in_turns(self) -> bool:
        """Every session that does has a turn among the first ten turns."""
        return self.chat.gold <= set(self.turns[:TOP])


def read_chats(path: Path) -> list[Chat]:
    """The questions of a file, each with its own sessions."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        data = json.load(file)
    chats = []
    for asked in data["questions"]:
        sessions = []
        for name, date in asked["haystack"]:
            lines = [
                Line(speaker=role, text=text, at=parsed_time(date), session=name)
                for role, text in data["sessions"][name]
                if text.strip()
            ]
            sessions.append(tuple(lines))
        chats.append(
            Chat(
                asked["id"],
                asked["type"],
                asked["question"],
                parsed_time(asked["date"]),
                frozenset(asked["gold"]),
                tuple(sessions),
            )
        )
    return chats


def parsed_time(text: str) -> datetime:
    """A moment written like "2023/05/30 (Tue) 13:40"."""
    return datetime.strptime(text, "%Y/%m/%d (%a) %H:%M").replace(tzinfo=UTC)


def space_name(chat: Chat) -> str:
    """The space in which a question's sessions are stored."""
    return f"lme-{chat.name.lower().replace('_', '-')}"


def store_chat(library: Library, chat: Chat) -> Commonplace:
    """The sessions of one question in a space of their own, all of them embedded."""
    memory = Commonplace(space=space_name(chat), library=library)
    for lines in sorted(chat.sessions, key=lambda lines: str(lines[0].at) if lines else ""):
        if lines:
            memory.conversations.add("chat", *lines)
    engine_call(memory, upkeep.embed_all)
    return memory
