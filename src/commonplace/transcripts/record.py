"""One record of a conversation, in the form that all transcript readers return."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Record:
    """A message of the user or the assistant, without tool calls and injected text."""

    client: str
    session: str
    role: Role
    text: str
    id: str
    """An id that is unique within the client, and stable when the line is read again."""
    at: datetime | None = None
    cwd: str = ""
    branch: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """Records of a file, and the offset from which to read next time."""

    records: list[Record]
    offset: int


def parse_time(value: Any) -> datetime | None:
    """Parse a time: ISO 8601, or seconds or milliseconds since 1970.

    A text of digits may also be a date such as 20260301, with or without a time.
    """
    try:
        if isinstance(value, str):
            if value.isdigit():
                return _parse_digits(value)
            at = datetime.fromisoformat(value)
            at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
            at.astimezone(UTC)  # fails outside of the years 1 to 9999
            return at
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            # milliseconds from the year 1973 on; a smaller number is seconds
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _parse_digits(digits: str) -> datetime | None:
    if len(digits) in (8, 12, 14) and digits[:2] in ("19", "20"):
        try:
            return datetime.fromisoformat(f"{digits[:8]}T{digits[8:] or '00'}").replace(tzinfo=UTC)
        except ValueError:  # there is no such day
            pass
    # a smaller number is seconds before the year 1973, and so rather a year or another number
    return parse_time(int(digits)) if len(digits) > 8 else None


def text_of(value: Any) -> str:
    """Return the value if it is a string, or else an empty string."""
    return value if isinstance(value, str) else ""


def mapping_of(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object, or else an empty object."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return the value if it is a JSON array, or else an empty array."""
    return value if isinstance(value, list) else []


def line_id(*parts: str | bytes) -> str:
    """Return an id for a record without one: a digest of its parts."""
    hashed = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        hashed.update(len(raw).to_bytes(8, "big") + raw)
    return hashed.hexdigest()[:32]


def join_texts(texts: Iterable[str]) -> str:
    """Join the parts of a message into one text."""
    return "\n\n".join(text for text in texts if text).strip()
