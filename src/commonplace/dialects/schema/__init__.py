"""Arguments of a tool checked against its JSON Schema, with messages that a person can act on.

A schema is compiled once to nested functions, so that a call costs microseconds. Only the keywords
in `keywords.py` are understood, and any other is refused when the schema is compiled: nothing that
a schema says goes unchecked. Patterns are ours, never a caller's, and follow ECMA 262 where Python
differs: `$` is the very end, `\\d` and `\\w` are ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from commonplace.dialects.schema.compiler import Compiler
from commonplace.dialects.schema.nodes import Check, Wrong
from commonplace.dialects.schema.soundness import MAX_DEPTH, refuse_unsound
from commonplace.dialects.schema.wording import SHOWN, path
from commonplace.errors import InvalidInput

__all__ = ["MAX_DEPTH", "SHOWN", "Checker", "compile"]


def compile(schema: Mapping[str, Any]) -> Checker:
    """The schema of a tool's arguments as a check; ValueError if any of it is not understood."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ValueError("A tool's arguments must be declared as {'type': 'object', …}.")
    return Checker(Compiler(schema).root.check)


@dataclass(frozen=True, slots=True)
class Checker:
    """A compiled schema."""

    _check: Check

    def check(self, arguments: object) -> dict[str, Any]:
        """The arguments with declared defaults filled in; the given ones are not changed.

        InvalidInput, naming the field, what was wrong and what is allowed, if they do not fit.
        Beside what the schema says, nothing passes that JSON cannot carry and a store not keep:
        NaN, infinities, whole numbers beyond 64 bits, half characters, NUL, depths beyond 64.
        """
        try:
            refuse_unsound(arguments, 1)
            checked: dict[str, Any] = self._check(arguments)
        except Wrong as wrong:
            field = path(wrong.path)
            end = "" if wrong.says.endswith("?") else "."
            raise InvalidInput(f"{field} {wrong.says}{end}", field=field) from None
        return checked
