"""The values that the engine stores and returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, Literal, Self

from commonplace.storage.fields import FIELDS, MemoryFields
from commonplace.storage.tables import NOBODY as NOBODY
from commonplace.storage.tables import Origin as Origin
from commonplace.storage.tables import Row

State = Literal["active", "dying", "archived", "superseded", "dead"]
Trust = Literal["stated", "inferred", "external"]
When = datetime | str
"""A time as an argument: a datetime or ISO 8601 text, which is UTC unless it names a zone."""

TRUSTS: tuple[Trust, ...] = ("stated", "inferred", "external")
LIVE_STATES: tuple[State, ...] = ("active", "dying")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=256)  # Memories that were stored together have the same time.
def moment(at: int) -> datetime:
    """Convert UTC microseconds to a datetime."""
    return _EPOCH + timedelta(microseconds=at)


def microseconds(at: datetime) -> int:
    """Convert a datetime to UTC microseconds."""
    return (at - _EPOCH) // _MICROSECOND


def iso(at: datetime | None) -> str | None:
    """Format a datetime as ISO 8601 in UTC; None stays None."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


@lru_cache(maxsize=1024)  # Many memories share the same few sets of tags.
def _tags(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _moment_or_none(at: int | None) -> datetime | None:
    return None if at is None else moment(at)


# By type: how to read a stored value, and how to convert it to JSON. Other types stay unchanged.
_FROM_STORED: Mapping[str, Callable[[Any], Any]] = {
    "tags": lambda text: () if text == "[]" else _tags(text),
    "flag": bool,
    "time": _moment_or_none,
    "attrs": lambda text: {} if text == "{}" else json.loads(text),
    "origin": Origin.load,
}
_TO_JSON: Mapping[str, Callable[[Any], Any]] = {
    "tags": list, "time": iso, "attrs": dict, "origin": Origin.as_dict,
}  # fmt: skip
_READERS = {name: _FROM_STORED.get(known.type) for name, known in FIELDS.items()} | {
    "created_at": moment, "updated_at": moment, "valid_from": _moment_or_none,
    "valid_to": _moment_or_none,
}  # fmt: skip


class _Stored:
    """A value object whose fields are columns of a row."""

    __slots__ = ()

    @classmethod
    def of(cls, row: Row) -> Self:
        """Build the value from a verified row."""
        # Searches read many rows, and `__init__` of a frozen dataclass would take twice as long.
        value = object.__new__(cls)
        for put, column, read in _columns(cls):  # type: ignore[arg-type]  # a class is hashable
            put(value, row[column] if read is None else read(row[column]))
        return value


@cache
def _columns(cls: Any) -> list[tuple[Callable[[Any, Any], None], str, Callable[[Any], Any] | None]]:
    """Return (slot setter, column, reader) for each field of a class."""
    columns = {"version": "seq"} if cls is Memory else {}
    return [
        (getattr(cls, each.name).__set__, columns.get(each.name, each.name),
         _READERS.get(each.name))
        for each in fields(cls)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(MemoryFields, _Stored):
    """One memory: the fields of `MemoryFields`, some with narrower types."""

    id: str
    text: str
    tags: tuple[str, ...]
    state: State
    occurred_at: datetime | None
    created_at: datetime
    updated_at: datetime
    attrs: Mapping[str, Any]
    origin: Origin
    trust: Trust
    version: int
    """The operation that wrote this version."""
    num: int = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the memory as plain values for JSON."""
        shown = {
            name: _TO_JSON[each.type](getattr(self, name)) if each.type in _TO_JSON
            else getattr(self, name)
            for name, each in FIELDS.items()
        }  # fmt: skip
        return {**shown, "version": self.version}


@dataclass(frozen=True, slots=True)
class Usage:
    """How often a memory was read, and when it was read last."""

    accesses: int
    last_access: datetime | None


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a memory: when it was recorded, and when it was replaced (None if current)."""

    memory: Memory
    since: datetime
    until: datetime | None
    operation: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One unit of work. All its writes were committed together."""

    id: str
    name: str
    at: datetime
    origin: Origin
    seq: int
    undoes: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the operation as plain values for JSON."""
        return {
            "id": self.id,
            "name": self.name,
            "at": iso(self.at),
            "origin": self.origin.as_dict(),
            "seq": self.seq,
            "undoes": self.undoes,
        }


@dataclass(frozen=True, slots=True)
class Link(_Stored):
    """A typed, directed, weighted relation between two memories."""

    id: str
    source: str
    target: str
    kind: str
    weight: float
    reason: str
    attrs: Mapping[str, Any]
    origin: Origin
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Fact(_Stored):
    """Subject, predicate and object; true from one date until another, learned at `created_at`."""

    id: str
    subject: str
    predicate: str
    object: str
    valid_from: datetime | None
    valid_to: datetime | None
    confidence: float
    memory: str | None
    attrs: Mapping[str, Any]
    origin: Origin
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Cluster(_Stored):
    """A named group of memories."""

    id: str
    name: str
    digest: str
    parent: str | None
    attrs: Mapping[str, Any]
    origin: Origin
    created_at: datetime
    centroid: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Artifact(_Stored):
    """A document with an id and, optionally, a path; `version` is its newest version."""

    id: str
    path: str | None
    title: str
    media_type: str
    version: int
    status: str
    attrs: Mapping[str, Any]
    origin: Origin
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ArtifactVersion(_Stored):
    """One version of an artifact's content."""

    version: int
    content: bytes
    summary: str
    origin: Origin
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Review(_Stored):
    """A reviewer's outcome and comments on one version of an artifact."""

    version: int
    reviewer: str
    outcome: str
    comments: str
    origin: Origin
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation: a memory with a speaker and a position."""

    memory: Memory
    conversation: str
    session: str
    position: int
    speaker: str


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of the append-only event log. The payload is None after a purge."""

    num: int
    kind: str
    subject: str
    at: datetime
    payload: Mapping[str, Any] | None
