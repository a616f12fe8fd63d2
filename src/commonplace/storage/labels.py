"""Statements on the table `labels`: what memories can be filtered by (tags, origin, trust)."""

from __future__ import annotations

from commonplace.storage.ports import Rows

_HOLDERS = "SELECT memory FROM labels WHERE space = ? AND label = ?"


def holders(rows: Rows, space: str, label: str) -> list[int]:
    """Numbers of the memories that carry a label."""
    return [row[0] for row in rows.execute(_HOLDERS, (space, label))]


def carries(rows: Rows, space: str, label: str, num: int) -> bool:
    """Whether a memory carries a label."""
    found = rows.execute(f"{_HOLDERS} AND memory = ?", (space, label, num)).fetchone()
    return found is not None
