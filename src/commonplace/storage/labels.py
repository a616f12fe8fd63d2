"""Statements on the table `labels`: tags, origin and trust, by which searches filter."""

from __future__ import annotations

from collections.abc import Sequence

from commonplace.storage.ports import Rows

_HOLDERS = "SELECT memory FROM labels WHERE space = ? AND label = ?"


def holders(rows: Rows, space: str, label: str) -> list[int]:
    """Return the numbers of the memories with a label."""
    return [row[0] for row in rows.execute(_HOLDERS, (space, label))]


def has_label(rows: Rows, space: str, label: str, num: int) -> bool:
    """Return whether a memory has a label."""
    found = rows.execute(f"{_HOLDERS} AND memory = ?", (space, label, num)).fetchone()
    return found is not None


def tags(rows: Rows, space: str, states: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return (tag, number of memories in these states, time of first use), most used first."""
    return label_values(rows, space, "tag", states)


def label_values(
    rows: Rows, space: str, part: str, states: Sequence[str]
) -> list[tuple[str, int, int]]:
    """Return the same as `tags` for any part of a label: `tag`, `client`, `trust` and others."""
    found: list[tuple[str, int, int]] = rows.execute(
        "SELECT substr(l.label, ?), count(*), min(m.created_at) FROM labels l"  # noqa: S608
        " JOIN memories m ON m.space = l.space AND m.num = l.memory"
        " WHERE l.space = ? AND l.label >= ? AND l.label < ?"
        f" AND m.state IN ({', '.join('?' * len(states))}) GROUP BY l.label ORDER BY 2 DESC, 1",
        (len(part) + 2, space, f"{part}:", f"{part};", *states),
    ).fetchall()
    return found
