"""Transactions that hold the write lock from the first read to the dependent write."""

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
    """Hold the write lock from the start of the block, so that rows read in it cannot change.

    An outer unit takes the lock at its first write; a nested unit takes it at once.
    """
    with memory.unit(name, origin), memory.unit(name, origin):
        yield


def after_commit(memory: Commonplace, act: Callable[[], None]) -> None:
    """Call a function after the open transaction commits, or at once if none is open."""
    with memory.library.lease(memory.name) as space:
        space.store.after_commit(act)


class HasMemory(Protocol):
    """A call of an operation, with the caller's memory."""

    @property
    def memory(self) -> Commonplace:
        """The memory that the call reads and writes."""


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=HasMemory)


def exclusively(function: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Decorate a function that reads and then writes: run it inside `exclusive`."""

    @functools.wraps(function)
    def run(call: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with exclusive(call.memory, function.__name__):
            return function(call, *args, **kwargs)

    return run
