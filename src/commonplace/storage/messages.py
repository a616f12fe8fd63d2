"""Statements on the table `messages`: memories that are lines of conversations."""

from __future__ import annotations

from commonplace.storage.ports import Rows


def newest_position(rows: Rows, space: str, conversation: str) -> int:
    """The position of a conversation's last line; -1 if it has none."""
    found = rows.execute(
        "SELECT max(position) FROM messages WHERE space = ? AND conversation = ?",
        (space, conversation),
    ).fetchone()
    return -1 if found is None or found[0] is None else int(found[0])


def any_memory(rows: Rows, space: str, conversation: str, session: str) -> int | None:
    """The number of some memory of a session, or None."""
    found = rows.execute(
        "SELECT memory FROM messages WHERE space = ? AND conversation = ? AND session = ? LIMIT 1",
        (space, conversation, session),
    ).fetchone()
    return None if found is None else int(found[0])
