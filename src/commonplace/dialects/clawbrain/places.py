"""Where a memory lives: its id, its path, and which names may be part of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import InvalidInput

KINDS = ("entity", "episode")
CATEGORIES = ("people", "projects", "preferences")
ARCHIVE = "archive/"
NAME_CHARS = 200  # a file name has at most 255 bytes, including the extension

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_DEVICE = re.compile(r"con|prn|aux|nul|(?:com|lpt)[0-9]")  # names that Windows reserves
_MONTH = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])")
_FOLDERS = {"entity": "entities", "episode": "episodes"}


class OutOfPlace(InvalidInput):
    """A path that cannot be a memory's file."""


@dataclass(frozen=True, slots=True)
class Place:
    """Type, category and name of a memory: they make its id and its path."""

    kind: str
    category: str
    """Of an episode, its month."""
    name: str

    @property
    def id(self) -> str:
        """The id in the contract's form."""
        return f"{self.kind}-{self.category}-{self.name}"

    @property
    def path(self) -> str:
        """The path, relative to the memory directory."""
        return f"{_FOLDERS[self.kind]}/{self.category}/{self.name}.md"


def checked(kind: str, category: str, name: str) -> Place:
    """A place with checked parts, so that its path stays inside the directory."""
    if len(name) > NAME_CHARS or not _NAME.fullmatch(name):
        raise OutOfPlace(
            f"name must be kebab-case, such as alice-chen, and at most {NAME_CHARS} characters.",
            hint=f"Got {ascii(name)[:60]}.", field="name",
        )  # fmt: skip
    if _DEVICE.fullmatch(name):
        raise OutOfPlace(
            f"name must not be {name}, which is a device on Windows.",
            hint=f"Use another, such as {name}-notes.", field="name",
        )  # fmt: skip
    if kind == "entity" and category not in CATEGORIES:
        raise OutOfPlace(
            f"category must be one of {', '.join(CATEGORIES)}.",
            hint=f"Got {ascii(category)[:60]}.", field="category",
        )  # fmt: skip
    if kind == "episode" and not _MONTH.fullmatch(category):
        raise OutOfPlace(
            "An episode's category is its month, such as 2026-02.",
            hint=f"Got {ascii(category)[:60]}.", field="category",
        )  # fmt: skip
    if kind not in KINDS:
        raise OutOfPlace("type must be entity or episode.", field="type")
    return Place(kind, category, name)


def of_path(path: str) -> Place:
    """The place of a path; for an archived file, the place from before."""
    parts = path.removeprefix(ARCHIVE).split("/")
    kinds = {folder: kind for kind, folder in _FOLDERS.items()}
    if len(parts) != 3 or parts[0] not in kinds or not parts[2].endswith(".md"):
        raise OutOfPlace("It is not in a folder for memories.")
    return checked(kinds[parts[0]], parts[1], parts[2].removesuffix(".md"))


def of_memory(memory: Memory) -> Place | None:
    """A memory's place; None for one that another dialect stored."""
    category, name = memory.attrs.get("category"), memory.attrs.get("name")
    if memory.kind not in KINDS or not isinstance(category, str) or not isinstance(name, str):
        return None
    try:
        place = checked(memory.kind, category, name)
    except OutOfPlace:
        return None
    # Only one live memory can have an id, and so a path.
    return place if memory.state not in LIVE_STATES or memory.ref == place.id else None
