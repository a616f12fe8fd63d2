"""The keywords of a schema: which are understood, what each must be, and what it says in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import inf, isfinite
from typing import Any

from commonplace.dialects.schema import combining, wording
from commonplace.dialects.schema.nodes import TYPES

ANNOTATIONS = frozenset({"title", "description", "examples", "default"})
KEYWORDS = ANNOTATIONS | {
    *("type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf", "not"),
    *("properties", "required", "additionalProperties"),
    *("items", "minItems", "maxItems", "uniqueItems"),
    *("minLength", "maxLength", "pattern", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{where}: must be an object, not {wording.shown(value)}.")
    return value


def schemas(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{where}: must be a list of at least one schema.")
    return value


def names(value: Any, where: str) -> Sequence[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{where}: must be a list of names.")
    return value


def flag(schema: Mapping[str, Any], keyword: str, where: str) -> bool:
    value = schema.get(keyword, False)
    if not isinstance(value, bool):
        raise ValueError(f"{where}: {keyword!r} must be true or false.")
    return value


def kinds(schema: Mapping[str, Any], where: str) -> Sequence[str]:
    said = schema.get("type", list(TYPES))
    given = [said] if isinstance(said, str) else said
    if not isinstance(given, list | tuple) or not given:
        raise ValueError(f"{where}: 'type' must be a name or a list of names.")
    if unknown := [kind for kind in given if not isinstance(kind, str) or kind not in TYPES]:
        raise ValueError(f"{where}: {unknown[0]!r} is not a type; types are {', '.join(TYPES)}.")
    # Every whole number is a number.
    return [kind for kind in given if not (kind == "integer" and "number" in given)]


def counts(
    schema: Mapping[str, Any], least_keyword: str, most_keyword: str, unit: str, where: str
) -> tuple[float, float, str]:
    """The smallest and largest number of characters or items, and the two in words."""
    for keyword in (least_keyword, most_keyword):
        count = schema.get(keyword, 0)
        if type(count) is not int or count < 0:
            raise ValueError(f"{where}: {keyword!r} must be a whole number from 0.")
    least, most = schema.get(least_keyword, 0), schema.get(most_keyword, inf)
    units = unit if max(least, 0 if most == inf else most) == 1 else f"{unit}s"
    if most == inf:
        return least, most, f" of at least {least:,} {units}" if least else ""
    if least == most:
        return least, most, f" of exactly {least:,} {units}"
    between = f"{least:,} to {most:,}" if least else f"at most {most:,}"
    return least, most, f" of {between} {units}"


UNUSUAL_LIMITS = ("exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def numeric(
    noun: str, schema: Mapping[str, Any], where: str
) -> tuple[str, Callable[[Any], object]]:
    """What numbers are allowed, in words, and the test for them."""
    keywords = ("minimum", "maximum", *UNUSUAL_LIMITS)
    limits: dict[str, Any] = {keyword: schema[keyword] for keyword in keywords if keyword in schema}
    for keyword, limit in limits.items():
        if type(limit) not in (int, float) or not isfinite(limit):
            raise ValueError(f"{where}: {keyword!r} must be a number.")
    least, most = limits.get("minimum", -inf), limits.get("maximum", inf)
    above, below = limits.get("exclusiveMinimum", -inf), limits.get("exclusiveMaximum", inf)
    step = limits.get("multipleOf")
    said: list[str] = []
    if least > -inf and most < inf:
        said.append(f"from {least} to {most}")
    elif least > -inf:
        said.append(f"of at least {least}")
    elif most < inf:
        said.append(f"of at most {most}")
    said += [f"above {above}"] if above > -inf else []
    said += [f"below {below}"] if below < inf else []
    if step is not None:
        if step <= 0:
            raise ValueError(f"{where}: 'multipleOf' must be above 0.")
        said.append(f"that is a multiple of {step}")
    words = " and ".join(said)
    allowed = f"{noun} {words}" if said else noun

    if not limits:
        return allowed, lambda _: True
    if limits.keys() <= {"minimum", "maximum"}:
        return allowed, lambda value: least <= value <= most
    return (
        allowed,
        lambda value: (
            least <= value <= most
            and above < value < below
            and (step is None or _is_multiple(value, step))
        ),
    )


def _is_multiple(value: float, step: float) -> bool:
    if type(value) is int and type(step) is int:
        return value % step == 0
    # As the numbers are written: 0.3 is a multiple of 0.1, whatever their binary forms say.
    return Fraction(repr(value)) % Fraction(repr(step)) == 0


def pattern(pattern: Any, where: str) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        raise ValueError(f"{where}: 'pattern' must be text.")
    try:
        # In Python `$` also matches before a last line break.
        return re.compile(_DOLLAR.sub(lambda found: found[1] or r"\Z", pattern), re.ASCII)
    except re.error as error:
        raise ValueError(f"{where}: the pattern {pattern!r} does not compile: {error}.") from None


_DOLLAR = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\$", re.DOTALL)


def referred(reference: object) -> str:
    if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
        return ""
    return reference.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")


def refuse_endless(schemas: Mapping[str, Any]) -> None:
    """ValueError if a declared type is, without going into a value, defined by itself."""

    def in_place(schema: Any) -> Iterable[str]:
        if isinstance(schema, Mapping):
            yield referred(schema.get("$ref"))
            yield from in_place(schema.get("not"))
            for keyword in combining.COMBINATIONS:
                if isinstance(branches := schema.get(keyword), list | tuple):
                    for branch in branches:
                        yield from in_place(branch)

    for name in schemas:
        reached: set[str] = set()
        ahead = {*in_place(schemas[name])}
        while ahead:
            reached |= ahead
            ahead = {next_ for at in ahead for next_ in in_place(schemas.get(at))} - reached
        if name in reached:
            raise ValueError(f"$defs.{name}: is defined by itself.")
