"""Copies of memories in files: which file belongs to which memory, and which are outdated.

A file is outdated if the version of its row differs from the version recorded with the file. So the
intent to write the file is committed with the row, and no other list is needed.
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

PER_WRITE = 1_000  # how many files are recorded in one write


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file when it last matched its memory."""

    memory: int
    path: str
    """The path relative to the directory; empty if the memory has no file on purpose."""
    size: int
    mtime: int
    inode: int
    digest: bytes
    """Digest of the file's content."""
    rendered: bytes
    """Digest of the row as a file; a person may have formatted the file differently."""
    seq: int
    """The version of the row at that time."""


@dataclass(frozen=True, slots=True)
class OutdatedCopies:
    """The memories whose files are outdated since an operation."""

    head: int
    memories: list[Memory]
    """Memories whose files have to be written."""
    gone: list[int]
    """Numbers of removed memories; their files have to be removed."""


def recorded_files(space: OpenSpace, root: str) -> list[FileState]:
    """Return every recorded file of a directory; damaged records are left out."""
    checks.text(root, "root", max_chars=checks.NAME_CHARS)
    with space.store.read() as connection:
        return [FileState(*row) for row in stored.recorded_files(connection, space.name, root)]


def record_files(
    space: OpenSpace, root: str, files: Sequence[FileState], gone: Collection[int] = ()
) -> None:
    """Record the state of files, and delete the records of `gone` memories."""
    checks.text(root, "root", max_chars=checks.NAME_CHARS)
    for first in range(0, max(len(files), 1), PER_WRITE):
        part = [astuple(file) for file in files[first : first + PER_WRITE]]
        with space.store.maintain() as connection:
            stored.put(connection, space.name, root, part)
            if first == 0:
                stored.remove(connection, space.name, root, gone)


def outdated_copies(
    space: OpenSpace, root: str, kinds: Collection[str], after: int = 0
) -> OutdatedCopies:
    """Return the memories of these kinds whose files are outdated."""
    with space.store.read() as connection:
        head = read_head(connection, space.name)[0]
        if head == after:
            return OutdatedCopies(head, [], [])
        nums = stored.outdated(connection, space.name, root, kinds, after)
        gone = stored.files_without_memory(connection, space.name, root, after)
        rows = MEMORIES.by_nums(connection, space.name, nums)
        return OutdatedCopies(head, [Memory.of(rows[num]) for num in nums], gone)


def newest_seq(space: OpenSpace) -> int:
    """Return the `seq` of the newest operation."""
    with space.store.read() as connection:
        return read_head(connection, space.name)[0]
