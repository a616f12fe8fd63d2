"""Memories of this dialect as its contract knows them: found, scored, stored, archived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from commonplace.dialects.clawbrain import documents, mirror, places
from commonplace.dialects.clawbrain.places import KINDS, Place
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import credit
from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import NotFound
from commonplace.platform import lookup
from commonplace.storage.database import now

INITIAL = 0.5
LIFECYCLE = "lifecycle"


def find(memory: Commonplace, identity: str) -> Memory:
    """Any live memory of the space by its id."""
    found = lookup.find_live(memory, identity)
    if found is not None:
        return found
    raise NotFound(
        f"There is no memory {ascii(identity)[1:-1][:80]}.", hint="Use memory_search to find it.",
        field="id",
    )  # fmt: skip


def live(memory: Commonplace, kinds: Iterable[str] = KINDS) -> list[Memory]:
    """All live memories of this dialect, oldest first."""
    found = lookup.every(memory, order="oldest", kinds=list(kinds))
    return [one for one in found if places.of_memory(one) is not None]


def identity(memory: Memory) -> str:
    """The id that this dialect shows: its own, or for another's memory the UUID."""
    place = places.of_memory(memory)
    return memory.id if place is None else place.id


def attrs(place: Place, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The attrs of a new memory."""
    at = documents.stamp(datetime.now(UTC))
    return {
        "category": place.category, "name": place.name, "updated": at, "credited": now(),
        **(more or {}),
    }  # fmt: skip


def store(
    memory: Commonplace,
    place: Place,
    content: str,
    *,
    tags: Iterable[str] = (),
    score: float = INITIAL,
    trust: str = "inferred",
    more: Mapping[str, Any] | None = None,
    **details: Any,
) -> Memory:
    """Store a new memory at a place that is not in use."""
    former = lookup.find(memory, place.id)
    if former is not None and former.state not in LIVE_STATES:
        memory.revise(former.id, ref=None)  # another dialect archived it without releasing its id
    return memory.remember(
        content, kind=place.kind, title=place.name, tags=list(tags), ref=place.id,
        credit=score, trust=trust, attrs=attrs(place, more), **details,
    )  # fmt: skip


def archive(memory: Commonplace, one: Memory, taken: set[str]) -> str:
    """Archive a memory; return the new path of its file."""
    place = places.of_memory(one)
    assert place is not None
    path = mirror.free_archive_path(place, taken)
    taken.add(path)
    memory.revise(one.id, **mirror.archived(one, path=path))
    return path


def rescore(memory: Commonplace, one: Memory, score: float, **changes: Any) -> Memory:
    """Set a memory's credit; its decay starts again from now."""
    kept = {**one.attrs, "credited": now(), **changes.pop("attrs", {})}
    return memory.revise(one.id, credit=min(1.0, max(0.0, score)), attrs=kept, **changes)


def log(memory: Commonplace, action: str, targets: Iterable[str], details: str) -> None:
    """Log what a step of the life cycle did."""
    memory.events.record(LIFECYCLE, action, {"targets": list(targets), "details": details})


def last(memory: Commonplace, action: str) -> str | None:
    """When a step of the life cycle last ran."""
    found = memory.events.all(kind=LIFECYCLE, subject=action, newest=True, limit=1)
    return documents.stamp(found[0].at) if found else None


def score(one: Memory, by: credit.Rule) -> float:
    """A memory's credit after decay until today."""
    return credit.credit_of(one, by)
