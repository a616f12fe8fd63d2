"""Statements on the table `messages`: memories that are lines of conversations."""

from __future__ import annotations

from commonplace.storage.ports import Rows


def any_memory(rows: Rows, space: str, conversation: str, session: str) -> int | None:
    """The number of some memory of a session, or None."""
    found = rows.execute(
        "SELECT memory FROM messages WHERE space = ? AND conversation = ? AND session = ? LIMIT 1",
        (space, conversation, session),
    ).fetchone()
    return None if found is None else int(found[0])
