"""Statements on the table `members`: which memory is in which cluster."""

from __future__ import annotations

from collections.abc import Collection

from commonplace.storage.ports import Rows


def vectors(rows: Rows, space: str, cluster: str, model: int) -> list[bytes]:
    """Return the vector of the first passage of each live memory of a cluster."""
    found = rows.execute(
        "SELECT p.vector FROM members b"
        " JOIN memories m ON m.space = b.space AND m.id = b.memory"
        " JOIN passages p ON p.space = m.space AND p.memory = m.num AND p.ordinal = 0"
        " WHERE b.space = ? AND b.cluster = ? AND p.model = ?"
        " AND m.state IN ('active', 'dying')",
        (space, cluster, model),
    )
    return [row[0] for row in found]


def counts(rows: Rows, space: str) -> list[tuple[str, str, int]]:
    """Return (cluster, state, number of memories) for all clusters."""
    found: list[tuple[str, str, int]] = rows.execute(
        "SELECT b.cluster, m.state, count(*) FROM members b"
        " JOIN memories m ON m.space = b.space AND m.id = b.memory"
        " WHERE b.space = ? GROUP BY b.cluster, m.state",
        (space,),
    ).fetchall()
    return found


def ids(
    rows: Rows, space: str, cluster: str, states: Collection[str], most: int | None
) -> list[str]:
    """Return the ids of a cluster's memories in these states, in the order they were added.

    With `most`, return at most that many: dying memories first, then the most important.
    """
    order = "b.num" if most is None else "m.state != 'dying', m.importance DESC, b.num"
    limit = "" if most is None else f" LIMIT {most:d}"
    found = rows.execute(
        "SELECT m.id FROM members b JOIN memories m ON m.space = b.space"  # noqa: S608
        " AND m.id = b.memory WHERE b.space = ? AND b.cluster = ?"
        f" AND m.state IN ({', '.join('?' * len(states))}) ORDER BY {order}{limit}",
        (space, cluster, *states),
    )
    return [row[0] for row in found]
