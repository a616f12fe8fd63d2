"""Events: an append-only log. The hash of an entry stays when its payload is purged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from commonplace.engine import checks
from commonplace.engine.content.write_policy import mask_row
from commonplace.engine.history.timeline import read_as_of
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Event, Origin, When, moment
from commonplace.storage import events as stored
from commonplace.storage.events import EventConditions, EventRow
from commonplace.storage.tables import digest
from commonplace.storage.writing import Unit


def append_checked(unit: Unit, kind: str, subject: str, payload: str) -> int:
    """Append an event with checked values, in an open unit."""
    num, hashed = unit.next_num(), digest(payload)
    stored.insert(
        unit.connection, num, unit.space, kind, subject, unit.at, hashed, unit.seq, payload
    )
    return num


def record(
    space: OpenSpace,
    kind: str,
    subject: str = "",
    payload: Mapping[str, Any] | None = None,
    *,
    origin: Origin | None = None,
) -> None:
    """Append an event."""
    checks.kind(kind)
    checks.optional_text(subject, "subject")
    values = {"attrs": checks.attrs(payload, "payload")}
    mask_row(space, values)
    dumped = values["attrs"]
    with space.write("record event", origin) as unit:
        append_checked(unit, kind, subject, dumped)


def listing(
    space: OpenSpace,
    *,
    kind: str | None = None,
    subject: str | None = None,
    limit: int = 100,
    after: int = 0,
    before: int | None = None,
    newest: bool = False,
    as_of: When | None = None,
) -> list[Event]:
    """Return events, oldest first or newest first.

    With `after`, return only events after that one; with `before`, only events before that one;
    with `as_of`, only those recorded by that time.
    """
    checks.limit(limit)
    checks.flag(newest, "newest")
    wanted = _checked_conditions(kind, subject)._replace(
        after=checks.integer(after, "after"), before=checks.optional_integer(before, "before")
    )
    with read_as_of(space, as_of) as (connection, seq):
        wanted = wanted._replace(upto=seq)
        rows = stored.find(connection, space.name, wanted, limit=limit, newest=newest)
        return [_event_of(row) for row in rows]


def count(
    space: OpenSpace,
    *,
    kind: str | None = None,
    subject: str | None = None,
    as_of: When | None = None,
) -> int:
    """Count events; with `as_of`, only those recorded by that time."""
    wanted = _checked_conditions(kind, subject)
    with read_as_of(space, as_of) as (connection, seq):
        wanted = wanted._replace(upto=seq)
        return stored.count(connection, space.name, wanted)


def _checked_conditions(kind: str | None, subject: str | None) -> EventConditions:
    return EventConditions(
        None if kind is None else checks.kind(kind),
        None if subject is None else checks.optional_text(subject, "subject"),
    )


def _event_of(row: EventRow) -> Event:
    content = None if row.payload is None else json.loads(row.payload)
    return Event(row.num, row.kind, row.subject, moment(row.at), content)
