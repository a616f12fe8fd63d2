"""The words of a message: where something is, what it is, and what may have been meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Final

from commonplace.text.prose import visible

SHOWN: Final = 60
"""Characters of a value that a message repeats at most."""

_NAME = re.compile(r"[^\W\d][\w-]{0,59}", re.ASCII)


def path(steps: Sequence[str | int]) -> str:
    """The place as a person writes it: scenes[0].when."""
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
    """A value as a message may repeat it: short, and with nothing in it that cannot be seen."""
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
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def capped(words: str) -> str:
    return words if len(words) <= 300 else f"{words[:299]}…"


def meant(name: str, known: Iterable[str]) -> str:
    # Comparing takes the square of the length, and nobody mistypes that much.
    close = get_close_matches(name, [*known], n=1) if len(name) <= SHOWN else []
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown(name: str, known: Iterable[str]) -> str:
    if close := meant(name, known):
        return f"is not known here{close}"
    names = [*known]
    if not names:
        return "is not known here; no names are allowed"
    return f"is not known here; known are {capped(', '.join(names))}"
