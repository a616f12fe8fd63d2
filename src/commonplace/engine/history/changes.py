"""The changes of operations: each row before and after, also as a preview of an undo."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from commonplace.engine.history import timeline
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Operation, When
from commonplace.errors import InvalidInput, NotFound
from commonplace.storage import derived
from commonplace.storage import operations as stored
from commonplace.storage.ports import Rows
from commonplace.storage.tables import VERSIONED, Row, Table

ERASING = ("purge", "expire")
"""Operations that delete rows without keeping a version."""
MOST_OPERATIONS = 200
"""How many operations between two times are read, the newest first."""


@dataclass(frozen=True, slots=True)
class Change:
    """A row of a table before and after a change; None where the row did not exist."""

    table: str
    before: Row | None
    after: Row | None


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of some operations; the operations are listed newest first."""

    operations: tuple[Operation, ...]
    changes: tuple[Change, ...]
    complete: bool = True
    """False if there were more operations than `MOST_OPERATIONS`."""


class _RolledBack(Exception):
    """Raised to roll back a unit of work whose effects are not wanted."""


def first_and_last_seq(space: OpenSpace) -> tuple[int, int]:
    """Return the `seq` of the first and the last operation that changed content, or zeros."""
    with space.store.read() as connection:
        return stored.first_and_last(connection, space.name)


def of_operation(space: OpenSpace, identity: str) -> Changes:
    """Return the changes of an operation; for an import, of all its batches together."""
    with space.store.read() as connection:
        row = stored.by_id(connection, space.name, identity)
        if row is None:
            raise NotFound("There is no such operation.", field="operation")
        operation = timeline.operation_of(row)
        seqs = timeline.seqs_undone_together(connection, space.name, operation)
        return Changes((operation,), _changes(connection, space.name, seqs, seqs[-1]))


def of_each_operation(
    space: OpenSpace, operations: Sequence[Operation]
) -> list[tuple[Change, ...]]:
    """Return the changes of each operation separately, also for a batch of an import."""
    with space.store.read() as connection:
        return [_changes(connection, space.name, [each.seq], each.seq) for each in operations]


def erased_counts(space: OpenSpace, operations: Sequence[Operation]) -> dict[int, int]:
    """Return, by `seq`, the number of memories that each purge or expiry among these erased."""
    with space.store.read() as connection:
        return {each.seq: derived.count_derived_changes(connection, space.name, each.seq)
                for each in operations if each.name in ERASING}  # fmt: skip


def between_times(space: OpenSpace, since: When, until: When) -> Changes:
    """Return the differences between two times."""
    with space.store.read() as connection:
        first = timeline.seq_at(connection, space.name, since)
        last = timeline.seq_at(connection, space.name, until)
        if first > last:
            raise InvalidInput("since must not be after until.", field="since")
        rows = stored.newest(
            connection, space.name, MOST_OPERATIONS + 1, upkeep=False, before=last + 1
        )
        inside = [row for row in rows if row.num > first]
        looked = inside[:MOST_OPERATIONS]
        seqs = sorted(row.num for row in looked)
        changes = _changes(connection, space.name, seqs, last)
        operations = tuple(map(timeline.operation_of, looked))
        return Changes(operations, changes, len(inside) == len(looked))


def preview_undo(space: OpenSpace, identity: str) -> Changes:
    """Return the changes that undoing an operation would make.

    The operation is undone, read and rolled back. Raise Conflict if it cannot be undone. The
    function must not be called in a unit of work.
    """
    found: Changes | None = None
    with contextlib.suppress(_RolledBack), space.store.unit("undo", {}):
        undone = timeline.undo(space, identity)
        with space.write("undo", None) as unit:
            changes = _changes(unit.connection, space.name, [undone.seq], undone.seq)
        found = Changes((undone,), changes)
        raise _RolledBack
    assert found is not None
    return found


def _changes(connection: Rows, space: str, seqs: Sequence[int], last: int) -> tuple[Change, ...]:
    found = []
    for table in VERSIONED:
        touched = timeline.rows_before(connection, space, table, seqs)
        for num, (before, _) in sorted(touched.items(), key=lambda each: each[0]):
            after = _row_at(connection, space, table, num, last)
            if before is not None or after is not None:
                found.append(Change(table.name, before, after))
    return tuple(found)


def _row_at(connection: Rows, space: str, table: Table, num: int, seq: int) -> Row | None:
    """Return the row with a number as it was after an operation."""
    rows = table.where(connection, space, upto=seq, num=num)
    if not rows:
        rows = [row for row, _, _ in table.past(connection, space, num=num, at=seq)]
    return rows[0] if rows else None
