"""The imports of a space: each is many operations that share a label, and is undone as one."""

from __future__ import annotations

from dataclasses import dataclass

from commonplace.engine import checks
from commonplace.engine.history import timeline
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Operation
from commonplace.storage import operations as stored
from commonplace.storage.operations import OperationRow
from commonplace.storage.ports import Rows


@dataclass(frozen=True, slots=True)
class ImportRun:
    """One import."""

    first: Operation
    last: Operation
    """Its last operation; undoing that undoes the whole import."""
    sources: tuple[str, ...]
    """The formats or clients that it read."""
    memories: int
    """How many memories it added or changed, also if it was undone since."""
    undone_by: str | None
    """The operation that has undone the import; undoing that brings the import back."""


def imports(space: OpenSpace, *, limit: int = 50, before: int | None = None) -> list[ImportRun]:
    """Return the newest imports first; `before` leaves out those that ended at that `seq` or later.

    A backup that was restored, or a guarded file that was stored, counts as an import.
    """
    checks.limit(limit)
    checks.optional_whole(before, "before")
    with space.store.read() as rows:
        newest = stored.ends(rows, space.name)[1] + 1
        found = stored.by_label(
            rows, space.name, timeline.IMPORT, limit, newest if before is None else before
        )
        return [_run(rows, space.name, each) for each in found]


def _run(rows: Rows, space: str, each: stored.Labelled) -> ImportRun:
    last = stored.by_num(rows, space, each.last)
    undone = _in_force(rows, space, last)
    return ImportRun(
        timeline.operation_of(stored.by_num(rows, space, each.first)),
        timeline.operation_of(last),
        each.clients, each.memories, undone.id if undone else None,
    )  # fmt: skip


def _in_force(rows: Rows, space: str, done: OperationRow) -> OperationRow | None:
    """The undo of an operation that was not undone itself; None if the operation stands."""
    undone = stored.undone_by(rows, space, done.num)
    redone = stored.undone_by(rows, space, undone.num) if undone else None
    return _in_force(rows, space, redone) if redone else undone
