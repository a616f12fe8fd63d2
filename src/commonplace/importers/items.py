"""Items, which every importer yields: memories and lines of conversations that are not stored
yet.
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

UNIQUE_KEY_CHARS = 16  # the length from which a key is taken to be unique, such as a UUID
_NOT_IN_A_KIND = re.compile(r"[^a-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A memory of another program, or a line of a conversation if it has a speaker."""

    key: str
    """The item's key within its format, which is the same at every import."""
    key_scope: str = ""
    """The file or vault within which the key is unique; empty if it is unique everywhere."""
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
    trust_in_file: str = ""
    """The trust that the file states, if Commonplace exported the item."""
    importance: float = 0.5
    pinned: bool = False
    ref: str = ""
    """The memory's ref, if Commonplace exported the item."""
    links: Sequence[tuple[str, str]] = ()
    """Links as (kind, key of the other item)."""
    conversation: str = ""
    session: str = ""
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An unreadable file of a directory, which the import skips."""

    message: str
    """The file and the reason."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a person should know about an item, which is imported all the same."""

    message: str
    """The file and the remark."""


class ImportFormat(Protocol):
    """A module or object of this package that reads one format."""

    NAME: str
    TITLE: str

    def recognises(self, path: Path) -> bool:
        """Return whether a file or directory has this format, by its content or its name."""

    def items(self, path: Path) -> Iterator[Item | Skipped | Remark]:
        """Yield the items in a file or directory, and a `Skipped` for each unreadable file."""


def items_of_records(records: Iterable[Record]) -> Iterator[Item]:
    """Yield the records of an agent's history as items, except those of ignored directories.

    A record that exceeds the length limit of a memory is split.
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


def storable_tags(values: Iterable[Any]) -> tuple[str, ...]:
    """Return tags that can be stored: no duplicates, none that is too long, and not too many."""
    named = (str(value).strip().lstrip("#").strip() for value in values if value is not None)
    found = [tag for tag in dict.fromkeys(named) if tag and len(tag) <= checks.TAG_CHARS]
    return tuple(found[: checks.MAX_TAGS])


def storable_title(value: Any) -> str:
    """Return a value as a title that can be stored: on one line, and not too long."""
    return " ".join(str(value or "").split())[: checks.TITLE_CHARS]


def digest_key(*parts: Any) -> str:
    """Return a key for an item without an id: a digest of its parts."""
    whole = "\0".join(str(part) for part in parts)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def distinct_key(key: str, text: str, seen: dict[str, int]) -> str:
    """Return the key of an item, or another one if an item with a different text had this key.

    `seen` holds the keys of a file with the hashes of their texts. In some files, the column `id`
    or `key` names a group of rows.
    """
    return key if seen.setdefault(key, hash(text)) == hash(text) else digest_key(key, text)


def key_scope_of(path: Path, key: str) -> str:
    """Return the `key_scope` of an item from a file.

    It is the path of the file for a short key, such as the number of a row; a long key is unique.
    """
    return str(path.resolve()) if len(key) < UNIQUE_KEY_CHARS else ""


def storable_kind(value: str, usual: str) -> str:
    """Return a kind of a memory or link that can be stored; `usual` if nothing is left of it."""
    name = _NOT_IN_A_KIND.sub("_", value.lower()).strip("_.-")[:64]
    return name if name and name[0].isalpha() else usual
