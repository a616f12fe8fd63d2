"""What a compiled schema is made of: nodes, and what one says of a value that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

Check = Callable[[Any], Any]

TYPES: dict[str, frozenset[type]] = {
    "string": frozenset({str}),
    "integer": frozenset({int, float}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "null": frozenset({NoneType}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
}
ALL_TYPES: frozenset[type] = frozenset({str, int, float, bool, NoneType, list, dict})


class Wrong(Exception):
    """What is wrong, as the rest of a sentence, and where: the path is filled in on the way out."""

    def __init__(self, says: str, *path: str | int) -> None:
        super().__init__(says)
        self.says = says
        self.path = [*path]


def anything(value: Any) -> Any:
    return value


class Node:
    """A compiled schema: the check, the types that can pass, and what is allowed, in words."""

    __slots__ = ("allowed", "check", "types")

    def __init__(
        self, allowed: str = "", types: frozenset[type] = ALL_TYPES, check: Check = anything
    ) -> None:
        self.allowed = allowed
        self.types = types
        self.check = check


def nothing(value: Any) -> Any:
    del value
    raise Wrong("is not allowed here")
