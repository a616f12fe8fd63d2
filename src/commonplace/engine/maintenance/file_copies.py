"""Which file is a copy of which memory, and which copies are behind their rows.

A row whose number in the order of changes differs from the one noted with its file is the intent
to write that file: it commits with the row, whoever changed it, and needs no list of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass

from commonplace.engine import checks
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Memory
from commonplace.storage import files as stored
from commonplace.storage.tables import MEMORIES
from commonplace.storage.writing import read_head

NOTED = 1_000  # files noted in one write


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when it and its memory last agreed."""

    memory: int
    path: str
    """Below the directory; empty where a memory has no file on purpose."""
    size: int
    mtime: int
    inode: int
    digest: bytes
    """Of what the file holds."""
    rendered: bytes
    """Of what the row would be written as, which a person may have laid out otherwise."""
    seq: int
    """The form of the row."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What changed in the rows since a moment in their order."""

    head: int
    memories: list[Memory]
    """Whose files are to be written."""
    gone: list[int]
    """Rows that are no more, by number; their files are to be removed."""


def known(space: OpenSpace, root: str) -> list[File]:
    """Every noted file of a directory; one that rotted is left out, to be compared anew."""
    checks.text(root, "root", max_chars=checks.NAME_CHARS)
    with space.store.read() as connection:
        return [File(*row) for row in stored.known(connection, space.name, root)]


def note(space: OpenSpace, root: str, files: Sequence[File], gone: Collection[int] = ()) -> None:
    """Remember how files are now; those of `gone` memories are no more."""
    checks.text(root, "root", max_chars=checks.NAME_CHARS)
    for first in range(0, max(len(files), 1), NOTED):
        part = [astuple(file) for file in files[first : first + NOTED]]
        with space.store.maintain() as connection:
            stored.put(connection, space.name, root, part)
            if first == 0:
                stored.remove(connection, space.name, root, gone)


def behind(space: OpenSpace, root: str, kinds: Collection[str], after: int = 0) -> Behind:
    """Memories of these kinds whose files are not of their newest form."""
    with space.store.read() as connection:
        head = read_head(connection, space.name)[0]
        if head == after:
            return Behind(head, [], [])
        nums = stored.outdated(connection, space.name, root, kinds, after)
        gone = stored.without_memory(connection, space.name, root, after)
        rows = MEMORIES.by_nums(connection, space.name, nums)
        return Behind(head, [Memory.of(rows[num]) for num in nums], gone)


def head(space: OpenSpace) -> int:
    """The newest operation."""
    with space.store.read() as connection:
        return read_head(connection, space.name)[0]
