"""Arguments of a tool checked against its JSON Schema, with messages that a person can act on.

A schema is compiled once to nested functions, so that a call costs microseconds. Only the keywords
listed here are understood, and any other is refused when the schema is compiled: nothing that a
schema says goes unchecked. Patterns are ours, never a caller's, and follow ECMA 262 where Python
differs: `$` is the very end, `\\d` and `\\w` are ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from fractions import Fraction
from math import inf, isfinite
from types import NoneType
from typing import Any, Final
from urllib.parse import urlsplit

from commonplace.errors import InvalidInput
from commonplace.text.prose import visible

MAX_DEPTH: Final = 64
SHOWN: Final = 60
"""Characters of a value that a message repeats at most."""

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_ANNOTATIONS = frozenset({"title", "description", "examples", "default"})

_Check = Callable[[Any], Any]


def compile(schema: Mapping[str, Any]) -> Checker:
    """The schema of a tool's arguments as a check; ValueError if any of it is not understood."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ValueError("A tool's arguments must be declared as {'type': 'object', …}.")
    return Checker(_Compiler(schema).root.check)


@dataclass(frozen=True, slots=True)
class Checker:
    """A compiled schema."""

    _check: _Check

    def check(self, arguments: object) -> dict[str, Any]:
        """The arguments with declared defaults filled in; the given ones are not changed.

        InvalidInput, naming the field, what was wrong and what is allowed, if they do not fit.
        Beside what the schema says, nothing passes that JSON cannot carry and a store not keep:
        NaN, infinities, whole numbers beyond 64 bits, half characters, NUL, depths beyond 64.
        """
        try:
            _refuse_unsound(arguments, 1)
            checked: dict[str, Any] = self._check(arguments)
        except _Wrong as wrong:
            field = _path(wrong.path)
            end = "" if wrong.says.endswith("?") else "."
            raise InvalidInput(f"{field} {wrong.says}{end}", field=field) from None
        return checked


class _Wrong(Exception):
    """What is wrong, as the rest of a sentence, and where: the path is filled in on the way out."""

    def __init__(self, says: str, *path: str | int) -> None:
        super().__init__(says)
        self.says = says
        self.path = [*path]


# --- what no argument may be --------------------------------------------------------------------


def _refuse_unsound(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if "\0" in value or not (value.isascii() or _is_unicode(value)):
            raise _Wrong(_what_is_unsound(value))
    elif kind is int:
        if not _SMALLEST <= value <= _LARGEST:
            raise _Wrong(_too_large(value))
    elif kind is bool or value is None:
        return
    elif kind is float:
        if not isfinite(value):
            raise _Wrong("must be a finite number, not NaN or an infinity")
    elif kind is not list and kind is not dict:
        raise _Wrong(f"must be a JSON value, not a Python {kind.__name__}")
    elif depth > MAX_DEPTH:
        raise _Wrong(f"is nested too deeply; at most {MAX_DEPTH} levels are allowed")
    else:
        step: Any = None
        try:
            for step, item in value.items() if kind is dict else enumerate(value):
                if kind is dict and (type(step) is not str or "\0" in step or not step.isascii()):
                    _refuse_unsound_name(step)
                # Most are plain text, for which a call would cost more than the look.
                if type(item) is not str or "\0" in item or not item.isascii():
                    _refuse_unsound(item, depth + 1)
        except _Wrong as wrong:
            wrong.path.insert(0, step if isinstance(step, str | int) else type(step).__name__)
            raise


def _refuse_unsound_name(name: Any) -> None:
    if type(name) is not str:
        raise _Wrong("is not a name; the names in an object must be text")
    _refuse_unsound(name, 0)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _what_is_unsound(text: str) -> str:
    if (nul := text.find("\0")) >= 0:
        return f"must not contain a NUL character (U+0000), as it does at position {nul}"
    lone = next(at for at, character in enumerate(text) if "\ud800" <= character <= "\udfff")
    return (
        f"must be valid Unicode; half of a character (U+{ord(text[lone]):04X}) stands alone "
        f"at position {lone}"
    )


def _too_large(value: int) -> str:
    return f"must be a whole number of at most 64 bits, not one of {value.bit_length():,}"


# --- how a schema is compiled -------------------------------------------------------------------

_TYPES: dict[str, frozenset[type]] = {
    "string": frozenset({str}),
    "integer": frozenset({int, float}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "null": frozenset({NoneType}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
}
_ALL_TYPES: frozenset[type] = frozenset({str, int, float, bool, NoneType, list, dict})


def _anything(value: Any) -> Any:
    return value


class _Node:
    """A compiled schema: the check, the types that can pass, and what is allowed, in words."""

    __slots__ = ("allowed", "check", "types")

    def __init__(
        self, allowed: str = "", types: frozenset[type] = _ALL_TYPES, check: _Check = _anything
    ) -> None:
        self.allowed = allowed
        self.types = types
        self.check = check


def _nothing(value: Any) -> Any:
    del value
    raise _Wrong("is not allowed here")


class _Compiler:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schemas = _mapping(schema.get("$defs", {}), "$defs")
        self._named: dict[str, _Node] = {}
        self._check_defaults: list[Callable[[], None]] = []
        _refuse_endless(self._schemas)
        for name in self._schemas:
            self._declared(name)
        self.root = self._compile({k: v for k, v in schema.items() if k != "$defs"}, "arguments")
        # Only now: a default may be of a type that is declared after it.
        for check_default in self._check_defaults:
            check_default()

    def _declared(self, name: str) -> _Node:
        if name in self._named:
            return self._named[name]
        node = self._named[name] = _Node()
        # Until it is compiled, those that refer to it must look it up when they are called.
        node.check = lambda value: made.check(value)
        made = self._compile(self._schemas[name], f"$defs.{name}")
        node.allowed, node.types, node.check = made.allowed, made.types, made.check
        return node

    def _compile(self, schema: Any, where: str) -> _Node:
        if schema is True:
            return _Node()
        if schema is False:
            return _Node("nothing", frozenset(), _nothing)
        schema = _mapping(schema, where)
        if unknown := schema.keys() - _KEYWORDS:
            raise ValueError(
                f"{where}: {', '.join(sorted(map(repr, unknown)))} is not checked here; "
                f"known are {', '.join(sorted(_KEYWORDS))}."
            )
        parts = [
            _one_of_values(schema[keyword] if keyword == "enum" else [schema[keyword]], where)
            for keyword in ("enum", "const")
            if keyword in schema
        ]
        own = self._own(schema, where)
        only_names = len(parts) == 1 and parts[0].types == {str} <= own.types
        if not (only_names and schema.keys() <= _ANNOTATIONS | {"type", "enum", "const"}):
            parts.append(own)
        if "$ref" in schema:
            parts.append(self._reference(schema["$ref"], where))
        for keyword, combine in _COMBINATIONS.items():
            if keyword in schema:
                branches = _schemas(schema[keyword], f"{where}.{keyword}")
                parts.append(
                    combine(
                        [
                            self._compile(branch, f"{where}.{keyword}[{at}]")
                            for at, branch in enumerate(branches)
                        ]
                    )
                )
        if "not" in schema:
            parts.append(_not(self._compile(schema["not"], f"{where}.not")))
        return _all_of(parts)

    def _own(self, schema: Mapping[str, Any], where: str) -> _Node:
        """What the schema says of each type of value on its own."""
        node = _Node()
        # All of them, since a mistake in what is said of a type that cannot occur is one too.
        made = {kind: getattr(self, f"_{kind}")(schema, where, node) for kind in _TYPES}
        kinds = _kinds(schema, where)
        if "type" in schema:
            node.allowed = _or([made[kind][0] for kind in kinds])
        by_type: dict[type, _Check] = {
            python_type: made[kind][1] for kind in kinds for python_type in _TYPES[kind]
        }
        node.types = frozenset(by_type)
        node.check = _with_shortcut(schema, _by_type(by_type, node))
        return node

    # Each of these gives what is allowed, in words, and the check of a value of that type.

    def _null(self, schema: Mapping[str, Any], where: str, node: _Node) -> tuple[str, _Check]:
        del schema, where, node
        return "null", _anything

    def _boolean(self, schema: Mapping[str, Any], where: str, node: _Node) -> tuple[str, _Check]:
        del schema, where, node
        return "true or false", _anything

    def _integer(self, schema: Mapping[str, Any], where: str, node: _Node) -> tuple[str, _Check]:
        allowed, fits = _numeric("a whole number", schema, where)
        say = _sayer(node, allowed, schema)

        def check(value: Any) -> Any:
            if type(value) is float:
                if not value.is_integer():
                    raise _Wrong(f"must be {say()}, not {_shown(value)}")
                value = int(value)
                if not _SMALLEST <= value <= _LARGEST:
                    raise _Wrong(_too_large(value))
            if not fits(value):
                raise _Wrong(f"must be {say()}, not {_shown(value)}")
            return value

        return allowed, check

    def _number(self, schema: Mapping[str, Any], where: str, node: _Node) -> tuple[str, _Check]:
        allowed, fits = _numeric("a number", schema, where)
        say = _sayer(node, allowed, schema)

        def check(value: Any) -> Any:
            if not fits(value):
                raise _Wrong(f"must be {say()}, not {_shown(value)}")
            return value

        return allowed, check

    def _string(self, schema: Mapping[str, Any], where: str, node: _Node) -> tuple[str, _Check]:
        least, most, counted = _counts(schema, "minLength", "maxLength", "character", where)
        allowed = f"text{counted}"
        tests: list[Callable[[str], object]] = []
        if "pattern" in schema:
            tests.append(_pattern(schema["pattern"], where).search)
            allowed += f" that matches {schema['pattern']}"
        if "format" in schema:
            if schema["format"] not in _FORMATS:
                raise ValueError(
                    f"{where}: the format {schema['format']!r} is not one of {', '.join(_FORMATS)}."
                )
            described, has_format = _FORMATS[schema["format"]]
            tests.append(has_format)
            allowed = described if allowed == "text" else f"{allowed}: {described}"
        say = _sayer(node, allowed, schema)

        def check(value: str) -> str:
            if not least <= len(value) <= most:
                raise _Wrong(f"must be {say()}; this has {len(value):,}")
            for test in tests:
                if not test(value):
                    raise _Wrong(f"must be {say()}, not {_shown(value)}")
            return value

        return allowed, check if tests or counted else _anything

    def _array(self, schema: Mapping[str, Any], where: str, node: _Node) -> tuple[str, _Check]:
        least, most, counted = _counts(schema, "minItems", "maxItems", "item", where)
        unique = _flag(schema, "uniqueItems", where)
        allowed = f"a list{counted}{' without repetitions' if unique else ''}"
        item_check = (
            self._compile(schema["items"], f"{where}.items").check if "items" in schema else None
        )
        say = _sayer(node, allowed, schema)

        def check(value: list[Any]) -> list[Any]:
            if not least <= len(value) <= most:
                raise _Wrong(f"must be {say()}; this has {len(value):,}")
            if unique and (repeated := _repeated(value)) is not None:
                raise _Wrong(f"must be {say()}; {_shown(value[repeated])} is there twice")
            if item_check is None:
                return value
            checked: list[Any] = []
            try:
                for item in value:
                    checked.append(item_check(item))
            except _Wrong as wrong:
                wrong.path.insert(0, len(checked))
                raise
            return checked

        plain = item_check is None and not counted and not unique
        return allowed, _anything if plain else check

    def _object(self, schema: Mapping[str, Any], where: str, node: _Node) -> tuple[str, _Check]:
        del node
        properties = _mapping(schema.get("properties", {}), f"{where}.properties")
        nodes = {name: self._compile(said, f"{where}.{name}") for name, said in properties.items()}
        checks = {name: node.check for name, node in nodes.items()}
        required = _names(schema.get("required", ()), f"{where}.required")
        needed = frozenset(required)
        others = self._compile(
            schema.get("additionalProperties", True), f"{where}.additionalProperties"
        )
        closed = schema.get("additionalProperties") is False
        other_check = others.check
        constant, fresh = self._defaults_of(properties, nodes, where)

        def check(value: dict[str, Any]) -> dict[str, Any]:
            checked: dict[str, Any] = {}
            name = ""
            try:
                for name, item in value.items():
                    known = checks.get(name)
                    if known is not None:
                        checked[name] = known(item)
                    elif closed:
                        raise _Wrong(_unknown(name, checks))
                    else:
                        checked[name] = other_check(item)
            except _Wrong as wrong:
                wrong.path.insert(0, name)
                raise
            if not needed <= checked.keys():
                missing = next(name for name in required if name not in checked)
                allowed = nodes[missing].allowed if missing in nodes else ""
                expected = f": {allowed}" if allowed else ""
                raise _Wrong(f"is required{expected}", missing)
            for name, default in constant:
                if name not in checked:
                    checked[name] = default
            for name, default in fresh:
                if name not in checked:
                    checked[name] = deepcopy(default)
            return checked

        plain = not checks and not needed and "additionalProperties" not in schema
        return "an object", _anything if plain else check

    def _defaults_of(
        self, properties: Mapping[str, Any], nodes: Mapping[str, _Node], where: str
    ) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
        """The properties' defaults: those that can be shared, and those that must be copied."""
        constant: list[tuple[str, Any]] = []
        fresh: list[tuple[str, Any]] = []

        def check_defaults() -> None:
            for name, said in properties.items():
                if not isinstance(said, Mapping) or "default" not in said:
                    continue
                try:
                    _refuse_unsound(said["default"], 1)
                    default = nodes[name].check(said["default"])
                except _Wrong as wrong:
                    raise ValueError(
                        f"{where}.{name}: the default {_path(wrong.path)} {wrong.says}."
                    ) from None
                target = fresh if isinstance(default, list | dict) else constant
                target.append((name, default))

        self._check_defaults.append(check_defaults)
        return constant, fresh

    def _reference(self, reference: object, where: str) -> _Node:
        name = _referred(reference)
        if name not in self._schemas:
            raise ValueError(
                f"{where}: {reference!r} is not '#/$defs/NAME' with a NAME that is declared."
            )
        return self._declared(name)


def _by_type(by_type: Mapping[type, _Check], node: _Node) -> _Check:
    if len(by_type) == len(_ALL_TYPES) and set(by_type.values()) == {_anything}:
        return _anything

    def check(value: Any) -> Any:
        check = by_type.get(type(value))
        if check is None:
            raise _Wrong(f"must be {node.allowed}, not {_shown(value)}")
        return check(value)

    return check


def _with_shortcut(schema: Mapping[str, Any], thorough: _Check) -> _Check:
    """The same check, quicker for a plain value that fits."""
    kind = schema.get("type")
    if kind == "string" and not schema.keys() & {"pattern", "format"}:
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength", inf)

        def text(value: Any) -> Any:
            if type(value) is str and shortest <= len(value) <= longest:
                return value
            return thorough(value)

        return text
    if kind == "integer" and not schema.keys() & {*_UNUSUAL_LIMITS}:
        least, most = schema.get("minimum", -inf), schema.get("maximum", inf)

        def whole(value: Any) -> Any:
            if type(value) is int and least <= value <= most:
                return value
            return thorough(value)

        return whole
    return thorough


# --- what several schemas say together ----------------------------------------------------------


def _all_of(parts: Sequence[_Node]) -> _Node:
    telling = [part for part in parts if part.check is not _anything]
    if len(telling) < 2:
        return telling[0] if telling else _Node()
    first, *rest = [part.check for part in telling]

    def check(value: Any) -> Any:
        checked = first(value)
        for other in rest:
            checked = _joined(checked, other(value))
        return checked

    allowed = list(dict.fromkeys(part.allowed for part in telling if part.allowed))
    return _Node(
        _capped(" and ".join(allowed)), frozenset.intersection(*(p.types for p in telling)), check
    )


def _any_of(branches: Sequence[_Node]) -> _Node:
    def check(value: Any) -> Any:
        failed: list[_Wrong] = []
        for branch in branches:
            if type(value) in branch.types:
                try:
                    return branch.check(value)
                except _Wrong as wrong:
                    failed.append(wrong)
        raise _fits_no_branch(value, branches, failed)

    return _Node(_one_or_other(branches), _types_of_any(branches), check)


def _one_of(branches: Sequence[_Node]) -> _Node:
    def check(value: Any) -> Any:
        fitting: list[Any] = []
        failed: list[_Wrong] = []
        for branch in branches:
            if type(value) in branch.types:
                try:
                    fitting.append(branch.check(value))
                except _Wrong as wrong:
                    failed.append(wrong)
        if not fitting:
            raise _fits_no_branch(value, branches, failed)
        if len(fitting) > 1:
            raise _Wrong(
                f"must be only one of {_one_or_other(branches) or 'several forms'}; "
                f"{_shown(value)} is {len(fitting)} of them"
            )
        return fitting[0]

    return _Node(_one_or_other(branches), _types_of_any(branches), check)


def _types_of_any(branches: Sequence[_Node]) -> frozenset[type]:
    return frozenset().union(*(branch.types for branch in branches))


def _not(excluded: _Node) -> _Node:
    def check(value: Any) -> Any:
        try:
            excluded.check(value)
        except _Wrong:
            return value
        raise _Wrong(
            f"must not be {excluded.allowed}, as {_shown(value)} is"
            if excluded.allowed
            else f"must not be {_shown(value)}"
        )

    return _Node(f"anything but {excluded.allowed}" if excluded.allowed else "", check=check)


_COMBINATIONS: dict[str, Callable[[Sequence[_Node]], _Node]] = {
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
}


def _fits_no_branch(value: Any, branches: Sequence[_Node], failed: Sequence[_Wrong]) -> _Wrong:
    """What the only branch for this type of value said, or else what all of them allow."""
    if len(failed) == 1:
        return failed[0]
    allowed = _one_or_other(branches)
    return _Wrong(
        f"must be {allowed}, not {_shown(value)}"
        if allowed
        else f"has none of the forms that are allowed: {_shown(value)}"
    )


def _one_or_other(branches: Sequence[_Node]) -> str:
    allowed = list(dict.fromkeys(branch.allowed for branch in branches if branch.types))
    return _capped(_or(allowed)) if all(allowed) else ""


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


def _one_of_values(values: Any, where: str) -> _Node:
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{where}: 'enum' must be a list of at least one value.")
    for value in values:
        try:
            _refuse_unsound(value, 1)
        except _Wrong as wrong:
            raise ValueError(f"{where}: a value in 'enum' or 'const' {wrong.says}.") from None
    allowed = _or([_shown(value) for value in values])
    if len(values) > 1:
        allowed = f"one of {allowed}"
    members = frozenset(map(_identity, values))
    names = [value for value in values if type(value) is str]
    types = {int if type(value) is float else type(value) for value in values}
    types |= {float} if int in types else set()

    def refuse(value: Any) -> _Wrong:
        meant = _meant(value, names) if type(value) is str else ""
        return _Wrong(f"must be {allowed}, not {_shown(value)}{meant}")

    def check(value: Any) -> Any:
        if _identity(value) not in members:
            raise refuse(value)
        return value

    known = frozenset(names)

    def check_name(value: Any) -> Any:
        if type(value) is not str or value not in known:
            raise refuse(value)
        return value

    return _Node(_capped(allowed), frozenset(types), check_name if types == {str} else check)


# --- keywords -----------------------------------------------------------------------------------


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{where}: must be an object, not {_shown(value)}.")
    return value


def _schemas(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{where}: must be a list of at least one schema.")
    return value


def _names(value: Any, where: str) -> Sequence[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{where}: must be a list of names.")
    return value


def _flag(schema: Mapping[str, Any], keyword: str, where: str) -> bool:
    value = schema.get(keyword, False)
    if not isinstance(value, bool):
        raise ValueError(f"{where}: {keyword!r} must be true or false.")
    return value


def _kinds(schema: Mapping[str, Any], where: str) -> Sequence[str]:
    said = schema.get("type", list(_TYPES))
    kinds = [said] if isinstance(said, str) else said
    if not isinstance(kinds, list | tuple) or not kinds:
        raise ValueError(f"{where}: 'type' must be a name or a list of names.")
    if unknown := [kind for kind in kinds if not isinstance(kind, str) or kind not in _TYPES]:
        raise ValueError(f"{where}: {unknown[0]!r} is not a type; types are {', '.join(_TYPES)}.")
    # Every whole number is a number.
    return [kind for kind in kinds if not (kind == "integer" and "number" in kinds)]


def _counts(
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


_UNUSUAL_LIMITS = ("exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def _numeric(
    noun: str, schema: Mapping[str, Any], where: str
) -> tuple[str, Callable[[Any], object]]:
    """What numbers are allowed, in words, and the test for them."""
    keywords = ("minimum", "maximum", *_UNUSUAL_LIMITS)
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


def _pattern(pattern: Any, where: str) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        raise ValueError(f"{where}: 'pattern' must be text.")
    try:
        # In Python `$` also matches before a last line break.
        return re.compile(_DOLLAR.sub(lambda found: found[1] or r"\Z", pattern), re.ASCII)
    except re.error as error:
        raise ValueError(f"{where}: the pattern {pattern!r} does not compile: {error}.") from None


_DOLLAR = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\$", re.DOTALL)


def _referred(reference: object) -> str:
    if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
        return ""
    return reference.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")


def _refuse_endless(schemas: Mapping[str, Any]) -> None:
    """ValueError if a declared type is, without going into a value, defined by itself."""

    def in_place(schema: Any) -> Iterable[str]:
        if isinstance(schema, Mapping):
            yield _referred(schema.get("$ref"))
            yield from in_place(schema.get("not"))
            for keyword in _COMBINATIONS:
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


# --- formats ------------------------------------------------------------------------------------

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_URI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#@!$&'()*+,;=\[\]-]|%[0-9A-Fa-f]{2})+"
)


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    if not _DATE_TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text.upper())
    except ValueError:
        return False
    return True


def _is_uri(text: str) -> bool:
    if not _URI.fullmatch(text) or text.count("#") > 1:
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port  # refuses a port that is none
    except ValueError:
        return False
    return not set("[]") & set(parts.path + parts.query + parts.fragment)


_FORMATS: dict[str, tuple[str, Callable[[str], object]]] = {
    "date": ("a date such as 2026-11-02", _is_date),
    "date-time": ("a time with its zone such as 2026-11-02T09:30:00Z", _is_date_time),
    "uuid": ("a UUID such as 123e4567-e89b-12d3-a456-426614174000", _UUID.fullmatch),
    "uri": ("an address such as https://example.org/page", _is_uri),
}

_KEYWORDS = _ANNOTATIONS | {
    *("type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf", "not"),
    *("properties", "required", "additionalProperties"),
    *("items", "minItems", "maxItems", "uniqueItems"),
    *("minLength", "maxLength", "pattern", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


# --- equality -----------------------------------------------------------------------------------


def _identity(value: Any) -> Any:
    """Equal for values that JSON calls equal: 1 and 1.0 are, 1 and true are not."""
    kind = type(value)
    if kind is bool:
        return (bool, value)
    if kind is list:
        return (list, tuple(map(_identity, value)))
    if kind is dict:
        return (dict, frozenset((name, _identity(item)) for name, item in value.items()))
    return value


def _repeated(items: Sequence[Any]) -> int | None:
    seen: set[Any] = set()
    for at, item in enumerate(items):
        if (identity := _identity(item)) in seen:
            return at
        seen.add(identity)
    return None


# --- words --------------------------------------------------------------------------------------

_NAME = re.compile(r"[^\W\d][\w-]{0,59}", re.ASCII)


def _path(path: Sequence[str | int]) -> str:
    """The place as a person writes it: scenes[0].when."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        elif _NAME.fullmatch(step):
            written += f".{step}" if written else step
        else:
            written += f"[{_shown(step)}]" if written else _shown(step)
    if len(written) > 4 * SHOWN:
        written = f"{written[: 2 * SHOWN]}…{written[-SHOWN:]}"
    return written or "arguments"


def _shown(value: Any) -> str:
    """A value as a message may repeat it: short, and with nothing in it that cannot be seen."""
    if isinstance(value, str):
        seen = visible(value[: SHOWN + 1]).replace("\n", "\\n").replace("\t", "\\t")
        return f"'{seen}'" if len(seen) <= SHOWN else f"'{seen[: SHOWN - 1]}…'"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "an object" if isinstance(value, dict) else f"a Python {type(value).__name__}"


def _or(phrases: Sequence[str]) -> str:
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def _capped(words: str) -> str:
    return words if len(words) <= 300 else f"{words[:299]}…"


def _sayer(node: _Node, allowed: str, schema: Mapping[str, Any]) -> Callable[[], str]:
    """All that is allowed if the schema names its types, or else what is for this type."""
    return (lambda: node.allowed) if "type" in schema else (lambda: allowed)


def _meant(name: str, known: Iterable[str]) -> str:
    # Comparing takes the square of the length, and nobody mistypes that much.
    close = get_close_matches(name, [*known], n=1) if len(name) <= SHOWN else []
    return f"; did you mean '{close[0]}'?" if close else ""


def _unknown(name: str, known: Iterable[str]) -> str:
    if meant := _meant(name, known):
        return f"is not known here{meant}"
    names = [*known]
    if not names:
        return "is not known here; no names are allowed"
    return f"is not known here; known are {_capped(', '.join(names))}"
