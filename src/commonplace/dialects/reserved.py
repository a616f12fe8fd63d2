"""What each dialect reserves: memories that others may find, but neither write nor forge.

The contracts' public kinds (`decision`, `entity`, `checkpoint`, `scene` …) are not here: they are
shared. A dialect's package has them as `RESERVED`, apart from its `dialect` module: a server of one
dialect enforces those of all others, and does not load these.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from commonplace.dialects import registry
from commonplace.engine.content.reserved import NEVER_LIVE, Reserved
from commonplace.engine.model import LIVE_STATES, Memory

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

PAGE = 1_000


@functools.cache
def by_others(dialect: str) -> tuple[Reserved, ...]:
    """What the code of a dialect must not write."""
    return tuple(each for name, each in registry.reserved().items() if name != dialect)


def unreadable(memory: Commonplace) -> Iterator[tuple[Memory, str]]:
    """Memories that their dialect skips since it cannot read them, and the dialect."""
    for each in registry.reserved().values():
        for kinds, states in ((each.shapes, LIVE_STATES), (each.records, (NEVER_LIVE,))):
            offset, total = 0, 1 if kinds else 0
            while offset < total:
                page, total = memory.browse(
                    kinds=list(kinds), states=states, order="oldest", limit=PAGE, offset=offset
                )
                for one in page:
                    if each.unreadable(one.kind, one.state, one.attrs):
                        yield one, each.owner
                offset += PAGE
