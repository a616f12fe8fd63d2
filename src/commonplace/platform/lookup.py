"""Reads single memories of a space without counting the access."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import NotFound

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.finding.filters import Filters

PAGE_MEMORIES = 1_000


def find_memory(memory: Commonplace, identity: str) -> Memory | None:
    """Return the memory of an id or ref, in any state; None if there is none."""
    try:
        return memory.get(identity, count=False)
    except NotFound:
        return None


def find_live_memory(memory: Commonplace, identity: str) -> Memory | None:
    """Return the live memory of an id or ref; None if there is none."""
    found = find_memory(memory, identity)
    return found if found is not None and found.state in LIVE_STATES else None


def all_memories(
    memory: Commonplace,
    filters: Filters | None = None,
    order: str = "newest",
    *,
    page: int = PAGE_MEMORIES,
    **conditions: Any,
) -> Iterator[Memory]:
    """Yield all memories that match the filters, reading them in pages."""
    offset, total = 0, 1
    while offset < total:
        found, total = memory.browse(
            filters=filters, order=order, limit=page, offset=offset, **conditions
        )
        yield from found
        offset += page
