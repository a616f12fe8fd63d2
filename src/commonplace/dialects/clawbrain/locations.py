"""The location of a memory, which determines its id and the path of its file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import InvalidInput

KINDS = ("entity", "episode")
CATEGORIES = ("people", "projects", "preferences")
ARCHIVE = "archive/"
NAME_CHARS = 200  # file names have at most 255 bytes, including the suffix

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_DEVICE = re.compile(r"con|prn|aux|nul|(?:com|lpt)[0-9]")  # reserved file names on Windows
_MONTH = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])")
_FOLDERS = {"entity": "entities", "episode": "episodes"}


class InvalidLocation(InvalidInput):
    """An invalid path, category or name of a memory."""


@dataclass(frozen=True, slots=True)
class Location:
    """The kind, category and name of a memory."""

    kind: str
    category: str
    """The category of an entity; the month of an episode."""
    name: str

    @property
    def id(self) -> str:
        """The id of the memory in the contract."""
        return f"{self.kind}-{self.category}-{self.name}"

    @property
    def path(self) -> str:
        """The path of the file, relative to the memory directory."""
        return f"{_FOLDERS[self.kind]}/{self.category}/{self.name}.md"


def check(kind: str, category: str, name: str) -> Location:
    """Return the location if its parts are valid; raise InvalidLocation otherwise."""
    if len(name) > NAME_CHARS or not _NAME.fullmatch(name):
        raise InvalidLocation(
            f"name must be kebab-case, such as alice-chen, and at most {NAME_CHARS} characters.",
            hint=f"Got {ascii(name)[:60]}.", field="name",
        )  # fmt: skip
    if _DEVICE.fullmatch(name):
        raise InvalidLocation(
            f"name must not be {name}, which Windows reserves for a device.",
            hint=f"Use another name, such as {name}-notes.", field="name",
        )  # fmt: skip
    if kind == "entity" and category not in CATEGORIES:
        raise InvalidLocation(
            f"category must be one of {', '.join(CATEGORIES)}.",
            hint=f"Got {ascii(category)[:60]}.", field="category",
        )  # fmt: skip
    if kind == "episode" and not _MONTH.fullmatch(category):
        raise InvalidLocation(
            "An episode's category is its month, such as 2026-02.",
            hint=f"Got {ascii(category)[:60]}.", field="category",
        )  # fmt: skip
    if kind not in KINDS:
        raise InvalidLocation("type must be entity or episode.", field="type")
    return Location(kind, category, name)


def of_path(path: str) -> Location:
    """Return the location of a path; for an archived file, the location before archiving."""
    parts = path.removeprefix(ARCHIVE).split("/")
    kinds = {folder: kind for kind, folder in _FOLDERS.items()}
    if len(parts) != 3 or parts[0] not in kinds or not parts[2].endswith(".md"):
        raise InvalidLocation(
            "Memory files must be in entities/CATEGORY/ or episodes/YYYY-MM/ and end in .md."
        )
    return check(kinds[parts[0]], parts[1], parts[2].removesuffix(".md"))


def of_memory(memory: Memory) -> Location | None:
    """Return the location of a memory, or None for memories of other dialects."""
    category, name = memory.attrs.get("category"), memory.attrs.get("name")
    if memory.kind not in KINDS or not isinstance(category, str) or not isinstance(name, str):
        return None
    try:
        location = check(memory.kind, category, name)
    except InvalidLocation:
        return None
    # A live memory with another id does not own the path.
    return location if memory.state not in LIVE_STATES or memory.ref == location.id else None
