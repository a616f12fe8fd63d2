"""The imports of a space. An import is many operations with one label, undone together."""

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
    """Its last operation; undoing it undoes the whole import."""
    sources: tuple[str, ...]
    """The formats or clients of the imported files."""
    memories: int
    """How many memories it added or changed, also if it was undone since."""
    undone_by: str | None
    """The operation that has undone the import; undoing it restores the import."""


def imports(space: OpenSpace, *, limit: int = 50, before: int | None = None) -> list[ImportRun]:
    """Return imports, the newest first; `before` selects those that ended before that `seq`.

    The import of an export, and the storing of guarded files, count as imports too.
    """
    checks.limit(limit)
    checks.optional_integer(before, "before")
    with space.store.read() as rows:
        newest = stored.first_and_last(rows, space.name)[1] + 1
        found = stored.by_label(
            rows, space.name, timeline.IMPORT, limit, newest if before is None else before
        )
        return [_import_run(rows, space.name, each) for each in found]


def _import_run(rows: Rows, space: str, each: stored.LabelledOperations) -> ImportRun:
    last = stored.by_num(rows, space, each.last)
    undone = _effective_undo(rows, space, last)
    return ImportRun(
        timeline.operation_of(stored.by_num(rows, space, each.first)),
        timeline.operation_of(last),
        each.clients, each.memories, undone.id if undone else None,
    )  # fmt: skip


def _effective_undo(rows: Rows, space: str, done: OperationRow) -> OperationRow | None:
    """Return the undo of an operation, unless that undo was undone; None if there is none."""
    undone = stored.undone_by(rows, space, done.num)
    redone = stored.undone_by(rows, space, undone.num) if undone else None
    return _effective_undo(rows, space, redone) if redone else undone
