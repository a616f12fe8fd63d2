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
# An undo of an undo does an operation again, so every second one can be taken back itself.
_UNDOABLE = (
    "AND o.name NOT IN ('embed', 'purge') AND o.num <> ?"
    " AND NOT EXISTS (SELECT 1 FROM operations x WHERE x.space = o.space AND x.undoes = o.num)"
    " AND (WITH RECURSIVE back (num, depth) AS (SELECT o.undoes, 0 UNION ALL"
    " SELECT b.undoes, back.depth + 1 FROM operations b JOIN back ON b.num = back.num"
    " WHERE b.space = o.space) SELECT max(depth) FROM back) % 2 = 0"
    " ORDER BY o.num DESC"
)


class OperationRow(NamedTuple):
    """A verified row; `undoes` is the id of the operation that it undid."""

    num: int
    id: str
    at: int
    name: str
    origin: str
    undoes: str | None


def _find(rows: Rows, space: str, clause: str, *params: object) -> Iterator[OperationRow]:
    for *stored, undoes in rows.execute(_SELECT + clause, (space, *params)):
        num, _, identity, at, name, origin, *_ = stored
        if not OPERATIONS.sound(stored):
            raise StorageCorrupt(
                f"Operation {num} does not match its hash.",
                hint="Run 'commonplace doctor' and restore from a backup.",
            )
        yield OperationRow(num, identity, at, name, origin, undoes)


def in_order(rows: Rows, space: str) -> Iterator[OperationRow]:
    """All operations, oldest first."""
    return _find(rows, space, "ORDER BY o.num")


def newest(rows: Rows, space: str, limit: int, *, upkeep: bool) -> list[OperationRow]:
    """The newest operations first; with those that change no content, if asked."""
    clause = "" if upkeep else "AND o.name <> 'embed' "
    return list(_find(rows, space, clause + "ORDER BY o.num DESC LIMIT ?", limit))


def by_id(rows: Rows, space: str, identity: str) -> OperationRow | None:
    """The operation with an id, or None."""
    return next(_find(rows, space, "AND o.id = ?", identity), None)


def by_num(rows: Rows, space: str, num: int) -> OperationRow:
    """The operation with a number, which must be there."""
    for found in _find(rows, space, "AND o.num = ?", num):
        return found
    raise StorageCorrupt(f"Operation {num} is missing.", hint="Run 'commonplace doctor'.")


def undoable(rows: Rows, space: str, own: int) -> Iterator[OperationRow]:
    """Operations that stand and could be undone, newest first; without one."""
    return _find(rows, space, _UNDOABLE, own)


def undone_by(rows: Rows, space: str, num: int) -> OperationRow | None:
    """The newest operation that undid another, or None."""
    clause = "AND o.undoes = ? ORDER BY o.num DESC LIMIT 1"
    return next(_find(rows, space, clause, num), None)


def undoes(rows: Rows, space: str, num: int) -> int | None:
    """The number of the operation that another undid, or None."""
    found = rows.execute(
        "SELECT undoes FROM operations WHERE space = ? AND num = ?", (space, num)
    ).fetchone()
    return None if found is None else found[0]


def newest_at(rows: Rows, space: str, at: int) -> int:
    """The newest operation recorded at or before a moment; 0 if there was none.

    An index says which, and the rows of that one and of the next whether it is so.
    """
    found = rows.execute(
        "SELECT max(num) FROM operations WHERE space = ? AND at <= ?", (space, at)
    ).fetchone()
    num = int(found[0] or 0) if found else 0
    beside = _find(rows, space, "AND o.num IN (?, ?)", num, num + 1)
    recorded = {each.num: each.at <= at for each in beside}
    later = recorded.pop(num + 1, False)
    if later or recorded != ({num: True} if num else {}):
        raise StorageCorrupt(
            "What is recorded of when operations were made contradicts them.",
            hint="Run 'commonplace doctor --repair'.",
        )
    return num


def sharing_label(rows: Rows, space: str, name: str, label: str) -> list[int]:
    """Numbers of the operations of a name with a label; older ones have it as their url."""
    found = rows.execute(
        "SELECT num FROM operations WHERE space = ? AND name = ?"  # noqa: S608
        f" AND (coalesce({json_field('origin', 'label')}, {json_field('origin', 'url')}) = ?)"
        " ORDER BY num",
        (space, name, label),
    )
    return [row[0] for row in found]
