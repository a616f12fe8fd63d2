"""The JSON Schemas that tools and operations of all dialects are declared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.dialects.contract import Schema

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
OBJECT: Schema = {"type": "object"}


def text(description: str, **more: Any) -> Schema:
    """Text, with what it is for."""
    return {"type": "string", "description": description, **more}


def listed(item: Schema, most: int | None = None, **more: Any) -> Schema:
    """A list, of at most so many items."""
    limit = {} if most is None else {"maxItems": most}
    return {"type": "array", "items": item, **limit, **more}


def whole(least: int, most: int | None = None, default: int | None = None) -> Schema:
    """An integer within bounds."""
    taken: dict[str, Any] = {"type": "integer", "minimum": least}
    taken |= {} if most is None else {"maximum": most}
    return taken if default is None else {**taken, "default": default}


def maybe(schema: Schema) -> Schema:
    """The same, or null for an argument that is not given."""
    taken = dict(schema)
    kinds = taken.get("type", [])
    taken["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
    if "enum" in taken:
        taken["enum"] = [*taken["enum"], None]
    return taken


def held(required: Sequence[str] = (), /, **properties: Schema) -> Schema:
    """An object with these properties, and maybe others."""
    taken: dict[str, Any] = {"type": "object", "properties": properties}
    return {**taken, "required": list(required)} if required else taken


def takes(required: Sequence[str] = (), /, **properties: Schema) -> Schema:
    """Arguments of these names and no others."""
    return {**held(required, **properties), "additionalProperties": False}


def gives(*required: str, **properties: Schema) -> Schema:
    """A result that has at least these keys."""
    described = {"properties": properties} if properties else {}
    return {"type": "object", **described, "required": [*required, *properties]}
