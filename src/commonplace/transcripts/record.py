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
    """Parse a time: ISO 8601, or seconds or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            if value.isdigit():
                return parse_time(int(value))
            at = datetime.fromisoformat(value)
            return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            # milliseconds from the year 1973 on; a smaller number is seconds
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


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
