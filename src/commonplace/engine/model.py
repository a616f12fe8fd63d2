"""The things the engine keeps, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal

from commonplace.storage.tables import Row

State = Literal["active", "dying", "archived", "superseded", "dead"]
Trust = Literal["stated", "inferred", "external"]

TRUSTS: tuple[Trust, ...] = ("stated", "inferred", "external")
ORIGIN_PARTS = ("user", "client", "tool", "session", "url")
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


@dataclass(frozen=True, slots=True)
class Origin:
    """Who stored something, with which client and tool, in which session. Never changes."""

    user: str = ""
    client: str = ""
    tool: str = ""
    session: str = ""
    url: str = ""

    def as_dict(self) -> dict[str, str]:
        """Only what is known."""
        return {name: value for name in ORIGIN_PARTS if (value := getattr(self, name))}

    def dump(self) -> str:
        """The stored form."""
        if self is NOBODY or self == NOBODY:
            return "{}"
        return json.dumps(self.as_dict(), ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def load(text: str) -> Origin:
        """From the stored form; unknown keys of newer releases are left out."""
        return NOBODY if text == "{}" else _origin(text)


NOBODY = Origin()


# Few origins and few sets of tags are on very many memories.
@lru_cache(maxsize=1024)
def _origin(text: str) -> Origin:
    known = json.loads(text)
    return Origin(**{name: known[name] for name in ORIGIN_PARTS if name in known})


@lru_cache(maxsize=1024)
def _tags(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


_MEMORY = itemgetter(
    "id", "kind", "title", "text", "tags", "importance", "confidence", "credit", "state", "pinned",
    "occurred_at", "created_at", "updated_at", "ref", "attrs", "origin", "trust", "seq", "num",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing remembered."""

    id: str
    kind: str
    title: str
    text: str
    tags: tuple[str, ...]
    importance: float
    confidence: float
    credit: float
    state: State
    pinned: bool
    occurred_at: datetime | None
    created_at: datetime
    updated_at: datetime
    ref: str | None
    attrs: Mapping[str, Any]
    origin: Origin
    trust: Trust
    version: int
    """The operation that wrote this form of it."""
    num: int = field(repr=False)

    @classmethod
    def of(cls, row: Row) -> Memory:
        """From a verified row."""
        (
            identity, kind, title, text, tags, importance, confidence, credit, state, pinned,
            occurred, created, updated, ref, attrs, origin, trust, version, num,
        ) = _MEMORY(row)  # fmt: skip
        created_at = moment(created)
        return cls(
            identity,
            kind,
            title,
            text,
            () if tags == "[]" else _tags(tags),
            importance,
            confidence,
            credit,
            state,
            bool(pinned),
            None if occurred is None else moment(occurred),
            created_at,
            created_at if updated == created else moment(updated),
            ref,
            {} if attrs == "{}" else json.loads(attrs),
            NOBODY if origin == "{}" else Origin.load(origin),
            trust,
            version,
            num,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "id": self.id,
            "kind": self.kind,
            "title": self.title,
            "text": self.text,
            "tags": list(self.tags),
            "importance": self.importance,
            "confidence": self.confidence,
            "credit": self.credit,
            "state": self.state,
            "pinned": self.pinned,
            "occurred_at": iso(self.occurred_at),
            "created_at": iso(self.created_at),
            "updated_at": iso(self.updated_at),
            "ref": self.ref,
            "attrs": dict(self.attrs),
            "origin": self.origin.as_dict(),
            "trust": self.trust,
            "version": self.version,
        }


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
