"""Statements on the table `links`: typed, directed links between memories."""

from __future__ import annotations

from commonplace.storage.ports import Rows

_OF_MEMORY = (
    "SELECT a.num, b.num, l.weight FROM memories a"
    " JOIN links l ON l.space = a.space AND l.source = a.id"
    " JOIN memories b ON b.space = l.space AND b.id = l.target"
    " WHERE a.space = ?1 AND a.num = ?2"
    " UNION ALL SELECT a.num, b.num, l.weight FROM memories a"
    " JOIN links l ON l.space = a.space AND l.target = a.id"
    " JOIN memories b ON b.space = l.space AND b.id = l.source"
    " WHERE a.space = ?1 AND a.num = ?2"
)


def exists(rows: Rows, space: str, source: str, target: str, kind: str) -> bool:
    """Return whether a link of this kind leads from one memory to the other."""
    found = rows.execute(
        "SELECT 1 FROM links WHERE space = ? AND source = ? AND target = ? AND kind = ?",
        (space, source, target, kind),
    ).fetchone()
    return found is not None


def of_memory(rows: Rows, space: str, num: int) -> list[tuple[int, int, float]]:
    """Return (memory, linked memory, weight) for every link of a memory, in either direction."""
    found: list[tuple[int, int, float]] = rows.execute(_OF_MEMORY, (space, num)).fetchall()
    return found
