"""The table `files`: the state of each file copy of a memory when the two last matched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from commonplace.storage.ports import Rows
from commonplace.storage.tables import FILES

_PUT = FILES.upsert("root", "memory")


def recorded_files(rows: Rows, space: str, root: str) -> list[tuple[Any, ...]]:
    """Return the recorded files of a directory: columns `memory` to `seq` of intact rows."""
    found = rows.execute(FILES.select_sql + " AND root = ?", (space, root))
    return [tuple(row[2:10]) for row in found if FILES.matches_hash(row)]


def put(rows: Rows, space: str, root: str, files: Iterable[Sequence[Any]]) -> None:
    """Insert or replace rows of a directory, with the columns from `memory` to `seq`."""
    rows.executemany(_PUT, [FILES.row((space, root, *each)) for each in files])


def remove(rows: Rows, space: str, root: str, memories: Iterable[int]) -> None:
    """Delete the rows of memories."""
    rows.executemany(
        "DELETE FROM files WHERE space = ? AND root = ? AND memory = ?",
        [(space, root, num) for num in memories],
    )


def outdated(rows: Rows, space: str, root: str, kinds: Collection[str], after: int) -> list[int]:
    """Return memories of these kinds, changed after an operation, whose file is outdated.

    A memory that has a file, but another kind now, is returned too: its file must be removed.
    """
    found = rows.execute(
        "SELECT m.num FROM memories m LEFT JOIN files f"  # noqa: S608
        " ON f.space = m.space AND f.root = ? AND f.memory = m.num"
        " WHERE m.space = ? AND m.seq > ?"
        f" AND (m.kind IN ({', '.join('?' * len(kinds))}) OR f.path <> '')"
        " AND (f.seq IS NULL OR f.seq <> m.seq) ORDER BY m.seq, m.num",
        (root, space, after, *sorted(kinds)),
    )
    return [row[0] for row in found]


def files_without_memory(rows: Rows, space: str, root: str, after: int) -> list[int]:
    """Return deleted memories that have a file.

    With `after`, return only those that changed after that operation.
    """
    if after:
        found = rows.execute(
            "SELECT DISTINCT t.memory FROM touches t JOIN files f"
            " ON f.space = t.space AND f.root = ? AND f.memory = t.memory"
            " WHERE t.space = ? AND t.seq > ? AND NOT EXISTS"
            " (SELECT 1 FROM memories m WHERE m.space = t.space AND m.num = t.memory)",
            (root, space, after),
        )
    else:
        found = rows.execute(
            "SELECT f.memory FROM files f WHERE f.space = ? AND f.root = ? AND NOT EXISTS"
            " (SELECT 1 FROM memories m WHERE m.space = f.space AND m.num = f.memory)",
            (space, root),
        )
    return [row[0] for row in found]


def of_memories(rows: Rows, space: str, memories: Iterable[int]) -> list[tuple[str, str]]:
    """Return the directory and path of each recorded file of these memories."""
    statement = "SELECT root, path FROM files WHERE space = ? AND memory = ? AND path <> ''"
    return [(row[0], row[1]) for num in memories for row in rows.execute(statement, (space, num))]
