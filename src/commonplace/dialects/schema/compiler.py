"""A schema compiled to nested functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from math import inf
from typing import Any

from commonplace.dialects.schema import combining, equality, formats, keywords, soundness, wording
from commonplace.dialects.schema.nodes import (
    ALL_TYPES,
    TYPES,
    Check,
    Node,
    Wrong,
    anything,
    nothing,
)


class Compiler:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schemas = keywords.mapping(schema.get("$defs", {}), "$defs")
        self._named: dict[str, Node] = {}
        self._check_defaults: list[Callable[[], None]] = []
        keywords.refuse_endless(self._schemas)
        for name in self._schemas:
            self._declared(name)
        self.root = self._compile({k: v for k, v in schema.items() if k != "$defs"}, "arguments")
        # Only now: a default may be of a type that is declared after it.
        for check_default in self._check_defaults:
            check_default()

    def _declared(self, name: str) -> Node:
        if name in self._named:
            return self._named[name]
        node = self._named[name] = Node()
        # Until it is compiled, those that refer to it must look it up when they are called.
        node.check = lambda value: made.check(value)
        made = self._compile(self._schemas[name], f"$defs.{name}")
        node.allowed, node.types, node.check = made.allowed, made.types, made.check
        return node

    def _compile(self, schema: Any, where: str) -> Node:
        if schema is True:
            return Node()
        if schema is False:
            return Node("nothing", frozenset(), nothing)
        schema = keywords.mapping(schema, where)
        if unknown := schema.keys() - keywords.KEYWORDS:
            raise ValueError(
                f"{where}: {', '.join(sorted(map(repr, unknown)))} is not checked here; "
                f"known are {', '.join(sorted(keywords.KEYWORDS))}."
            )
        parts = [
            combining.one_of_values(
                schema[keyword] if keyword == "enum" else [schema[keyword]], where
            )
            for keyword in ("enum", "const")
            if keyword in schema
        ]
        own = self._own(schema, where)
        only_names = len(parts) == 1 and parts[0].types == {str} <= own.types
        if not (only_names and schema.keys() <= keywords.ANNOTATIONS | {"type", "enum", "const"}):
            parts.append(own)
        if "$ref" in schema:
            parts.append(self._reference(schema["$ref"], where))
        for keyword, combine in combining.COMBINATIONS.items():
            if keyword in schema:
                branches = keywords.schemas(schema[keyword], f"{where}.{keyword}")
                parts.append(
                    combine(
                        [
                            self._compile(branch, f"{where}.{keyword}[{at}]")
                            for at, branch in enumerate(branches)
                        ]
                    )
                )
        if "not" in schema:
            parts.append(combining.none_of(self._compile(schema["not"], f"{where}.not")))
        return combining.all_of(parts)

    def _own(self, schema: Mapping[str, Any], where: str) -> Node:
        """What the schema says of each type of value on its own."""
        node = Node()
        # All of them, since a mistake in what is said of a type that cannot occur is one too.
        made = {kind: getattr(self, f"_{kind}")(schema, where, node) for kind in TYPES}
        kinds = keywords.kinds(schema, where)
        if "type" in schema:
            node.allowed = wording.either([made[kind][0] for kind in kinds])
        by_type: dict[type, Check] = {
            python_type: made[kind][1] for kind in kinds for python_type in TYPES[kind]
        }
        node.types = frozenset(by_type)
        node.check = _with_shortcut(schema, _by_type(by_type, node))
        return node

    # Each of these gives what is allowed, in words, and the check of a value of that type.

    def _null(self, schema: Mapping[str, Any], where: str, node: Node) -> tuple[str, Check]:
        del schema, where, node
        return "null", anything

    def _boolean(self, schema: Mapping[str, Any], where: str, node: Node) -> tuple[str, Check]:
        del schema, where, node
        return "true or false", anything

    def _integer(self, schema: Mapping[str, Any], where: str, node: Node) -> tuple[str, Check]:
        allowed, fits = keywords.numeric("a whole number", schema, where)
        say = _sayer(node, allowed, schema)

        def check(value: Any) -> Any:
            if type(value) is float:
                if not value.is_integer():
                    raise Wrong(f"must be {say()}, not {wording.shown(value)}")
                value = int(value)
                if not soundness.SMALLEST <= value <= soundness.LARGEST:
                    raise Wrong(soundness.too_large(value))
            if not fits(value):
                raise Wrong(f"must be {say()}, not {wording.shown(value)}")
            return value

        return allowed, check

    def _number(self, schema: Mapping[str, Any], where: str, node: Node) -> tuple[str, Check]:
        allowed, fits = keywords.numeric("a number", schema, where)
        say = _sayer(node, allowed, schema)

        def check(value: Any) -> Any:
            if not fits(value):
                raise Wrong(f"must be {say()}, not {wording.shown(value)}")
            return value

        return allowed, check

    def _string(self, schema: Mapping[str, Any], where: str, node: Node) -> tuple[str, Check]:
        least, most, counted = keywords.counts(schema, "minLength", "maxLength", "character", where)
        allowed = f"text{counted}"
        tests: list[Callable[[str], object]] = []
        if "pattern" in schema:
            tests.append(keywords.pattern(schema["pattern"], where).search)
            allowed += f" that matches {schema['pattern']}"
        if "format" in schema:
            if schema["format"] not in formats.FORMATS:
                raise ValueError(
                    f"{where}: the format {schema['format']!r} is not one of "
                    f"{', '.join(formats.FORMATS)}."
                )
            described, has_format = formats.FORMATS[schema["format"]]
            tests.append(has_format)
            allowed = described if allowed == "text" else f"{allowed}: {described}"
        say = _sayer(node, allowed, schema)

        def check(value: str) -> str:
            if not least <= len(value) <= most:
                raise Wrong(f"must be {say()}; this has {len(value):,}")
            for test in tests:
                if not test(value):
                    raise Wrong(f"must be {say()}, not {wording.shown(value)}")
            return value

        return allowed, check if tests or counted else anything

    def _array(self, schema: Mapping[str, Any], where: str, node: Node) -> tuple[str, Check]:
        least, most, counted = keywords.counts(schema, "minItems", "maxItems", "item", where)
        unique = keywords.flag(schema, "uniqueItems", where)
        allowed = f"a list{counted}{' without repetitions' if unique else ''}"
        item_check = (
            self._compile(schema["items"], f"{where}.items").check if "items" in schema else None
        )
        say = _sayer(node, allowed, schema)

        def check(value: list[Any]) -> list[Any]:
            if not least <= len(value) <= most:
                raise Wrong(f"must be {say()}; this has {len(value):,}")
            if unique and (repeated := equality.repeated(value)) is not None:
                raise Wrong(f"must be {say()}; {wording.shown(value[repeated])} is there twice")
            if item_check is None:
                return value
            checked: list[Any] = []
            try:
                for item in value:
                    checked.append(item_check(item))
            except Wrong as wrong:
                wrong.path.insert(0, len(checked))
                raise
            return checked

        plain = item_check is None and not counted and not unique
        return allowed, anything if plain else check

    def _object(self, schema: Mapping[str, Any], where: str, node: Node) -> tuple[str, Check]:
        del node
        properties = keywords.mapping(schema.get("properties", {}), f"{where}.properties")
        nodes = {name: self._compile(said, f"{where}.{name}") for name, said in properties.items()}
        checks = {name: node.check for name, node in nodes.items()}
        required = keywords.names(schema.get("required", ()), f"{where}.required")
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
                        raise Wrong(wording.unknown(name, checks))
                    else:
                        checked[name] = other_check(item)
            except Wrong as wrong:
                wrong.path.insert(0, name)
                raise
            if not needed <= checked.keys():
                missing = next(name for name in required if name not in checked)
                allowed = nodes[missing].allowed if missing in nodes else ""
                expected = f": {allowed}" if allowed else ""
                raise Wrong(f"is required{expected}", missing)
            for name, default in constant:
                if name not in checked:
                    checked[name] = default
            for name, default in fresh:
                if name not in checked:
                    checked[name] = deepcopy(default)
            return checked

        plain = not checks and not needed and "additionalProperties" not in schema
        return "an object", anything if plain else check

    def _defaults_of(
        self, properties: Mapping[str, Any], nodes: Mapping[str, Node], where: str
    ) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
        """The properties' defaults: those that can be shared, and those that must be copied."""
        constant: list[tuple[str, Any]] = []
        fresh: list[tuple[str, Any]] = []

        def check_defaults() -> None:
            for name, said in properties.items():
                if not isinstance(said, Mapping) or "default" not in said:
                    continue
                try:
                    soundness.refuse_unsound(said["default"], 1)
                    default = nodes[name].check(said["default"])
                except Wrong as wrong:
                    raise ValueError(
                        f"{where}.{name}: the default {wording.path(wrong.path)} {wrong.says}."
                    ) from None
                target = fresh if isinstance(default, list | dict) else constant
                target.append((name, default))

        self._check_defaults.append(check_defaults)
        return constant, fresh

    def _reference(self, reference: object, where: str) -> Node:
        name = keywords.referred(reference)
        if name not in self._schemas:
            raise ValueError(
                f"{where}: {reference!r} is not '#/$defs/NAME' with a NAME that is declared."
            )
        return self._declared(name)


def _by_type(by_type: Mapping[type, Check], node: Node) -> Check:
    if len(by_type) == len(ALL_TYPES) and set(by_type.values()) == {anything}:
        return anything

    def check(value: Any) -> Any:
        check = by_type.get(type(value))
        if check is None:
            raise Wrong(f"must be {node.allowed}, not {wording.shown(value)}")
        return check(value)

    return check


def _with_shortcut(schema: Mapping[str, Any], thorough: Check) -> Check:
    """The same check, quicker for a plain value that fits."""
    kind = schema.get("type")
    if kind == "string" and not schema.keys() & {"pattern", "format"}:
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength", inf)

        def text(value: Any) -> Any:
            if type(value) is str and shortest <= len(value) <= longest:
                return value
            return thorough(value)

        return text
    if kind == "integer" and not schema.keys() & {*keywords.UNUSUAL_LIMITS}:
        least, most = schema.get("minimum", -inf), schema.get("maximum", inf)

        def whole(value: Any) -> Any:
            if type(value) is int and least <= value <= most:
                return value
            return thorough(value)

        return whole
    return thorough


def _sayer(node: Node, allowed: str, schema: Mapping[str, Any]) -> Callable[[], str]:
    """All that is allowed if the schema names its types, or else what is for this type."""
    return (lambda: node.allowed) if "type" in schema else (lambda: allowed)
