"""Convert memories to Markdown with frontmatter, and back.

The frontmatter is read by these few rules and not by a YAML library: a value is a scalar, a list
on one line, or a list of dashes. So nothing in it can be an object, an alias or a surprise. Lines
with other keys are kept as they stand.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from commonplace.engine.model import Memory, iso
from commonplace.errors import InvalidInput

REQUIRED = ("id", "type", "category", "created", "updated", "pinned")
FENCE = "---"
_KEY = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t]+(.*))?")
_PLAIN = re.compile(r"[0-9TZtz.:+ -]+")


class Unreadable(InvalidInput):
    """A file that cannot be read as a memory; it is not changed."""


@dataclass(frozen=True, slots=True)
class Document:
    """The parsed content of a memory's file."""

    id: str
    type: str
    category: str
    tags: tuple[str, ...]
    created: str
    updated: str
    pinned: bool
    content: str
    more: tuple[str, ...] = ()
    """Lines of the frontmatter that are not ours."""

    def render(self) -> bytes:
        """The text of the file."""
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
    """A time as files and answers show it: UTC, to the second."""
    return str(iso(at.replace(microsecond=0)))


def created(memory: Memory) -> str:
    """When a memory was created, by its file or else by its row."""
    return _said(memory, "created") or stamp(memory.created_at)


def created_at(memory: Memory) -> datetime:
    """When a memory was created, as a datetime."""
    return moment(created(memory), "created")


def updated(memory: Memory) -> str:
    """When the memory's content last changed; credit and counters are ignored."""
    return _said(memory, "updated") or created(memory)


def _said(memory: Memory, field: str) -> str:
    """A time in the memory's attrs; empty if it is not a valid time."""
    said = memory.attrs.get(field)
    if isinstance(said, str) and _PLAIN.fullmatch(said):
        try:
            moment(said, field)
        except Unreadable:
            return ""
        return said
    return ""


def _more(memory: Memory) -> tuple[str, ...]:
    """Other programs' lines of the frontmatter, without any that would be parsed as ours."""
    said = memory.attrs.get("frontmatter")
    if not isinstance(said, list) or not all(isinstance(line, str) for line in said):
        return ()
    try:
        values, more = _frontmatter(said)
    except Unreadable:
        return ()
    sound = not values and more == said and not any(len(line.splitlines()) != 1 for line in said)
    return tuple(said) if sound else ()


def of_memory(memory: Memory, identity: str) -> Document:
    """The document that a memory is written as."""
    return Document(
        id=identity,
        type=memory.kind,
        category=str(memory.attrs.get("category", "")),
        tags=memory.tags,
        created=created(memory),
        updated=updated(memory),
        pinned=memory.pinned,
        content=memory.text,
        more=_more(memory),
    )


def parse(data: bytes) -> Document:
    """Parse a file with any line endings; Unreadable if it is not a memory."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"It is not UTF-8 at byte {error.start}.") from None
    if text.startswith(FENCE + "\r\n"):
        text = text.replace("\r\n", "\n")
    if not text.startswith(FENCE + "\n"):
        raise Unreadable("It has no frontmatter.")
    head, found, content = text[len(FENCE) :].partition(f"\n{FENCE}\n")
    if not found:
        if not text.rstrip().endswith(f"\n{FENCE}"):
            raise Unreadable("Its frontmatter does not end.")
        head, content = text.rstrip()[len(FENCE) : -len(FENCE) - 1], ""
    values, more = _frontmatter(head.strip("\n").split("\n"))
    for key in REQUIRED:
        if key not in values:
            raise Unreadable(f"Its frontmatter has no {key}.")
    if not content.strip():
        raise Unreadable("It has no content.")
    pinned = _scalar(values["pinned"]).lower()
    if pinned not in ("true", "false"):
        raise Unreadable("pinned must be true or false.")
    return Document(
        id=_scalar(values["id"]),
        type=_scalar(values["type"]),
        category=_scalar(values["category"]),
        tags=_list(values.get("tags", "")),
        created=_time(values["created"], "created"),
        updated=_time(values["updated"], "updated"),
        pinned=pinned == "true",
        content=content.strip(),
        more=tuple(more),
    )


def _frontmatter(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split frontmatter into (our keys with their values, all other lines)."""
    values: dict[str, str] = {}
    more: list[str] = []
    current = ""
    for line in lines:
        matched = _KEY.fullmatch(line.rstrip())
        if matched:
            current = matched[1]
            if current in (*REQUIRED, "tags"):
                if current in values:
                    raise Unreadable(f"Its frontmatter has {current} twice.")
                values[current] = (matched[2] or "").strip()
                continue
        elif current == "tags" and line.lstrip().startswith("- "):
            values["tags"] += f"\n{line.lstrip()[2:].strip()}"
            continue
        elif current in REQUIRED and line.strip():
            raise Unreadable(f"{current} has more than one line.")
        if line.strip() and line.rstrip() != FENCE:
            more.append(line.rstrip())
    return values, more


def _scalar(value: str) -> str:
    if value.startswith('"'):
        try:
            said = json.loads(value)
        except ValueError:
            raise Unreadable(f"{value[:40]} is not a text.") from None
        if isinstance(said, str):
            return said
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return value


def _list(value: str) -> tuple[str, ...]:
    """Tags as a JSON list, as the older unquoted list, or one on each line."""
    if value.startswith("\n"):
        said = [_scalar(line) for line in value[1:].split("\n")]
    elif value.startswith("["):
        try:
            said = json.loads(value)
        except (ValueError, RecursionError):
            if not value.endswith("]"):
                raise Unreadable("tags is a list without an end.") from None
            said = [_scalar(part.strip()) for part in value[1:-1].split(",")]
    else:
        said = [_scalar(part.strip()) for part in value.split(",")]
    if not all(isinstance(tag, str) for tag in said):
        raise Unreadable("tags must be strings.")
    return tuple(dict.fromkeys(tag for tag in said if tag.strip()))


def _time(value: str, field: str) -> str:
    said = _scalar(value)
    moment(said, field)
    if not _PLAIN.fullmatch(said):
        raise Unreadable(f"{field} is not a time in ISO 8601.")
    return said


def moment(said: str, field: str) -> datetime:
    """A time in a file; without a zone it is UTC."""
    try:
        at = datetime.fromisoformat(said)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Unreadable(f"{field} is not a time: {said[:40]!r}.") from None
