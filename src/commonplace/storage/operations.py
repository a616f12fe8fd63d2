"""The table `operations`: every unit of work that changed content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from commonplace.errors import StorageCorrupt
from commonplace.storage.database import json_field
from commonplace.storage.ports import Rows
from commonplace.storage.tables import OPERATIONS

_SELECT = (
    f"SELECT {', '.join(f'o.{name}' for name in OPERATIONS.stored)}, u.id"  # noqa: S608
    " FROM operations o LEFT JOIN operations u ON u.space = o.space AND u.num = o.undoes"
    " WHERE o.space = ? "
)
# Undoing an undo redoes the operation, so only every second operation of such a chain can be
# undone.
_UNDOABLE = (
    "AND o.name NOT IN ('embed', 'purge') AND o.num <> ?"
    " AND NOT EXISTS (SELECT 1 FROM operations x WHERE x.space = o.space AND x.undoes = o.num)"
    " AND (WITH RECURSIVE back (num, depth) AS (SELECT o.undoes, 0 UNION ALL"
    " SELECT b.undoes, back.depth + 1 FROM operations b JOIN back ON b.num = back.num"
    " WHERE b.space = o.space) SELECT max(depth) FROM back) % 2 = 0"
    " ORDER BY o.num DESC"
)


class OperationRow(NamedTuple):
    """A verified row. `undoes` is the id of the operation that this one undid."""

    num: int
    id: str
    at: int
    name: str
    origin: str
    undoes: str | None


def _find(rows: Rows, space: str, clause: str, *params: object) -> Iterator[OperationRow]:
    for *stored, undoes in rows.execute(_SELECT + clause, (space, *params)):
        num, _, identity, at, name, origin, *_ = stored
        if not OPERATIONS.matches_hash(stored):
            raise StorageCorrupt(
                f"Operation {num} does not match its hash.",
                hint="Run 'commonplace doctor' and restore from a backup.",
            )
        yield OperationRow(num, identity, at, name, origin, undoes)


def in_order(rows: Rows, space: str) -> Iterator[OperationRow]:
    """Return all operations, oldest first."""
    return _find(rows, space, "ORDER BY o.num")


def newest(
    rows: Rows, space: str, limit: int, *, upkeep: bool, before: int | None = None
) -> list[OperationRow]:
    """Return operations, newest first; `upkeep` includes those that changed no content."""
    clause = "" if upkeep else "AND o.name <> 'embed' "
    if before is None:
        return list(_find(rows, space, clause + "ORDER BY o.num DESC LIMIT ?", limit))
    clause += "AND o.num < ? ORDER BY o.num DESC LIMIT ?"
    return list(_find(rows, space, clause, before, limit))


def first_and_last(rows: Rows, space: str) -> tuple[int, int]:
    """Return the first and last number of the operations that changed content, or zeros."""
    found = rows.execute(
        "SELECT min(num), max(num) FROM operations WHERE space = ? AND name <> 'embed'", (space,)
    ).fetchone()
    return (0, 0) if found is None or found[0] is None else (found[0], found[1])


def by_id(rows: Rows, space: str, identity: str) -> OperationRow | None:
    """Return the operation with an id, or None."""
    return next(_find(rows, space, "AND o.id = ?", identity), None)


def by_num(rows: Rows, space: str, num: int) -> OperationRow:
    """Return the operation with a number; raise StorageCorrupt if it is missing."""
    for found in _find(rows, space, "AND o.num = ?", num):
        return found
    raise StorageCorrupt(f"Operation {num} is missing.", hint="Run 'commonplace doctor'.")


def replace_origin(rows: Rows, space: str, row: OperationRow, origin: str) -> None:
    """Replace the origin of an operation, and update its hash."""
    undid = undone_operation(rows, space, row.num)
    values = OPERATIONS.row((row.num, space, row.id, row.at, row.name, origin, undid))
    rows.execute(
        "UPDATE operations SET origin = ?, format = ?, hash = ? WHERE space = ? AND num = ?",
        (origin, *values[-2:], space, row.num),
    )


def undoable(rows: Rows, space: str, own: int) -> Iterator[OperationRow]:
    """Return operations that can be undone, newest first, except the operation `own`."""
    return _find(rows, space, _UNDOABLE, own)


def is_followed_by_purge(rows: Rows, space: str, num: int) -> bool:
    """Return whether a purge followed an operation."""
    statement = "SELECT 1 FROM operations WHERE space = ? AND num > ? AND name = 'purge' LIMIT 1"
    return rows.execute(statement, (space, num)).fetchone() is not None


def undone_by(rows: Rows, space: str, num: int) -> OperationRow | None:
    """Return the newest operation that undid this one, or None."""
    clause = "AND o.undoes = ? ORDER BY o.num DESC LIMIT 1"
    return next(_find(rows, space, clause, num), None)


def undone_operation(rows: Rows, space: str, num: int) -> int | None:
    """Return the number of the operation that this one undid, or None."""
    found = rows.execute(
        "SELECT undoes FROM operations WHERE space = ? AND num = ?", (space, num)
    ).fetchone()
    return None if found is None else found[0]


def newest_at(rows: Rows, space: str, at: int) -> int:
    """Return the newest operation recorded at or before a time; 0 if there is none.

    The operation is looked up in an index, and checked against its own row and the next one.
    """
    found = rows.execute(
        "SELECT max(num) FROM operations WHERE space = ? AND at <= ?", (space, at)
    ).fetchone()
    num = int(found[0] or 0) if found else 0
    neighbours = _find(rows, space, "AND o.num IN (?, ?)", num, num + 1)
    recorded = {each.num: each.at <= at for each in neighbours}
    later = recorded.pop(num + 1, False)
    if later or recorded != ({num: True} if num else {}):
        raise StorageCorrupt(
            "The index of operations by time does not match their rows.",
            hint="Run 'commonplace doctor --repair'.",
        )
    return num


# SQL for the label of an operation: older ones have it as `url`; without one, the operation's own
# id is used.
_LABEL = f"coalesce({json_field('origin', 'label')}, {json_field('origin', 'url')}, id)"


class LabelledOperations(NamedTuple):
    """The operations with the same name and label: first and last number, and clients."""

    first: int
    last: int
    clients: tuple[str, ...]
    memories: int
    """How many memories the operations wrote."""


def by_label(
    rows: Rows, space: str, name: str, limit: int, before: int
) -> list[LabelledOperations]:
    """Return operations of a name before a number, grouped by label, newest first."""
    groups = rows.execute(
        f"SELECT {_LABEL}, min(num), max(num) FROM operations"  # noqa: S608
        f" WHERE space = ? AND name = ? GROUP BY {_LABEL} HAVING max(num) < ?"
        " ORDER BY max(num) DESC LIMIT ?",
        (space, name, before, limit),
    ).fetchall()
    return [
        LabelledOperations(first, last, *_count_written(rows, space, name, label))
        for label, first, last in groups
    ]


def _count_written(rows: Rows, space: str, name: str, label: str) -> tuple[tuple[str, ...], int]:
    own = f"SELECT num FROM operations WHERE space = ? AND name = ? AND {_LABEL} = ?"  # noqa: S608
    given = (space, name, label)
    clients = rows.execute(
        f"SELECT DISTINCT {json_field('origin', 'client')} FROM operations"  # noqa: S608
        f" WHERE space = ? AND num IN ({own})",
        (space, *given),
    ).fetchall()
    memories = rows.execute(
        "SELECT count(*) FROM (SELECT num FROM memories WHERE space = ?"  # noqa: S608
        f" AND seq IN ({own}) UNION SELECT num FROM versions WHERE space = ?"
        f" AND entity = 'memories' AND since IN ({own})) AS written",
        (space, *given, space, *given),
    ).fetchone()
    return tuple(sorted(one for (one,) in clients if one)), int(memories[0])


def sharing_label(rows: Rows, space: str, name: str, label: str) -> list[int]:
    """Return the numbers of the operations with this name and label.

    Older operations have the label as `url`.
    """
    found = rows.execute(
        "SELECT num FROM operations WHERE space = ? AND name = ?"  # noqa: S608
        f" AND (coalesce({json_field('origin', 'label')}, {json_field('origin', 'url')}) = ?)"
        " ORDER BY num",
        (space, name, label),
    )
    return [row[0] for row in found]
