"""Format JSON values, paths and lists of names for error messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Final

from commonplace.text.hidden import escape_hidden

MAX_VALUE_CHARS: Final = 60
"""The maximum length of a value in a message."""

_NAME = re.compile(r"[^\W\d][\w-]{0,59}", re.ASCII)


def path_text(steps: Sequence[str | int]) -> str:
    """Return the path to a value as text, such as scenes[0].when."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _NAME.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{value_text(step)}]" if text else value_text(step)
    if len(text) > 4 * MAX_VALUE_CHARS:
        text = f"{text[: 2 * MAX_VALUE_CHARS]}…{text[-MAX_VALUE_CHARS:]}"
    return text or "arguments"


def value_text(value: Any) -> str:
    """Return a value for an error message: short, and without hidden characters."""
    if isinstance(value, str):
        seen = escape_hidden(value[: MAX_VALUE_CHARS + 1]).replace("\n", "\\n").replace("\t", "\\t")
        return f"'{seen}'" if len(seen) <= MAX_VALUE_CHARS else f"'{seen[: MAX_VALUE_CHARS - 1]}…'"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "an object" if isinstance(value, dict) else f"a Python {type(value).__name__}"


def join_with_or(phrases: Sequence[str]) -> str:
    """Join phrases in the form "a, b or c"."""
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def truncate(words: str) -> str:
    """Limit a list of words to 300 characters."""
    return words if len(words) <= 300 else f"{words[:299]}…"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the suggestion for a mistyped name, or an empty string."""
    # The comparison takes quadratic time, and a long name is not a typing error.
    close = get_close_matches(name, [*known], n=1) if len(name) <= MAX_VALUE_CHARS else []
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown_message(name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown name."""
    if close := suggestion(name, known):
        return f"is unknown{close}"
    names = [*known]
    if not names:
        return "is unknown; no names are allowed"
    return f"is unknown; allowed are {truncate(', '.join(names))}"
