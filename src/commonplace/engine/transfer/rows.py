"""Rows as they travel between stores: public names, no row numbers, every value checked.

A *thing* (a memory, a link, …) goes by a key that means the same in every store, and has had one
or more *forms*: what it is, and what it was before each change.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from commonplace.engine import checks
from commonplace.engine.content import artifacts, facts
from commonplace.engine.model import Origin, iso, moment
from commonplace.errors import CommonplaceError, InvalidInput, StorageCorrupt
from commonplace.storage import fields
from commonplace.storage.ports import Rows
from commonplace.storage.tables import (
    ARTIFACTS,
    CLUSTERS,
    CONTENTS,
    FACTS,
    LINKS,
    MEMBERS,
    MEMORIES,
    MESSAGES,
    REVIEWS,
    Row,
    Table,
    digest,
)

Key = tuple[str, ...]

_CENTROID_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Field:
    """How one column leaves the store, and how it comes in: checked, or InvalidInput."""

    leave: Callable[[Any], Any]
    enter: Callable[[Any, str], Any]


def _same(value: Any) -> Any:
    return value


def _text(max_chars: int) -> Field:
    return Field(_same, lambda value, name: checks.text(value, name, max_chars=max_chars))


def _optional_text(max_chars: int) -> Field:
    return Field(_same, lambda value, name: checks.optional(value, name, max_chars=max_chars))


def _or_none(field: Field) -> Field:
    return Field(
        lambda value: None if value is None else field.leave(value),
        lambda value, name: None if value is None else field.enter(value, name),
    )


def _enter_identity(value: Any, name: str) -> str:
    try:
        if isinstance(value, str) and str(uuid.UUID(value)) == value:
            return value
    except ValueError:
        pass
    raise InvalidInput(f"{name} must be a UUID in lower case.", field=name)


def enter_time(value: Any, name: str) -> int:
    """A moment as microseconds."""
    at = checks.when(checks.text(value, name, max_chars=64), name)
    assert at is not None
    try:
        moment(at)
    except OverflowError:
        raise InvalidInput(f"{name} lies outside the years 1 to 9999.", field=name) from None
    return at


def enter_origin(value: Any, name: str) -> str:
    """An origin in its stored form."""
    if not isinstance(value, dict) or value.keys() - set(Origin.__slots__):
        raise InvalidInput(
            f"{name} must be an object of {', '.join(Origin.__slots__)}.", field=name
        )
    known = Origin(
        **{part: checks.optional(text, f"{name}.{part}") for part, text in value.items()}
    )
    return json.dumps(known.as_dict(), ensure_ascii=False, separators=(",", ":"))


def _enter_flag(value: Any, name: str) -> int:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} must be true or false.", field=name)
    return int(value)


def enter_count(value: Any, name: str) -> int:
    """A whole number that SQLite can hold, from 0."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise InvalidInput(f"{name} must be a whole number from 0.", field=name)
    return value


def _enter_tags(value: Any, name: str) -> str:
    if not isinstance(value, list):
        raise InvalidInput(f"{name} must be a list of texts.", field=name)
    return json.dumps(checks.tags(value), ensure_ascii=False, separators=(",", ":"))


def _leave_content(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _enter_content(value: Any, name: str) -> bytes:
    if isinstance(value, dict) and len(value) == 1:
        if isinstance(value.get("text"), str):
            content = _enter_utf8(value["text"], name)
        else:
            content = _enter_bytes(value.get("base64"), name)
        if len(content) <= artifacts.CONTENT_BYTES:
            return content
    raise InvalidInput(
        f"{name} must be an object with text or base64, of at most"
        f" {artifacts.CONTENT_BYTES} bytes.",
        field=name,
    )


def _enter_utf8(value: str, name: str) -> bytes:
    """The bytes of a text, which may hold a NUL: what comes in as bytes is not looked into."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} is not valid Unicode.", field=name) from None


def _enter_bytes(value: Any, name: str) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"{name} must be base64.", field=name)


def _enter_centroid(value: Any, name: str) -> bytes:
    data = _enter_bytes(value, name)
    if len(data) % 4 or len(data) > _CENTROID_BYTES:
        raise InvalidInput(f"{name} must be 32-bit floats.", field=name)
    if not all(math.isfinite(part) for (part,) in struct.iter_unpack("<f", data)):
        raise InvalidInput(f"{name} holds a number that is not finite.", field=name)
    return data


def _one_of(*choices: str) -> Field:
    return Field(_same, lambda value, name: checks.one_of(value, name, choices))


_IDENTITY = Field(_same, _enter_identity)
_KIND = Field(_same, checks.kind)
_SHARE = Field(_same, checks.share)
_COUNT = Field(_same, enter_count)
_FLAG = Field(bool, _enter_flag)
_TIME = Field(lambda at: iso(moment(at)), enter_time)
_ATTRS = Field(json.loads, checks.attrs)
_ORIGIN = Field(json.loads, enter_origin)
_NAME = _text(checks.NAME_CHARS)

_TYPES: Mapping[str, Field] = {
    "identity": _IDENTITY,
    "kind": _KIND,
    "tags": Field(json.loads, _enter_tags),
    "share": _SHARE,
    "flag": _FLAG,
    "time": _TIME,
    "attrs": _ATTRS,
    "origin": _ORIGIN,
}


def _of_memory(known: fields.Field) -> Field:
    """How a memory's field travels."""
    if known.type == "address":
        check = partial(checks.address, max_chars=known.chars)
        travelling = Field(_same, lambda value, name: check(value, name))
    elif known.type == "text":
        travelling = (_optional_text if known.empty else _text)(known.chars)
    elif known.type == "choice":
        travelling = _one_of(*known.choices)
    else:
        travelling = _TYPES[known.type]
    return _or_none(travelling) if known.optional else travelling


FIELDS: Mapping[Table, Mapping[str, Field]] = {
    MEMORIES: {name: _of_memory(known) for name, known in fields.FIELDS.items()},
    MESSAGES: {
        "memory": _IDENTITY,
        "conversation": _NAME,
        "session": _optional_text(checks.NAME_CHARS),
        "position": _COUNT,
        "speaker": _NAME,
    },
    LINKS: {
        "id": _IDENTITY,
        "source": _IDENTITY,
        "target": _IDENTITY,
        "kind": _KIND,
        "weight": _SHARE,
        "reason": _optional_text(checks.REASON_CHARS),
        "attrs": _ATTRS,
        "origin": _ORIGIN,
        "created_at": _TIME,
    },
    FACTS: {
        "id": _IDENTITY,
        "subject": _NAME,
        "predicate": _NAME,
        "object": _NAME,
        "valid_from": _or_none(_TIME),
        "valid_to": _or_none(_TIME),
        "confidence": _SHARE,
        "memory": _or_none(_IDENTITY),
        "attrs": _ATTRS,
        "origin": _ORIGIN,
        "created_at": _TIME,
    },
    CLUSTERS: {
        "id": _IDENTITY,
        "name": _NAME,
        "digest": _optional_text(checks.REASON_CHARS),
        "parent": _or_none(_IDENTITY),
        "centroid": _or_none(Field(lambda data: base64.b64encode(data).decode(), _enter_centroid)),
        "attrs": _ATTRS,
        "origin": _ORIGIN,
        "created_at": _TIME,
    },
    MEMBERS: {"cluster": _IDENTITY, "memory": _IDENTITY},
    ARTIFACTS: {
        "id": _IDENTITY,
        "path": _or_none(_text(artifacts.PATH_CHARS)),
        "title": _optional_text(checks.TITLE_CHARS),
        "media_type": _text(200),
        "version": _COUNT,
        "status": _text(64),
        "state": _one_of("active", "archived"),
        "attrs": _ATTRS,
        "origin": _ORIGIN,
        "created_at": _TIME,
        "updated_at": _TIME,
    },
    CONTENTS: {
        "artifact": _IDENTITY,
        "version": _COUNT,
        "content": Field(_leave_content, _enter_content),
        "summary": _optional_text(checks.REASON_CHARS),
        "origin": _ORIGIN,
        "created_at": _TIME,
    },
    REVIEWS: {
        "artifact": _IDENTITY,
        "version": _COUNT,
        "reviewer": _optional_text(checks.NAME_CHARS),
        "outcome": _text(64),
        "comments": _optional_text(checks.TEXT_CHARS),
        "origin": _ORIGIN,
        "created_at": _TIME,
    },
}

NAMES: Mapping[Table, str] = {
    MEMORIES: "memory",
    MESSAGES: "message",
    LINKS: "link",
    FACTS: "fact",
    CLUSTERS: "cluster",
    MEMBERS: "member",
    ARTIFACTS: "artifact",
    CONTENTS: "artifact_version",
    REVIEWS: "review",
}
TABLES: Mapping[str, Table] = {name: table for table, name in NAMES.items()}

_KEYS: Mapping[Table, tuple[str, ...]] = {
    MESSAGES: ("memory",),
    MEMBERS: ("cluster", "memory"),
    CONTENTS: ("artifact", "version"),
    REVIEWS: ("artifact", "version", "created_at", "reviewer", "outcome", "comments"),
}

# What a store may decide for itself, so that it does not make another thing of the same form.
_OWN: Mapping[Table, tuple[str, ...]] = {MEMORIES: ("trust",), MESSAGES: ("position",)}


def key_columns(table: Table) -> tuple[str, ...]:
    """The columns that say which thing a row is."""
    return _KEYS.get(table, ("id",))


def key_of(table: Table, value: Mapping[str, Any]) -> Key:
    """Which thing a public form is of."""
    return tuple(str(value[column]) for column in key_columns(table))


def mark(table: Table, value: Mapping[str, Any]) -> str:
    """Equal for equal forms of a thing, in whichever store they are."""
    own = _OWN.get(table, ())
    parts = {
        column: part
        for column, part in value.items()
        if column not in own and not _is_default(table, column, part)
    }
    return digest(NAMES[table], json.dumps(parts, sort_keys=True)).hex()[:32]


def _is_default(table: Table, column: str, part: Any) -> bool:
    """Whether an added column has its default: exports of older releases do not name it."""
    if column not in table.added:
        return False
    return bool(part == FIELDS[table][column].leave(table.added[column]))


def leave(connection: Rows, space: str, table: Table, row: Row) -> dict[str, Any]:
    """A row's public form."""
    if table is MESSAGES:
        row = {**row, "memory": memory_id(connection, space, row["memory"])}
    return public(table, row)


def public(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Column values, or some of them, as they travel; a message's memory is an id."""
    known = FIELDS[table]
    return {column: known[column].leave(values[column]) for column in known if column in values}


def memory_id(connection: Rows, space: str, num: int) -> str:
    """The id of a memory by its number, also of one that is gone."""
    row = MEMORIES.first(connection, space, num=num)
    if row is None:
        for former, _, _ in MEMORIES.past(connection, space, num=num, limit=1):
            row = former
    if row is None:
        raise StorageCorrupt(
            f"A line of a conversation belongs to memory {num}, which is missing.",
            hint="Run 'commonplace doctor' and restore from a backup.",
        )
    return str(row["id"])


def enter(table: Table, value: object) -> dict[str, Any]:
    """A public form's checked column values; a message's memory is still an id."""
    name, known = NAMES[table], FIELDS[table]
    if not isinstance(value, dict):
        raise InvalidInput(f"A {name} must be an object.", field="value")
    needed = known.keys() - table.added.keys()
    for column in (*needed - value.keys(), *value.keys() - known.keys()):
        word = "lacks" if column in known else "has no"
        raise InvalidInput(
            f"The {name} {word} {ascii(column)[:60]}.",
            hint=f"It has {', '.join(known)}.",
            field="value",
        )
    values = {
        column: field.enter(value[column], column) if column in value else table.added[column]
        for column, field in known.items()
    }
    if table is FACTS:
        for part in ("subject", "predicate", "object"):
            values[f"{part}_key"] = facts.key(values[part])
        start, end = values["valid_from"], values["valid_to"]
        if start is not None and end is not None and end < start:
            raise InvalidInput("A fact cannot end before it begins.", field="valid_to")
    if table is LINKS and values["source"] == values["target"]:
        raise InvalidInput("A memory cannot be linked to itself.", field="target")
    return values


def enter_key(table: Table, value: object) -> dict[str, Any]:
    """The checked columns that say which thing is meant."""
    columns = key_columns(table)
    if not isinstance(value, dict) or value.keys() != set(columns):
        raise InvalidInput(f"A removal names {', '.join(columns)}.", field="value")
    return {column: FIELDS[table][column].enter(value[column], column) for column in columns}


def located(error: CommonplaceError, where: str, advice: str = "") -> InvalidInput:
    """The same complaint, saying where in the input it is about."""
    advice = advice or "The file was changed meanwhile; what was imported before stays."
    return InvalidInput(
        f"{where}: {error.message}", hint=f"{error.hint} {advice}".lstrip(), field=error.field
    )
