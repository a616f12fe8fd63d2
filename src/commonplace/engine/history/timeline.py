"""Operations, former versions, undo, and reading rows as of a time in the past."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from commonplace.engine import checks
from commonplace.engine.content import memories
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Memory, Operation, Origin, Version, When, moment
from commonplace.errors import Conflict, NotFound
from commonplace.storage import memories as stored_memories
from commonplace.storage import operations as stored
from commonplace.storage import versions as versions_of
from commonplace.storage.operations import OperationRow
from commonplace.storage.ports import Rows
from commonplace.storage.tables import (
    ARTIFACTS,
    CLUSTERS,
    CONTENTS,
    FACTS,
    LINKS,
    MEMBERS,
    MEMORIES,
    MESSAGES,
    REVIEWS,
    VERSIONED,
    Row,
    Table,
)
from commonplace.storage.writing import Unit

UPKEEP = ("embed",)  # operations that change no content and cannot be undone
IMPORT = "import"
PATROL = "patrol"
# Operations of these names that share a label are undone together.
UNDONE_TOGETHER = (IMPORT, PATROL)
LABEL_PREFIX = "import:"  # The label of such an operation begins with its name.

# Maps a row number to the row before an operation (None if it did not exist) and its vectors.
RowsBefore = dict[int, tuple[Row | None, bytes | None]]


def operation_of(row: OperationRow) -> Operation:
    """Convert a row of operations to an `Operation`."""
    origin = Origin.load(row.origin)
    return Operation(row.id, row.name, moment(row.at), origin, row.num, row.undoes)


def operations(
    space: OpenSpace, *, limit: int = 50, upkeep: bool = False, before: int | None = None
) -> list[Operation]:
    """Return the newest operations first; `upkeep` includes those that only embed.

    With `before`, only operations with a lower `seq` are returned.
    """
    checks.limit(limit)
    checks.flag(upkeep, "upkeep")
    checks.optional_integer(before, "before")
    with space.store.read() as connection:
        rows = stored.newest(connection, space.name, limit, upkeep=upkeep, before=before)
        return list(map(operation_of, rows))


def _operation_at(connection: Rows, space: str, seq: int) -> Operation:
    return operation_of(stored.by_num(connection, space, seq))


@overload
def seq_at(connection: Rows, space: str, as_of: When) -> int: ...
@overload
def seq_at(connection: Rows, space: str, as_of: When | None) -> int | None: ...
def seq_at(connection: Rows, space: str, as_of: When | None) -> int | None:
    """Return the `seq` of the newest operation at or before a time, or 0; None for the present."""
    at = checks.time(as_of, "as_of")
    return None if at is None else stored.newest_at(connection, space, at)


@contextlib.contextmanager
def read_as_of(space: OpenSpace, as_of: When | None) -> Iterator[tuple[Rows, int | None]]:
    """Open a read snapshot; yield it with the `seq` of the operation to read as of, or None."""
    with space.store.read() as connection:
        yield connection, seq_at(connection, space.name, as_of)


def rows_at(
    connection: Rows, space: str, table: Table, seq: int | None, **having: Any
) -> list[Row]:
    """Return the rows with these values, by number: now, or as they were after an operation."""
    rows = table.where(connection, space, upto=seq, in_order=True, **having)
    if seq is None:
        return rows
    rows += [
        row
        for row, _, _ in table.past(connection, space, at=seq)
        if all(row[column] == value for column, value in having.items())
    ]
    return sorted(rows, key=lambda row: int(row["num"]))


def need_row_by_id(
    connection: Rows, space: str, table: Table, identity: str, seq: int | None = None,
    *, name: str, field: str = "id",
) -> Row:  # fmt: skip
    """Return the row with an id, now or after an operation; raise NotFound if there is none."""
    checks.text(identity, field, max_chars=checks.REF_CHARS)
    if seq is None:
        row = table.by_id(connection, space, identity)
    else:
        row = next(iter(rows_at(connection, space, table, seq, id=identity)), None)
    if row is None:
        if seq is None:
            raise NotFound(f"There is no such {name}.", field=field)
        raise NotFound(f"There was no such {name} at that time.", field=field)
    return row


def memories_at(
    connection: Rows, space: str, nums: Iterable[int], seq: int | None
) -> dict[int, Row]:
    """Return the memories with these numbers, now or after an operation, by number."""
    found: dict[int, Row] = {}
    for num in nums:
        rows = MEMORIES.where(connection, space, upto=seq, num=num)
        if not rows and seq is not None:
            rows = [row for row, _, _ in MEMORIES.past(connection, space, num=num, at=seq)]
        found.update((num, row) for row in rows)
    return found


def replaced_since(connection: Rows, space: str, seq: int) -> list[tuple[Row, bytes | None]]:
    """Return the former rows and vectors of memories that have changed since an operation."""
    return [
        (row, _vectors_after(connection, space, row) if vectors is None else vectors)
        for row, _, vectors in MEMORIES.past(connection, space, at=seq)
    ]


def _vectors_after(connection: Rows, space: str, row: Row) -> bytes | None:
    """Return the vectors of a version that stored none, because the next one had the same text."""
    for later, _, vectors in MEMORIES.past(connection, space, num=row["num"], after=row["seq"]):
        if not _same_text(row, later):
            return None
        if vectors is not None:
            return vectors
    present = MEMORIES.first(connection, space, num=row["num"])
    if present is None or not _same_text(row, present):
        return None
    return memories.stored_vectors(connection, space, row["num"])


def _same_text(one: Row, other: Row) -> bool:
    return bool(one["text"] == other["text"] and one["title"] == other["title"])


def messages_at(
    connection: Rows, space: str, nums: Iterable[int], seq: int | None
) -> dict[int, Row]:
    """Return the messages of memories, now or after an operation, by memory number."""
    former = [] if seq is None else MESSAGES.past(connection, space, at=seq)
    found = {row["memory"]: row for row, _, _ in former}
    for num in nums:
        for row in MESSAGES.where(connection, space, upto=seq, memory=num):
            found[num] = row
    return found


def need_memory(connection: Rows, space: str, identity: str, seq: int | None) -> Row:
    """Return a memory's row by its id or its ref, now or after an operation."""
    if seq is None:
        return memories.need_row(connection, space, identity)
    row = memories.find_row(connection, space, identity)
    if row is not None and row["seq"] <= seq:
        return row
    if row is not None and row["id"] == identity.lower():
        for own, _, _ in MEMORIES.past(connection, space, num=row["num"], at=seq):
            return own
    former = [each for each, _, _ in MEMORIES.past(connection, space, at=seq)]
    for column, value in (
        ("id", identity.lower()),
        ("ref", identity),
        ("num", None if row is None else row["num"]),
    ):
        for each in former:
            if each[column] == value and value is not None:
                return each
    raise NotFound("There was no such memory at that time.", field="id")


def versions(space: OpenSpace, identity: str) -> list[Version]:
    """Return every version of a memory, newest first."""
    with space.store.read() as connection:
        row = memories.need_row(connection, space.name, identity)
        former = MEMORIES.past(connection, space.name, num=row["num"], newest_first=True)
        found = []
        until: Operation | None = None
        for each, replaced_by in [(row, 0), *((old, by) for old, by, _ in former)]:
            if replaced_by and (until is None or until.seq != replaced_by):
                until = _operation_at(connection, space.name, replaced_by)
            since = _operation_at(connection, space.name, each["seq"])
            found.append(Version(Memory.of(each), since.at, until.at if until else None, since.id))
            until = since
        return found


def label(operation: Operation) -> str | None:
    """Return the label that the operations of one import or patrol share; else None."""
    origin, name = operation.origin, operation.name
    shared = origin.label or origin.url  # Older releases stored the label as `url`.
    return shared if name in UNDONE_TOGETHER and shared.startswith(f"{name}:") else None


def seqs_undone_together(connection: Rows, space: str, operation: Operation) -> list[int]:
    """Return the operations that are undone together with this one, oldest first."""
    shared = label(operation)
    if shared is None:
        return [operation.seq]
    return stored.sharing_label(connection, space, operation.name, shared)


def undo(
    space: OpenSpace, operation: str | None = None, *, origin: Origin | None = None
) -> Operation:
    """Undo an operation: the named one, or by default the newest.

    All batches of an import are undone together. If a later operation depends on the changes, raise
    Conflict and change nothing. Operations before a purge are undone only if they are named.
    """
    with space.store.read() as connection:
        target = _operation_to_undo(space, connection, operation)
        seqs = seqs_undone_together(connection, space.name, target)
    with space.write("undo", origin, undoes=target.seq) as unit:
        touched = {
            table: rows_before(unit.connection, unit.space, table, seqs) for table in VERSIONED
        }
        if not any(touched.values()):
            raise Conflict(
                f"Operation {target.id} ({target.name}) changed nothing that can be undone.",
                hint="Purges and events cannot be undone. Any other operation can be undone once.",
            )
        for table, rows in touched.items():
            _check_later(unit, target, seqs, table, rows)
        # Restore memories last: their index entries also depend on their rows in messages.
        for table in reversed(VERSIONED):
            _undo_rows(space, unit, target, table, touched[table])
        for table, rows in touched.items():
            _check_references(unit, target, table, rows)
        return _operation_at(unit.connection, space.name, unit.seq)


def _operation_to_undo(space: OpenSpace, connection: Rows, operation: str | None) -> Operation:
    opened = space.store.open_unit
    own = opened.seq if opened is not None and opened.changed else 0
    if operation is not None:
        checks.text(operation, "operation", max_chars=checks.REF_CHARS)
        named = stored.by_id(connection, space.name, operation)
        if named is None:
            raise NotFound(
                "There is no such operation.",
                hint="'commonplace log' lists the newest operations.",
                field="operation",
            )
        if named.num == own:
            raise Conflict(
                "This unit of work is still open.",
                hint="Raise an error in its block to roll it back.",
            )
        newest = seqs_undone_together(connection, space.name, operation_of(named))[-1]
        return _last_redo(connection, space.name, _operation_at(connection, space.name, newest))
    if own:
        raise Conflict(
            "This unit of work has already changed something.",
            hint="Raise an error in its block to roll it back, or give the id of the operation to"
            " undo.",
        )
    passed: set[str | None] = set()
    for found in map(operation_of, stored.undoable(connection, space.name, own)):
        if label(found) in passed:
            continue
        seqs = seqs_undone_together(connection, space.name, found)
        if found.seq != seqs[-1]:
            # The last operation represents its import, and it was undone.
            passed.add(label(found))
            continue
        # An operation that only appended events, or was purged since, cannot be undone.
        if any(rows_before(connection, space.name, table, seqs) for table in VERSIONED):
            if stored.is_followed_by_purge(connection, space.name, found.seq):
                raise Conflict(
                    "A purge cannot be undone.",
                    hint=f"To undo the operation before the purge ({found.name}, "
                    f"{found.at:%Y-%m-%d %H:%M} UTC), name it: commonplace undo {found.id[:8]}.",
                )
            return found
    raise NotFound(
        "There is nothing to undo.",
        hint="'commonplace log' lists the newest operations.",
        field="operation",
    )


def _last_redo(connection: Rows, space: str, target: Operation) -> Operation:
    """Return the operation, or the redo that repeated it; raise Conflict if it is undone."""
    undone = stored.undone_by(connection, space, target.seq)
    if undone is None:
        return target
    redone = stored.undone_by(connection, space, undone.num)
    if redone is None:
        raise Conflict(
            f"Operation {target.id} ({target.name}) was undone already, by {undone.id}.",
            hint="Undo the later operation to redo this one.",
        )
    return _last_redo(connection, space, operation_of(redone))


def rows_before(connection: Rows, space: str, table: Table, seqs: Sequence[int]) -> RowsBefore:
    """Return the rows that operations changed in a table, as they were before the first of them."""
    before: RowsBefore = {}
    for seq in seqs:
        changed: RowsBefore = {}
        for row in table.where(connection, space, seq=seq):
            changed[row["num"]] = (None, None)
        for row, _, _ in table.past(connection, space, since=seq):
            changed[row["num"]] = (None, None)
        for row, _, vectors in table.past(connection, space, until=seq):
            changed[row["num"]] = (row, vectors)
        before = changed | before
    return before


def _refuse_undo(unit: Unit, target: Operation, seq: int, what: str) -> Conflict:
    later = _operation_at(unit.connection, unit.space, seq)
    return Conflict(
        f"Operation {target.id} ({target.name}) cannot be undone: the later operation"
        f" {later.id} ({later.name}, {later.at:%Y-%m-%d %H:%M:%S} UTC) {what}.",
        hint="Undo the later operation first.",
    )


def _check_later(
    unit: Unit, target: Operation, seqs: Sequence[int], table: Table, rows: RowsBefore
) -> None:
    """Raise Conflict if a row that the operations wrote has been changed since."""
    wanted = set(seqs)
    known: dict[int, set[int]] = {}
    for num in rows:
        current = table.first(unit.connection, unit.space, num=num)
        last = (
            versions_of.last_replaced_by(unit.connection, unit.space, table, num)
            if current is None
            else current["seq"]
        )
        if _operation_in_effect(unit, table, num, last, wanted, known) not in wanted:
            raise _refuse_undo(unit, target, last, f"changed the same {table.name}")


def _operation_in_effect(
    unit: Unit, table: Table, num: int, last: int, wanted: set[int], known: dict[int, set[int]]
) -> int:
    """Return the operation whose result a row shows; undone operations do not count."""
    while last not in wanted and last:
        undid = stored.undone_operation(unit.connection, unit.space, last)
        if undid is None:
            break
        # After an undo, a row is as it was before the undone operation.
        if undid not in known:
            undone_one = _operation_at(unit.connection, unit.space, undid)
            known[undid] = set(seqs_undone_together(unit.connection, unit.space, undone_one))
        undone = _first_change(unit, table, num, known[undid])
        last = versions_of.last_change_before(unit.connection, unit.space, table, num, undone)
    return last


def _first_change(unit: Unit, table: Table, num: int, seqs: set[int]) -> int:
    """Return the first of several operations that changed a row."""
    if len(seqs) == 1:
        return next(iter(seqs))
    spans = versions_of.operation_spans(unit.connection, unit.space, table, num)
    return min((at for span in spans for at in span if at in seqs), default=max(seqs))


def _undo_rows(
    space: OpenSpace, unit: Unit, target: Operation, table: Table, rows: RowsBefore
) -> None:
    current = table.by_nums(unit.connection, unit.space, list(rows))
    for num, (before, _) in rows.items():
        if before is None and num in current:
            remove_row(unit, table, current[num])
    if table is MEMORIES:
        rows = {
            num: (before, vectors)
            if before is None or vectors is not None
            else (before, _vectors_after(unit.connection, unit.space, before))
            for num, (before, vectors) in rows.items()
        }
        # A ref may have moved to another memory: clear all refs before restoring any row.
        stored_memories.clear_refs(unit.connection, unit.space, rows)
    for num, (before, vectors) in rows.items():
        if before is None:
            continue
        _check_unique(unit, target, table, before)
        restore_row(space, unit, table, current.get(num), before, vectors)


def restore_row(
    space: OpenSpace, unit: Unit, table: Table, current: Row | None, row: Row,
    vectors: bytes | None = None,
) -> None:  # fmt: skip
    """Make a former row of any table current again."""
    if table is MEMORIES:
        memories.restore_row(space, unit, current, row, vectors)
    elif current is None:
        table.restore(unit, row)
    else:
        table.replace(unit, current, row)


def remove_row(unit: Unit, table: Table, row: Row) -> None:
    """Remove a row of any table; its version stays in the history."""
    if table is MEMORIES:
        memories.remove_row(unit, row)
    else:
        table.remove(unit, row)


# (table, columns that no two rows may share, values of the rows to which the rule applies).
UNIQUE: tuple[tuple[Table, tuple[str, ...], dict[str, str]], ...] = (
    (MEMORIES, ("id",), {}),
    (MEMORIES, ("ref",), {}),
    (MESSAGES, ("conversation", "position"), {}),
    (LINKS, ("source", "target", "kind"), {}),
    (MEMBERS, ("cluster", "memory"), {}),
    (ARTIFACTS, ("path",), {"state": "active"}),
)
# (table, column with the reference, referenced table, referenced column).
REFERENCES: tuple[tuple[Table, str, Table, str], ...] = (
    (MESSAGES, "memory", MEMORIES, "num"),
    (LINKS, "source", MEMORIES, "id"),
    (LINKS, "target", MEMORIES, "id"),
    (FACTS, "memory", MEMORIES, "id"),
    (MEMBERS, "memory", MEMORIES, "id"),
    (MEMBERS, "cluster", CLUSTERS, "id"),
    (CLUSTERS, "parent", CLUSTERS, "id"),
    (CONTENTS, "artifact", ARTIFACTS, "id"),
    (REVIEWS, "artifact", ARTIFACTS, "id"),
)


def _check_unique(unit: Unit, target: Operation, table: Table, before: Row) -> None:
    """Raise Conflict if another row has the unique values of a row that is to be restored."""
    if before.get("state") == "archived" and table is ARTIFACTS:
        return
    for place, columns, also in UNIQUE:
        if place is not table or any(before[column] is None for column in columns):
            continue
        wanted = {**{column: before[column] for column in columns}, **also}
        for other in table.where(unit.connection, unit.space, without=before["num"], **wanted):
            raise _refuse_undo(unit, target, other["seq"], f"has taken its {' and '.join(columns)}")


def _check_references(unit: Unit, target: Operation, table: Table, rows: RowsBefore) -> None:
    """Raise Conflict if a row would refer to a row that does not exist."""
    inward = [(each[0], each[1], each[3]) for each in REFERENCES if each[2] is table]
    outward = [each[1:] for each in REFERENCES if each[0] is table]
    for num, (before, _) in rows.items():
        gone = _newest_version_of(unit, table, num) if before is None and inward else None
        if gone is not None:
            for referring, column, key in inward:
                for user in referring.where(unit.connection, unit.space, **{column: gone[key]}):
                    raise _refuse_undo(
                        unit, target, user["seq"], f"refers to its result in {referring.name}"
                    )
        if before is not None:
            for column, referred, key in outward:
                needed = before[column]
                if needed is not None and not referred.first(
                    unit.connection, unit.space, **{key: needed}
                ):
                    by = _removing_operation(unit, referred, key, needed)
                    raise _refuse_undo(unit, target, by, f"removed the {column} that it needs")


def _newest_version_of(unit: Unit, table: Table, num: int) -> Row | None:
    former = table.past(unit.connection, unit.space, num=num, newest_first=True, limit=1)
    return former[0][0] if former else None


def _removing_operation(unit: Unit, table: Table, key: str, value: object) -> int:
    return max(
        (by for row, by, _ in table.past(unit.connection, unit.space) if row[key] == value),
        default=unit.seq,
    )
