"""Convert a memory to Markdown with frontmatter, and back.

The frontmatter is a small subset of YAML, parsed here: a value is a scalar, a list on one line, or
a list of lines that begin with a dash. Lines with unknown keys are preserved unchanged.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from commonplace.dialects.clawbrain import locations
from commonplace.engine.model import Memory, iso
from commonplace.errors import InvalidInput

REQUIRED_KEYS = ("id", "type", "category", "created", "updated", "pinned")
FENCE = "---"
_KEY = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t]+(.*))?")
_TIME_CHARS = re.compile(r"[0-9TZtz.:+ -]+")


class Unreadable(InvalidInput):
    """The file is not a valid memory."""


@dataclass(frozen=True, slots=True)
class Document:
    """The parsed content of a file."""

    id: str
    type: str
    category: str
    tags: tuple[str, ...]
    created: str
    updated: str
    pinned: bool
    content: str
    more: tuple[str, ...] = ()
    """Frontmatter lines with unknown keys."""

    def render(self) -> bytes:
        """Return the content of the file."""
        tags = json.dumps(list(self.tags), ensure_ascii=False)
        lines = [
            FENCE,
            f"id: {self.id}",
            f"type: {self.type}",
            f"category: {self.category}",
            f"tags: {tags}",
            f"created: {self.created}",
            f"updated: {self.updated}",
            f"pinned: {'true' if self.pinned else 'false'}",
            *self.more,
            FENCE,
            "",
            self.content.strip(),
            "",
        ]
        return "\n".join(lines).encode()


def stamp(at: datetime) -> str:
    """Format a time for files and responses: in UTC, in seconds."""
    return str(iso(at.replace(microsecond=0)))


def created_stamp(memory: Memory) -> str:
    """Return the time of creation according to the file, or else to the row."""
    return _valid_time(memory, "created") or stamp(memory.created_at)


def created_at(memory: Memory) -> datetime:
    """Return the time of `created_stamp` as a datetime."""
    return parse_time(created_stamp(memory), "created")


def updated_stamp(memory: Memory) -> str:
    """Return the time of the last change of the content, ignoring credit and usage."""
    return _valid_time(memory, "updated") or created_stamp(memory)


def _valid_time(memory: Memory, field: str) -> str:
    """Return a time of the attributes, or an empty string if the time is missing or invalid."""
    value = memory.attrs.get(field)
    if isinstance(value, str) and _TIME_CHARS.fullmatch(value):
        try:
            parse_time(value, field)
        except Unreadable:
            return ""
        return value
    return ""


def _unknown_lines(memory: Memory) -> tuple[str, ...]:
    """Return the unknown frontmatter lines, or none if parsing would not preserve them."""
    value = memory.attrs.get("frontmatter")
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        return ()
    try:
        values, more = _frontmatter(value)
    except Unreadable:
        return ()
    sound = not values and more == value and not any(len(line.splitlines()) != 1 for line in value)
    return tuple(value) if sound else ()


def of_memory(memory: Memory) -> Document | None:
    """Return the document of a memory, or None for a memory without a file."""
    location = locations.of_memory(memory)
    if location is None:
        return None
    return Document(
        id=location.id,
        type=location.kind,
        category=location.category,
        tags=memory.tags,
        created=created_stamp(memory),
        updated=updated_stamp(memory),
        pinned=memory.pinned,
        content=memory.text,
        more=_unknown_lines(memory),
    )


def parse(data: bytes) -> Document:
    """Parse a file with LF or CRLF line ends; raise Unreadable if it is not valid."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"The file is not UTF-8 at byte {error.start}.") from None
    if text.startswith(FENCE + "\r\n"):
        text = text.replace("\r\n", "\n")
    if not text.startswith(FENCE + "\n"):
        raise Unreadable("The file has no frontmatter.")
    head, found, content = text[len(FENCE) :].partition(f"\n{FENCE}\n")
    if not found:
        if not text.rstrip().endswith(f"\n{FENCE}"):
            raise Unreadable("The frontmatter has no closing '---' line.")
        head, content = text.rstrip()[len(FENCE) : -len(FENCE) - 1], ""
    values, more = _frontmatter(head.strip("\n").split("\n"))
    for key in REQUIRED_KEYS:
        if key not in values:
            raise Unreadable(f"The frontmatter has no {key}.")
    if not content.strip():
        raise Unreadable("The file has no content.")
    pinned = _parse_scalar(values["pinned"]).lower()
    if pinned not in ("true", "false"):
        raise Unreadable("pinned must be true or false.")
    return Document(
        id=_parse_scalar(values["id"]),
        type=_parse_scalar(values["type"]),
        category=_parse_scalar(values["category"]),
        tags=_parse_tags(values.get("tags", "")),
        created=_checked_time(values["created"], "created"),
        updated=_checked_time(values["updated"], "updated"),
        pinned=pinned == "true",
        content=content.strip(),
        more=tuple(more),
    )


def _frontmatter(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return (values of known keys, lines with unknown keys)."""
    values: dict[str, str] = {}
    more: list[str] = []
    current = ""
    for line in lines:
        matched = _KEY.fullmatch(line.rstrip())
        if matched:
            current = matched[1]
            if current in (*REQUIRED_KEYS, "tags"):
                if current in values:
                    raise Unreadable(f"The frontmatter has {current} twice.")
                values[current] = (matched[2] or "").strip()
                continue
        elif current == "tags" and line.lstrip().startswith("- "):
            values["tags"] += f"\n{line.lstrip()[2:].strip()}"
            continue
        elif current in REQUIRED_KEYS and line.strip():
            raise Unreadable(f"{current} must be on one line.")
        if line.strip() and line.rstrip() != FENCE:
            more.append(line.rstrip())
    return values, more


def _parse_scalar(value: str) -> str:
    if value.startswith('"'):
        try:
            parsed = json.loads(value)
        except ValueError:
            raise Unreadable(f"{value[:40]} is not a valid quoted string.") from None
        if isinstance(parsed, str):
            return parsed
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return value


def _parse_tags(value: str) -> tuple[str, ...]:
    """Parse tags: a JSON list, a list without quotes, or one tag on each line."""
    if value.startswith("\n"):
        tags = [_parse_scalar(line) for line in value[1:].split("\n")]
    elif value.startswith("["):
        try:
            tags = json.loads(value)
        except (ValueError, RecursionError):
            if not value.endswith("]"):
                raise Unreadable("tags is a list without a closing bracket.") from None
            tags = [_parse_scalar(part.strip()) for part in value[1:-1].split(",")]
    else:
        tags = [_parse_scalar(part.strip()) for part in value.split(",")]
    if not all(isinstance(tag, str) for tag in tags):
        raise Unreadable("tags must be strings.")
    return tuple(dict.fromkeys(tag for tag in tags if tag.strip()))


def _checked_time(value: str, field: str) -> str:
    time = _parse_scalar(value)
    parse_time(time, field)
    if not _TIME_CHARS.fullmatch(time):
        raise Unreadable(f"{field} is not a time in ISO 8601.")
    return time


def parse_time(value: str, field: str) -> datetime:
    """Parse a time; a time without a zone is in UTC."""
    try:
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Unreadable(f"{field} is not a time: {value[:40]!r}.") from None
