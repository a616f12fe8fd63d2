"""Records: rows of a space that no search returns, such as agents, workflows and jobs.

A record is a memory that is never live, so that everything else that holds for memories holds for
it: versions, undo, backup, export.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from commonplace.engine.binding import engine_call
from commonplace.engine.content.write_policy import NEVER_LIVE, Reserved
from commonplace.engine.maintenance.purge import expire
from commonplace.engine.model import Memory
from commonplace.errors import NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

STATE = NEVER_LIVE


class Records:
    """The records of one dialect, by their kinds."""

    def __init__(self, reserved: Reserved) -> None:
        """`reserved.records` has the shape of the attrs of each kind.

        An archived memory of another shape is not a record, since callers can store any kind.
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
        """A new record; a ref that is taken is a Conflict."""
        return memory.remember(
            name, kind=kind, ref=ref, attrs=attrs, tags=tags, id=id, state=STATE, trust="inferred"
        )

    def find(self, memory: Commonplace, ref: str, kind: str | None = None) -> Memory | None:
        """A record by its ref or id."""
        found = lookup.find(memory, ref)
        if found is None:
            return None
        return found if kind in (None, found.kind) and self._is_record(found) else None

    def get(self, memory: Commonplace, ref: str, kind: str, missing: str) -> Memory:
        """A record of a kind by its ref or id; NotFound with the message `missing`."""
        record = self.find(memory, ref, kind)
        if record is None:
            raise NotFound(missing)
        return record

    def change(self, memory: Commonplace, record: Memory, **attrs: Any) -> Memory:
        """Set some attrs of a record; the others keep the values that are stored now."""
        with exclusive(memory, "change record"):
            stored = memory.get(record.id, count=False)
            return memory.revise(record.id, attrs={**stored.attrs, **attrs})

    def delete(self, memory: Commonplace, record: Memory) -> None:
        """Delete a record: its ref is free again, and undo brings it back."""
        memory.revise(record.id, ref=None, kind=f"{record.kind}.deleted")

    def keep_newest(
        self, memory: Commonplace, kind: str, *tags: str, most: int, batch: int = 50
    ) -> None:
        """Delete the oldest records of a kind for good, in batches, once there are more than
        `most`.
        """
        chosen: dict[str, Any] = {"kinds": [kind], "states": [STATE], "tags_all": tags}
        held = memory.browse(**chosen, limit=1)[1]
        if held < most + batch:
            return
        oldest, _ = memory.browse(**chosen, order="oldest", limit=held - most)
        engine_call(memory, expire, *(one.id for one in oldest if self._is_record(one)))

    def page(
        self, memory: Commonplace, kind: str, *tags: str, limit: int, offset: int = 0
    ) -> list[Memory]:
        """Some records of a kind, newest first."""
        found, _ = memory.browse(
            kinds=[kind], states=[STATE], tags_all=tags, limit=limit, offset=offset
        )
        return [one for one in found if self._is_record(one)]

    def listing(self, memory: Commonplace, kind: str, *tags: str) -> list[Memory]:
        """All records of a kind, oldest first."""
        found = lookup.every(memory, order="oldest", kinds=[kind], states=[STATE], tags_all=tags)
        return [one for one in found if self._is_record(one)]
