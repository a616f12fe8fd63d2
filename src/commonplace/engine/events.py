"""Events: append-only, ordered, each with a hash that outlives its payload."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from commonplace.engine import checks
from commonplace.engine.history import seq_at
from commonplace.engine.model import Event, Origin, moment
from commonplace.engine.opened import OpenSpace
from commonplace.errors import StorageCorrupt
from commonplace.storage.tables import digest
from commonplace.storage.writing import Unit

if TYPE_CHECKING:
    import apsw


def put(unit: Unit, kind: str, subject: str, payload: str) -> int:
    """Append a checked event in an open unit."""
    seq, num = unit.seq, unit.next_num()
    hashed = digest(payload)
    row = (num, unit.space, kind, subject, unit.at, hashed, seq)
    unit.connection.execute(
        "INSERT INTO events (num, space, kind, subject, at, payload_hash, seq, payload, hash)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, payload, digest(*row)),
    )
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


def read(connection: apsw.Connection, space: str, clause: str, *params: object) -> list[Event]:
    """Verified events; `clause` continues the WHERE."""
    rows = connection.execute(
        "SELECT num, space, kind, subject, at, payload_hash, seq, payload, hash FROM events"
        " WHERE space = ? " + clause,
        (space, *params),
    )
    found = []
    for *values, payload, hashed in rows:
        num, _, kind, subject, at, payload_hash, _ = values
        whole = digest(*values) == hashed
        if not whole or (payload is not None and digest(payload) != payload_hash):
            raise StorageCorrupt(
                f"Event {num} does not match its hash.",
                hint="Run 'commonplace doctor' and restore from a backup.",
            )
        content = None if payload is None else json.loads(payload)
        found.append(Event(num, kind, subject, moment(at), content))
    return found
