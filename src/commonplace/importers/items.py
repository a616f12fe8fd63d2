"""The items that every importer yields: memories and lines of conversations, before they are
stored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from commonplace.engine import checks
from commonplace.platform.ignoring import is_ignored
from commonplace.platform.transcript_lines import TRUST, conversation_of, labels_of
from commonplace.transcripts.record import Record

_NOT_IN_A_KIND = re.compile(r"[^a-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A memory of another program; with a speaker, a line of a conversation."""

    key: str
    """The item's key within its format; the same at every import."""
    text: str
    id: str | None = None
    kind: str = "note"
    title: str = ""
    tags: Sequence[str] = ()
    occurred_at: datetime | None = None
    created_at: datetime | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    trust: str = "external"
    importance: float = 0.5
    pinned: bool = False
    ref: str = ""
    """Its ref, if Commonplace exported it."""
    links: Sequence[tuple[str, str]] = ()
    """(kind, key of the other item)"""
    conversation: str = ""
    session: str = ""
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file of a directory that cannot be read; the import goes on without it."""

    what: str
    """The file, and why."""


class Format(Protocol):
    """A module of this package that reads one format."""

    NAME: str
    TITLE: str

    def recognises(self, path: Path) -> bool:
        """Whether a file or directory is of this format, by its content."""

    def items(self, path: Path) -> Iterator[Item | Skipped]:
        """The items in a file or directory, and the files of a directory that are unreadable."""


def of_records(records: Iterable[Record]) -> Iterator[Item]:
    """Lines of an agent's history as items; those of ignored directories are left out.

    A line that is longer than a memory may be becomes several.
    """
    ignored: dict[str, bool] = {}
    for record in records:
        if record.cwd not in ignored:
            ignored[record.cwd] = is_ignored(record.cwd)
        if ignored[record.cwd]:
            continue
        for start in range(0, len(record.text), checks.TEXT_CHARS):
            number = start // checks.TEXT_CHARS + 1
            yield Item(
                key=record.id if number == 1 else f"{record.id}#{number}",
                text=record.text[start : start + checks.TEXT_CHARS],
                occurred_at=record.at,
                conversation=conversation_of(record),
                session=record.session,
                speaker=record.role,
                trust=TRUST,
                tags=labels_of(record.cwd, record.branch),
            )


def tags_of(values: Iterable[Any]) -> tuple[str, ...]:
    """Tags as they can be stored: without doubles, and without those that are too long."""
    named = (str(value).strip().lstrip("#").strip() for value in values if value is not None)
    found = [tag for tag in dict.fromkeys(named) if tag and len(tag) <= checks.TAG_CHARS]
    return tuple(found[: checks.TAGS])


def title_of(value: Any) -> str:
    """A title as it can be stored."""
    return " ".join(str(value or "").split())[: checks.TITLE_CHARS]


def key_of(*parts: Any) -> str:
    """A key for an item without an id: a digest of its parts."""
    whole = "\0".join(str(part) for part in parts)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def stored_kind(value: str, usual: str) -> str:
    """A kind of a memory or a link as it can be stored."""
    name = _NOT_IN_A_KIND.sub("_", value.lower()).strip("_.-")[:64]
    return name if name and name[0].isalpha() else usual
