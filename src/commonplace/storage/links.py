"""Statements on the table `links`: typed, directed links between memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.storage.ports import Rows

_OF_MEMORIES = (
    "SELECT e.num, e.other, e.weight FROM ("
    "SELECT a.space, a.num, b.num AS other, l.weight FROM memories a"
    " JOIN links l ON l.space = a.space AND l.source = a.id"
    " JOIN memories b ON b.space = l.space AND b.id = l.target"
    " UNION ALL SELECT a.space, a.num, b.num AS other, l.weight FROM memories a"
    " JOIN links l ON l.space = a.space AND l.target = a.id"
    " JOIN memories b ON b.space = l.space AND b.id = l.source"
    ") e WHERE e.space = ?"
)


def exists(rows: Rows, space: str, source: str, target: str, kind: str) -> bool:
    """Return whether a link of this kind leads from one memory to the other."""
    found = rows.execute(
        "SELECT 1 FROM links WHERE space = ? AND source = ? AND target = ? AND kind = ?",
        (space, source, target, kind),
    ).fetchone()
    return found is not None


def of_memories(rows: Rows, space: str, nums: Sequence[int]) -> list[tuple[int, int, float]]:
    """Return (memory, linked memory, weight) for every link of memories, in either direction."""
    found: list[Any] = list(rows.select_each(_OF_MEMORIES, "e.num", space, nums))
    return found
