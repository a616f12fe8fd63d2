"""Call functions of the engine, which take the open space as their first argument.

`method` turns such a function into a public method of `Commonplace` or of one of its parts. Other
code of the project, such as a dialect, calls functions that are not public with `engine_call`, or
with `lease` for several calls on the same open space.
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
    """A `Commonplace`, or a group of its methods, such as those for links."""

    _memory: Commonplace


def lease(memory: Commonplace) -> AbstractContextManager[OpenSpace]:
    """Open the memory's space unless it is open already, and keep it open during the block."""
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
    """Turn a function of the engine into a method.

    If the function has a parameter `origin`, its default is the memory's origin. The memory's
    project labels new memories and limits searches.
    """
    takes = getattr(function, "__kwdefaults__", None) or ()
    writes, finds, labels = "origin" in takes, "filters" in takes, "project" in takes

    @wraps(function)
    def call_on_space(part: Part, /, *args: P.args, **kwargs: P.kwargs) -> R:
        memory = part._memory
        if writes:
            given = kwargs.get("origin")
            kwargs["origin"] = memory.origin if given is None else checks.origin(given)
        if memory.project is not None and (labels or finds):
            add_project(memory, kwargs)
        with memory.library.lease(memory.name) as space:
            return function(space, *args, **kwargs)

    return call_on_space


def add_project(memory: Commonplace, given: dict[str, Any]) -> None:
    """Add the memory's project to the arguments of a call, unless they name a project."""
    filters = given.get("filters")
    if given.get("project") is None and (filters is None or filters.project is None):
        given["project"] = memory.project


def keyword_fields(
    fields: type, defaults: type | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add the keyword fields of a function to its signature, for help() and interactive completion.

    `fields` is the TypedDict of its `**` parameter; `defaults` is a dataclass with the defaults. A
    field without a default is shown with `...`; a call that leaves it out does not change it.
    """
    usual = {} if defaults is None else {
        each.name: each.default
        for each in dataclasses.fields(defaults)
        if each.default is not dataclasses.MISSING
    }  # fmt: skip

    def add_to_signature(function: Callable[P, R]) -> Callable[P, R]:
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

    return add_to_signature
