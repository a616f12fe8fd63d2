"""Schemas that only the tools and endpoints of this dialect use."""

from __future__ import annotations

from commonplace.dialects.contract import Schema
from commonplace.dialects.penfield.kinds import TYPES
from commonplace.dialects.penfield.relations import RELATIONS

CONTENT_CHARS = 10_000
QUERY_CHARS = 4_000
NAME_CHARS = 200
DESCRIPTION_CHARS = 8_000
PATH_CHARS = 5_000  # longer than any valid one: the path rules say what is wrong with it

UUID: Schema = {"type": "string", "format": "uuid"}
CONTENT: Schema = {"type": "string", "minLength": 1, "maxLength": CONTENT_CHARS}
QUERY: Schema = {"type": "string", "minLength": 1, "maxLength": QUERY_CHARS}
TAGS: Schema = {"type": "array", "items": {"type": "string", "maxLength": 1_000}, "maxItems": 100}
TYPE: Schema = {"type": "string", "enum": list(TYPES)}
RELATION: Schema = {"type": "string", "enum": list(RELATIONS)}
DATE: Schema = {"type": "string", "maxLength": 64, "description": "ISO 8601."}
