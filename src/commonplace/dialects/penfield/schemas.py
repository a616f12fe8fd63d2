"""The pieces that the schemas of tools and endpoints are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.dialects.contract import Schema
from commonplace.dialects.penfield.kinds import TYPES
from commonplace.dialects.penfield.relations import RELATIONS

CONTENT_CHARS = 10_000
QUERY_CHARS = 4_000
NAME_CHARS = 200
DESCRIPTION_CHARS = 8_000
PATH_CHARS = 5_000  # longer than any valid one: the path rules say what is wrong with it

UUID: Schema = {"type": "string", "format": "uuid"}
TEXT: Schema = {"type": "string"}
CONTENT: Schema = {"type": "string", "minLength": 1, "maxLength": CONTENT_CHARS}
QUERY: Schema = {"type": "string", "minLength": 1, "maxLength": QUERY_CHARS}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
FLAG: Schema = {"type": "boolean"}
TAGS: Schema = {"type": "array", "items": {"type": "string", "maxLength": 1_000}, "maxItems": 100}
TYPE: Schema = {"type": "string", "enum": list(TYPES)}
RELATION: Schema = {"type": "string", "enum": list(RELATIONS)}
OBJECT: Schema = {"type": "object"}
DATE: Schema = {"type": "string", "maxLength": 64, "description": "ISO 8601."}


def maybe(schema: Schema) -> Schema:
    """The same, or null for not given."""
    taken = dict(schema)
    kinds = taken.get("type", [])
    taken["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
    if "enum" in taken:
        taken["enum"] = [*taken["enum"], None]
    return taken


def whole(least: int, most: int, default: int | None = None) -> Schema:
    """A whole number within bounds."""
    taken: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    return taken if default is None else {**taken, "default": default}


def listed(item: Schema, most: int) -> Schema:
    """A list of some."""
    return {"type": "array", "items": item, "maxItems": most}


def takes(required: Sequence[str] = (), /, **properties: Schema) -> Schema:
    """Arguments of these names and no others."""
    taken: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        taken["required"] = list(required)
    return {**taken, "additionalProperties": False}


def gives(**properties: Schema) -> Schema:
    """A result that has at least these keys."""
    return {"type": "object", "properties": properties, "required": list(properties)}
