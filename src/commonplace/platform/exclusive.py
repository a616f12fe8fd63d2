"""A unit of work in which nobody else writes between a read and the write that depends on it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

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


def after_commit(memory: Commonplace, act: Callable[[], None]) -> None:
    """Call a function once the open unit is stored, or at once if none is open."""
    with memory.library.lease(memory.name) as space:
        space.store.after_commit(act)


class HasMemory(Protocol):
    """A call, which has the caller's memory."""

    @property
    def memory(self) -> Commonplace:
        """The memory that the call reads and writes."""


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=HasMemory)


def exclusively(function: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Decorate a function of a call that reads and then writes: it runs in `exclusive`."""

    @functools.wraps(function)
    def run(call: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with exclusive(call.memory, function.__name__):
            return function(call, *args, **kwargs)

    return run
