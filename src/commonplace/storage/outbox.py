"""The table `outbox`: a queue of memories whose vectors are not computed yet.

A row is committed together with its memory. A worker claims a row for a limited time, so that the
row becomes free again if the worker dies.
"""

from __future__ import annotations

from collections.abc import Iterable

from commonplace.storage.database import now
from commonplace.storage.ports import Rows

_REQUEST_OF = "kind = 'embed' AND subject = ?"


FIRST, SECOND = 0, 1
"""The queues: memories stored by calls; and memories that are imported or re-embedded."""


def add(rows: Rows, space: str, num: int, lane: int = FIRST) -> None:
    """Request the vectors of a memory, in the current transaction."""
    rows.execute(
        "INSERT INTO outbox (space, kind, subject, payload, attempts, due_at, claimed_until,"
        " last_error, created_at, lane) VALUES (?, 'embed', ?, '{}', 0, 0, 0, '', ?, ?)"
        " ON CONFLICT DO NOTHING",
        (space, str(num), now(), lane),
    )


def remove(rows: Rows, space: str, num: int) -> None:
    """Delete the request for a memory."""
    rows.execute(f"DELETE FROM outbox WHERE space = ? AND {_REQUEST_OF}", (space, str(num)))  # noqa: S608


def size(rows: Rows, space: str) -> tuple[int, int | None]:
    """Return the number of rows, and the time of the oldest one."""
    count, oldest = rows.execute(
        "SELECT count(*), min(created_at) FROM outbox WHERE space = ?", (space,)
    ).fetchone()
    return int(count), oldest


def is_empty(rows: Rows, space: str) -> bool:
    """Return whether the outbox has no requests."""
    return rows.execute("SELECT 1 FROM outbox WHERE space = ? LIMIT 1", (space,)).fetchone() is None


def error_of(rows: Rows, space: str, num: int) -> str | None:
    """Return the last error of a memory's request; None if there is no request."""
    found = rows.execute(
        f"SELECT last_error FROM outbox WHERE space = ? AND {_REQUEST_OF}",  # noqa: S608
        (space, str(num)),
    ).fetchone()
    return None if found is None else str(found[0])


def newest_call_requests(rows: Rows, space: str, most: int) -> set[int]:
    """Return untried memories of the first lane, among the newest `most` requests."""
    found = rows.execute(
        "SELECT subject FROM (SELECT subject, lane, attempts FROM outbox WHERE space = ?"
        " AND kind = 'embed' ORDER BY num DESC LIMIT ?) newest WHERE lane = ? AND attempts = 0",
        (space, most, FIRST),
    )
    return {int(row[0]) for row in found}


def attempts(rows: Rows, space: str, num: int) -> int:
    """Return the number of failed attempts for a memory."""
    statement = f"SELECT attempts FROM outbox WHERE space = ? AND {_REQUEST_OF}"  # noqa: S608
    found = rows.execute(statement, (space, str(num))).fetchone()
    return int(found[0]) if found else 0


def claim(rows: Rows, space: str, at: int, *, until: int, latest_due: int, most: int) -> list[int]:
    """Claim due rows until a time; return the numbers of their memories.

    A row with a time too far in the future was written before the clock was set back, and counts as
    due.
    """
    found = rows.execute(
        "UPDATE outbox SET claimed_until = ?1 WHERE space = ?2 AND num IN"
        " (SELECT num FROM outbox WHERE space = ?2 AND kind = 'embed'"
        " AND (due_at <= ?3 OR due_at > ?4)"
        " AND (claimed_until <= ?3 OR claimed_until > ?1) ORDER BY lane, num LIMIT ?5)"
        " RETURNING subject",
        (until, space, at, latest_due, most),
    )
    return [int(row[0]) for row in found]


def release(rows: Rows, space: str, nums: Iterable[int]) -> None:
    """Release claimed rows."""
    rows.executemany(
        f"UPDATE outbox SET claimed_until = 0 WHERE space = ? AND {_REQUEST_OF}",  # noqa: S608
        [(space, str(num)) for num in nums],
    )


def postpone(rows: Rows, space: str, num: int, due: int, error: str) -> None:
    """Record a failed attempt and the time of the next one."""
    rows.execute(
        "UPDATE outbox SET attempts = attempts + 1, due_at = ?, claimed_until = 0,"  # noqa: S608
        f" last_error = ? WHERE space = ? AND {_REQUEST_OF}",
        (due, error, space, str(num)),
    )


def memories_without_request(rows: Rows, space: str, model: int | None, most: int) -> list[int]:
    """Return memories that lack a vector of the model and have no request in the outbox."""
    found = rows.execute(
        "SELECT DISTINCT memory FROM passages p WHERE space = ?1"
        " AND (model IS NULL OR model < ?2 OR model > ?2) AND NOT EXISTS"
        " (SELECT 1 FROM outbox o WHERE o.space = ?1 AND o.kind = 'embed'"
        "  AND o.subject = CAST(p.memory AS TEXT)) LIMIT ?3",
        (space, -1 if model is None else model, most),
    )
    return [row[0] for row in found]
