"""A look and what is written after it, with nobody else's write between them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.model import Origin


@contextlib.contextmanager
def holding(memory: Commonplace, name: str, origin: Origin | None = None) -> Iterator[None]:
    """A unit in which nobody else writes between a look and what is written after it.

    A unit takes its turn with its first write; what opens within one, at once.
    """
    with memory.unit(name, origin), memory.unit(name, origin):
        yield
