"""Which memories a search may see: decided before anything is ranked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from commonplace.engine import checks
from commonplace.engine.model import (
    LIVE_STATES,
    NOBODY,
    TRUSTS,
    Memory,
    Origin,
    microseconds,
)
from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    import apsw

    from commonplace.storage.index import Flags, Snapshot

_OR_NONE = ("kinds", "trust", "speakers", "ids")
_STATES = ("active", "dying", "archived", "superseded", "dead")
FEW = 64
"""Memories that are asked one by one whether they carry a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Every given condition must hold; without any, all live memories pass."""

    kinds: Collection[str] | None = None
    without_kinds: Collection[str] = ()
    tags_any: Collection[str] = ()
    tags_all: Collection[str] = ()
    tags_none: Collection[str] = ()
    states: Collection[str] = LIVE_STATES
    since: datetime | str | None = None
    until: datetime | str | None = None
    """Dates go by when a thing happened, or by when it was stored if that is not known."""
    created_since: datetime | str | None = None
    created_until: datetime | str | None = None
    importance: float = 0.0
    credit: float = 0.0
    pinned: bool | None = None
    origin: Origin | None = None
    """Each part that is given must be equal."""
    trust: Collection[str] | None = None
    speakers: Collection[str] | None = None
    ids: Collection[str] | None = None

    def __post_init__(self) -> None:
        for field in ("kinds", "without_kinds", "tags_any", "tags_all", "tags_none",
                      "states", "trust", "speakers", "ids"):  # fmt: skip
            value = getattr(self, field)
            if value is None and field in _OR_NONE:
                continue
            if not isinstance(value, Collection):  # it is gone through more than once
                raise InvalidInput(f"{field} must be a list of texts.", field=field)
            for item in checks.listed(value, field):
                checks.optional(item, field)
        for state in self.states:
            checks.one_of(state, "states", _STATES)
        for trust in self.trust or ():
            checks.one_of(trust, "trust", TRUSTS)
        checks.share(self.importance, "importance")
        checks.share(self.credit, "credit")
        if self.pinned is not None:
            checks.flag(self.pinned, "pinned")
        if self.origin is not None:
            checks.origin(self.origin)
        for field in ("since", "until", "created_since", "created_until"):
            checks.when(getattr(self, field), field)

    def labels(self) -> tuple[list[str], list[str]]:
        """(labels that all must be there, labels of which one must be)."""
        every = [f"tag:{tag}" for tag in self.tags_all]
        if self.origin is not None:
            every += origin_labels(self.origin)
        return every, [f"tag:{tag}" for tag in self.tags_any]

    def mask(self, snapshot: Snapshot, connection: apsw.Connection, space: str) -> Flags:
        """Which positions pass."""
        import numpy as np

        from commonplace.storage.index import NEVER, STATES

        if set(self.states) == set(LIVE_STATES):
            mask = snapshot.live.copy()
        else:
            states = [STATES.index(state) for state in self.states]
            mask = snapshot.alive & np.isin(snapshot.state, states)
        if self.kinds is not None:
            codes = [snapshot.kinds[kind] for kind in self.kinds if kind in snapshot.kinds]
            mask &= np.isin(snapshot.kind, codes)
        if self.without_kinds:
            codes = [snapshot.kinds[kind] for kind in self.without_kinds if kind in snapshot.kinds]
            mask &= ~np.isin(snapshot.kind, codes)
        if self.importance > 0:
            mask &= snapshot.importance >= np.float32(self.importance)
        if self.credit > 0:
            mask &= snapshot.credit >= np.float32(self.credit)
        if self.pinned is not None:
            mask &= snapshot.pinned == self.pinned
        if self.since is not None or self.until is not None:
            happened = np.where(snapshot.occurred == NEVER, snapshot.created, snapshot.occurred)
            mask &= _between(happened, self.since, self.until)
        if self.created_since is not None or self.created_until is not None:
            mask &= _between(snapshot.created, self.created_since, self.created_until)
        if self.speakers is not None:
            codes = [snapshot.speakers[name] for name in self.speakers if name in snapshot.speakers]
            mask &= np.isin(snapshot.speaker, codes)
        # A label may be on most of a space: of the few that are left each is asked for it instead.
        left = snapshot.num[mask].tolist() if np.count_nonzero(mask) <= FEW else None

        def carriers(*labels: str) -> Flags:
            found: Flags = np.isin(snapshot.num, labelled(connection, space, labels, left))
            return found

        every, some = self.labels()
        for label in every:
            mask &= carriers(label)
        if some:
            mask &= carriers(*some)
        if self.tags_none:
            mask &= ~carriers(*(f"tag:{tag}" for tag in self.tags_none))
        if self.trust is not None:
            unwanted = [f"trust:{trust}" for trust in TRUSTS[1:] if trust not in self.trust]
            mask &= ~carriers(*unwanted)
            if TRUSTS[0] not in self.trust:
                mask &= carriers(*(f"trust:{trust}" for trust in self.trust))
        if self.ids is not None:
            mask &= np.isin(snapshot.num, _numbered(connection, space, self.ids))
        return mask

    def admits(self, memory: Memory, speaker: str = "") -> bool:
        """The same decision for one memory at hand, such as a former version."""
        happened = memory.occurred_at or memory.created_at
        wanted = self.origin.as_dict() if self.origin else {}
        have = memory.origin.as_dict()
        tags = set(memory.tags)
        return (
            memory.state in self.states
            and (self.kinds is None or memory.kind in self.kinds)
            and memory.kind not in self.without_kinds
            and memory.importance >= self.importance
            and memory.credit >= self.credit
            and (self.pinned is None or memory.pinned == self.pinned)
            and _within(happened, self.since, self.until)
            and _within(memory.created_at, self.created_since, self.created_until)
            and tags.issuperset(self.tags_all)
            and (not self.tags_any or not tags.isdisjoint(self.tags_any))
            and tags.isdisjoint(self.tags_none)
            and all(have.get(part) == value for part, value in wanted.items())
            and (self.trust is None or memory.trust in self.trust)
            and (self.speakers is None or speaker in self.speakers)
            and (self.ids is None or memory.id in self.ids)
        )


def origin_labels(origin: Origin) -> list[str]:
    """An origin's known parts as labels."""
    if origin is NOBODY:
        return []
    return [f"{part}:{value}" for part, value in origin.as_dict().items()]


def trust_labels(trust: str) -> list[str]:
    """A label for any trust but the usual one, which goes without saying."""
    return [] if trust == TRUSTS[0] else [f"trust:{trust}"]


def labelled(
    connection: apsw.Connection,
    space: str,
    labels: Iterable[str],
    among: Sequence[int] | None = None,
) -> list[int]:
    """The numbers of the memories, or of some of them, that carry one of the labels."""
    found: list[int] = []
    every = "SELECT memory FROM labels WHERE space = ? AND label = ?"
    for label in labels:
        if among is None:
            found += [row[0] for row in connection.execute(every, (space, label))]
            continue
        for num in among:
            rows = connection.execute(f"{every} AND memory = ?", (space, label, num))
            found += [row[0] for row in rows]
    return found


def _numbered(connection: apsw.Connection, space: str, ids: Iterable[str]) -> list[int]:
    found: list[int] = []
    for identity in ids:
        found += [
            row[0]
            for row in connection.execute(
                "SELECT num FROM memories WHERE space = ? AND id = ?", (space, identity)
            )
        ]
    return found


def _between(at: object, since: object, until: object) -> Flags:
    import numpy as np

    times = np.asarray(at)
    start, end = checks.when(since, "since"), checks.until(until, "until")
    flags: Flags = np.ones(times.shape, np.bool_)
    if start is not None:
        flags &= times >= start
    if end is not None:
        flags &= times <= end
    return flags


def _within(at: datetime, since: object, until: object) -> bool:
    start, end = checks.when(since, "since"), checks.until(until, "until")
    value = microseconds(at)
    return (start is None or value >= start) and (end is None or value <= end)
