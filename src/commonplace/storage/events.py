"""The table `events`: append-only. A purge deletes a payload and keeps its hash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from commonplace.errors import StorageCorrupt
from commonplace.storage.ports import Rows
from commonplace.storage.tables import EVENTS, digest


class EventRow(NamedTuple):
    """A verified row; the payload is JSON, or None if it was purged."""

    num: int
    kind: str
    subject: str
    at: int
    payload_hash: bytes
    seq: int
    payload: str | None


class EventConditions(NamedTuple):
    """Conditions on events. None means no condition."""

    kind: str | None = None
    subject: str | None = None
    upto: int | None = None
    """Only events up to this operation, inclusive."""
    after: int | None = None
    """Only events with a higher number."""
    num: int | None = None
    before: int | None = None
    """Only events with a lower number."""


_CONDITIONS = ("kind = ?", "subject = ?", "seq <= ?", "num > ?", "num = ?", "num < ?")


def _where_clause(wanted: EventConditions) -> tuple[str, list[object]]:
    given = [(c, v) for c, v in zip(_CONDITIONS, wanted, strict=True) if v is not None]
    return "".join(f" AND {condition}" for condition, _ in given), [value for _, value in given]


def insert(
    rows: Rows, num: int, space: str, kind: str, subject: str, at: int, payload_hash: bytes,
    seq: int, payload: str | None,
) -> None:  # fmt: skip
    """Append an event."""
    values = (num, space, kind, subject, at, payload_hash, seq)
    rows.execute(EVENTS.insert_sql, EVENTS.row(values, payload))


def find(
    rows: Rows,
    space: str,
    wanted: EventConditions,
    *,
    limit: int | None = None,
    newest: bool = False,
) -> list[EventRow]:
    """Return verified events, oldest first unless `newest` is true."""
    clause, values = _where_clause(wanted)
    clause += " ORDER BY num DESC" if newest else " ORDER BY num"
    clause += "" if limit is None else f" LIMIT {limit:d}"
    found = []
    for stored in rows.execute(f"{EVENTS.select_sql}{clause}", (space, *values)):
        num, _, kind, subject, at, payload_hash, seq, payload, *_ = stored
        if not EVENTS.matches_hash(stored) or (
            payload is not None and digest(payload) != payload_hash
        ):
            raise StorageCorrupt(
                f"Event {num} does not match its hash.",
                hint="Run 'commonplace doctor' and restore from a backup.",
            )
        found.append(EventRow(num, kind, subject, at, payload_hash, seq, payload))
    return found


def count(rows: Rows, space: str, wanted: EventConditions) -> int:
    """Return the number of events that meet the conditions."""
    clause, values = _where_clause(wanted)
    statement = f"SELECT count(*) FROM events WHERE space = ?{clause}"  # noqa: S608
    return int(rows.execute(statement, (space, *values)).fetchone()[0])


def numbers_in_order(rows: Rows, space: str) -> Iterator[int]:
    """Return the numbers of all events in the order of their operations."""
    statement = "SELECT num FROM events WHERE space = ? ORDER BY seq, num"
    return (row[0] for row in rows.execute(statement, (space,)))


def identities(rows: Rows, space: str) -> Iterator[tuple[str, str, int, bytes]]:
    """Return (kind, subject, time, hash of the payload) of all events."""
    found: Iterator[tuple[str, str, int, bytes]] = rows.execute(
        "SELECT kind, subject, at, payload_hash FROM events WHERE space = ?", (space,)
    )
    return found


def payloads(rows: Rows, space: str) -> list[tuple[int, str]]:
    """Return the number and payload of each event that has a payload."""
    found: list[tuple[int, str]] = rows.execute(
        "SELECT num, payload FROM events WHERE space = ? AND payload IS NOT NULL", (space,)
    ).fetchall()
    return found


def clear_payload(rows: Rows, space: str, num: int) -> None:
    """Delete a payload and keep its hash."""
    rows.execute("UPDATE events SET payload = NULL WHERE space = ? AND num = ?", (space, num))
