"""Find, store, archive and score the memories of this dialect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from commonplace.dialects.clawbrain import locations
from commonplace.dialects.clawbrain.locations import ARCHIVE, KINDS, Location
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Memory, Origin
from commonplace.errors import NotFound
from commonplace.platform import lookup
from commonplace.storage.database import now

INITIAL_CREDIT = 0.5
LIFECYCLE_EVENT = "lifecycle"


def find(memory: Commonplace, identity: str) -> Memory:
    """Return the live memory with this id, of any dialect."""
    found = lookup.find_live_memory(memory, identity)
    if found is not None:
        return found
    raise NotFound(
        f"There is no memory {ascii(identity)[1:-1][:80]}.",
        hint="Use memory_search to find the id.", field="id",
    )  # fmt: skip


def find_at(memory: Commonplace, location: Location) -> Memory | None:
    """Return the live memory at a location.

    A memory that has the id but was given another kind is not at the location.
    """
    found = lookup.find_live_memory(memory, location.id)
    return found if found is not None and locations.of_memory(found) == location else None


def live_memories(memory: Commonplace, kinds: Iterable[str] = KINDS) -> list[Memory]:
    """Return all live memories of this dialect, oldest first."""
    found = lookup.all_memories(memory, order="oldest", kinds=list(kinds))
    return [one for one in found if locations.of_memory(one) is not None]


def public_id(memory: Memory) -> str:
    """Return the contract's id of a memory, or the UUID for a memory of another dialect."""
    location = locations.of_memory(memory)
    return memory.id if location is None else location.id


def new_attrs(location: Location, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the attributes of a new memory. Without `updated`, it is the time of creation."""
    return {
        "category": location.category, "name": location.name, "credited": now(), **(more or {})
    }  # fmt: skip


def store(
    memory: Commonplace,
    location: Location,
    content: str,
    *,
    tags: Iterable[str] = (),
    score: float = INITIAL_CREDIT,
    trust: str = "inferred",
    more: Mapping[str, Any] | None = None,
    **details: Any,
) -> Memory:
    """Store a new memory at an unused location."""
    release_id(memory, location, details.get("origin"))
    return memory.remember(
        content, kind=location.kind, title=location.name, tags=list(tags), ref=location.id,
        credit=score, trust=trust, attrs=new_attrs(location, more), **details,
    )  # fmt: skip


def release_id(memory: Commonplace, location: Location, origin: Origin | None = None) -> None:
    """Remove the ref from a memory that is not at the location, so that a new one can use it.

    Such a memory was archived, or got another kind.
    """
    former = lookup.find_memory(memory, location.id)
    if former is not None and find_at(memory, location) is None:
        memory.revise(former.id, ref=None, origin=origin)


def unused_archive_path(location: Location, used: Collection[str]) -> str:
    """Return the archive path of a file; it has a timestamp if the plain path is in use."""
    path = ARCHIVE + location.path
    if path not in used:
        return path
    stem = path.removesuffix(".md")[:200].rstrip("-")
    return f"{stem}-{datetime.now(UTC):%Y%m%dt%H%M%S%f}.md"


def archive_changes(memory: Memory, *, path: str, missing: bool = False) -> dict[str, Any]:
    """Return the changes that archive a memory and free its id."""
    attrs = {**memory.attrs, "archived_as": path}
    if missing:
        attrs["missing"] = True
    return {"state": "archived", "ref": None, "attrs": attrs}


def archive(
    memory: Commonplace,
    one: Memory,
    used: set[str],
    *,
    missing: bool = False,
    origin: Origin | None = None,
) -> str:
    """Archive a memory; return the new path of its file."""
    location = locations.of_memory(one)
    assert location is not None
    path = unused_archive_path(location, used)
    used.add(path)
    memory.revise(one.id, origin=origin, **archive_changes(one, path=path, missing=missing))
    return path


def set_credit(memory: Commonplace, one: Memory, score: float, **changes: Any) -> Memory:
    """Set the credit of a memory; the decay starts now."""
    attrs = {**one.attrs, "credited": now(), **changes.pop("attrs", {})}
    return memory.revise(one.id, credit=min(1.0, max(0.0, score)), attrs=attrs, **changes)


def log_action(memory: Commonplace, action: str, targets: Iterable[str], details: str) -> None:
    """Record a consolidation, promotion, pruning or decay as an event."""
    memory.events.record(LIFECYCLE_EVENT, action, {"targets": list(targets), "details": details})


def last_time(memory: Commonplace, action: str, kind: str = LIFECYCLE_EVENT) -> datetime | None:
    """Return the time at which an action was last recorded, or None."""
    found = memory.events.all(kind=kind, subject=action, newest=True, limit=1)
    return found[0].at if found else None
