"""The table `outbox`: memories that wait for their vectors.

A row is committed with the memory that it is about. Who works on it claims it for a while; a
process that dies gives it back by time.
"""

from __future__ import annotations

from collections.abc import Iterable

from commonplace.storage.database import now
from commonplace.storage.ports import Rows

_OF = "kind = 'embed' AND subject = ?"


def add(rows: Rows, space: str, num: int) -> None:
    """Ask for vectors of a memory; durable with the transaction that asks."""
    rows.execute(
        "INSERT INTO outbox (space, kind, subject, payload, attempts, due_at, claimed_until,"
        " last_error, created_at) VALUES (?, 'embed', ?, '{}', 0, 0, 0, '', ?)"
        " ON CONFLICT DO NOTHING",
        (space, str(num), now()),
    )


def remove(rows: Rows, space: str, num: int) -> None:
    """Ask no longer for vectors of a memory."""
    rows.execute(f"DELETE FROM outbox WHERE space = ? AND {_OF}", (space, str(num)))  # noqa: S608


def size(rows: Rows, space: str) -> tuple[int, int | None]:
    """(how many rows wait, when the oldest was written)."""
    count, oldest = rows.execute(
        "SELECT count(*), min(created_at) FROM outbox WHERE space = ?", (space,)
    ).fetchone()
    return int(count), oldest


def is_empty(rows: Rows, space: str) -> bool:
    """Whether nothing waits."""
    return rows.execute("SELECT 1 FROM outbox WHERE space = ? LIMIT 1", (space,)).fetchone() is None


def error_of(rows: Rows, space: str, num: int) -> str | None:
    """What a memory's last attempt was told; None if it does not wait."""
    found = rows.execute(
        f"SELECT last_error FROM outbox WHERE space = ? AND {_OF}",  # noqa: S608
        (space, str(num)),
    ).fetchone()
    return None if found is None else str(found[0])


def attempts(rows: Rows, space: str, num: int) -> int:
    """How often vectors of a memory were asked for in vain."""
    statement = f"SELECT attempts FROM outbox WHERE space = ? AND {_OF}"  # noqa: S608
    found = rows.execute(statement, (space, str(num))).fetchone()
    return int(found[0]) if found else 0


def claim(rows: Rows, space: str, at: int, *, until: int, latest_due: int, most: int) -> list[int]:
    """Claim due rows until a moment; the numbers of their memories.

    A time further ahead than any that is set was written before the clock was put back: such a row
    is due.
    """
    found = rows.execute(
        "UPDATE outbox SET claimed_until = ?1 WHERE space = ?2 AND num IN"
        " (SELECT num FROM outbox WHERE space = ?2 AND kind = 'embed'"
        " AND (due_at <= ?3 OR due_at > ?4)"
        " AND (claimed_until <= ?3 OR claimed_until > ?1) ORDER BY num LIMIT ?5)"
        " RETURNING subject",
        (until, space, at, latest_due, most),
    )
    return [int(row[0]) for row in found]


def release(rows: Rows, space: str, nums: Iterable[int]) -> None:
    """Give claimed rows back."""
    rows.executemany(
        f"UPDATE outbox SET claimed_until = 0 WHERE space = ? AND {_OF}",  # noqa: S608
        [(space, str(num)) for num in nums],
    )


def postpone(rows: Rows, space: str, num: int, due: int, error: str) -> None:
    """Note a failed attempt, and when the next may be made."""
    rows.execute(
        "UPDATE outbox SET attempts = attempts + 1, due_at = ?, claimed_until = 0,"  # noqa: S608
        f" last_error = ? WHERE space = ? AND {_OF}",
        (due, error, space, str(num)),
    )


def unasked(rows: Rows, space: str, model: int | None, most: int) -> list[int]:
    """Memories with a passage that has no vector of the model, and that do not wait for one."""
    found = rows.execute(
        "SELECT DISTINCT memory FROM passages p WHERE space = ?1"
        " AND (model IS NULL OR model < ?2 OR model > ?2) AND NOT EXISTS"
        " (SELECT 1 FROM outbox o WHERE o.space = ?1 AND o.kind = 'embed'"
        "  AND o.subject = CAST(p.memory AS TEXT)) LIMIT ?3",
        (space, -1 if model is None else model, most),
    )
    return [row[0] for row in found]
