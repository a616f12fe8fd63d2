"""When JSON calls two values equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def identity(value: Any) -> Any:
    """Equal for values that JSON calls equal: 1 and 1.0 are, 1 and true are not."""
    kind = type(value)
    if kind is bool:
        return (bool, value)
    if kind is list:
        return (list, tuple(map(identity, value)))
    if kind is dict:
        return (dict, frozenset((name, identity(item)) for name, item in value.items()))
    return value


def repeated(items: Sequence[Any]) -> int | None:
    seen: set[Any] = set()
    for at, item in enumerate(items):
        if (known := identity(item)) in seen:
            return at
        seen.add(known)
    return None
