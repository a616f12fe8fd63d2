"""What no argument may be, whatever its schema says: what JSON cannot carry or a store not keep."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from commonplace.dialects.schema.nodes import Wrong

MAX_DEPTH: Final = 64
SMALLEST, LARGEST = -(2**63), 2**63 - 1


def refuse_unsound(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if "\0" in value or not (value.isascii() or _is_unicode(value)):
            raise Wrong(_what_is_unsound(value))
    elif kind is int:
        if not SMALLEST <= value <= LARGEST:
            raise Wrong(too_large(value))
    elif kind is bool or value is None:
        return
    elif kind is float:
        if not isfinite(value):
            raise Wrong("must be a finite number, not NaN or an infinity")
    elif kind is not list and kind is not dict:
        raise Wrong(f"must be a JSON value, not a Python {kind.__name__}")
    elif depth > MAX_DEPTH:
        raise Wrong(f"is nested too deeply; at most {MAX_DEPTH} levels are allowed")
    else:
        step: Any = None
        try:
            for step, item in value.items() if kind is dict else enumerate(value):
                if kind is dict and (type(step) is not str or "\0" in step or not step.isascii()):
                    _refuse_unsound_name(step)
                # Most are plain text, for which a call would cost more than the look.
                if type(item) is not str or "\0" in item or not item.isascii():
                    refuse_unsound(item, depth + 1)
        except Wrong as wrong:
            wrong.path.insert(0, step if isinstance(step, str | int) else type(step).__name__)
            raise


def _refuse_unsound_name(name: Any) -> None:
    if type(name) is not str:
        raise Wrong("is not a name; the names in an object must be text")
    refuse_unsound(name, 0)


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


def too_large(value: int) -> str:
    return f"must be a whole number of at most 64 bits, not one of {value.bit_length():,}"
