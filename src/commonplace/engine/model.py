"""The things the engine keeps, as values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from commonplace.storage.fields import FIELDS, MemoryFields
from commonplace.storage.tables import NOBODY as NOBODY
from commonplace.storage.tables import Origin as Origin
from commonplace.storage.tables import Row

State = Literal["active", "dying", "archived", "superseded", "dead"]
Trust = Literal["stated", "inferred", "external"]
When = datetime | str
"""A moment as callers give it; a text is ISO 8601, and UTC where it names no zone."""

TRUSTS: tuple[Trust, ...] = ("stated", "inferred", "external")
LIVE_STATES: tuple[State, ...] = ("active", "dying")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=256)  # what was stored together has one time
def moment(at: int) -> datetime:
    """UTC microseconds as a moment."""
    return _EPOCH + timedelta(microseconds=at)


def microseconds(at: datetime) -> int:
    """A moment as UTC microseconds."""
    return (at - _EPOCH) // _MICROSECOND


def iso(at: datetime | None) -> str | None:
    """A moment as ISO 8601 in UTC, or None."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


@lru_cache(maxsize=1024)  # few sets of tags are on very many memories
def _tags(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _moment_or_none(at: int | None) -> datetime | None:
    return None if at is None else moment(at)


# How stored values of a type are read, and how they are shown as JSON; others stay as they are.
_READ: Mapping[str, Callable[[Any], Any]] = {
    "tags": lambda text: () if text == "[]" else _tags(text),
    "flag": bool,
    "time": _moment_or_none,
    "attrs": lambda text: {} if text == "{}" else json.loads(text),
    "origin": Origin.load,
}
_SHOWN: Mapping[str, Callable[[Any], Any]] = {
    "tags": list, "time": iso, "attrs": dict, "origin": Origin.as_dict,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(MemoryFields):
    """One thing remembered: the fields of `MemoryFields`, some of narrower types."""

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
    """The operation that wrote this form of it."""
    num: int = field(repr=False)

    @classmethod
    def of(cls, row: Row) -> Memory:
        """From a verified row."""
        memory = object.__new__(cls)
        for put, name, read in _SLOTS:
            put(memory, row[name] if read is None else read(row[name]))
        return memory

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        shown = {
            name: _SHOWN[each.type](getattr(self, name)) if each.type in _SHOWN
            else getattr(self, name)
            for name, each in FIELDS.items()
        }  # fmt: skip
        return {**shown, "version": self.version}


def _reader(name: str) -> Callable[[Any], Any] | None:
    known = FIELDS.get(name)
    if known is not None and known.type == "time" and not known.optional:
        return moment
    return None if known is None else _READ.get(known.type)


# (setter, column, reader) of each field. Searches read many memories, and the `__init__` of a
# frozen dataclass takes twice as long as setting its slots.
_SLOTS: tuple[tuple[Callable[[Memory, Any], None], str, Callable[[Any], Any] | None], ...] = tuple(
    (
        getattr(Memory, each.name).__set__,
        "seq" if each.name == "version" else each.name,
        _reader(each.name),
    )
    for each in fields(Memory)
)


@dataclass(frozen=True, slots=True)
class Usage:
    """How often a memory was read, and when last."""

    accesses: int
    last_access: datetime | None


@dataclass(frozen=True, slots=True)
class Version:
    """A memory as it was, from when it was recorded until it was replaced (None: it still is)."""

    memory: Memory
    since: datetime
    until: datetime | None
    operation: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One unit of work: everything in it was written together."""

    id: str
    name: str
    at: datetime
    origin: Origin
    seq: int
    undoes: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "id": self.id,
            "name": self.name,
            "at": iso(self.at),
            "origin": self.origin.as_dict(),
            "seq": self.seq,
            "undoes": self.undoes,
        }


@dataclass(frozen=True, slots=True)
class Link:
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

    @classmethod
    def of(cls, row: Row) -> Link:
        """From a verified row."""
        return cls(
            row["id"],
            row["source"],
            row["target"],
            row["kind"],
            row["weight"],
            row["reason"],
            json.loads(row["attrs"]),
            Origin.load(row["origin"]),
            moment(row["created_at"]),
        )


@dataclass(frozen=True, slots=True)
class Fact:
    """Subject, predicate, object: true from one date until another; learned at `created_at`."""

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

    @classmethod
    def of(cls, row: Row) -> Fact:
        """From a verified row."""
        start, end, attrs = row["valid_from"], row["valid_to"], row["attrs"]
        return cls(
            row["id"],
            row["subject"],
            row["predicate"],
            row["object"],
            None if start is None else moment(start),
            None if end is None else moment(end),
            row["confidence"],
            row["memory"],
            {} if attrs == "{}" else json.loads(attrs),
            Origin.load(row["origin"]),
            moment(row["created_at"]),
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """A named group of memories."""

    id: str
    name: str
    digest: str
    parent: str | None
    attrs: Mapping[str, Any]
    origin: Origin
    created_at: datetime
    centroid: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, row: Row) -> Cluster:
        """From a verified row."""
        return cls(
            row["id"],
            row["name"],
            row["digest"],
            row["parent"],
            json.loads(row["attrs"]),
            Origin.load(row["origin"]),
            moment(row["created_at"]),
            row["centroid"],
        )


@dataclass(frozen=True, slots=True)
class Artifact:
    """A document under a path or an id; `version` is its newest one."""

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

    @classmethod
    def of(cls, row: Row) -> Artifact:
        """From a verified row."""
        return cls(
            row["id"],
            row["path"],
            row["title"],
            row["media_type"],
            row["version"],
            row["status"],
            json.loads(row["attrs"]),
            Origin.load(row["origin"]),
            moment(row["created_at"]),
            moment(row["updated_at"]),
        )


@dataclass(frozen=True, slots=True)
class ArtifactVersion:
    """One version of an artifact's content."""

    version: int
    content: bytes
    summary: str
    origin: Origin
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Review:
    """What a reviewer said of one version."""

    version: int
    reviewer: str
    outcome: str
    comments: str
    origin: Origin
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Message:
    """A line of a conversation: a memory with a speaker and a place in an order."""

    memory: Memory
    conversation: str
    session: str
    position: int
    speaker: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for good: credit, life cycle, audit. A purged payload is None."""

    num: int
    kind: str
    subject: str
    at: datetime
    payload: Mapping[str, Any] | None
