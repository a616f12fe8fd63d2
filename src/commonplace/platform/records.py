"""Records: memories that no search returns, such as agents, workflows and jobs.

A record is an archived memory, so that versions, undo, backup and export work as for any memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.content.write_policy import RECORD_STATE, Reservation
from commonplace.engine.maintenance.purge import expire
from commonplace.engine.model import Memory
from commonplace.errors import NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace


class Records:
    """The records of one dialect, by their kinds."""

    def __init__(self, reserved: Reservation) -> None:
        """`reserved.records` holds the schema of the attrs of each kind.

        An archived memory with other attrs is not a record, since callers can store any kind.
        """
        self._reserved = reserved

    def _is_record(self, memory: Memory) -> bool:
        return self._reserved.is_record(memory.kind, memory.state, memory.attrs)

    def add(
        self,
        memory: Commonplace,
        kind: str,
        ref: str | None,
        name: str,
        attrs: Mapping[str, Any],
        *tags: str,
        id: str | None = None,
    ) -> Memory:
        """Add a record; raise Conflict if its ref is in use."""
        return memory.remember(
            name,
            kind=kind,
            ref=ref,
            attrs=attrs,
            tags=tags,
            id=id,
            state=RECORD_STATE,
            trust="inferred",
        )

    def find(self, memory: Commonplace, ref: str, kind: str | None = None) -> Memory | None:
        """Return the record with a ref or id; None if there is none."""
        found = lookup.find_memory(memory, ref)
        if found is None:
            return None
        return found if kind in (None, found.kind) and self._is_record(found) else None

    def get(self, memory: Commonplace, ref: str, kind: str, missing: str) -> Memory:
        """Return the record of a kind with a ref or id; raise NotFound with the message
        `missing`."""
        record = self.find(memory, ref, kind)
        if record is None:
            raise NotFound(missing)
        return record

    def change(self, memory: Commonplace, record: Memory, **attrs: Any) -> Memory:
        """Set some attrs of a record; the others keep their stored values."""
        with exclusive(memory, "change record"):
            stored = memory.get(record.id, count=False)
            return memory.revise(record.id, attrs={**stored.attrs, **attrs})

    def delete(self, memory: Commonplace, record: Memory) -> None:
        """Delete a record and release its ref; undo restores the record."""
        memory.revise(record.id, ref=None, kind=_deleted_kind(record.kind))

    def deleted(self, memory: Commonplace, kind: str) -> list[Memory]:
        """Return the deleted records of a kind, oldest first."""
        return list(
            lookup.all_memories(
                memory, order="oldest", kinds=[_deleted_kind(kind)], states=[RECORD_STATE]
            )
        )

    def keep_newest(
        self, memory: Commonplace, kind: str, *tags: str, most: int, batch: int = 50
    ) -> None:
        """Purge the oldest records of a kind beyond `most`, once there are `batch` too many."""
        chosen: dict[str, Any] = {"kinds": [kind], "states": [RECORD_STATE], "tags_all": tags}
        held = memory.browse(**chosen, limit=1)[1]
        if held < most + batch:
            return
        surplus = min(held - most, checks.MAX_LIMIT)  # later calls purge the rest
        oldest, _ = memory.browse(**chosen, order="oldest", limit=surplus)
        engine_call(memory, expire, *(one.id for one in oldest if self._is_record(one)))

    def page(
        self, memory: Commonplace, kind: str, *tags: str, limit: int, offset: int = 0
    ) -> list[Memory]:
        """Return some records of a kind, newest first."""
        found, _ = memory.browse(
            kinds=[kind], states=[RECORD_STATE], tags_all=tags, limit=limit, offset=offset
        )
        return [one for one in found if self._is_record(one)]

    def listing(self, memory: Commonplace, kind: str, *tags: str) -> list[Memory]:
        """Return all records of a kind, oldest first."""
        found = lookup.all_memories(
            memory, order="oldest", kinds=[kind], states=[RECORD_STATE], tags_all=tags
        )
        return [one for one in found if self._is_record(one)]


def _deleted_kind(kind: str) -> str:
    return f"{kind}.deleted"
