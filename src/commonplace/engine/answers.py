"""Answers kept for a day, so that a call that is made again does not act again."""

from __future__ import annotations

from typing import Any

from commonplace.errors import CommonplaceError
from commonplace.storage.database import now
from commonplace.storage.ports import Rows, Store
from commonplace.storage.tables import ANSWERS

KEPT = 86_400_000_000  # microseconds: 24 hours
_FIND = ANSWERS.select_sql + " AND key = ?"
_KEEP = ANSWERS.upsert("key")


class Answered(CommonplaceError):
    """The call was answered meanwhile; what it did this time is taken back."""

    code = "ANSWERED"

    def __init__(self, result: str) -> None:
        super().__init__("The same call was answered meanwhile.")
        self.result = result


def find(store: Store, key: bytes) -> str | None:
    """The answer given under a key in the last 24 hours."""
    with store.read() as connection:
        return _find(connection, store.space, key)


def find_newest(store: Store, key: bytes) -> str | None:
    """The same, with what others have written and not yet committed; durable on return."""
    with store.maintain() as connection:
        return _find(connection, store.space, key)


def _find(connection: Rows, space: str, key: bytes) -> str | None:
    row: Any = connection.execute(_FIND, (space, key)).fetchone()
    if row is None or row[2] < now() - KEPT or not ANSWERS.sound(row):
        return None  # an answer that rotted is not given; acting again is the lesser harm
    result: str = row[3]
    return result


def keep(store: Store, key: bytes, result: str) -> None:
    """Keep an answer in the open unit; raises Answered if there is one already."""
    with store.maintain() as connection:
        earlier = _find(connection, store.space, key)
        if earlier is not None:
            raise Answered(earlier)
        at = now()
        connection.execute(
            "DELETE FROM answers WHERE space = ? AND at < ?", (store.space, at - KEPT)
        )
        connection.execute(_KEEP, ANSWERS.row((store.space, key, at, result)))
