"""Checks of input. Each function returns the value to store, or raises InvalidInput."""

from __future__ import annotations

import json
import math
import re
import struct
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from commonplace.engine.model import microseconds, moment
from commonplace.errors import InvalidInput
from commonplace.storage.fields import FIELDS, Field
from commonplace.storage.tables import (
    ARTIFACTS,
    CLUSTERS,
    CONTENTS,
    FACTS,
    LINKS,
    MEMBERS,
    MEMORIES,
    MESSAGES,
    NOBODY,
    ORIGIN_PARTS,
    REVIEWS,
    Origin,
    Table,
)

_SURROGATE = re.compile("[\ud800-\udfff]")
TEXT_CHARS = FIELDS["text"].chars
TITLE_CHARS = FIELDS["title"].chars
MAX_TAGS = 100
TAG_CHARS = 100
REF_CHARS = FIELDS["ref"].chars
ATTRS_CHARS = 1_000_000
NAME_CHARS = 500
REASON_CHARS = 10_000
PATH_CHARS = 4_096
CONTENT_BYTES = 20 * 1024 * 1024
MAX_LIMIT = 1_000
_DAY = 86_400_000_000  # microseconds
MAX_NUMBER = 1_000_000
_MAX_DEPTH = 64
PACK_HINT = "Pack it with commonplace.storage.derived.pack()."

_SCALE = struct.Struct("<f")
_LEAST_SCALE = 2.0**-126  # The smallest scale that `pack` writes; smaller floats lose precision.

_KIND_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_SPACE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9_-])?")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # File names that Windows reserves.


def check_text(value: object, field: str, *, max_chars: int, allow_empty: bool = False) -> str:
    """Return the value unchanged if it can be stored as text; raise InvalidInput otherwise."""
    if not isinstance(value, str):
        raise InvalidInput(
            f"'{field}' must be text, not {type(value).__name__}.",
            hint="Send a string.",
            field=field,
        )
    if len(value) > max_chars:
        raise InvalidInput(
            f"'{field}' has {len(value):,} characters; at most {max_chars:,} are allowed.",
            hint="Shorten it, or split it into several.",
            field=field,
        )
    if (nul := value.find("\x00")) >= 0:
        raise InvalidInput(
            f"'{field}' contains a NUL character (U+0000) at position {nul}.",
            hint="Remove it.",
            field=field,
        )
    if not value.isascii() and (lone := _SURROGATE.search(value)):
        raise InvalidInput(
            f"'{field}' is not valid Unicode: half of a character "
            f"(U+{ord(lone[0]):04X}) stands alone at position {lone.start()}.",
            hint="Send well-formed UTF-8; the text was probably cut inside an emoji.",
            field=field,
        )
    if not allow_empty and not value.strip():
        raise InvalidInput(
            f"'{field}' is {'blank' if value else 'empty'}.",
            hint="Send some text.",
            field=field,
        )
    return value if type(value) is str else str.__str__(value)


def _must_be(field: str, what: str, value: object) -> InvalidInput:
    return InvalidInput(f"{field} must be {what}.", hint=f"Got {_short_repr(value)}.", field=field)


def _short_repr(value: object) -> str:
    try:
        shown = ascii(value)
    except ValueError:  # The value is an integer of thousands of digits, which ascii() refuses.
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= 60 else shown[:57] + "..."


def text(value: object, field: str = "text", *, max_chars: int = TEXT_CHARS) -> str:
    """Check a text that must not be blank."""
    return check_text(value, field, max_chars=max_chars)


def optional_text(value: object, field: str, *, max_chars: int = NAME_CHARS) -> str:
    """Check a text that may be empty."""
    return check_text(value, field, max_chars=max_chars, allow_empty=True)


def address(value: object, field: str, *, max_chars: int) -> str:
    """Check a URL, a path or a commit: one line without surrounding spaces. It may be empty."""
    checked = optional_text(value, field, max_chars=max_chars)
    if checked != checked.strip() or any(
        unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in checked
    ):
        raise _must_be(field, "an address in one line, without spaces around it", value)
    return checked


def kind(value: object, field: str = "kind") -> str:
    """Check a short lower-case name."""
    if not isinstance(value, str) or not _KIND_NAME.fullmatch(value):
        raise _must_be(field, "1 to 64 of a-z, 0-9, '_', '.', '-' and start with a letter", value)
    return str.__str__(value)


def space(value: object) -> str:
    """Check the name of a space, which must be a file name on every system."""
    if not isinstance(value, str) or not _SPACE.fullmatch(value) or _RESERVED.fullmatch(value):
        raise InvalidInput(
            "A space's name must be 1 to 64 of a-z, 0-9, '.', '_', '-', start with a letter or"
            " digit, and not be a device name.",
            hint=f"Got {_short_repr(value)}.",
            field="space",
        )
    return str.__str__(value)


def share(value: object, field: str) -> float:
    """Check a number from 0 to 1."""
    return _number(value, field, 1)


def number(value: object, field: str) -> float:
    """Check a number from 0 to a million, such as a weight."""
    return _number(value, field, MAX_NUMBER)


def _number(value: object, field: str, most: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise _must_be(field, f"a number from 0 to {most:,}", value)
    return float(value) + 0.0  # SQLite returns -0.0 as 0.0, and the row's hash must still match


def tags(value: object) -> list[str]:
    """Check tags; return each tag once, in the order given."""
    if isinstance(value, tuple) and not value:
        return []
    each = iterable(value, "tags")
    found = list(dict.fromkeys(_tag(tag, at) for at, tag in enumerate(each)))
    if len(found) > MAX_TAGS:
        raise InvalidInput(
            f"There are {len(found)} tags; at most {MAX_TAGS} are allowed.",
            hint="Use fewer.",
            field="tags",
        )
    return found


def _tag(value: object, at: int) -> str:
    try:
        return text(value, "tags", max_chars=TAG_CHARS)
    except InvalidInput as error:  # Name the wrong tag in the message.
        which = error.message.replace("'tags'", f"'tags[{at}]'", 1)
        raise InvalidInput(which, hint=error.hint, field="tags") from None


def iterable(value: object, field: str, of: str = "texts") -> Iterable[Any]:
    """Check an iterable; refuse a single text or mapping."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise _must_be(field, f"a list of {of}", value)
    return value


def limit(value: object, field: str = "limit", most: int = MAX_LIMIT) -> int:
    """Check an integer from 1 to a maximum."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise _must_be(field, f"a whole number from 1 to {most}", value)
    return value


def integer(value: object, field: str, most: int = 2**63 - 1) -> int:
    """Check an integer from 0 that the database can store."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _must_be(field, "a whole number from 0", value)
    return value


def optional_integer(value: object, field: str) -> int | None:
    """Check an integer from 0; None stays None."""
    return None if value is None else integer(value, field)


def texts(value: object, field: str) -> list[str]:
    """Check a list of short texts that must not be blank."""
    return [text(each, field, max_chars=NAME_CHARS) for each in iterable(value, field)]


def names(value: object, field: str) -> set[str] | None:
    """Check a collection of names; None stays None."""
    return (
        None if value is None else {optional_text(each, field) for each in iterable(value, field)}
    )


def flag(value: object, field: str) -> bool:
    """Check a boolean; 0 and 1 are refused."""
    if not isinstance(value, bool):
        raise _must_be(field, "true or false", value)
    return value


def vectors(value: object) -> None:
    """Check packed vectors, one for each passage."""
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str | bytes)
        or not all(isinstance(each, bytes) for each in value)
    ):
        raise _must_be("vectors", "a list of bytes", value)
    for each in value:
        if len(each) <= _SCALE.size or not _LEAST_SCALE <= _SCALE.unpack_from(each)[0] <= 1:
            raise InvalidInput(
                "A packed vector begins with its scale, a number above 0 and up to 1.",
                hint=PACK_HINT,
                field="vectors",
            )


def end_time(value: object, field: str) -> int | None:
    """Check a time and return its last microsecond; a date without a time ends with its day."""
    end = time(value, field)
    if end is not None and isinstance(value, str) and len(value) == 10:
        return end + _DAY - 1
    return end


def time(value: object, field: str) -> int | None:
    """Check a time and return UTC microseconds; a time without a zone is UTC, None stays None."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInput(
                f"{field} is not a date or time.",
                hint=f"Write it as 2026-05-31 or 2026-05-31T14:00:00Z; got {_short_repr(value)}.",
                field=field,
            ) from None
    if not isinstance(value, datetime):
        raise _must_be(field, "a datetime or an ISO 8601 text", value)
    try:
        at = microseconds(value.replace(tzinfo=UTC) if value.utcoffset() is None else value)
        moment(at)  # A time within the years 1 to 9999 in its own zone may be outside them in UTC.
        return at
    except OverflowError:
        raise InvalidInput(
            f"{field} lies outside the years 1 to 9999.", hint="Give another date.", field=field
        ) from None


def attrs(value: object, field: str = "attrs") -> str:
    """Check a JSON object and everything in it; return it as JSON text."""
    if value is None:
        return "{}"
    if not isinstance(value, Mapping):
        raise _must_be(field, "an object", value)
    plain = _plain_json(value, field, depth=0)
    try:
        dumped = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise InvalidInput(
            f"{field} contains a number of thousands of digits.",
            hint="Send it as text.",
            field=field,
        ) from None
    if len(dumped) > ATTRS_CHARS:
        raise InvalidInput(
            f"{field} has {len(dumped):,} characters as JSON; at most {ATTRS_CHARS:,} are allowed.",
            hint="Store large content as a text or an artifact.",
            field=field,
        )
    return dumped


def _plain_json(value: Any, field: str, depth: int) -> Any:
    """Return the value as dictionaries, lists, texts and numbers that JSON can represent."""
    wrong, hint = "", ""
    if depth > _MAX_DEPTH:
        wrong, hint = f"is nested over {_MAX_DEPTH} levels deep", "Flatten it."
    elif isinstance(value, str):
        return optional_text(value, field, max_chars=ATTRS_CHARS)
    elif isinstance(value, dict | Mapping):  # Test for dict first: the check for Mapping is slow.
        for key in value:
            if not isinstance(key, str):
                wrong, hint = "has a key that is not a text", _short_repr(key)
                break
            optional_text(key, field, max_chars=ATTRS_CHARS)
        else:
            return {key: _plain_json(item, field, depth + 1) for key, item in value.items()}
    elif isinstance(value, list | Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain_json(item, field, depth + 1) for item in value]
    elif isinstance(value, float) and not math.isfinite(value):
        wrong, hint = "contains a number that is not finite", "Leave it out."
    elif value is not None and not isinstance(value, bool | int | float):
        wrong, hint = "contains a value that JSON cannot represent", f"Got {_short_repr(value)}."
    if wrong:
        raise InvalidInput(f"{field} {wrong}.", hint=hint, field=field)
    return value


def origin(value: object) -> Origin:
    """Check an origin; None is the unknown origin."""
    if value is None or value is NOBODY:
        return NOBODY
    if not isinstance(value, Origin):
        raise _must_be("origin", "an Origin", value)
    if value == NOBODY:
        return NOBODY
    for part in ORIGIN_PARTS:
        if (given := getattr(value, part)) != "":
            optional_text(given, f"origin.{part}")
    return value


def one_of(value: object, field: str, choices: Sequence[str], *, hint: str = "") -> str:
    """Check that a value is one of a few words."""
    if not isinstance(value, str) or value not in choices:
        wrong = _must_be(field, f"one of {', '.join(choices)}", value)
        raise InvalidInput(wrong.message, hint=f"{wrong.hint} {hint}".rstrip(), field=field)
    return str.__str__(value)


@cache
def check_of_field(name: str, known: Field) -> Callable[[Any], Any]:
    """Return the check function of a field, which returns the value in its stored form."""
    by_type: dict[str, Callable[[Any], Any]] = {
        "kind": lambda value: kind(value, name),
        "text": lambda value: check_text(
            value, name, max_chars=known.chars, allow_empty=known.empty
        ),
        "address": lambda value: address(value, name, max_chars=known.chars),
        "tags": lambda value: json.dumps(tags(value), ensure_ascii=False, separators=(",", ":")),
        "share": lambda value: share(value, name),
        "choice": lambda value: one_of(value, name, known.choices),
        "flag": lambda value: int(flag(value, name)),
        "time": lambda value: time(value, name),
        "attrs": lambda value: attrs(value, name),
    }
    check = by_type[known.type]
    return (lambda value: None if value is None else check(value)) if known.optional else check


_ID = Field("identity")
_KIND = Field("kind")
_NAME = Field("text", chars=NAME_CHARS)
_OPTIONAL_NAME = replace(_NAME, empty=True)
_REASON = Field("text", chars=REASON_CHARS, empty=True)
_SHARE = Field("share")
_COUNT = Field("count")
_TIME = Field("time")
_ATTRS = Field("attrs")
_ORIGIN = Field("origin")
_CREATED = {"origin": _ORIGIN, "created_at": _TIME}

COLUMNS: Mapping[Table, Mapping[str, Field]] = {
    MEMORIES: FIELDS,
    MESSAGES: {
        "memory": _ID,
        "conversation": _NAME,
        "session": _OPTIONAL_NAME,
        "position": _COUNT,
        "speaker": _NAME,
    },
    LINKS: {
        "id": _ID,
        "source": _ID,
        "target": _ID,
        "kind": _KIND,
        "weight": _SHARE,
        "reason": _REASON,
        "attrs": _ATTRS,
        **_CREATED,
    },
    FACTS: {
        "id": _ID,
        "subject": _NAME,
        "predicate": _NAME,
        "object": _NAME,
        "valid_from": Field("time", optional=True),
        "valid_to": Field("time", optional=True),
        "confidence": _SHARE,
        "memory": Field("identity", optional=True),
        "attrs": _ATTRS,
        **_CREATED,
    },
    CLUSTERS: {
        "id": _ID,
        "name": _NAME,
        "digest": _REASON,
        "parent": Field("identity", optional=True),
        "centroid": Field("centroid", optional=True),
        "attrs": _ATTRS,
        **_CREATED,
    },
    MEMBERS: {"cluster": _ID, "memory": _ID},
    ARTIFACTS: {
        "id": _ID,
        "path": Field("text", chars=PATH_CHARS, optional=True),
        "title": Field("text", chars=TITLE_CHARS, empty=True),
        "media_type": Field("text", chars=200),
        "version": _COUNT,
        "status": Field("text", chars=64),
        "state": Field("choice", choices=("active", "archived")),
        "attrs": _ATTRS,
        **_CREATED,
        "updated_at": _TIME,
    },
    CONTENTS: {
        "artifact": _ID,
        "version": _COUNT,
        "content": Field("content"),
        "summary": _REASON,
        **_CREATED,
    },
    REVIEWS: {
        "artifact": _ID,
        "version": _COUNT,
        "reviewer": _OPTIONAL_NAME,
        "outcome": Field("text", chars=64),
        "comments": Field("text", chars=TEXT_CHARS, empty=True),
        **_CREATED,
    },
}


def columns(table: Table, values: Mapping[str, Any], *, only: Sequence[str] = ()) -> dict[str, Any]:
    """Check values of a table's columns; with `only`, raise InvalidInput for any other column."""
    for name in values:
        if only and name not in only:
            raise InvalidInput(
                f"{name} of {table.name} cannot be changed.",
                hint=f"Allowed: {', '.join(only)}.",
                field=name,
            )
    known = COLUMNS[table]
    return {name: check_of_field(name, known[name])(value) for name, value in values.items()}
