"""What the rest of the program may know of a database connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol


class Rows(Protocol):
    """A connection inside a snapshot or a unit of work.

    Only `storage/` calls its methods. Elsewhere it is passed on to functions of `storage/`, so that
    several of them run in one transaction.
    """

    def execute(self, statements: str, bindings: Any = None, /) -> Any:
        """Run a statement; the result can be iterated, and has `fetchone` and `fetchall`."""

    def executemany(self, statements: str, sequenceofbindings: Iterable[Any], /) -> Any:
        """Run a statement once for each set of bindings."""
