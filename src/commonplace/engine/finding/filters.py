"""Filters: conditions that select the memories of a search before the ranking."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from commonplace.engine import checks
from commonplace.engine.content.memories import field_labels, origin_labels, trust_labels
from commonplace.engine.content.projects import Project
from commonplace.engine.history import timeline
from commonplace.engine.model import LIVE_STATES, TRUSTS, Memory, Origin, When, microseconds
from commonplace.errors import InvalidInput
from commonplace.storage import labels as stored_labels
from commonplace.storage import memories
from commonplace.storage.fields import FIELDS, FILTERABLE, STATES
from commonplace.storage.ports import Rows
from commonplace.storage.tables import Row

if TYPE_CHECKING:
    from commonplace.engine.library import OpenSpace
    from commonplace.storage.index import Flags, Floats, Snapshot

_OPTIONAL_COLLECTIONS = ("kinds", "trust", "speakers", "ids")
_DAY = 86_400_000_000  # microseconds
FEW_MEMORIES = 64
"""Up to this many memories are looked up one by one for their labels."""


class Conditions(TypedDict, total=False):
    """The conditions of `Filters`, and the fields that can be filtered by.

    The class is for type checkers and editors. A test compares it with `Filters`.
    """

    kinds: Collection[str] | None
    without_kinds: Collection[str]
    tags_any: Collection[str]
    tags_all: Collection[str]
    tags_none: Collection[str]
    states: Collection[str]
    since: When | None
    until: When | None
    created_since: When | None
    created_until: When | None
    importance: float
    credit: float
    pinned: bool | None
    origin: Origin | None
    trust: Collection[str] | None
    speakers: Collection[str] | None
    ids: Collection[str] | None
    fields: Mapping[str, str]
    project: Project | None
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Conditions that a memory must meet, all of them. Without any, all live memories pass."""

    kinds: Collection[str] | None = None
    without_kinds: Collection[str] = ()
    tags_any: Collection[str] = ()
    tags_all: Collection[str] = ()
    tags_none: Collection[str] = ()
    states: Collection[str] = LIVE_STATES
    since: datetime | str | None = None
    until: datetime | str | None = None
    """`since` and `until` compare `occurred_at`, or `created_at` if `occurred_at` is unknown.

    A time at midnight in UTC is a date: it is compared as that day in the zone of the filter.
    """
    created_since: datetime | str | None = None
    created_until: datetime | str | None = None
    importance: float = 0.0
    credit: float = 0.0
    pinned: bool | None = None
    origin: Origin | None = None
    """Every part of the origin that is not empty must be equal."""
    trust: Collection[str] | None = None
    speakers: Collection[str] | None = None
    ids: Collection[str] | None = None
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Filterable fields, such as `source`, with the value that each must have."""
    project: Project | None = None
    """Only memories of this project or of none; a recall prefers those of its branch."""

    def __post_init__(self) -> None:
        for name in ("kinds", "without_kinds", "tags_any", "tags_all", "tags_none",
                     "states", "trust", "speakers", "ids"):  # fmt: skip
            value = getattr(self, name)
            if value is None and name in _OPTIONAL_COLLECTIONS:
                continue
            # The value may be an iterator, which can be read only once.
            if not isinstance(value, Collection):
                raise InvalidInput(f"{name} must be a list of texts.", field=name)
            for item in checks.iterable(value, name):
                checks.optional_text(item, name)
        for state in self.states:
            checks.one_of(
                state, "states", STATES, hint="Forgotten memories have the state archived."
            )
        for trust in self.trust or ():
            checks.one_of(trust, "trust", TRUSTS)
        checks.share(self.importance, "importance")
        checks.share(self.credit, "credit")
        if self.pinned is not None:
            checks.flag(self.pinned, "pinned")
        if self.origin is not None:
            checks.origin(self.origin)
        for name in ("since", "until", "created_since", "created_until"):
            checks.time(getattr(self, name), name)
        if not isinstance(self.fields, Mapping) or not set(FILTERABLE).issuperset(self.fields):
            raise InvalidInput(
                "fields names a field that cannot be filtered by.",
                hint=f"Allowed: {', '.join(FILTERABLE)}.",
                field="fields",
            )
        for name, value in self.fields.items():
            checks.text(checks.check_of_field(name, FIELDS[name])(value), name)
        if not isinstance(self.project, Project | None):
            raise InvalidInput("project must be a Project.", field="project")

    def _field_conditions(self) -> Iterator[tuple[str, str, Any]]:
        """Yield (field, comparison, value) for every condition on a field except the state."""
        if self.kinds is not None:
            yield "kind", "in", self.kinds
        if self.without_kinds:
            yield "kind", "not in", self.without_kinds
        if self.importance > 0:
            yield "importance", ">=", self.importance
        if self.credit > 0:
            yield "credit", ">=", self.credit
        if self.pinned is not None:
            yield "pinned", "==", self.pinned
        times = (
            ("happened", self.since, self.until),
            ("created", self.created_since, self.created_until),
        )
        for field, since, until in times:
            if since is not None:
                yield field, ">=", checks.time(since, "since")
            if until is not None:
                yield field, "<=", checks.end_time(until, "until")
        if self.speakers is not None:
            yield "speaker", "in", self.speakers
        if self.ids is not None:
            yield "id", "in", self.ids

    def _zone_offset(self, comparison: str) -> int:
        """Return the offset from UTC, in microseconds, of `since` (>=) or `until` (<=)."""
        at = self.since if comparison == ">=" else self.until
        zoned = datetime.fromisoformat(at) if isinstance(at, str) else at
        offset = None if zoned is None else zoned.utcoffset()
        return 0 if offset is None else offset // timedelta(microseconds=1)

    def _label_conditions(self) -> Iterator[tuple[list[str], bool]]:
        """Yield pairs of labels and a flag: whether a memory must have one of them, or none."""
        yield from (([f"tag:{tag}"], True) for tag in self.tags_all)
        if self.origin is not None:
            yield from (([label], True) for label in origin_labels(self.origin))
        if self.fields:
            yield from (([label], True) for label in field_labels(self.fields))
        if self.tags_any:
            yield [f"tag:{tag}" for tag in self.tags_any], True
        if self.tags_none:
            yield [f"tag:{tag}" for tag in self.tags_none], False
        if self.trust is not None:
            yield [f"trust:{trust}" for trust in TRUSTS[1:] if trust not in self.trust], False
            if TRUSTS[0] not in self.trust:
                yield [f"trust:{trust}" for trust in self.trust], True

    def mask(self, snapshot: Snapshot, connection: Rows, space: str) -> Flags:
        """Return a flag for each position of the index: whether its memory passes the filters."""
        import numpy as np

        from commonplace.storage.index import NEVER

        if set(self.states) == set(LIVE_STATES):
            mask = snapshot.live.copy()
        else:
            states = [STATES.index(state) for state in self.states]
            mask = snapshot.alive & np.isin(snapshot.state, states)
        for field, comparison, value in self._field_conditions():
            if field == "id":
                column, value = snapshot.num, _numbers_of_ids(connection, space, value)
            elif field == "happened":
                column = np.where(snapshot.occurred == NEVER, snapshot.created, snapshot.occurred)
                if offset := self._zone_offset(comparison):
                    column = np.where(column % _DAY == 0, column - offset, column)
            else:
                column = getattr(snapshot, field)
            if comparison == ">=" and column.dtype == np.float32:
                value = np.float32(value)  # The index holds 32-bit floats.
            if comparison in ("in", "not in"):
                if field in ("kind", "speaker"):
                    codes = getattr(snapshot, f"{field}s")
                    value = [codes[name] for name in value if name in codes]
                mask &= np.isin(column, value, invert=comparison == "not in")
            else:
                mask &= _COMPARE[comparison](column, value)
        if self.project is not None:
            mask &= snapshot.in_project(self.project.admits)
        # Most memories may have a label. If only a few memories are left, look up each of them
        # instead.
        left = snapshot.num[mask].tolist() if np.count_nonzero(mask) <= FEW_MEMORIES else None
        for labels, wanted in self._label_conditions():
            carriers = np.isin(snapshot.num, numbers_with_label(connection, space, labels, left))
            mask &= carriers if wanted else ~carriers
        return mask

    def admits(self, memory: Memory, speaker: str = "") -> bool:
        """Return whether a memory passes that may not be in the index, such as a former version."""
        if memory.state not in self.states:
            return False
        fields: dict[str, Any] = {
            "kind": memory.kind, "importance": memory.importance, "credit": memory.credit,
            "pinned": memory.pinned, "created": microseconds(memory.created_at),
            "happened": microseconds(memory.occurred_at or memory.created_at),
            "speaker": speaker, "id": memory.id,
        }  # fmt: skip
        for field, comparison, value in self._field_conditions():
            if comparison in ("in", "not in"):
                if (fields[field] in value) != (comparison == "in"):
                    return False
            else:
                held = fields[field]
                if field == "happened" and held % _DAY == 0:
                    held -= self._zone_offset(comparison)
                if not _COMPARE[comparison](held, value):
                    return False
        if self.project is not None and not self.project.admits(memory.tags):
            return False
        carried = {f"tag:{tag}" for tag in memory.tags}
        carried.update(origin_labels(memory.origin), trust_labels(memory.trust))
        carried.update(field_labels({name: getattr(memory, name) for name in FILTERABLE}))
        return all(
            carried.isdisjoint(labels) != wanted for labels, wanted in self._label_conditions()
        )


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip


def filters_of(filters: Filters | None, conditions: Mapping[str, Any]) -> Filters:
    """Return the filters combined with the conditions of a call."""
    if not isinstance(filters, Filters | None):
        raise InvalidInput(
            "filters must be Filters.",
            hint="Pass a Filters, or single conditions.",
            field="filters",
        )
    chosen = filters or _WITHOUT_CONDITIONS
    named = {name: value for name, value in conditions.items() if name in FILTERABLE}
    if named:
        having = {name: value for name, value in named.items() if value is not None}
        others = {name: value for name, value in conditions.items() if name not in named}
        conditions = {**others, "fields": {**chosen.fields, **having}}
    unknown = sorted(conditions.keys() - set(Filters.__slots__))
    if unknown:
        raise InvalidInput(
            f"There is no filter named {unknown[0]}.",
            hint=f"Allowed: {', '.join((*Filters.__slots__, *FILTERABLE))}.",
            field=unknown[0],
        )
    return replace(chosen, **conditions) if conditions else chosen


_WITHOUT_CONDITIONS = Filters()


@dataclass(slots=True)
class VisibleMemories:
    """The memories that pass the filters, now or as of a time in the past."""

    snapshot: Snapshot
    """The index as of that time."""
    mask: Flags
    """For each position of the index: whether its memory passes."""
    former: dict[int, Row]
    """By position, the former rows of memories that have changed since that time."""
    seq: int | None
    """With `as_of`, the last operation that is included; None for the present."""


def visible_memories(
    space: OpenSpace, connection: Rows, snapshot: Snapshot, filters: Filters, as_of: When | None
) -> VisibleMemories:
    """Return the memories that pass the filters; with `as_of`, as they were at that time."""
    if as_of is None:
        return VisibleMemories(snapshot, filters.mask(snapshot, connection, space.name), {}, None)
    from commonplace.engine.finding.past import snapshot_at  # This imports numpy.

    seq = timeline.seq_at(connection, space.name, as_of)
    former = timeline.replaced_since(connection, space.name, seq)
    said = timeline.messages_at(connection, space.name, [row["num"] for row, _ in former], seq)
    passing = [
        (row, vectors)
        for row, vectors in former
        if filters.admits(Memory.of(row), said[row["num"]]["speaker"] if row["num"] in said else "")
    ]
    then = snapshot_at(space, connection, snapshot, seq, passing, said)
    mask = filters.mask(then, connection, space.name)
    mask[snapshot.size :] = True
    rows = {at: row for at, (row, _) in enumerate(passing, start=snapshot.size)}
    return VisibleMemories(then, mask, rows, seq)


def numbers_with_label(
    connection: Rows,
    space: str,
    labels: Iterable[str],
    among: Sequence[int] | None = None,
) -> list[int]:
    """Return the numbers of the memories with one of the labels; with `among`, only from those."""
    found: list[int] = []
    for label in labels:
        if among is None:
            found += stored_labels.holders(connection, space, label)
        else:
            found += [n for n in among if stored_labels.has_label(connection, space, label, n)]
    return found


def _numbers_of_ids(connection: Rows, space: str, ids: Iterable[str]) -> list[int]:
    return [num for each in ids for num in memories.numbers_of_id(connection, space, each)]


def proximity_to_periods(snapshot: Snapshot, periods: Sequence[tuple[int, int]]) -> Floats:
    """Return the proximity of each memory to the nearest period, from 0 to 1.

    It is 1 within a period. Outside, it is at most 0.5, and halves with each day of distance, or
    with each half of the period's length if that is longer.
    """
    import numpy as np

    from commonplace.storage.index import NEVER

    day = 86_400_000_000
    happened = np.where(snapshot.occurred == NEVER, snapshot.created, snapshot.occurred)
    near: Floats = np.zeros(snapshot.size, np.float32)
    for start, end in periods:
        away = np.maximum(np.maximum(start - happened, happened - (end - 1)), 0)
        outside = np.exp2(-away / max(day, (end - start) / 2)) / 2
        near = np.maximum(near, np.where(away > 0, outside, 1)).astype(np.float32)
    return near
