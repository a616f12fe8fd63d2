"""Statements on the table `memories` that need no whole row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from commonplace.storage.ports import Rows


def numbers(rows: Rows, space: str, identity: str) -> list[int]:
    """The number of the memory with an id, if there is one."""
    statement = "SELECT num FROM memories WHERE space = ? AND id = ?"
    return [row[0] for row in rows.execute(statement, (space, identity))]


def named(rows: Rows, space: str, identity: str, ref: str) -> str | None:
    """The id of a memory by its id or its ref, or None."""
    found = rows.execute(
        "SELECT id FROM memories WHERE space = ?1 AND (id = ?2 OR ref = ?3) LIMIT 1",
        (space, identity, ref),
    ).fetchone()
    return None if found is None else str(found[0])


def ids_beginning(
    rows: Rows, space: str, table: Literal["memories", "operations"], prefix: str, most: int
) -> list[str]:
    """Ids, which are hexadecimal, that begin with a prefix; so many at most."""
    statement = (
        f"SELECT id FROM {table} WHERE space = ? AND id >= ? AND id < ?"  # noqa: S608
        " ORDER BY id LIMIT ?"
    )
    return [row[0] for row in rows.execute(statement, (space, prefix, prefix + "g", most))]


def numbered_refs(rows: Rows, space: str, prefix: str) -> list[str]:
    """Refs that begin with a prefix and a digit."""
    found = rows.execute(
        "SELECT ref FROM memories WHERE space = ? AND ref >= ? AND ref < ?",
        (space, prefix + "0", prefix + ":"),  # the sign after 9
    )
    return [row[0] for row in found]


def newest_unlinked(
    rows: Rows, space: str, kind: str, label: str, states: Sequence[str], link: str
) -> int | None:
    """The newest memory of a kind, with a label, to which no link of another kind points."""
    found = rows.execute(
        "SELECT m.num FROM labels l JOIN memories m ON m.space = l.space AND m.num = l.memory"  # noqa: S608
        " WHERE l.space = ? AND l.label = ? AND m.kind = ?"
        f" AND m.state IN ({', '.join('?' * len(states))})"
        " AND NOT EXISTS (SELECT 1 FROM links s"
        " WHERE s.space = m.space AND s.target = m.id AND s.kind = ?)"
        " ORDER BY m.created_at DESC, m.num DESC LIMIT 1",
        (space, label, kind, *states, link),
    ).fetchone()
    return None if found is None else int(found[0])


def version(rows: Rows, space: str, num: int) -> int | None:
    """The operation that wrote a memory's row, or None if it is gone."""
    found = rows.execute(
        "SELECT seq FROM memories WHERE space = ? AND num = ?", (space, num)
    ).fetchone()
    return None if found is None else int(found[0])
