"""Schemas that only the tools and endpoints of this dialect use."""

from __future__ import annotations

from collections.abc import Iterable

from commonplace.dialects.contract import Schema
from commonplace.dialects.penfield.kinds import RELATIONS, TYPES
from commonplace.dialects.tool_schemas import FLAG, SHARE

CONTENT_CHARS = 10_000
QUERY_CHARS = 4_000
NAME_CHARS = 200
DESCRIPTION_CHARS = 8_000


def text_schema(most: int, least: int = 0) -> Schema:
    """Return the schema of a text with a maximum length."""
    return {"type": "string", "maxLength": most, **({"minLength": least} if least else {})}


def enum_schema(values: Iterable[str], default: str | None = None) -> Schema:
    """Return the schema of an enumeration."""
    taken = {"type": "string", "enum": list(values)}
    return taken if default is None else {**taken, "default": default}


def share_schema(default: float) -> Schema:
    """Return the schema of a number from 0 to 1."""
    return {**SHARE, "default": default}


FLAG_ON: Schema = {**FLAG, "default": True}
FLAG_OFF: Schema = {**FLAG, "default": False}
UUID: Schema = {"type": "string", "format": "uuid"}
CONTENT = text_schema(CONTENT_CHARS, 1)
QUERY = text_schema(QUERY_CHARS, 1)
# Longer than a valid path, so that `check_path` produces the error message.
PATH = text_schema(5_000)
TAGS: Schema = {"type": "array", "items": text_schema(1_000), "maxItems": 100}
TYPE = enum_schema(TYPES)
RELATION = enum_schema(RELATIONS)
DATE: Schema = {**text_schema(64), "description": "ISO 8601."}
