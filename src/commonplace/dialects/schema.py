"""Check the arguments of a tool against its JSON Schema.

A schema is compiled once to nested functions, so that a check costs microseconds. Only the keywords
that the dialects use are supported: compiling a schema with any other raises UnsupportedSchema, so
no keyword is silently ignored. Patterns follow ECMA 262 where Python differs: `$` is the
very end of the text, `\\d` and `\\w` are ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from math import inf, isfinite
from types import NoneType
from typing import Any, Final

from commonplace.dialects.json_values import (
    join_with_or,
    path_text,
    suggestion,
    truncate,
    unknown_message,
    value_text,
)
from commonplace.errors import InvalidInput

MAX_DEPTH: Final = 64

Check = Callable[[Any], Any]
Schema = Mapping[str, Any]

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "null": (NoneType,),
    "array": (list,),
    "object": (dict,),
}
ANNOTATIONS = frozenset({"description", "default"})
KEYWORDS_OF_TYPE: dict[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "format"}),
    "integer": frozenset({"minimum", "maximum"}),
    "number": frozenset({"minimum", "maximum"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
KEYWORDS = frozenset({"type", "enum", "anyOf"}).union(ANNOTATIONS, *KEYWORDS_OF_TYPE.values())


_ignored: ContextVar[list[str] | None] = ContextVar("ignored", default=None)
"""Collects the unknown names of the current check; None if unknown names are refused."""


class InvalidValue(Exception):
    """A value is invalid: the reason as the rest of a sentence, and the path to the value.

    Callers prepend their step to the path.
    """

    def __init__(self, reason: str, *path: str | int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = [*path]


class UnsupportedSchema(ValueError):
    """The schema of a tool uses a feature that this module does not support."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}.")


def compile(schema: Schema) -> Checker:
    """Compile the schema of a tool's arguments; raise UnsupportedSchema if this is impossible."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise UnsupportedSchema("arguments", "must be declared as {'type': 'object', …}")
    return Checker(_compile(schema, "arguments").check)


@dataclass(frozen=True, slots=True)
class Checker:
    """A compiled schema."""

    _check: Check

    def check(self, arguments: object, ignored: list[str] | None = None) -> dict[str, Any]:
        """Return a copy of the arguments with the declared defaults.

        Raise InvalidInput, which names the field, the problem and the allowed values. Unknown names
        are refused, or omitted and added to `ignored` if this list is given. Values that JSON or
        the store cannot represent are always refused: NaN, infinities, integers of more than 64
        bits, lone surrogates, NUL, and more than 64 levels of nesting.
        """
        token = _ignored.set(ignored)
        try:
            _refuse_unstorable(arguments, 1)
            checked: dict[str, Any] = self._check(arguments)
        except InvalidValue as wrong:
            field = path_text(wrong.path)
            end = "" if wrong.reason.endswith("?") else "."
            raise InvalidInput(f"{field} {wrong.reason}{end}", field=field) from None
        finally:
            _ignored.reset(token)
        return checked


@dataclass(frozen=True, slots=True)
class _Node:
    """A compiled subschema: its check, the accepted Python types, and a description for errors."""

    check: Check
    types: frozenset[type]
    allowed: str = ""


def _compile(schema: Any, where: str) -> _Node:
    if not isinstance(schema, Mapping):
        raise UnsupportedSchema(where, f"must be an object, not {value_text(schema)}")
    if unsupported := schema.keys() - KEYWORDS:
        names = ", ".join(sorted(map(repr, unsupported)))
        raise UnsupportedSchema(
            where, f"{names} is not supported; supported are {', '.join(sorted(KEYWORDS))}"
        )
    keywords = schema.keys() - ANNOTATIONS
    if not keywords:
        return _Node(lambda value: value, frozenset().union(*TYPES.values()))
    if "enum" in keywords:
        return _compile_enum(schema, keywords, where)
    if "anyOf" in keywords:
        return _compile_any_of(schema, keywords, where)
    return _compile_type(schema, keywords, where)


def _compile_enum(schema: Schema, keywords: set[str], where: str) -> _Node:
    values = schema["enum"]
    if not isinstance(values, list | tuple) or not values:
        raise UnsupportedSchema(where, "'enum' must be a list of at least one value")
    types = frozenset(map(type, values))
    if not types <= {str, NoneType}:
        raise UnsupportedSchema(where, "the values of 'enum' must be text or null")
    declared = {kind for name in _type_names(schema, where) for kind in TYPES[name]}
    if not keywords <= {"type", "enum"} or not types <= declared:
        raise UnsupportedSchema(where, "only a 'type' that the values have may stand beside 'enum'")
    allowed = join_with_or([value_text(value) for value in values])
    if len(values) > 1:
        allowed = f"one of {allowed}"
    members = frozenset(values)
    names = [value for value in values if value is not None]

    def check(value: Any) -> Any:
        if type(value) not in types or value not in members:
            guess = suggestion(value, names) if type(value) is str else ""
            raise InvalidValue(f"must be {allowed}, not {value_text(value)}{guess}")
        return value

    return _Node(check, types, truncate(allowed))


def _compile_any_of(schema: Schema, keywords: set[str], where: str) -> _Node:
    schemas = schema["anyOf"]
    if keywords != {"anyOf"} or not isinstance(schemas, list | tuple) or not schemas:
        raise UnsupportedSchema(where, "'anyOf' must be a list of schemas, without other keywords")
    branches = [_compile(each, f"{where}.anyOf[{at}]") for at, each in enumerate(schemas)]
    phrases = list(dict.fromkeys(branch.allowed for branch in branches))
    allowed = truncate(join_with_or(phrases)) if all(phrases) else "as the schema says"

    def check(value: Any) -> Any:
        collected = _ignored.get()
        failed: list[InvalidValue] = []
        best: tuple[list[str], Any] | None = None  # use the branch that ignores the fewest names
        for branch in branches:
            if type(value) in branch.types:
                ignored: list[str] = []
                token = _ignored.set(None if collected is None else ignored)
                try:
                    checked = branch.check(value)
                    if best is None or len(ignored) < len(best[0]):
                        best = ignored, checked
                except InvalidValue as wrong:
                    failed.append(wrong)
                finally:
                    _ignored.reset(token)
                if best is not None and not best[0]:
                    break
        if best is not None:
            if collected is not None:
                collected += best[0]
            return best[1]
        # only one branch allows this type of value, so its message is the best
        if len(failed) == 1:
            raise failed[0]
        raise InvalidValue(f"must be {allowed}, not {value_text(value)}")

    return _Node(check, frozenset().union(*(branch.types for branch in branches)), allowed)


def _compile_type(schema: Schema, keywords: set[str], where: str) -> _Node:
    kinds = _type_names(schema, where)
    if misplaced := keywords - {"type"}.union(*(KEYWORDS_OF_TYPE.get(kind, ()) for kind in kinds)):
        names = ", ".join(sorted(map(repr, misplaced)))
        raise UnsupportedSchema(where, f"{names} does not apply to type {', '.join(kinds)}")
    allowed = join_with_or([_allowed_text(kind, schema) for kind in kinds])
    by_type: dict[type, Check | None] = {}
    for kind in TYPES:  # this order matters: if both are allowed, an integer is checked as a number
        if kind in kinds:
            check_of_kind = _CHECK_OF[kind](schema, allowed, where) if kind in _CHECK_OF else None
            by_type |= dict.fromkeys(TYPES[kind], check_of_kind)

    def check(value: Any) -> Any:
        try:
            check_of_type = by_type[type(value)]
        except KeyError:
            raise InvalidValue(f"must be {allowed}, not {value_text(value)}") from None
        return value if check_of_type is None else check_of_type(value)

    return _Node(check, frozenset(by_type), allowed)


def _type_names(schema: Schema, where: str) -> Sequence[str]:
    said = schema.get("type", list(TYPES) if "enum" in schema else None)
    kinds = [said] if isinstance(said, str) else said
    if not kinds or not TYPES.keys() >= set(kinds):
        raise UnsupportedSchema(where, f"'type' must be one or several of {', '.join(TYPES)}")
    return kinds


# --- descriptions of allowed values --------------------------------------------------------------


def _allowed_text(kind: str, schema: Schema) -> str:
    if kind == "string":
        words = "text" + _length_text(schema, "minLength", "maxLength", "character")
        described = FORMATS[schema["format"]][0] if schema.get("format") in FORMATS else ""
        return f"{words}: {described}" if described and words != "text" else described or words
    if kind == "array":
        return "a list" + _length_text(schema, "minItems", "maxItems", "item")
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _range_text(schema)
    return {"boolean": "true or false", "null": "null", "object": "an object"}[kind]


def _range_text(schema: Schema) -> str:
    if "minimum" not in schema:
        return f" of at most {schema['maximum']}" if "maximum" in schema else ""
    if "maximum" not in schema:
        return f" of at least {schema['minimum']}"
    return f" from {schema['minimum']} to {schema['maximum']}"


def _length_text(schema: Schema, least_keyword: str, most_keyword: str, unit: str) -> str:
    least, most = schema.get(least_keyword, 0), schema.get(most_keyword)
    units = unit if max(least, most or 0) == 1 else f"{unit}s"
    if most is None:
        return f" of at least {least:,} {units}" if least else ""
    if least == most:
        return f" of exactly {least:,} {units}"
    between = f"{least:,} to {most:,}" if least else f"at most {most:,}"
    return f" of {between} {units}"


# --- values that no schema allows -----------------------------------------------------------------

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _refuse_unstorable(value: Any, depth: int) -> None:
    """Raise Wrong for a value that JSON or the store cannot represent."""
    kind = type(value)
    if kind is str:
        _refuse_unstorable_text(value)
    elif kind is int:
        _refuse_too_large(value)
    elif kind is bool or value is None:
        return
    elif kind is float:
        if not isfinite(value):
            raise InvalidValue("must be a finite number, not NaN or an infinity")
    elif kind is not list and kind is not dict:
        raise InvalidValue(f"must be a JSON value, not a Python {kind.__name__}")
    elif depth > MAX_DEPTH:
        raise InvalidValue(f"is nested too deeply; at most {MAX_DEPTH} levels are allowed")
    else:
        step: Any = None
        try:
            for step, item in value.items() if kind is dict else enumerate(value):
                if kind is dict:
                    if type(step) is not str:
                        raise InvalidValue("is not a name; the names in an object must be text")
                    _refuse_unstorable_text(step)
                # Most values are plain text; this test is faster than a call.
                if type(item) is not str or "\0" in item or not item.isascii():
                    _refuse_unstorable(item, depth + 1)
        except InvalidValue as wrong:
            wrong.path.insert(0, step if isinstance(step, str | int) else type(step).__name__)
            raise


def _refuse_unstorable_text(text: str) -> None:
    if (nul := text.find("\0")) >= 0:
        raise InvalidValue(
            f"must not contain a NUL character (U+0000), as it does at position {nul}"
        )
    if not text.isascii() and (lone := _LONE_SURROGATE.search(text)):
        raise InvalidValue(
            f"must be valid Unicode; half of a character (U+{ord(lone[0]):04X}) stands alone "
            f"at position {lone.start()}"
        )


def _refuse_too_large(value: int) -> None:
    """Raise Wrong for an integer of more than 64 bits."""
    if not -(2**63) <= value < 2**63:
        bits = f"{value.bit_length():,}"
        raise InvalidValue(f"must be a whole number of at most 64 bits, not one of {bits}")


# --- checks of values of one type ----------------------------------------------------------------


def _integer_check(schema: Schema, allowed: str, where: str) -> Check:
    in_range = _number_check(schema, allowed, where)

    def check(value: Any) -> Any:
        if type(value) is float:
            if not value.is_integer():
                raise InvalidValue(f"must be {allowed}, not {value_text(value)}")
            value = int(value)
            _refuse_too_large(value)
        return in_range(value)

    return check


def _number_check(schema: Schema, allowed: str, where: str) -> Check:
    del where
    least, most = schema.get("minimum", -inf), schema.get("maximum", inf)

    def check(value: Any) -> Any:
        if not least <= value <= most:
            raise InvalidValue(f"must be {allowed}, not {value_text(value)}")
        return value

    return check


def _string_check(schema: Schema, allowed: str, where: str) -> Check | None:
    if not schema.keys() & KEYWORDS_OF_TYPE["string"]:
        return None
    least, most = schema.get("minLength", 0), schema.get("maxLength", inf)
    has_format: Callable[[str], object] | None = None
    if "format" in schema:
        if schema["format"] not in FORMATS:
            raise UnsupportedSchema(where, f"there is no format {schema['format']!r}")
        has_format = FORMATS[schema["format"]][1]

    def check(value: str) -> str:
        if not least <= len(value) <= most:
            raise InvalidValue(f"must be {allowed}; this has {len(value):,}")
        if has_format is not None and not has_format(value):
            raise InvalidValue(f"must be {allowed}, not {value_text(value)}")
        return value

    return check


def _array_check(schema: Schema, allowed: str, where: str) -> Check:
    least, most = schema.get("minItems", 0), schema.get("maxItems", inf)
    item_check = _compile(schema.get("items", {}), f"{where}.items").check

    def check(value: list[Any]) -> list[Any]:
        if not least <= len(value) <= most:
            raise InvalidValue(f"must be {allowed}; this has {len(value):,}")
        checked: list[Any] = []
        try:
            for item in value:
                checked.append(item_check(item))
        except InvalidValue as wrong:
            wrong.path.insert(0, len(checked))
            raise
        return checked

    return check


def _object_check(schema: Schema, allowed: str, where: str) -> Check | None:
    del allowed
    if not schema.keys() & KEYWORDS_OF_TYPE["object"]:
        return None
    properties, required = schema.get("properties", {}), schema.get("required", ())
    closed = "additionalProperties" in schema
    if closed and schema["additionalProperties"] is not False:
        raise UnsupportedSchema(where, "'additionalProperties' must be false")
    nodes = {name: _compile(said, f"{where}.{name}") for name, said in properties.items()}
    checks = {name: node.check for name, node in nodes.items()}
    defaults = [
        (name, _checked_default(said["default"], nodes[name], f"{where}.{name}"))
        for name, said in properties.items()
        if "default" in said
    ]

    def check(value: dict[str, Any]) -> dict[str, Any]:
        checked: dict[str, Any] = {}
        name = ""
        try:
            for name, item in value.items():
                known = checks.get(name)
                if known is not None:
                    checked[name] = known(item)
                elif not closed:
                    checked[name] = item
                elif (ignored := _ignored.get()) is not None:
                    ignored.append(f"{where}.{name}".removeprefix("arguments."))
                else:
                    raise InvalidValue(unknown_message(name, checks))
        except InvalidValue as wrong:
            wrong.path.insert(0, name)
            raise
        for name in required:
            if name not in checked:
                expected = nodes[name].allowed if name in nodes else ""
                raise InvalidValue(f"is required: {expected}" if expected else "is required", name)
        for name, default in defaults:
            if name not in checked:
                checked[name] = deepcopy(default) if isinstance(default, list | dict) else default
        return checked

    return check


def _checked_default(value: Any, node: _Node, where: str) -> Any:
    try:
        _refuse_unstorable(value, 1)
        return node.check(value)
    except InvalidValue as wrong:
        raise UnsupportedSchema(
            where, f"the default {path_text(wrong.path)} {wrong.reason}"
        ) from None


_CHECK_OF: dict[str, Callable[[Schema, str, str], Check | None]] = {
    "string": _string_check,
    "integer": _integer_check,
    "number": _number_check,
    "array": _array_check,
    "object": _object_check,
}
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


FORMATS: dict[str, tuple[str, Callable[[str], object]]] = {
    "date": ("a date such as 2026-11-02", _is_date),
    "uuid": ("a UUID such as 123e4567-e89b-12d3-a456-426614174000", _UUID.fullmatch),
}
