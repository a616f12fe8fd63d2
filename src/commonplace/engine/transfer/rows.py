"""The format of rows in an export: public names, no row numbers, every value checked.

An *object* (a memory, a link, …) has a key that means the same in every store, and one or more
*forms*: its current state, and its state before each change.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from commonplace.engine import checks
from commonplace.engine.checks import COLUMNS
from commonplace.engine.content import facts
from commonplace.engine.model import Origin, iso, moment
from commonplace.errors import CommonplaceError, InvalidInput, StorageCorrupt
from commonplace.storage import versions
from commonplace.storage.fields import Field
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
    VERSIONED,
    Row,
    Table,
    digest,
)

Key = tuple[str, ...]

# The limit is below the database's largest integer, so that numbering can continue from it.
COUNT_MOST = 2**62
_CENTROID_BYTES = 65_536

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

_KEY_COLUMNS: Mapping[Table, tuple[str, ...]] = {
    MESSAGES: ("memory",),
    MEMBERS: ("cluster", "memory"),
    CONTENTS: ("artifact", "version"),
    REVIEWS: ("artifact", "version", "created_at", "reviewer", "outcome", "comments"),
}

# Columns that each store sets itself: forms that differ only in these columns are equal.
_OWN_COLUMNS: Mapping[Table, tuple[str, ...]] = {MEMORIES: ("trust",), MESSAGES: ("position",)}


def _export_content(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


# By type: how a stored value is written to an export. Other types stay unchanged.
_EXPORT_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "tags": json.loads,
    "flag": bool,
    "time": lambda at: iso(moment(at)),
    "attrs": json.loads,
    "origin": json.loads,
    "content": _export_content,
    "centroid": lambda data: base64.b64encode(data).decode(),
}


def import_time(value: Any, name: str) -> int:
    """Check a time and return UTC microseconds."""
    at = checks.time(checks.text(value, name, max_chars=64), name)
    assert at is not None
    return at


def import_origin(value: Any, name: str) -> str:
    """Check an origin and return its stored form."""
    if not isinstance(value, dict) or value.keys() - set(Origin.__slots__):
        raise InvalidInput(
            f"{name} must be an object of {', '.join(Origin.__slots__)}.", field=name
        )
    return Origin(
        **{part: checks.optional_text(text, f"{name}.{part}") for part, text in value.items()}
    ).dump()


def _import_id(value: Any, name: str) -> str:
    try:
        if isinstance(value, str) and str(uuid.UUID(value)) == value:
            return value
    except ValueError:
        pass
    raise InvalidInput(f"{name} must be a UUID in lower case.", field=name)


def _import_content(value: Any, name: str) -> bytes:
    if isinstance(value, dict) and len(value) == 1:
        if isinstance(value.get("text"), str):
            try:
                # The content may contain a NUL, unlike other texts.
                content: bytes = value["text"].encode()
            except UnicodeEncodeError:
                raise InvalidInput(f"{name} is not valid Unicode.", field=name) from None
        else:
            content = _import_bytes(value.get("base64"), name)
        if len(content) <= checks.CONTENT_BYTES:
            return content
    raise InvalidInput(
        f"{name} must be an object with text or base64, of at most {checks.CONTENT_BYTES:,} bytes.",
        field=name,
    )


def _import_bytes(value: Any, name: str) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"{name} must be base64.", field=name)


def _import_centroid(value: Any, name: str) -> bytes:
    data = _import_bytes(value, name)
    if len(data) % 4 or len(data) > _CENTROID_BYTES:
        raise InvalidInput(f"{name} must be 32-bit floats.", field=name)
    if not all(math.isfinite(part) for (part,) in struct.iter_unpack("<f", data)):
        raise InvalidInput(f"{name} holds a number that is not finite.", field=name)
    return data


# By type: how a value is checked on import. Other types are checked when they are stored.
_IMPORT_FUNCTIONS: Mapping[str, Callable[[Any, str], Any]] = {
    "identity": _import_id,
    "time": import_time,
    "origin": import_origin,
    "count": lambda value, name: checks.integer(value, name, COUNT_MOST),
    "content": _import_content,
    "centroid": _import_centroid,
}


def _importer(name: str, known: Field) -> Callable[[Any], Any]:
    check = _IMPORT_FUNCTIONS.get(known.type)
    if check is None:
        return checks.check_of_field(name, known)
    return lambda value: None if known.optional and value is None else check(value, name)


_IMPORTERS = {
    table: {column: _importer(column, known) for column, known in columns.items()}
    for table, columns in COLUMNS.items()
}


def _export_value(known: Field, value: Any) -> Any:
    write = _EXPORT_FUNCTIONS.get(known.type)
    return value if write is None or (known.optional and value is None) else write(value)


def key_columns(table: Table) -> tuple[str, ...]:
    """Return the columns that identify an object."""
    return _KEY_COLUMNS.get(table, ("id",))


def key_of(table: Table, value: Mapping[str, Any]) -> Key:
    """Return the key of an object from one of its public forms."""
    return tuple(str(value[column]) for column in key_columns(table))


def form_digest(table: Table, value: Mapping[str, Any]) -> str:
    """Return a digest of a form that is the same in every store."""
    own = _OWN_COLUMNS.get(table, ())
    parts = {
        column: part
        for column, part in value.items()
        if column not in own and not _is_default(table, column, part)
    }
    return digest(NAMES[table], json.dumps(parts, sort_keys=True)).hex()[:32]


def _is_default(table: Table, column: str, part: Any) -> bool:
    """Return whether an added column has its default; exports of older releases leave it out."""
    if column not in table.added:
        return False
    return bool(part == _export_value(COLUMNS[table][column], table.added[column]))


def export_row(connection: Rows, space: str, table: Table, row: Row) -> dict[str, Any]:
    """Return the public form of a row."""
    if table is MESSAGES:
        row = {**row, "memory": _memory_id(connection, space, row["memory"])}
    return public_form(table, row)


def public_form(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert column values to public form; the memory of a message becomes an id."""
    return {
        column: _export_value(known, values[column])
        for column, known in COLUMNS[table].items()
        if column in values
    }


def _memory_id(connection: Rows, space: str, num: int) -> str:
    """Return the id of a memory by its number, also if it was removed."""
    row = MEMORIES.first(connection, space, num=num)
    if row is None:
        for former, _, _ in MEMORIES.past(connection, space, num=num, limit=1):
            row = former
    if row is None:
        raise StorageCorrupt(
            f"A message of a conversation belongs to memory {num}, which is missing.",
            hint="Run 'commonplace doctor' and restore from a backup.",
        )
    return str(row["id"])


def import_row(table: Table, value: object) -> dict[str, Any]:
    """Check a public form and return column values; the memory of a message stays an id."""
    name, known = NAMES[table], COLUMNS[table]
    if not isinstance(value, dict):
        raise InvalidInput(f"A {name} must be an object.", field="value")
    needed = known.keys() - table.added.keys()
    for column in (*needed - value.keys(), *value.keys() - known.keys()):
        word = "lacks" if column in known else "has no field"
        raise InvalidInput(
            f"The {name} {word} {ascii(column)[:60]}.",
            hint=f"Its fields are {', '.join(known)}.",
            field="value",
        )
    values = {
        column: check(value[column]) if column in value else table.added[column]
        for column, check in _IMPORTERS[table].items()
    }
    if table is FACTS:
        for part in ("subject", "predicate", "object"):
            values[f"{part}_key"] = facts.name_key(values[part])
        facts.check_period(values["valid_from"], values["valid_to"])
    if table is LINKS and values["source"] == values["target"]:
        raise InvalidInput("A memory cannot be linked to itself.", field="target")
    return values


def import_key(table: Table, value: object) -> dict[str, Any]:
    """Check the values of the columns that identify an object."""
    columns = key_columns(table)
    if not isinstance(value, dict) or value.keys() != set(columns):
        raise InvalidInput(
            f"A removal must have exactly these fields: {', '.join(columns)}.", field="value"
        )
    return {column: _IMPORTERS[table][column](value[column]) for column in columns}


def with_location(error: CommonplaceError, where: str, advice: str = "") -> InvalidInput:
    """Return the same error with the place in the input where it occurred."""
    advice = advice or "The file was changed during the import; lines imported before that stay."
    return InvalidInput(
        f"{where}: {error.message}", hint=f"{error.hint} {advice}".lstrip(), field=error.field
    )


@dataclass(frozen=True, slots=True)
class Form:
    """One form of an object, with the operations that wrote and replaced it (None if current)."""

    num: int
    since: int
    until: int | None
    digest: str


class Forms:
    """All forms of the objects of a space, including removed objects."""

    def __init__(self, connection: Rows, space: str) -> None:
        self._space = space
        self._removed: dict[tuple[Table, Key], list[int]] = {}
        for table in VERSIONED:
            for num in versions.removed_numbers(connection, space, table):
                for row, _, _ in table.past(connection, space, num=num, limit=1):
                    key = key_of(table, export_row(connection, space, table, row))
                    self.add_removed(table, key, num)

    def removed_numbers(self, table: Table, key: Key) -> list[int]:
        """Return the row numbers that an object had before it was removed."""
        return self._removed.get((table, key), [])

    def add_removed(self, table: Table, key: Key, num: int) -> None:
        """Record that an object was removed."""
        nums = self._removed.setdefault((table, key), [])
        if num not in nums:
            nums.append(num)

    def of(self, connection: Rows, table: Table, key: Key, current: list[Row]) -> list[Form]:
        """Return the forms of an object, oldest first; `current` holds its current rows."""
        nums = dict.fromkeys([*self.removed_numbers(table, key), *(row["num"] for row in current)])
        rows: list[tuple[Row, int | None]] = [(row, None) for row in current]
        for num in nums:
            former = table.past(connection, self._space, num=num)
            rows += [(row, until) for row, until, _ in former]
        found = [
            Form(row["num"], row["seq"], until,
                 form_digest(table, export_row(connection, self._space, table, row)))
            for row, until in rows
        ]  # fmt: skip
        return sorted(found, key=lambda form: (form.since, form.num))


def current_rows(
    connection: Rows, space: str, table: Table, values: Mapping[str, Any]
) -> list[Row]:
    """Return the current rows of the object that these column values belong to."""
    columns = key_columns(table)
    return table.where(connection, space, **{column: values[column] for column in columns})


def event_digest(kind: str, subject: str, at: int, payload_hash: bytes) -> str:
    """Return a digest of an event that is the same in every store."""
    return hashlib.sha256(json.dumps([kind, subject, at, payload_hash.hex()]).encode()).hexdigest()
