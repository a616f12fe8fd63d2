"""JSON values: which of them can be stored, and how error messages show a value and its path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any, Final

from commonplace.text.hidden import visible

MAX_DEPTH: Final = 64
SHOWN: Final = 60
"""Characters of a value that a message repeats at most."""

_NAME = re.compile(r"[^\W\d][\w-]{0,59}", re.ASCII)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Wrong(Exception):
    """What is wrong, as the rest of a sentence, and the path to it; callers prepend to the path."""

    def __init__(self, says: str, *path: str | int) -> None:
        super().__init__(says)
        self.says = says
        self.path = [*path]


def refuse_unsound(value: Any, depth: int) -> None:
    """Raise Wrong for a value that JSON cannot carry or the store cannot hold."""
    kind = type(value)
    if kind is str:
        _refuse_unsound_text(value)
    elif kind is int:
        refuse_too_large(value)
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
                if kind is dict:
                    if type(step) is not str:
                        raise Wrong("is not a name; the names in an object must be text")
                    _refuse_unsound_text(step)
                # Most values are plain text, for which a call would cost more than the test.
                if type(item) is not str or "\0" in item or not item.isascii():
                    refuse_unsound(item, depth + 1)
        except Wrong as wrong:
            wrong.path.insert(0, step if isinstance(step, str | int) else type(step).__name__)
            raise


def _refuse_unsound_text(text: str) -> None:
    if (nul := text.find("\0")) >= 0:
        raise Wrong(f"must not contain a NUL character (U+0000), as it does at position {nul}")
    if not text.isascii() and (lone := _LONE_SURROGATE.search(text)):
        raise Wrong(
            f"must be valid Unicode; half of a character (U+{ord(lone[0]):04X}) stands alone "
            f"at position {lone.start()}"
        )


def refuse_too_large(value: int) -> None:
    """Raise Wrong for an integer of more than 64 bits."""
    if not -(2**63) <= value < 2**63:
        bits = f"{value.bit_length():,}"
        raise Wrong(f"must be a whole number of at most 64 bits, not one of {bits}")


def path(steps: Sequence[str | int]) -> str:
    """Return a path as people write it: scenes[0].when."""
    written = ""
    for step in steps:
        if isinstance(step, int):
            written += f"[{step}]"
        elif _NAME.fullmatch(step):
            written += f".{step}" if written else step
        else:
            written += f"[{shown(step)}]" if written else shown(step)
    if len(written) > 4 * SHOWN:
        written = f"{written[: 2 * SHOWN]}…{written[-SHOWN:]}"
    return written or "arguments"


def shown(value: Any) -> str:
    """Return a value for an error message: short, and without hidden characters."""
    if isinstance(value, str):
        seen = visible(value[: SHOWN + 1]).replace("\n", "\\n").replace("\t", "\\t")
        return f"'{seen}'" if len(seen) <= SHOWN else f"'{seen[: SHOWN - 1]}…'"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "an object" if isinstance(value, dict) else f"a Python {type(value).__name__}"


def either(phrases: Sequence[str]) -> str:
    """Join phrases: a, b or c."""
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def capped(words: str) -> str:
    """Limit a list of words to 300 characters."""
    return words if len(words) <= 300 else f"{words[:299]}…"


def meant(name: str, known: Iterable[str]) -> str:
    """Return the suggestion for a mistyped name, or an empty text."""
    # Comparing takes the square of the length, and nobody mistypes that much.
    close = get_close_matches(name, [*known], n=1) if len(name) <= SHOWN else []
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown(name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown name."""
    if close := meant(name, known):
        return f"is unknown{close}"
    names = [*known]
    if not names:
        return "is unknown; no names are allowed"
    return f"is unknown; allowed are {capped(', '.join(names))}"
