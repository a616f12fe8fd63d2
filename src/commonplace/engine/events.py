"""Events: append-only, ordered, each with a hash that outlives its payload."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from commonplace.engine import checks
from commonplace.engine.history import seq_at
from commonplace.engine.model import Event, Origin, moment
from commonplace.engine.opened import OpenSpace
from commonplace.errors import StorageCorrupt
from commonplace.storage.hashing import digest
from commonplace.storage.ports import Rows
from commonplace.storage.tables import EVENTS
from commonplace.storage.writing import Unit


def put(unit: Unit, kind: str, subject: str, payload: str) -> int:
    """Append a checked event in an open unit."""
    seq, num = unit.seq, unit.next_num()
    values = (num, unit.space, kind, subject, unit.at, digest(payload), seq)
    unit.connection.execute(EVENTS.insert_sql, EVENTS.row(values, payload))
    return num


def record(
    space: OpenSpace, kind: str, subject: str, payload: Mapping[str, Any] | None, origin: Origin
) -> None:
    """Append an event."""
    checks.kind(kind)
    checks.optional(subject, "subject")
    dumped = checks.attrs(payload, "payload")
    with space.write("record event", origin) as unit:
        put(unit, kind, subject, dumped)


def listing(
    space: OpenSpace,
    *,
    kind: str | None,
    subject: str | None,
    limit: int,
    after: int = 0,
    newest: bool = False,
    as_of: int | None = None,
) -> list[Event]:
    """Events in their order, after a given one; or the newest first."""
    clause, values = _chosen(kind, subject)
    clause += " AND num > ?"
    values.append(checks.whole(after, "after"))
    with space.store.read() as connection:
        if as_of is not None:
            clause += " AND seq <= ?"
            values.append(seq_at(connection, space.name, as_of))
        order = " ORDER BY num DESC LIMIT ?" if newest else " ORDER BY num LIMIT ?"
        return list(read(connection, space.name, clause + order, *values, limit))


def count(space: OpenSpace, *, kind: str | None, subject: str | None, as_of: int | None) -> int:
    """How many events there are, or were at a moment."""
    clause, values = _chosen(kind, subject)
    with space.store.read() as connection:
        if as_of is not None:
            clause += " AND seq <= ?"
            values.append(seq_at(connection, space.name, as_of))
        one: Any = connection.execute(
            f"SELECT count(*) FROM events WHERE space = ?{clause}",
            (space.name, *values),
        ).fetchone()
        return int(one[0])


def _chosen(kind: str | None, subject: str | None) -> tuple[str, list[object]]:
    """What continues the WHERE for events of a kind and a subject."""
    clause, values = "", list[object]()
    if kind is not None:
        clause += " AND kind = ?"
        values.append(checks.kind(kind))
    if subject is not None:
        clause += " AND subject = ?"
        values.append(checks.optional(subject, "subject"))
    return clause, values


def read(connection: Rows, space: str, clause: str, *params: object) -> list[Event]:
    """Verified events; `clause` continues the WHERE."""
    rows = connection.execute(f"{EVENTS.select_sql} {clause}", (space, *params))
    found = []
    for stored in rows:
        num, _, kind, subject, at, payload_hash, _, payload, *_ = stored
        if not EVENTS.sound(stored) or (payload is not None and digest(payload) != payload_hash):
            raise StorageCorrupt(
                f"Event {num} does not match its hash.",
                hint="Run 'commonplace doctor' and restore from a backup.",
            )
        content = None if payload is None else json.loads(payload)
        found.append(Event(num, kind, subject, moment(at), content))
    return found
