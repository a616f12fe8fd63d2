"""Functions that build the JSON Schemas of tools and operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.dialects.contract import Schema

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
OBJECT: Schema = {"type": "object"}


def text(description: str, **more: Any) -> Schema:
    """Return the schema of a string, with a description."""
    return {"type": "string", "description": description, **more}


def array(item: Schema, most: int | None = None, **more: Any) -> Schema:
    """Return the schema of an array of at most `most` items."""
    limit = {} if most is None else {"maxItems": most}
    return {"type": "array", "items": item, **limit, **more}


def integer(least: int, most: int | None = None, default: int | None = None) -> Schema:
    """Return the schema of an integer within bounds."""
    optional = {"maximum": most, "default": default}
    given = {name: value for name, value in optional.items() if value is not None}
    return {"type": "integer", "minimum": least, **given}


def nullable(schema: Schema) -> Schema:
    """Return a copy of the schema that also allows null."""
    types = schema.get("type", [])
    changed = {"type": [*([types] if isinstance(types, str) else types), "null"]}
    return {**schema, **changed, **({"enum": [*schema["enum"], None]} if "enum" in schema else {})}


def object_of(required: Sequence[str] = (), /, **properties: Schema) -> Schema:
    """Return the schema of an object with these properties; other properties are allowed."""
    schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def input_schema(required: Sequence[str] = (), /, **properties: Schema) -> Schema:
    """Return the input schema of a tool with these arguments; other arguments are refused."""
    return {**object_of(required, **properties), "additionalProperties": False}


def output_schema(*required: str, **properties: Schema) -> Schema:
    """Return the output schema of a tool: an object that has at least these keys."""
    described = {"properties": properties} if properties else {}
    return {"type": "object", **described, "required": [*required, *properties]}
