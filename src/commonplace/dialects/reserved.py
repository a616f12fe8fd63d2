"""The kinds of memories that only their own dialect may write; other dialects can find them.

The contracts' public kinds (`decision`, `entity`, `checkpoint`, `scene` …) are shared and not
reserved. A dialect declares `RESERVED` in its package and not in the module `dialect`, so that a
server of one dialect can enforce the reservations of all others without loading these.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from commonplace.dialects import registry
from commonplace.engine.content.write_policy import RECORD_STATE, Reservation
from commonplace.engine.model import LIVE_STATES, Memory

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

PAGE = 1_000


@functools.cache
def reservations_of_others(dialect: str) -> tuple[Reservation, ...]:
    """Return the reservations of all other dialects."""
    return tuple(each for name, each in registry.reservations().items() if name != dialect)


def unreadable_memories(memory: Commonplace) -> Iterator[tuple[Memory, str]]:
    """Yield memories whose attrs are invalid for their reserved kind, with the dialect's name."""
    for each in registry.reservations().values():
        for kinds, states in ((each.shapes, LIVE_STATES), (each.records, (RECORD_STATE,))):
            offset, total = 0, 1 if kinds else 0
            while offset < total:
                page, total = memory.browse(
                    kinds=list(kinds), states=states, order="oldest", limit=PAGE, offset=offset
                )
                for one in page:
                    if each.is_unreadable(one.kind, one.state, one.attrs):
                        yield one, each.owner
                offset += PAGE
