"""What was: operations, former versions, undoing one operation, looking as of a moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from commonplace.engine import memories
from commonplace.engine.model import Memory, Operation, Origin, Version, moment
from commonplace.engine.opened import OpenSpace
from commonplace.errors import Conflict, NotFound, StorageCorrupt
from commonplace.storage.sqlite import Unit
from commonplace.storage.tables import MEMORIES, VERSIONED, Row, Table, digest

if TYPE_CHECKING:
    import apsw

UPKEEP = ("embed",)  # operations that change no content, and so are not for undoing


def _operations(
    connection: apsw.Connection, space: str, clause: str, *params: Any
) -> Iterator[Operation]:
    rows = connection.execute(
        "SELECT o.num, o.space, o.id, o.at, o.name, o.origin, o.undoes, o.hash, u.id"
        " FROM operations o LEFT JOIN operations u ON u.space = o.space AND u.num = o.undoes"
        " WHERE o.space = ? " + clause,
        (space, *params),
    )
    for *values, hashed, undoes in rows:
        if digest(*values) != hashed:
            raise StorageCorrupt(
                f"Operation {values[0]} does not match its hash.",
                hint="Run 'commonplace doctor' and restore from a backup.",
            )
        num, _, identity, at, name, origin, _ = values
        yield Operation(identity, name, moment(at), Origin.load(origin), num, undoes)


def operations(space: OpenSpace, *, limit: int, upkeep: bool = False) -> list[Operation]:
    """The newest operations first."""
    clause = "" if upkeep else "AND o.name <> 'embed' "
    with space.store.read() as connection:
        return list(
            _operations(connection, space.name, clause + "ORDER BY o.num DESC LIMIT ?", limit)
        )


def _at(connection: apsw.Connection, space: str, seq: int) -> Operation:
    for operation in _operations(connection, space, "AND o.num = ?", seq):
        return operation
    raise StorageCorrupt(f"Operation {seq} is missing.", hint="Run 'commonplace doctor'.")


def seq_at(connection: apsw.Connection, space: str, at: int) -> int:
    """The newest operation recorded at or before a moment; 0 if there was none."""
    row = connection.execute(
        "SELECT max(num) FROM operations WHERE space = ? AND at <= ?", (space, at)
    ).fetchone()
    return int(row[0] or 0) if row else 0


def rows_as_of(connection: apsw.Connection, space: str, table: Table, seq: int) -> list[Row]:
    """A table as it was after an operation."""
    rows = table.fetch(connection, space, "AND seq <= ?", seq)
    former = table.versions(connection, space, "AND since <= ? AND until > ?", seq, seq)
    rows += [row for row, _, _ in former]
    return sorted(rows, key=lambda row: int(row["num"]))


def replaced_since(
    connection: apsw.Connection, space: str, seq: int
) -> list[tuple[Row, bytes | None]]:
    """Memories that were current after an operation and have been replaced since."""
    kept = MEMORIES.versions(connection, space, "AND since <= ? AND until > ?", seq, seq)
    return [(row, vectors) for row, _, vectors in kept]


def memory_as_of(space: OpenSpace, identity: str, at: int) -> Memory:
    """A memory as it was at a moment."""
    with space.store.read() as connection:
        seq = seq_at(connection, space.name, at)
        row = memories.find_row(connection, space.name, identity)
        if row is not None and row["seq"] <= seq:
            return Memory.of(row)
        num = row["num"] if row is not None else None
        for former, _ in replaced_since(connection, space.name, seq):
            if former["num"] == num or identity in (former["id"], former["ref"]):
                return Memory.of(former)
    raise NotFound("There was no such memory at that time.", field="id")


def versions(space: OpenSpace, identity: str) -> list[Version]:
    """Every form a memory has had, newest first."""
    with space.store.read() as connection:
        row = memories.find_row(connection, space.name, identity)
        if row is None:
            raise NotFound("There is no such memory.", field="id")
        former = MEMORIES.versions(
            connection, space.name, "AND num = ? ORDER BY until DESC", row["num"]
        )
        found = []
        until: Operation | None = None
        for each, replaced_by in [(row, 0), *((old, by) for old, by, _ in former)]:
            if replaced_by and (until is None or until.seq != replaced_by):
                until = _at(connection, space.name, replaced_by)
            since = _at(connection, space.name, each["seq"])
            found.append(Version(Memory.of(each), since.at, until.at if until else None, since.id))
            until = since
        return found


def undo(space: OpenSpace, operation: str | None, origin: Origin) -> Operation:
    """Put everything an operation changed back as it was before, or refuse and say why."""
    with space.store.read() as connection:
        target = _chosen(connection, space.name, operation)
    with space.write("undo", origin, undoes=target.seq) as unit:
        _check_later(unit, target)
        changed = 0
        # Memories last: what finds them is computed from their message's row, too.
        for table in reversed(VERSIONED):
            changed += _undo_in(space, unit, table, target)
        if not changed:
            raise Conflict(
                f"Operation {target.id} ({target.name}) left nothing that can be undone.",
                hint="A purge is final; an undone operation can be undone only once.",
            )
        return _at(unit.connection, space.name, unit.seq)


def _chosen(connection: apsw.Connection, space: str, operation: str | None) -> Operation:
    if operation is None:
        clause = (
            "AND o.name NOT IN ('embed', 'undo', 'purge')"
            " AND NOT EXISTS (SELECT 1 FROM operations x WHERE x.space = o.space"
            " AND x.undoes = o.num) ORDER BY o.num DESC LIMIT 1"
        )
        found = list(_operations(connection, space, clause))
    else:
        found = list(_operations(connection, space, "AND o.id = ?", operation))
    if not found:
        raise NotFound(
            "There is no such operation." if operation else "There is nothing to undo.",
            hint="List the newest ones with operations().",
            field="operation",
        )
    return found[0]


def _touched(unit: Unit, table: Table, seq: int) -> dict[int, tuple[Row | None, bytes | None]]:
    """What an operation changed in a table: number → (row before it or None, its vectors)."""
    before: dict[int, tuple[Row | None, bytes | None]] = {}
    for row in table.fetch(unit.connection, unit.space, "AND seq = ?", seq):
        before[row["num"]] = (None, None)
    for row, _, _ in table.versions(unit.connection, unit.space, "AND since = ?", seq):
        before[row["num"]] = (None, None)
    for row, _, vectors in table.versions(unit.connection, unit.space, "AND until = ?", seq):
        before[row["num"]] = (row, vectors)
    return before


def _check_later(unit: Unit, target: Operation) -> None:
    """Refuse if anything the operation wrote has been changed since."""
    for table in VERSIONED:
        for num in _touched(unit, table, target.seq):
            current = table.fetch_one(unit.connection, unit.space, "AND num = ?", num)
            newest = unit.connection.execute(
                "SELECT max(until) FROM versions WHERE space = ? AND entity = ? AND num = ?",
                (unit.space, table.name, num),
            ).fetchone()
            last = current["seq"] if current is not None else int((newest and newest[0]) or 0)
            if last != target.seq:
                later = _at(unit.connection, unit.space, last)
                raise Conflict(
                    f"Operation {target.id} ({target.name}) cannot be undone: the later operation"
                    f" {later.id} ({later.name}, {later.at:%Y-%m-%d %H:%M:%S} UTC) changed the"
                    f" same {table.name}.",
                    hint="Undo the later one first.",
                )


def _undo_in(space: OpenSpace, unit: Unit, table: Table, target: Operation) -> int:
    touched = _touched(unit, table, target.seq)
    for num, (before, vectors) in touched.items():
        current = table.fetch_one(unit.connection, unit.space, "AND num = ?", num)
        if before is None:
            if current is not None:
                if table is MEMORIES:
                    memories.remove_row(unit, current)
                else:
                    table.remove(unit, current)
        elif table is MEMORIES:
            memories.restore_row(space, unit, current, before, vectors)
        elif current is None:
            table.restore(unit, before)
        else:
            table.replace(unit, current, before)
    return len(touched)
