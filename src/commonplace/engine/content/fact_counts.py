"""A cached count of the facts of a space and of the entities that they name.

The count is of one committed operation. It is updated by the difference, as the index is: rows that
later operations wrote, and the rows that those replaced. A purge leaves no such rows, so after one
all is counted again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from commonplace.storage import facts, memories
from commonplace.storage.ports import Rows
from commonplace.storage.writing import newest_operation, operation_id


@dataclass(slots=True)
class _Tally:
    facts: int = 0
    uses: Counter[str] = field(default_factory=Counter)
    """How often each name is a subject or an object."""

    def add(self, names: Iterable[str], sign: int) -> None:
        self.facts += sign
        for name in names:
            self.uses[name] += sign


class FactCount:
    """The count of one open space's facts. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seq = -1
        self._operation = ""
        self._kept = _Tally()

    def catch_up(self, connection: Rows, space: str) -> None:
        """Update the count to a snapshot of what is committed."""
        with self._lock:
            seq, operation = newest_operation(connection, space)
            if (seq, operation) == (self._seq, self._operation):
                return
            since = self._since(connection, space)
            if since is None:
                self._kept = _whole(connection, space)
            else:
                self._kept.facts += since.facts
                for name, more in since.uses.items():
                    self._kept.uses[name] += more
                    if not self._kept.uses[name]:
                        del self._kept.uses[name]
            self._seq, self._operation = seq, operation

    def with_another(self, connection: Rows, space: str, *names: str) -> tuple[int, int, int]:
        """Return (facts, entities, entities together with these names) as the connection sees them.

        The connection may have written and not committed; the cache does not change.
        """
        with self._lock:
            since = self._since(connection, space)
            if since is None:
                kept, since = _whole(connection, space), _Tally()
            else:
                kept = self._kept
            entities = len(kept.uses)
            for name, more in since.uses.items():
                before = kept.uses[name]
                entities += (before + more > 0) - (before > 0)
            fresh = sum(not kept.uses[name] + since.uses[name] for name in set(names))
            return kept.facts + since.facts, entities, entities + fresh

    def _since(self, connection: Rows, space: str) -> _Tally | None:
        """Return the difference from the cached count; None if all has to be counted."""
        if self._seq < 0 or operation_id(connection, space, self._seq) != self._operation:
            return None
        if memories.purged_since(connection, space, self._seq):
            return None
        tally = _Tally()
        for names in facts.written_since(connection, space, self._seq):
            tally.add(names, 1)
        for row in facts.replaced_since(connection, space, self._seq):
            tally.add((row["subject_key"], row["object_key"]), -1)
        return tally


def _whole(connection: Rows, space: str) -> _Tally:
    tally = _Tally()
    for name, uses, as_subject in facts.uses(connection, space):
        tally.uses[name] += uses
        tally.facts += as_subject
    return tally
