"""Calling functions of the engine, which take the open space as their first argument.

`method` makes such a function a public method of `Commonplace` or of one of its parts. Code within
the project that needs a function which is not public, such as a dialect, uses `engine_call`, or
`lease` for several calls on the same open space.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from commonplace.engine import checks

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.library import OpenSpace

P = ParamSpec("P")
R = TypeVar("R")


@dataclasses.dataclass(eq=False, repr=False)
class Part:
    """A memory, or one part of its methods, such as those for links."""

    _memory: Commonplace


def lease(memory: Commonplace) -> AbstractContextManager[OpenSpace]:
    """Open the memory's space unless it is open already; it stays open while the block runs."""
    return memory.library.lease(memory.name)


def engine_call(
    memory: Commonplace,
    function: Callable[Concatenate[OpenSpace, P], R],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Call a function of the engine on a memory's open space."""
    with memory.library.lease(memory.name) as space:
        return function(space, *args, **kwargs)


def method(function: Callable[Concatenate[OpenSpace, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Make a method of a function of the engine.

    If the function has a parameter `origin`, its default is the memory's origin. The memory's
    project labels what is stored, and limits what is found.
    """
    takes = getattr(function, "__kwdefaults__", None) or ()
    writes, finds, labels = "origin" in takes, "filters" in takes, "project" in takes

    @wraps(function)
    def bound(part: Part, /, *args: P.args, **kwargs: P.kwargs) -> R:
        memory = part._memory
        if writes:
            given = kwargs.get("origin")
            kwargs["origin"] = memory.origin if given is None else checks.origin(given)
        if memory.project is not None and (labels or finds):
            within(memory, kwargs)
        with memory.library.lease(memory.name) as space:
            return function(space, *args, **kwargs)

    return bound


def within(memory: Commonplace, given: dict[str, Any]) -> None:
    """Add the memory's project to a call's arguments, unless they name one."""
    filters = given.get("filters")
    if given.get("project") is None and (filters is None or filters.project is None):
        given["project"] = memory.project


def named(fields: type, defaults: type | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Show the fields that a function takes as keywords, for help() and interactive completion.

    `fields` is the TypedDict of its `**` parameter; `defaults` a dataclass with the defaults.
    A field without a default is shown with `...`: if it is left out, it is not changed.
    """
    usual = {} if defaults is None else {
        each.name: each.default
        for each in dataclasses.fields(defaults)
        if each.default is not dataclasses.MISSING
    }  # fmt: skip

    def shown(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=getattr(hint, "__forward_arg__", hint),
                default=usual.get(name, ...),
            )
            for name, hint in fields.__annotations__.items()
            if name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return shown
