"""Counts of a whole space by kind, state and day, from the index, without reading rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from commonplace.engine.content.projects import PROJECT
from commonplace.engine.finding.filters import Filters, visible_memories
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import LIVE_STATES, When
from commonplace.storage import labels
from commonplace.storage.fields import STATES

DAYS = 84
"""The number of days in the counts by day, up to today."""
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of memories in a space; only live memories, unless a field says otherwise."""

    total: int
    kinds: Mapping[str, int]
    states: Mapping[str, int]
    """All memories, by state."""
    pinned: int
    days: Mapping[date, int]
    """How many were stored on each of the last `DAYS` days."""
    clients: Mapping[str, int]
    """By the client that stored them; always the present counts, also with `as_of`."""
    trusts: Mapping[str, int]
    """By trust; always the present counts, also with `as_of`."""
    projects: Mapping[str, int]
    """By project, the largest first; always the present counts, also with `as_of`."""


def summary(space: OpenSpace, *, as_of: When | None = None) -> Summary:
    """Return the counts for now; with `as_of`, for that time."""
    import numpy as np

    everything = Filters(states=STATES)
    with space.view() as (connection, snapshot):
        seen = visible_memories(space, connection, snapshot, everything, as_of)
        then, at = seen.snapshot, np.flatnonzero(seen.mask)
        states = np.bincount(then.state[at], minlength=len(STATES)).tolist()
        live = at[np.isin(then.state[at], [STATES.index(state) for state in LIVE_STATES])]
        counted = np.bincount(then.kind[live], minlength=1).tolist()
        kinds = {name: counted[code] for name, code in then.kinds.items() if code < len(counted)}
        today = datetime.now(UTC).date()
        first = today - timedelta(days=DAYS - 1)
        number = then.created[live] // _DAY - (first - date(1970, 1, 1)).days
        days = np.bincount(number[(number >= 0) & (number < DAYS)], minlength=DAYS).tolist()
        clients = labels.label_values(connection, space.name, "client", LIVE_STATES)
        projects = labels.label_values(connection, space.name, f"tag:{PROJECT[:-1]}", LIVE_STATES)
        trusts = {name: many for name, many, _ in
                  labels.label_values(connection, space.name, "trust", LIVE_STATES)}  # fmt: skip
    return Summary(
        total=len(live),
        kinds=_most_first({name: many for name, many in kinds.items() if many}),
        states={name: many for name, many in zip(STATES, states, strict=True) if many},
        pinned=int(then.pinned[live].sum()),
        days={first + timedelta(days=day): many for day, many in enumerate(days)},
        clients={name: many for name, many, _ in clients},
        trusts={"stated": int(snapshot.live.sum()) - sum(trusts.values()), **trusts},
        projects={name: many for name, many, _ in projects},
    )


def _most_first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
