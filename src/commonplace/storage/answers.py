"""The table `answers`: the result of each call that had an idempotency key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from commonplace.storage.ports import Rows
from commonplace.storage.tables import ANSWERS

_FIND = ANSWERS.select_sql + " AND key = ?"
_PUT = ANSWERS.upsert("key")


def find(rows: Rows, space: str, key: bytes) -> tuple[int, str] | None:
    """Return the time and result stored for a key; None if there is no intact row."""
    row = rows.execute(_FIND, (space, key)).fetchone()
    return None if row is None or not ANSWERS.matches_hash(row) else (row[2], row[3])


def put(rows: Rows, space: str, key: bytes, at: int, result: str) -> None:
    """Insert or replace the result for a key."""
    rows.execute(_PUT, ANSWERS.row((space, key, at, result)))


def remove_older(rows: Rows, space: str, at: int) -> None:
    """Delete results older than a time."""
    rows.execute("DELETE FROM answers WHERE space = ? AND at < ?", (space, at))


def results(rows: Rows, space: str) -> Iterator[tuple[bytes, str]]:
    """Return the key and result of every row."""
    found: Iterator[tuple[bytes, str]] = rows.execute(
        "SELECT key, result FROM answers WHERE space = ?", (space,)
    )
    return found


def remove(rows: Rows, space: str, keys: Iterable[bytes]) -> None:
    """Delete results by their keys."""
    rows.executemany(
        "DELETE FROM answers WHERE space = ? AND key = ?", [(space, key) for key in keys]
    )
