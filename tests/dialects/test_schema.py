"""Arguments checked against a schema: what passes, what is filled in, and what is said."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from commonplace.dialects import registry
from commonplace.dialects.being import bridges
from commonplace.dialects.json_values import MAX_VALUE_CHARS
from commonplace.dialects.schema import (
    FORMATS,
    KEYWORDS,
    MAX_DEPTH,
    TYPES,
    UnsupportedSchema,
    compile,
)
from commonplace.errors import InvalidInput

SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 500},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
        "tags": {
            "type": "array",
            "items": {"type": "string", "maxLength": 64},
            "maxItems": 20,
        },
        "sort": {"type": "string", "enum": ["newest", "oldest", "best"], "default": "best"},
        "since": {"type": ["string", "null"], "format": "date", "description": "from when on"},
    },
    "required": ["query"],
    "additionalProperties": False,
}


def one(schema: Any, **more: Any) -> dict[str, Any]:
    """A tool with a single argument `x`."""
    return {"type": "object", "properties": {"x": schema}, "additionalProperties": False, **more}


def refusal(schema: dict[str, Any], arguments: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        compile(schema).check(arguments)
    return caught.value


# --- the same verdict as jsonschema -------------------------------------------------------------

NUMBERS = st.sampled_from([-2, -1, 0, 1, 2, 3, 10, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 1e300])
WORDS = st.sampled_from(
    [
        *("", "a", "b", "ab", "abc", "ä", "猫猫", "👩‍💻", "1", "true"),
        *("2024-02-29", "2023-02-29", "2024-1-1"),
        *("123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"),
    ]
)
SCALARS = st.one_of(NUMBERS, WORDS, st.booleans(), st.none())
NAMES = st.sampled_from(["a", "b", "c", "ä"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
COUNTS = st.integers(0, 3)
LIMITS = {
    "string": {
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "format": st.sampled_from([*FORMATS]),
    },
    "integer": {"minimum": NUMBERS, "maximum": NUMBERS},
    "number": {"minimum": NUMBERS, "maximum": NUMBERS},
    "array": {"minItems": COUNTS, "maxItems": COUNTS},
}


def typed(
    kinds: list[str], inner: st.SearchStrategy[Any] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of these types, with any of the keywords that go with one of them."""
    optional: dict[str, st.SearchStrategy[Any]] = {"description": st.just("What it is.")}
    for kind in kinds:
        optional |= LIMITS.get(kind, {})
    if inner is not None and "array" in kinds:
        optional["items"] = inner
    if inner is not None and "object" in kinds:
        optional["properties"] = st.dictionaries(NAMES, inner, max_size=3)
        optional["required"] = st.lists(NAMES, max_size=2, unique=True)
        optional["additionalProperties"] = st.just(False)
    said = kinds[0] if len(kinds) == 1 else kinds
    return st.fixed_dictionaries({"type": st.just(said)}, optional=optional)


KINDS = st.lists(st.sampled_from([*TYPES]), min_size=1, max_size=3, unique=True)
NAMED = st.lists(st.one_of(WORDS, st.none()), min_size=1, max_size=3, unique=True)
LEAVES = st.one_of(
    KINDS.flatmap(typed),
    NAMED.map(lambda values: {"enum": values}),
    NAMED.map(lambda values: {"type": ["string", "null"], "enum": values}),
    st.just({}),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        KINDS.flatmap(lambda kinds: typed(kinds, inner)),
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
    ),
    max_leaves=5,
)


def accepted_by_us(schema: dict[str, Any], arguments: Any) -> bool:
    try:
        compile(schema).check(arguments)
    except InvalidInput as refused:
        assert refused.field
        assert refused.message[-1] in ".?"
        assert len(refused.message) < 1_000
        return False
    return True


def accepted_by_jsonschema(schema: dict[str, Any], arguments: Any) -> bool:
    checker = Draft202012Validator.FORMAT_CHECKER
    return bool(Draft202012Validator(schema, format_checker=checker).is_valid(arguments))


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, VALUES)
def test_the_verdict_is_that_of_jsonschema(schema: Any, value: Any) -> None:
    tool = one(schema)
    before = copy.deepcopy(value)
    ours = accepted_by_us(tool, {"x": value})
    assert value == before
    # jsonschema takes 1e300 for an integer, which is one of 997 bits; we allow 64.
    if not _too_large_an_integer(tool, {"x": value}):
        assert ours == accepted_by_jsonschema(tool, {"x": value})


def _too_large_an_integer(schema: dict[str, Any], value: Any) -> bool:
    return "1e+300" in repr(value) and "integer" in repr(schema)


@settings(max_examples=150, deadline=None)
@given(LEAVES, SCALARS)
def test_the_verdict_on_one_plain_value_is_that_of_jsonschema(schema: Any, value: Any) -> None:
    if not _too_large_an_integer(one(schema), value):
        assert accepted_by_us(one(schema), {"x": value}) == accepted_by_jsonschema(
            one(schema), {"x": value}
        )


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*SEARCH["properties"], "other"]), VALUES, max_size=6)  # type: ignore[misc]
)
def test_a_real_tool_takes_what_jsonschema_takes(arguments: dict[str, Any]) -> None:
    assert accepted_by_us(SEARCH, arguments) == (
        accepted_by_jsonschema(SEARCH, arguments) and arguments.get("limit") != 1e300
    )


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, VALUES)
def test_what_was_checked_and_filled_in_passes_again_unchanged(schema: Any, value: Any) -> None:
    checker = compile(one(schema))
    try:
        checked = checker.check({"x": value})
    except InvalidInput:
        return
    assert checked == {"x": value}  # these schemas declare no defaults
    assert checker.check(checked) == checked


# --- what is said -------------------------------------------------------------------------------

SCENES = one(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"when": {"type": "string", "format": "date"}},
            "required": ["when"],
        },
    }
)
LOCKED = {"type": "object", "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "arguments", "field", "message"),
    [
        (
            SEARCH,
            {"query": "a", "limit": 900},
            "limit",
            "must be a whole number from 1 to 50, not 900.",
        ),
        (
            SEARCH,
            {"query": "a", "limit": 2.5},
            "limit",
            "must be a whole number from 1 to 50, not 2.5.",
        ),
        (
            SEARCH,
            {"query": "a", "limit": True},
            "limit",
            "must be a whole number from 1 to 50, not true.",
        ),
        (
            SEARCH,
            {"query": "a", "limit": "5"},
            "limit",
            "must be a whole number from 1 to 50, not '5'.",
        ),
        (
            SEARCH,
            {"query": "a", "limit": None},
            "limit",
            "must be a whole number from 1 to 50, not null.",
        ),
        (
            SEARCH,
            {"query": "a", "limit": [1]},
            "limit",
            "must be a whole number from 1 to 50, not a list.",
        ),
        (SEARCH, {"query": ""}, "query", "must be text of 1 to 500 characters; this has 0."),
        (
            SEARCH,
            {"query": "x" * 1_234},
            "query",
            "must be text of 1 to 500 characters; this has 1,234.",
        ),
        (SEARCH, {"query": {}}, "query", "must be text of 1 to 500 characters, not an object."),
        (SEARCH, {}, "query", "is required: text of 1 to 500 characters."),
        (SEARCH, {"query": "a", "limt": 5}, "limt", "is unknown; did you mean 'limit'?"),
        (
            SEARCH,
            {"query": "a", "zz": 5},
            "zz",
            "is unknown; allowed are query, limit, tags, sort, since.",
        ),
        (LOCKED, {"a": 1}, "a", "is unknown; no names are allowed."),
        (
            SEARCH,
            {"query": "a", "sort": "nwest"},
            "sort",
            "must be one of 'newest', 'oldest' or 'best', not 'nwest'; did you mean 'newest'?",
        ),
        (
            SEARCH,
            {"query": "a", "sort": 3},
            "sort",
            "must be one of 'newest', 'oldest' or 'best', not 3.",
        ),
        (
            SEARCH,
            {"query": "a", "tags": ["a", 5]},
            "tags[1]",
            "must be text of at most 64 characters, not 5.",
        ),
        (
            SEARCH,
            {"query": "a", "tags": [*"abcdefghijklmnopqrstu"]},
            "tags",
            "must be a list of at most 20 items; this has 21.",
        ),
        (
            SEARCH,
            {"query": "a", "since": "soon"},
            "since",
            "must be a date such as 2026-11-02 or null, not 'soon'.",
        ),
        (
            SEARCH,
            {"query": "a", "since": 5},
            "since",
            "must be a date such as 2026-11-02 or null, not 5.",
        ),
        (SEARCH, [], "arguments", "must be an object, not an empty list."),
        (SEARCH, None, "arguments", "must be an object, not null."),
        (
            SCENES,
            {"x": [{"when": "now"}]},
            "x[0].when",
            "must be a date such as 2026-11-02, not 'now'.",
        ),
        (
            SCENES,
            {"x": [{"when": "2026-11-02"}, {}]},
            "x[1].when",
            "is required: a date such as 2026-11-02.",
        ),
        (
            one({"type": "number", "maximum": 1}),
            {"x": 1.5},
            "x",
            "must be a number of at most 1, not 1.5.",
        ),
        (
            one({"type": "number", "minimum": 0}),
            {"x": -0.5},
            "x",
            "must be a number of at least 0, not -0.5.",
        ),
        (
            one({"type": "string", "minLength": 4, "maxLength": 4}),
            {"x": "abc"},
            "x",
            "must be text of exactly 4 characters; this has 3.",
        ),
        (
            one({"type": "array", "minItems": 1}),
            {"x": []},
            "x",
            "must be a list of at least 1 item; this has 0.",
        ),
        (one({"enum": ["yes"]}), {"x": "no"}, "x", "must be 'yes', not 'no'."),
        (one({"type": "boolean"}), {"x": 1}, "x", "must be true or false, not 1."),
        (
            one({"enum": ["a", "b", None]}),
            {"x": False},
            "x",
            "must be one of 'a', 'b' or null, not false.",
        ),
        (
            one({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            {"x": None},
            "x",
            "must be text or a whole number, not null.",
        ),
        (
            one({"anyOf": [{"type": "null"}, {"type": "integer", "maximum": 3}]}),
            {"x": 4},
            "x",
            "must be a whole number of at most 3, not 4.",
        ),
        (
            one({"type": "object", "properties": {"a b": {"type": "integer"}}}),
            {"x": {"a b": "c"}},
            "x['a b']",
            "must be a whole number, not 'c'.",
        ),
        (
            one({"type": "string", "format": "uuid"}),
            {"x": "1"},
            "x",
            "must be a UUID such as 123e4567-e89b-12d3-a456-426614174000, not '1'.",
        ),
    ],
)
def test_a_refusal_names_the_field_what_was_wrong_and_what_is_allowed(
    schema: dict[str, Any], arguments: Any, field: str, message: str
) -> None:
    refused = refusal(schema, arguments)
    assert refused.field == field
    assert str(refused) == f"{field} {message}"


# --- limits, at, below and above ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        ({"type": "integer", "minimum": 1}, [1, 2, 1.0], [0, -1]),
        ({"type": "integer", "maximum": 50}, [50, 49, 50.0], [51, 51.0]),
        ({"type": "number", "minimum": 0.5}, [0.5, 0.75, 1], [0.49, 0]),
        ({"type": "number", "maximum": 0.5}, [0.5, 0.25, 0], [0.51, 1]),
        ({"type": "string", "minLength": 2}, ["ab", "猫猫", "a👍"], ["a", "猫", "👍"]),
        ({"type": "string", "maxLength": 2}, ["", "ab", "👍👍"], ["abc", "👍👍👍"]),
        ({"type": "array", "minItems": 1}, [[1], [1, 2]], [[]]),
        ({"type": "array", "maxItems": 1}, [[], [1]], [[1, 2]]),
        ({"type": "integer"}, [2**63 - 1, -(2**63)], [2**63, -(2**63) - 1, 1e19, 10**5_000]),
        ({}, [2**63 - 1, -(2**63), 1e300], [2**63, -(2**63) - 1, 10**5_000]),
    ],
)
def test_every_limit_is_inclusive_where_it_says_so(
    schema: dict[str, Any], accepted: list[Any], refused: list[Any]
) -> None:
    for value in accepted:
        assert compile(one(schema)).check({"x": value}) == {"x": value}
    for value in refused:
        assert refusal(one(schema), {"x": value}).field == "x"


@pytest.mark.parametrize(
    ("format", "accepted", "refused"),
    [
        (
            "date",
            ["2026-11-02", "2024-02-29"],
            [
                "2023-02-29",
                "2026-11-2",
                "20261102",
                "2026-11-02 ",
                "２０２６-11-02",
                "0000-01-01",
                "2026-W01-1",
            ],
        ),
        (
            "uuid",
            ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"],
            [
                "123e4567e89b12d3a456426614174000",
                "{123e4567-e89b-12d3-a456-426614174000}",
                "123e4567-e89b-12d3-a456-42661417400g",
                "",
            ],
        ),
    ],
)
def test_formats_are_asserted(format: str, accepted: list[str], refused: list[str]) -> None:
    checker = compile(one({"type": "string", "format": format}))
    for value in accepted:
        assert checker.check({"x": value})
    for value in refused:
        with pytest.raises(InvalidInput):
            checker.check({"x": value})


# --- defaults -----------------------------------------------------------------------------------


def test_declared_defaults_are_filled_in_and_the_arguments_left_alone() -> None:
    given = {"query": "tea"}
    assert compile(SEARCH).check(given) == {"query": "tea", "limit": 10, "sort": "best"}
    assert given == {"query": "tea"}


def test_what_was_given_is_never_replaced_by_a_default() -> None:
    checker = compile(one({"type": ["integer", "null"], "default": 5}))
    assert checker.check({"x": None}) == {"x": None}
    assert checker.check({"x": 0}) == {"x": 0}


def test_defaults_reach_nested_objects_items_and_branches() -> None:
    page = {"type": "object", "properties": {"size": {"type": "integer", "default": 20}}}
    schema = {
        "type": "object",
        "properties": {
            "page": {**page, "default": {}},
            "pages": {"type": "array", "items": page},
            "either": {"anyOf": [{"type": "null"}, page]},
        },
    }
    assert compile(schema).check({"pages": [{}, {"size": 1}], "either": {}}) == {
        "page": {"size": 20},
        "pages": [{"size": 20}, {"size": 1}],
        "either": {"size": 20},
    }


def test_a_default_list_is_not_shared_between_calls() -> None:
    checker = compile(one({"type": "array", "default": [1, [2]]}))
    checker.check({})["x"][1].append(3)
    assert checker.check({}) == {"x": [1, [2]]}


def test_a_required_argument_is_required_even_with_a_default() -> None:
    refused = refusal(one({"type": "integer", "default": 1}, required=["x"]), {})
    assert str(refused) == "x is required: a whole number."


def test_a_whole_number_written_as_a_fraction_becomes_whole() -> None:
    checked = compile(one({"type": "integer"})).check({"x": 3.0})
    assert type(checked["x"]) is int
    checked = compile(one({"type": "integer"})).check({"x": -0.0})
    assert repr(checked["x"]) == "0"


# --- hostile values -----------------------------------------------------------------------------

OPEN = {"type": "object"}


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("schema", [OPEN, one({}), one({"anyOf": [{}, {"enum": ["a"]}]})])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (math.nan, "finite"),
        (math.inf, "finite"),
        (-math.inf, "finite"),
        pytest.param(10**5_000, "64 bits", id="huge"),
        (-(2**63) - 1, "64 bits"),
        ("cut \ud83d", "U+D83D"),
        ("\udc4d", "position 0"),
        ("a\x00b", "NUL"),
        (b"bytes", "bytes"),
        ((1, 2), "tuple"),
        ({1: 2}, "names"),
        ({"a\ud800": 1}, "U+D800"),
        ({"a\x00": 1}, "NUL"),
        (object(), "object"),
    ],
)
def test_what_json_cannot_carry_is_refused_wherever_it_stands(
    schema: dict[str, Any], value: Any, says: str
) -> None:
    for hidden in (value, [value], {"deep": [1, value]}):
        refused = refusal(schema, {"x": hidden})
        assert says in refused.message
        assert refused.field is not None
        assert refused.field.startswith("x")
        refused.message.encode()


def test_depth_is_limited() -> None:
    assert compile(OPEN).check({"x": nested(MAX_DEPTH - 1)})
    assert f"at most {MAX_DEPTH} levels" in refusal(OPEN, {"x": nested(MAX_DEPTH)}).message
    assert "levels" in refusal(OPEN, {"x": nested(900)}).message
    endless: list[Any] = []
    endless.append(endless)
    assert "levels" in refusal(OPEN, {"x": endless}).message


@pytest.mark.parametrize(
    "value", ["x" * 10**6, "\u202e" * 10**6, "猫" * 61, "\n" * 100, "'" * 1_000, "\x1b[31m" * 50]
)
@pytest.mark.parametrize(
    "schema", [SEARCH, one({"enum": ["a"]}), one({"type": "string", "format": "date"})]
)
def test_an_over_long_value_or_name_is_never_repeated_whole(schema: Any, value: str) -> None:
    for arguments in ({"x": value}, {value: 1}, {"x": 1, value * 2: 1}, {"query": "a", value: 1}):
        try:
            compile(schema).check(arguments)
        except InvalidInput as refused:
            assert len(refused.message) < 4 * MAX_VALUE_CHARS
            assert refused.message.isprintable()
            assert len(str(refused.field)) <= MAX_VALUE_CHARS + 2
        else:
            assert arguments == {"x": 1}


def test_a_long_unknown_name_takes_no_time() -> None:
    started = time.perf_counter()
    refusal(SEARCH, {"limit" * 200_000: 1})
    assert time.perf_counter() - started < 0.5


# --- schemas that are refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({}, "'type': 'object'"),
        ({"type": "string"}, "'type': 'object'"),
        (one({"type": "string", "maxlength": 3}), "arguments.x: 'maxlength' is not supported"),
        (one({"items": {"if": {}}, "type": "array"}), "arguments.x.items: 'if' is not supported"),
        (one({"$ref": "#/$defs/a"}) | {"$defs": {}}, "arguments: '$defs' is not supported"),
        (one({"anyOf": [{"oneOf": []}]}), "arguments.x.anyOf[0]: 'oneOf' is not supported"),
        (one({"type": "object", "additionalProperties": {}}), "'additionalProperties'"),
        (one({"type": "string", "minimum": 3}), "'minimum' does not apply to type string"),
        (one({"minimum": 3}), "'type'"),
        (one({"type": "text"}), "'type'"),
        (one({"type": []}), "'type'"),
        (one({"type": "string", "format": "email"}), "'email'"),
        (one({"enum": []}), "'enum'"),
        (one({"enum": [1]}), "'enum'"),
        (one({"enum": [None], "type": "string"}), "'enum'"),
        (one({"enum": ["a"], "maxLength": 3}), "'enum'"),
        (one({"anyOf": []}), "'anyOf'"),
        (one({"anyOf": [{}], "type": "string"}), "'anyOf'"),
        (one([]), "arguments.x"),
        (one(True), "arguments.x"),
        (one({"type": "integer", "maximum": 3, "default": 4}), "default"),
        (one({"type": "array", "items": {"type": "string"}, "default": ["a", 1]}), "[1]"),
    ],
)
def test_a_schema_that_cannot_be_checked_in_full_does_not_compile(schema: Any, says: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        compile(schema)
    assert says in str(caught.value)


# --- the schemas that the dialects declare -------------------------------------------------------


def declared() -> Iterator[Mapping[str, Any]]:
    for name in registry.names():
        dialect = registry.load(name)
        yield from (tool.input for tool in (*dialect.tools, *dialect.operations))
    bridge = bridges.parse_capability({"type": "act", "name": "lamp"})
    yield bridges._act_tool(bridge, dict).input


def inside(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema and all that stand in it."""
    yield schema
    parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for part in [*parts, *([schema["items"]] if "items" in schema else [])]:
        yield from inside(part)


def test_every_declared_schema_is_sound_and_compiles() -> None:
    for schema in declared():
        Draft202012Validator.check_schema(schema)
        compile(schema)


def test_exactly_the_keywords_types_and_formats_that_dialects_use_are_supported() -> None:
    every = [part for schema in declared() for part in inside(schema)]
    assert {keyword for part in every for keyword in part} == KEYWORDS
    assert {part["format"] for part in every if "format" in part} == set(FORMATS)
    kinds = [part["type"] for part in every if "type" in part]
    assert {name for kind in kinds for name in ([kind] if isinstance(kind, str) else kind)} == set(
        TYPES
    )


def test_a_typical_call_costs_microseconds() -> None:
    checker = compile(SEARCH)
    arguments = {"query": "tea", "limit": 5, "tags": ["a", "b"], "sort": "best", "since": None}
    best = math.inf
    for _ in range(50):
        started = time.perf_counter()
        for _ in range(200):
            checker.check(arguments)
        best = min(best, (time.perf_counter() - started) / 200)
    assert best < 50e-6  # about 4 on a quiet machine; this only catches a mistake


def test_ignored_names_are_left_out_and_named_with_their_place() -> None:
    closed = {"type": "object", "properties": {"a": {"type": "integer"}}}
    closed["additionalProperties"] = False
    schema = {
        "type": "object",
        "properties": {"one": closed, "many": {"type": "array", "items": closed}},
        "additionalProperties": False,
    }
    given = {"one": {"a": 1, "b": 2}, "many": [{"a": 1}, {"c": 2}], "d": {"e": 1}}
    ignored: list[str] = []
    checked = compile(schema).check(given, ignored)
    assert checked == {"one": {"a": 1}, "many": [{"a": 1}, {}]}
    assert ignored == ["one.b", "many.items.c", "d"]
    with pytest.raises(InvalidInput, match="b"):
        compile(schema).check(given)
    with pytest.raises(InvalidInput, match="NUL"):  # what cannot be stored is refused all the same
        compile(schema).check({"d": "\0"}, [])


def test_of_several_branches_the_one_that_ignores_the_fewest_names_is_chosen() -> None:
    def branch(name: str) -> dict[str, Any]:
        held = {name: {"type": "integer"}}
        return {"type": "object", "properties": held, "additionalProperties": False}

    schema = {
        "type": "object",
        "properties": {"it": {"anyOf": [branch("a"), branch("b")]}},
        "additionalProperties": False,
    }
    ignored: list[str] = []
    assert compile(schema).check({"it": {"b": 1}}, ignored) == {"it": {"b": 1}}
    assert ignored == []
    assert compile(schema).check({"it": {"b": 1, "c": 2}}, ignored) == {"it": {"b": 1}}
    assert ignored == ["it.anyOf[1].c"]
