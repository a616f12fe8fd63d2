"""Statements on the table `memories`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from commonplace.storage.database import json_field
from commonplace.storage.ports import Rows

LARGE_SPACE = 200_000
"""The index of a space with more memories than this is loaded in the background."""
LOADED_FIRST = 50_000
"""How many of the newest memories are searched while the index loads."""


def numbers_of_id(rows: Rows, space: str, identity: str) -> list[int]:
    """Return the number of the memory with an id, as a list with at most one item."""
    statement = "SELECT num FROM memories WHERE space = ? AND id = ?"
    return [row[0] for row in rows.execute(statement, (space, identity))]


def find_by_id_or_ref(rows: Rows, space: str, identity: str, ref: str | None) -> str | None:
    """Return the id of a memory that has this id or this ref, or None."""
    found = rows.execute(
        "SELECT id FROM memories WHERE space = ?1 AND (id = ?2 OR ref = ?3) LIMIT 1",
        (space, identity, ref),
    ).fetchone()
    return None if found is None else str(found[0])


def ids_with_prefix(
    rows: Rows, space: str, table: Literal["memories", "operations"], prefix: str, most: int
) -> list[str]:
    """Return at most `most` ids that begin with a hexadecimal prefix."""
    statement = (
        f"SELECT id FROM {table} WHERE space = ? AND id >= ? AND id < ?"  # noqa: S608
        " ORDER BY id LIMIT ?"
    )
    return [row[0] for row in rows.execute(statement, (space, prefix, prefix + "g", most))]


def numbered_refs(rows: Rows, space: str, prefix: str) -> list[str]:
    """Return the refs that consist of a prefix and a digit, and possibly more."""
    found = rows.execute(
        "SELECT ref FROM memories WHERE space = ? AND ref >= ? AND ref < ?",
        (space, prefix + "0", prefix + ":"),  # ":" follows "9" in ASCII.
    )
    return [row[0] for row in found]


def newest_unlinked(
    rows: Rows, space: str, kind: str, label: str, states: Sequence[str], link: str
) -> int | None:
    """Return the newest memory with a kind and a label that no link of kind `link` points to."""
    found = rows.execute(
        "SELECT m.num FROM labels l JOIN memories m ON m.space = l.space AND m.num = l.memory"  # noqa: S608
        " WHERE l.space = ? AND l.label = ? AND m.kind = ?"
        f" AND m.state IN ({', '.join('?' * len(states))})"
        " AND NOT EXISTS (SELECT 1 FROM links s"
        " WHERE s.space = m.space AND s.target = m.id AND s.kind = ?)"
        " ORDER BY m.created_at DESC, m.num DESC LIMIT 1",
        (space, label, kind, *states, link),
    ).fetchone()
    return None if found is None else int(found[0])


def last_operation(rows: Rows, space: str, num: int) -> int | None:
    """Return the operation that last wrote a memory; None if the memory does not exist."""
    found = rows.execute(
        "SELECT seq FROM memories WHERE space = ? AND num = ?", (space, num)
    ).fetchone()
    return None if found is None else int(found[0])


def all_numbers(rows: Rows, space: str) -> list[int]:
    """Return the numbers of all memories, newest first."""
    found = rows.execute("SELECT num FROM memories WHERE space = ? ORDER BY num DESC", (space,))
    return [row[0] for row in found]


def is_ambiguous(rows: Rows, space: str, identity: str, ref: str | None) -> bool:
    """Return whether another memory has the id as its ref, or the ref as its id."""
    # Use three searches by index: with OR, SQLite would read every memory of the space.
    found = rows.execute(
        "SELECT 1 FROM memories WHERE space = ?1 AND id = ?3 AND id <> ?2"
        " UNION ALL SELECT 1 FROM memories WHERE space = ?1 AND ref = ?2 AND id <> ?2"
        " UNION ALL SELECT 1 FROM memories WHERE space = ?1 AND ref = upper(?2) AND id <> ?2",
        (space, identity, None if ref is None else ref.lower()),
    ).fetchone()
    return found is not None


def ref_is_taken(rows: Rows, space: str, ref: str, num: int) -> bool:
    """Return whether another memory has this ref."""
    found = rows.execute(
        "SELECT 1 FROM memories WHERE space = ? AND ref = ? AND num <> ?", (space, ref, num)
    ).fetchone()
    return found is not None


def clear_refs(rows: Rows, space: str, nums: Iterable[int]) -> None:
    """Clear the refs of memories, so that other rows can take them."""
    rows.executemany(
        "UPDATE memories SET ref = NULL WHERE space = ? AND num = ?",
        [(space, num) for num in nums],
    )


def count_by_attrs(
    rows: Rows, space: str, names: Sequence[str], kinds: Sequence[str], states: Sequence[str]
) -> dict[tuple[str, ...], int]:
    """Count memories of these kinds and states, grouped by these attrs."""
    columns = "".join(f"coalesce({json_field('attrs', name)}, ''), " for name in names)
    places = ", ".join(str(at) for at in range(1, len(names) + 1))
    grouped = f" GROUP BY {places}" if names else ""
    marks, others = (", ".join("?" * len(each)) for each in (kinds, states))
    found = rows.execute(
        f"SELECT {columns}count(*) FROM memories WHERE space = ? AND kind IN ({marks})"  # noqa: S608
        f" AND state IN ({others}){grouped}",
        (space, *kinds, *states),
    )
    return {tuple(str(value) for value in row[:-1]): int(row[-1]) for row in found}


def purged_since(rows: Rows, space: str, seq: int) -> bool:
    """Return whether a memory was purged after an operation."""
    found = rows.execute(
        "SELECT 1 FROM touches t WHERE t.space = ?1 AND t.seq > ?2 AND NOT EXISTS"
        " (SELECT 1 FROM memories m WHERE m.space = t.space AND m.num = t.memory) LIMIT 1",
        (space, seq),
    ).fetchone()
    return found is not None


def first_number_to_load(rows: Rows, space: str) -> int:
    """Return the number of the first memory to load when a large space is loaded in part.

    Return 0 for a smaller space.
    """
    row = rows.execute("SELECT next_num FROM head WHERE space = ?", (space,)).fetchone()
    if row is None or row[0] <= LARGE_SPACE:  # There are at most as many memories as row numbers.
        return 0
    row = rows.execute("SELECT count(*) FROM memories WHERE space = ?", (space,)).fetchone()
    if row is None or row[0] <= LARGE_SPACE:
        return 0
    row = rows.execute(
        "SELECT num FROM memories WHERE space = ? ORDER BY num DESC LIMIT 1 OFFSET ?",
        (space, LOADED_FIRST - 1),
    ).fetchone()
    return int(row[0]) if row else 0


def ids_in_states(rows: Rows, space: str, states: Sequence[str]) -> set[str]:
    """Return the ids of all memories in one of these states."""
    marks = ", ".join("?" * len(states))
    found = rows.execute(
        f"SELECT id FROM memories WHERE space = ? AND state IN ({marks})",  # noqa: S608
        (space, *states),
    )
    return {identity for (identity,) in found}
