"""A unit of work in which nobody else writes between a read and the write that depends on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.model import Origin


@contextlib.contextmanager
def exclusive(memory: Commonplace, name: str, origin: Origin | None = None) -> Iterator[None]:
    """Hold the write lock from the start of the block, so that what is read cannot change.

    A unit takes the lock with its first write; a unit inside another takes it at once.
    """
    with memory.unit(name, origin), memory.unit(name, origin):
        yield
