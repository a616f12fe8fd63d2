"""What the engine accepts: each check returns the value to store, or raises InvalidInput."""

from __future__ import annotations

import json
import math
import re
import struct
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from commonplace.engine.model import microseconds, moment
from commonplace.errors import InvalidInput
from commonplace.storage.fields import FIELDS, Field
from commonplace.storage.tables import NOBODY, ORIGIN_PARTS, Origin
from commonplace.text.checks import check_text

TEXT_CHARS = FIELDS["text"].chars
TITLE_CHARS = FIELDS["title"].chars
TAGS = 100
TAG_CHARS = 100
REF_CHARS = FIELDS["ref"].chars
ATTRS_CHARS = 1_000_000
NAME_CHARS = 500
REASON_CHARS = 10_000
LIMIT = 1_000
_DAY = 86_400_000_000  # microseconds
MOST = 1_000_000

_SCALE = struct.Struct("<f")
_LEAST_SCALE = 2.0**-126  # as `pack` makes them: what is smaller is not precise

_KIND = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_SPACE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9_-])?")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def text(value: object, field: str = "text", *, max_chars: int = TEXT_CHARS) -> str:
    """A text that says something."""
    return check_text(value, field, max_chars=max_chars)


def optional(value: object, field: str, *, max_chars: int = NAME_CHARS) -> str:
    """A text that may be empty."""
    return check_text(value, field, max_chars=max_chars, allow_empty=True)


def address(value: object, field: str, *, max_chars: int) -> str:
    """A URL, a path, a commit: one line without spaces around it; empty where there is none."""
    checked = optional(value, field, max_chars=max_chars)
    if checked != checked.strip() or not all(map(_in_a_line, checked)):
        raise InvalidInput(
            f"{field} must be an address in one line, without spaces around it.",
            hint=_got(value),
            field=field,
        )
    return checked


def _in_a_line(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Zl", "Zp")


def kind(value: object, field: str = "kind") -> str:
    """A short lower-case name."""
    if not isinstance(value, str) or not _KIND.fullmatch(value):
        raise InvalidInput(
            f"{field} must be 1 to 64 of a-z, 0-9, '_', '.', '-' and start with a letter.",
            hint=_got(value),
            field=field,
        )
    return str.__str__(value)


def space(value: object) -> str:
    """A name that is also a file name on every system."""
    if not isinstance(value, str) or not _SPACE.fullmatch(value) or _RESERVED.fullmatch(value):
        raise InvalidInput(
            "A space's name is 1 to 64 of a-z, 0-9, '.', '_', '-', starts with a letter or digit,"
            " and is not a device name.",
            hint=_got(value),
            field="space",
        )
    return str.__str__(value)


def share(value: object, field: str) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput(f"{field} must be a number from 0 to 1.", hint=_got(value), field=field)
    return _without_sign(value)


def tags(value: object) -> list[str]:
    """Distinct tags in their order."""
    if isinstance(value, tuple) and not value:
        return []
    each = listed(value, "tags")
    found = list(dict.fromkeys(_tag(tag, at) for at, tag in enumerate(each)))
    if len(found) > TAGS:
        raise InvalidInput(
            f"There are {len(found)} tags; at most {TAGS} fit.", hint="Use fewer.", field="tags"
        )
    return found


def _tag(value: object, at: int) -> str:
    try:
        return text(value, "tags", max_chars=TAG_CHARS)
    except InvalidInput as error:  # one of them is wrong, and not the list
        which = error.message.replace("'tags'", f"'tags[{at}]'", 1)
        raise InvalidInput(which, hint=error.hint, field="tags") from None


def listed(value: object, field: str, of: str = "texts") -> Iterable[Any]:
    """Several things in some order; a text or a mapping is one thing."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise InvalidInput(f"{field} must be a list of {of}.", hint=_got(value), field=field)
    return value


def limit(value: object, field: str = "limit", most: int = LIMIT) -> int:
    """A whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidInput(
            f"{field} must be a whole number from 1 to {most}.",
            hint=_got(value),
            field=field,
        )
    return value


def whole(value: object, field: str) -> int:
    """A whole number from 0 that the storage can hold."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidInput(f"{field} must be a whole number from 0.", hint=_got(value), field=field)
    return value


def wholes(value: object, field: str) -> list[int]:
    """Whole numbers from 0, in their order."""
    return [whole(each, field) for each in listed(value, field, "whole numbers")]


def texts(value: object, field: str) -> list[str]:
    """Short texts that say something, in their order."""
    return [text(each, field, max_chars=NAME_CHARS) for each in listed(value, field)]


def optional_whole(value: object, field: str) -> int | None:
    """A whole number from 0; None stays None."""
    return None if value is None else whole(value, field)


def number(value: object, field: str) -> float:
    """A number from 0 to a million, which is more than any weight or wait should be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise InvalidInput(
            f"{field} must be a number from 0 to {MOST:,}.", hint=_got(value), field=field
        )
    return _without_sign(value)


def _without_sign(value: float) -> float:
    """-0.0 as 0.0: SQLite gives it back so, and a row must be what its hash was taken of."""
    return float(value) + 0.0


def flag(value: object, field: str) -> bool:
    """True or false, and nothing that is merely taken for it."""
    if not isinstance(value, bool):
        raise InvalidInput(f"{field} must be true or false.", hint=_got(value), field=field)
    return value


def vectors(value: object) -> None:
    """Packed vectors, one for each passage."""
    right = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if not right or not all(isinstance(each, bytes) for each in value):  # type: ignore[attr-defined]
        raise InvalidInput("vectors must be a list of bytes.", hint=_got(value), field="vectors")
    for each in value:  # type: ignore[attr-defined]
        if len(each) <= _SCALE.size or not _LEAST_SCALE <= _SCALE.unpack_from(each)[0] <= 1:
            raise InvalidInput(
                "A packed vector begins with its scale, a number above 0 and up to 1.",
                hint="Use pack().",
                field="vectors",
            )


def names(value: object, field: str) -> set[str] | None:
    """A collection of names; None stays None."""
    if value is None:
        return None
    return {optional(each, field) for each in listed(value, field)}


def until(value: object, field: str) -> int | None:
    """The last moment of `value` as microseconds; a bare day counts to its end."""
    end = when(value, field)
    if end is not None and isinstance(value, str) and len(value) == 10:
        return end + _DAY - 1
    return end


def when(value: object, field: str) -> int | None:
    """A moment as microseconds; a naive one is taken as UTC; None stays None."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInput(
                f"{field} is not a date or time.",
                hint=f"Write it as 2026-05-31 or 2026-05-31T14:00:00Z; got {_short(value)}.",
                field=field,
            ) from None
    if not isinstance(value, datetime):
        raise InvalidInput(
            f"{field} must be a datetime or an ISO 8601 text.",
            hint=_got(value),
            field=field,
        )
    try:
        at = microseconds(value.replace(tzinfo=UTC) if value.utcoffset() is None else value)
        moment(at)  # in another zone it may still lie within, and in UTC no longer
        return at
    except OverflowError:
        raise InvalidInput(
            f"{field} lies outside the years 1 to 9999.", hint="Give another.", field=field
        ) from None


def attrs(value: object, field: str = "attrs") -> str:
    """A JSON object as text, with every string and number in it acceptable."""
    if value is None:
        return "{}"
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{field} must be an object.", hint=_got(value), field=field)
    plain = _plain_json(value, field, depth=0)
    try:
        dumped = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise InvalidInput(
            f"{field} holds a number of thousands of digits.", hint="Send it as text.", field=field
        ) from None
    if len(dumped) > ATTRS_CHARS:
        raise InvalidInput(
            f"{field} has {len(dumped)} characters as JSON; at most {ATTRS_CHARS} fit.",
            hint="Keep large content outside of it.",
            field=field,
        )
    return dumped


def _plain_json(value: Any, field: str, depth: int) -> Any:
    """The value as dictionaries, lists, texts and numbers, each of them acceptable."""
    if depth > 64:
        raise InvalidInput(f"{field} is nested over 64 deep.", hint="Flatten it.", field=field)
    if isinstance(value, str):
        return optional(value, field, max_chars=ATTRS_CHARS)
    if isinstance(value, dict | Mapping):  # most are what JSON gives: that is told at once
        for key in value:
            if not isinstance(key, str):
                raise InvalidInput(
                    f"{field} has a key that is not a text.", hint=_short(key), field=field
                )
            optional(key, field, max_chars=ATTRS_CHARS)
        return {key: _plain_json(item, field, depth + 1) for key, item in value.items()}
    if isinstance(value, list | Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain_json(item, field, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(
            f"{field} holds a number that is not finite.", hint="Leave it out.", field=field
        )
    if value is not None and not isinstance(value, bool | int | float):
        raise InvalidInput(
            f"{field} holds something that is not JSON.", hint=_got(value), field=field
        )
    return value


def origin(value: object) -> Origin:
    """Who stores something, each part a text that can be stored; None is nobody known."""
    if value is None or value is NOBODY:
        return NOBODY
    if not isinstance(value, Origin):
        raise InvalidInput("origin must be an Origin.", hint=_got(value), field="origin")
    if value == NOBODY:
        return NOBODY
    for part in ORIGIN_PARTS:
        optional(getattr(value, part), f"origin.{part}")
    return value


def one_of(value: object, field: str, choices: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInput(
            f"{field} must be one of {', '.join(choices)}.",
            hint=_got(value),
            field=field,
        )
    return str.__str__(value)


def of_field(name: str, known: Field) -> Callable[[Any], Any]:
    """The check of a memory's field: it gives the form in which a value is stored."""
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
        "time": lambda value: when(value, name),
        "attrs": lambda value: attrs(value, name),
    }
    check = by_type[known.type]
    return (lambda value: None if value is None else check(value)) if known.optional else check


def _got(value: object) -> str:
    return f"Got {_short(value)}."


def _short(value: object) -> str:
    try:
        shown = ascii(value)
    except ValueError:  # a number of thousands of digits
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= 60 else shown[:57] + "..."
