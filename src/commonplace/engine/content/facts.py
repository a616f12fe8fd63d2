"""Facts: subject, predicate and object, the period of their truth, and when they were learned."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Literal

from commonplace.engine import checks
from commonplace.engine.content.memories import need_row
from commonplace.engine.content.write_policy import mask_row
from commonplace.engine.history.timeline import need_row_by_id, read_as_of, rows_at
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Fact, Origin, When
from commonplace.errors import InvalidInput
from commonplace.storage import facts as stored
from commonplace.storage import memories as stored_memories
from commonplace.storage.database import new_id
from commonplace.storage.ports import Rows
from commonplace.storage.tables import FACTS, Row
from commonplace.storage.writing import newest_operation, operation_id
from commonplace.text.analysis import fold

Role = Literal["subject", "object", "any"]
ROLES = ("subject", "object", "any")
_BY_NUM = itemgetter("num")


@dataclass(frozen=True, slots=True)
class Room:
    """Limits of a space: how many facts it may hold, and how many entities they may name."""

    facts: int
    entities: int

    def __post_init__(self) -> None:
        checks.limit(self.facts, "facts", checks.MAX_NUMBER)
        checks.limit(self.entities, "entities", checks.MAX_NUMBER)


class NoRoom(InvalidInput):
    """Raised when the limit of facts or of entities is reached; nothing was changed."""

    def __init__(
        self, message: str, *, hint: str, full: Literal["facts", "entities"], counted: int
    ) -> None:
        super().__init__(message, hint=hint)
        self.full = full
        self.counted = counted


def name_key(name: str) -> str:
    """Normalise a name: ignore differences in case, width and spacing."""
    return " ".join(fold(name).split())


def add(
    space: OpenSpace,
    subject: str,
    predicate: str,
    object: str,
    *,
    valid_from: When | None = None,
    valid_to: When | None = None,
    confidence: float = 1.0,
    memory: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    room: Room | None = None,
    origin: Origin | None = None,
) -> Fact:
    """Store a fact; if the same open fact is stored already, return the stored one.

    With `room`, a fact above the limits is refused, also if several callers add facts at once.
    """
    origin = checks.origin(origin)
    given = {"subject": subject, "predicate": predicate, "object": object,
             "confidence": confidence, "attrs": attrs, "valid_from": valid_from,
             "valid_to": valid_to}  # fmt: skip
    values = checks.columns(FACTS, given)
    mask_row(space, values)
    start, end = values["valid_from"], values["valid_to"]
    check_period(start, end)
    keys = {f"{part}_key": name_key(values[part]) for part in ("subject", "predicate", "object")}
    if not isinstance(room, Room | None):
        raise InvalidInput("room must be a Room, with limits on facts and entities.", field="room")
    if room is not None and space.store.open_unit is None:
        with space.store.read() as connection:
            space.cache(FactCount).catch_up(connection, space.name)
    with space.write("add fact", origin) as unit:
        source = None
        if memory is not None:
            source = need_row(unit.connection, space.name, memory)["id"]
        if end is None:
            for same in stored.open_facts(unit.connection, space.name, *keys.values()):
                return Fact.of(same)
        if room is not None:
            _check_room(space, unit.connection, room, keys["subject_key"], keys["object_key"])
        row = FACTS.insert(
            unit,
            {
                **values,
                **keys,
                "id": new_id(),
                "memory": source,
                "origin": origin.dump(),
                "created_at": unit.at,
            },
        )
        return Fact.of(row)


def _check_room(space: OpenSpace, connection: Rows, room: Room, subject: str, object: str) -> None:
    """Raise NoRoom if a new fact exceeds the limits; the open unit keeps out other writers."""
    counted, entities, wanted = space.cache(FactCount).counts_including(
        connection, space.name, subject, object
    )
    if counted >= room.facts:
        raise NoRoom(
            f"There are {counted} facts; at most {room.facts} are allowed.",
            hint="Retract some first.",
            full="facts",
            counted=counted,
        )
    if wanted > max(entities, room.entities):
        raise NoRoom(
            f"Facts name {entities} entities; at most {room.entities} are allowed.",
            hint="Use entities that other facts already name.",
            full="entities",
            counted=entities,
        )


def close(
    space: OpenSpace,
    subject: str,
    predicate: str,
    object: str,
    *,
    ended: When | None = None,
    origin: Origin | None = None,
) -> list[Fact]:
    """End the open facts that match, now or at a date, and return them."""
    at = checks.time(datetime.now(UTC) if ended is None else ended, "ended")
    keys = [name_key(checks.text(name, "fact", max_chars=checks.NAME_CHARS))
            for name in (subject, predicate, object)]  # fmt: skip
    with space.write("close fact", origin) as unit:
        rows = stored.open_facts(unit.connection, space.name, *keys)[::-1]
        for row in rows:
            check_period(row["valid_from"], at)
        return [Fact.of(FACTS.replace(unit, row, {"valid_to": at})) for row in rows]


def retract(space: OpenSpace, identity: str, *, origin: Origin | None = None) -> None:
    """Take back a fact that was never true; `known_at` still shows it."""
    with space.write("retract fact", origin) as unit:
        FACTS.remove(
            unit, need_row_by_id(unit.connection, space.name, FACTS, identity, name="fact")
        )


def query(
    space: OpenSpace,
    entity: str | None = None,
    *,
    role: Role = "any",
    predicate: str | None = None,
    true_at: When | None = None,
    known_at: When | None = None,
    limit: int = 500,
) -> list[Fact]:
    """Return facts about an entity, the last learned first.

    `true_at` selects facts that were true at a date, `known_at` those that were known at a date. A
    fact that was true for part of a day was true on that day.
    """
    checks.limit(limit)
    first, last = checks.time(true_at, "true_at"), checks.end_time(true_at, "true_at")
    on = None if first is None or last is None else (first, last)
    checks.one_of(role, "role", ROLES)
    name = None if entity is None else name_key(checks.text(entity, "entity"))
    verb = None if predicate is None else name_key(checks.text(predicate, "predicate"))
    with read_as_of(space, known_at) as (connection, seq):
        rows = _rows_about(connection, space.name, name, role, seq)
    rows = [row for row in rows if _fact_matches(row, name, role, verb, on)]
    rows.sort(key=_BY_NUM, reverse=True)
    return [Fact.of(row) for row in rows[:limit]]


def _rows_about(
    connection: Rows, space: str, name: str | None, role: Role, seq: int | None
) -> list[Row]:
    if seq is not None or name is None:
        return rows_at(connection, space, FACTS, seq)
    found: list[Row] = []
    if role != "object":
        found = FACTS.where(connection, space, subject_key=name)
    if role != "subject":
        others = FACTS.where(connection, space, object_key=name)
        # A fact whose subject is also its object is in both results.
        found += others if role == "object" else [r for r in others if r["subject_key"] != name]
    return found


def _fact_matches(
    row: Row, name: str | None, role: Role, verb: str | None, true_at: tuple[int, int] | None
) -> bool:
    if name is not None and not (
        (role != "object" and row["subject_key"] == name)
        or (role != "subject" and row["object_key"] == name)
    ):
        return False
    if verb is not None and row["predicate_key"] != verb:
        return False
    if true_at is None:
        return True
    start, end = row["valid_from"], row["valid_to"]
    first, last = true_at
    return (start is None or start <= last) and (end is None or end >= first)


def timeline(
    space: OpenSpace, entity: str | None = None, *, limit: int = 100, as_of: When | None = None
) -> list[Fact]:
    """Return facts by their start, earliest first; facts without a start come last."""
    checks.limit(limit)
    name = None if entity is None else name_key(checks.text(entity, "entity"))
    with read_as_of(space, as_of) as (connection, seq):
        rows = _rows_about(connection, space.name, name, "any", seq)
    rows = [row for row in rows if _fact_matches(row, name, "any", None, None)]
    rows.sort(key=lambda row: (row["valid_from"] is None, row["valid_from"] or 0, row["num"]))
    return [Fact.of(row) for row in rows[:limit]]


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of facts, of open facts and of entities, and the list of predicates."""

    entities: int
    facts: int
    open: int
    predicates: tuple[str, ...]


def totals(space: OpenSpace, *, as_of: When | None = None) -> Totals:
    """Count all facts; with `as_of`, those that were known at that time."""
    with read_as_of(space, as_of) as (connection, seq):
        if seq is not None:
            return _totals_of_rows(rows_at(connection, space.name, FACTS, seq))
        entities, facts, still, verbs = stored.totals(connection, space.name)
        return Totals(entities, facts, still, tuple(verbs))


def _totals_of_rows(rows: list[Row]) -> Totals:
    verbs: dict[str, str] = {}
    for row in rows:
        spelt = verbs.setdefault(row["predicate_key"], row["predicate"])
        verbs[row["predicate_key"]] = min(spelt, row["predicate"])
    return Totals(
        len({row[side] for row in rows for side in ("subject_key", "object_key")}),
        len(rows),
        sum(row["valid_to"] is None for row in rows),
        tuple(verbs[each] for each in sorted(verbs)),
    )


def check_period(start: int | None, end: int | None) -> None:
    """Raise InvalidInput if a fact ends before it begins."""
    if start is not None and end is not None and end < start:
        raise InvalidInput(
            "A fact cannot end before it begins.", hint="Check the two dates.", field="valid_to"
        )


@dataclass(slots=True)
class _Tally:
    facts: int = 0
    uses: Counter[str] = field(default_factory=Counter)
    """How often each name is a subject or an object."""

    def add(self, names: Iterable[str], sign: int) -> None:
        self.facts += sign
        for name in names:
            self.uses[name] += sign


class FactCount:
    """A cached count of a space's facts and of the entities they name. Threads may share it.

    The count belongs to one committed operation. It is updated from the rows that later operations
    wrote and replaced. A purge removes such rows; after a purge, all facts are counted again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seq = -1
        self._operation = ""
        self._kept = _Tally()

    def catch_up(self, connection: Rows, space: str) -> None:
        """Update the count to the state that the connection's snapshot shows."""
        with self._lock:
            seq, operation = newest_operation(connection, space)
            if (seq, operation) == (self._seq, self._operation):
                return
            since = self._changes_since(connection, space)
            if since is None:
                self._kept = _count_all(connection, space)
            else:
                self._kept.facts += since.facts
                for name, more in since.uses.items():
                    self._kept.uses[name] += more
                    if not self._kept.uses[name]:
                        del self._kept.uses[name]
            self._seq, self._operation = seq, operation

    def counts_including(self, connection: Rows, space: str, *names: str) -> tuple[int, int, int]:
        """Return counts as the connection sees them, with uncommitted writes: the facts, the
        entities, and the entities including these names.

        The cache does not change.
        """
        with self._lock:
            since = self._changes_since(connection, space)
            if since is None:
                kept, since = _count_all(connection, space), _Tally()
            else:
                kept = self._kept
            entities = len(kept.uses)
            for name, more in since.uses.items():
                before = kept.uses[name]
                entities += (before + more > 0) - (before > 0)
            fresh = sum(not kept.uses[name] + since.uses[name] for name in set(names))
            return kept.facts + since.facts, entities, entities + fresh

    def _changes_since(self, connection: Rows, space: str) -> _Tally | None:
        """Return the difference from the cached count, or None if all facts must be recounted."""
        if self._seq < 0 or operation_id(connection, space, self._seq) != self._operation:
            return None
        if stored_memories.purged_since(connection, space, self._seq):
            return None
        tally = _Tally()
        for names in stored.written_since(connection, space, self._seq):
            tally.add(names, 1)
        for row in stored.replaced_since(connection, space, self._seq):
            tally.add((row["subject_key"], row["object_key"]), -1)
        return tally


def _count_all(connection: Rows, space: str) -> _Tally:
    tally = _Tally()
    for name, uses, as_subject in stored.entity_uses(connection, space):
        tally.uses[name] += uses
        tally.facts += as_subject
    return tally
