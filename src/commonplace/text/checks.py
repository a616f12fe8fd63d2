"""Validation of text arguments."""

from __future__ import annotations

import re

from commonplace.errors import InvalidInput

_SURROGATE = re.compile("[\ud800-\udfff]")


def check_text(value: object, field: str, *, max_chars: int, allow_empty: bool = False) -> str:
    """Return the value unchanged if it can be stored as text; raise InvalidInput otherwise."""
    if not isinstance(value, str):
        raise InvalidInput(
            f"'{field}' must be text, not {type(value).__name__}.",
            hint="Send a string.",
            field=field,
        )
    if len(value) > max_chars:
        raise InvalidInput(
            f"'{field}' has {len(value):,} characters; at most {max_chars:,} are allowed.",
            hint="Shorten it, or split it into several.",
            field=field,
        )
    if (nul := value.find("\x00")) >= 0:
        raise InvalidInput(
            f"'{field}' contains a NUL character (U+0000) at position {nul}.",
            hint="Remove it.",
            field=field,
        )
    if not value.isascii() and (lone := _SURROGATE.search(value)):
        raise InvalidInput(
            f"'{field}' is not valid Unicode: half of a character "
            f"(U+{ord(lone[0]):04X}) stands alone at position {lone.start()}.",
            hint="Send well-formed UTF-8; the text was probably cut inside an emoji.",
            field=field,
        )
    if not allow_empty and not value.strip():
        raise InvalidInput(
            f"'{field}' is {'blank' if value else 'empty'}.",
            hint="Send some text.",
            field=field,
        )
    return value if type(value) is str else str.__str__(value)
