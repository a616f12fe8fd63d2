"""Statements on the table `messages`: memories that are lines of conversations."""

from __future__ import annotations

from collections.abc import Mapping

from commonplace.storage.ports import Rows
from commonplace.storage.tables import MESSAGES, Row


def newest_position(rows: Rows, space: str, conversation: str) -> int:
    """Return the position of a conversation's last line, or -1."""
    found = rows.execute(
        "SELECT max(position) FROM messages WHERE space = ? AND conversation = ?",
        (space, conversation),
    ).fetchone()
    return -1 if found is None or found[0] is None else int(found[0])


def any_memory(rows: Rows, space: str, conversation: str, session: str) -> int | None:
    """Return the number of any memory of a session, or None."""
    found = rows.execute(
        "SELECT memory FROM messages WHERE space = ? AND conversation = ? AND session = ? LIMIT 1",
        (space, conversation, session),
    ).fetchone()
    return None if found is None else int(found[0])


# Selects lines of live memories; `messages` is the table of the surrounding statement.
_LIVE = (
    "EXISTS (SELECT 1 FROM memories m WHERE m.space = messages.space AND m.num = messages.memory"
    " AND m.state IN ('active', 'dying'))"
)


def newest(
    rows: Rows, space: str, wanted: Mapping[str, object], before: int | None, limit: int
) -> list[Row]:
    """Return live lines with these values, newest first; `before` selects lower positions."""
    clause = f"AND {_LIVE}" + "".join(f" AND {column} = ?" for column in wanted)
    values = list(wanted.values())
    if before is not None:
        clause += " AND position < ?"
        values.append(before)
    clause += " ORDER BY position DESC LIMIT ?"
    return MESSAGES.fetch(rows, space, clause, *values, limit)


def between(rows: Rows, space: str, conversation: str, first: int, last: int) -> list[Row]:
    """Return the live lines of a conversation between two positions, in order."""
    clause = f"AND conversation = ? AND {_LIVE} AND position BETWEEN ? AND ? ORDER BY position"
    return MESSAGES.fetch(rows, space, clause, conversation, first, last)


def live_memories(rows: Rows, space: str, conversation: str) -> list[int]:
    """Return the numbers of the live memories of a conversation, newest first."""
    found = rows.execute(
        f"SELECT memory FROM messages WHERE space = ? AND conversation = ? AND {_LIVE}"  # noqa: S608
        " ORDER BY position DESC",
        (space, conversation),
    )
    return [row[0] for row in found]


def conversations(rows: Rows, space: str) -> list[tuple[str, int]]:
    """Return the name and number of live lines of each conversation, by name.

    The rows come from an index, without a check of their hashes.
    """
    found: list[tuple[str, int]] = rows.execute(
        f"SELECT conversation, count(*) FROM messages WHERE space = ? AND {_LIVE}"  # noqa: S608
        " GROUP BY conversation ORDER BY conversation",
        (space,),
    ).fetchall()
    return found
