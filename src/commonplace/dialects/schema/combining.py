"""What several schemas say together, and what a list of values says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from commonplace.dialects.schema import equality, soundness, wording
from commonplace.dialects.schema.nodes import Node, Wrong, anything


def all_of(parts: Sequence[Node]) -> Node:
    telling = [part for part in parts if part.check is not anything]
    if len(telling) < 2:
        return telling[0] if telling else Node()
    first, *rest = [part.check for part in telling]

    def check(value: Any) -> Any:
        checked = first(value)
        for other in rest:
            checked = _joined(checked, other(value))
        return checked

    allowed = list(dict.fromkeys(part.allowed for part in telling if part.allowed))
    return Node(
        wording.capped(" and ".join(allowed)),
        frozenset.intersection(*(p.types for p in telling)),
        check,
    )


def any_of(branches: Sequence[Node]) -> Node:
    def check(value: Any) -> Any:
        failed: list[Wrong] = []
        for branch in branches:
            if type(value) in branch.types:
                try:
                    return branch.check(value)
                except Wrong as wrong:
                    failed.append(wrong)
        raise _fits_no_branch(value, branches, failed)

    return Node(_one_or_other(branches), _types_of_any(branches), check)


def one_of(branches: Sequence[Node]) -> Node:
    def check(value: Any) -> Any:
        fitting: list[Any] = []
        failed: list[Wrong] = []
        for branch in branches:
            if type(value) in branch.types:
                try:
                    fitting.append(branch.check(value))
                except Wrong as wrong:
                    failed.append(wrong)
        if not fitting:
            raise _fits_no_branch(value, branches, failed)
        if len(fitting) > 1:
            raise Wrong(
                f"must be only one of {_one_or_other(branches) or 'several forms'}; "
                f"{wording.shown(value)} is {len(fitting)} of them"
            )
        return fitting[0]

    return Node(_one_or_other(branches), _types_of_any(branches), check)


def _types_of_any(branches: Sequence[Node]) -> frozenset[type]:
    return frozenset().union(*(branch.types for branch in branches))


def none_of(excluded: Node) -> Node:
    def check(value: Any) -> Any:
        try:
            excluded.check(value)
        except Wrong:
            return value
        raise Wrong(
            f"must not be {excluded.allowed}, as {wording.shown(value)} is"
            if excluded.allowed
            else f"must not be {wording.shown(value)}"
        )

    return Node(f"anything but {excluded.allowed}" if excluded.allowed else "", check=check)


COMBINATIONS: dict[str, Callable[[Sequence[Node]], Node]] = {
    "allOf": all_of,
    "anyOf": any_of,
    "oneOf": one_of,
}


def _fits_no_branch(value: Any, branches: Sequence[Node], failed: Sequence[Wrong]) -> Wrong:
    """What the only branch for this type of value said, or else what all of them allow."""
    if len(failed) == 1:
        return failed[0]
    allowed = _one_or_other(branches)
    return Wrong(
        f"must be {allowed}, not {wording.shown(value)}"
        if allowed
        else f"has none of the forms that are allowed: {wording.shown(value)}"
    )


def _one_or_other(branches: Sequence[Node]) -> str:
    allowed = list(dict.fromkeys(branch.allowed for branch in branches if branch.types))
    return wording.capped(wording.either(allowed)) if all(allowed) else ""


def _joined(one: Any, other: Any) -> Any:
    """Two results of checking the same value: they differ only in defaults and whole numbers."""
    if one is other:
        return one
    if type(one) is dict:
        return {
            name: _joined(one[name], other[name])
            if name in one and name in other
            else (one if name in one else other)[name]
            for name in one | other
        }
    if type(one) is list:
        return [_joined(*pair) for pair in zip(one, other, strict=True)]
    return other if type(other) is int else one


def one_of_values(values: Any, where: str) -> Node:
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{where}: 'enum' must be a list of at least one value.")
    for value in values:
        try:
            soundness.refuse_unsound(value, 1)
        except Wrong as wrong:
            raise ValueError(f"{where}: a value in 'enum' or 'const' {wrong.says}.") from None
    allowed = wording.either([wording.shown(value) for value in values])
    if len(values) > 1:
        allowed = f"one of {allowed}"
    members = frozenset(map(equality.identity, values))
    names = [value for value in values if type(value) is str]
    types = {int if type(value) is float else type(value) for value in values}
    types |= {float} if int in types else set()

    def refuse(value: Any) -> Wrong:
        meant = wording.meant(value, names) if type(value) is str else ""
        return Wrong(f"must be {allowed}, not {wording.shown(value)}{meant}")

    def check(value: Any) -> Any:
        if equality.identity(value) not in members:
            raise refuse(value)
        return value

    known = frozenset(names)

    def check_name(value: Any) -> Any:
        if type(value) is not str or value not in known:
            raise refuse(value)
        return value

    return Node(wording.capped(allowed), frozenset(types), check_name if types == {str} else check)
