"""Queries for the rows of the in-memory index: of a whole space, or of some memories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from commonplace.storage.fields import STATES
from commonplace.storage.ports import Rows

_CODES = " ".join(f"WHEN '{name}' THEN {code}" for code, name in enumerate(STATES))


class MemorySelection(NamedTuple):
    """The memories of a space to read."""

    space: str
    nums: list[int] | None
    """The numbers of the memories; None for all memories."""
    since: int
    """If all are read: only memories from this number on."""


def changed_since(connection: Rows, space: str, seq: int) -> set[int]:
    """Return the memories that operations after this one have changed."""
    rows = connection.execute(
        "SELECT num FROM memories WHERE space = ?1 AND seq > ?2"
        " UNION SELECT memory FROM touches WHERE space = ?1 AND seq > ?2",
        (space, seq),
    )
    return {row[0] for row in rows}


def memory_columns(connection: Rows, wanted: MemorySelection) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of the memories that searches use."""
    # The query has no ORDER BY: the covering index of these columns is in the order of operations,
    # so SQLite would have to sort.
    statement = (
        f"SELECT num, seq, kind, CASE state {_CODES} END, importance, credit, pinned,"  # noqa: S608
        " occurred_at, created_at FROM memories WHERE space = ?"
    )
    return _select(connection, statement, "num", wanted)


def packed_terms(connection: Rows, wanted: MemorySelection) -> Iterator[tuple[Any, ...]]:
    """Yield the packed terms of each memory, with their checksums."""
    statement = "SELECT memory, terms, sum FROM lexemes WHERE space = ?"
    return _select(connection, statement, "memory", wanted, "ORDER BY memory")


def message_places(connection: Rows, wanted: MemorySelection) -> Iterator[tuple[Any, ...]]:
    """Yield the conversation, position and speaker of each memory that is a message."""
    statement = (
        "SELECT memory, conversation, session, position, speaker FROM messages WHERE space = ?"
    )
    return _select(connection, statement, "memory", wanted, "ORDER BY memory")


def project_labels(connection: Rows, wanted: MemorySelection) -> dict[int, list[str]]:
    """Return the project and branch labels of each memory that has some."""
    statement = (
        "SELECT memory, label FROM labels WHERE space = ?"
        " AND (label >= 'tag:branch:' AND label < 'tag:branch;'"
        " OR label >= 'tag:project:' AND label < 'tag:project;')"
    )
    found: dict[int, list[str]] = {}
    for memory, label in _select(connection, statement, "memory", wanted):
        found.setdefault(memory, []).append(label.removeprefix("tag:"))
    return found


def packed_vectors(
    connection: Rows, wanted: MemorySelection, model: int
) -> Iterator[tuple[Any, ...]]:
    """Yield the passages with vectors of a model, with their checksums."""
    statement = (
        "SELECT memory, ordinal, start, stop, vector, sum FROM passages"  # noqa: S608
        f" WHERE space = ? AND model = {model:d}"
    )
    return _select(connection, statement, "memory", wanted, "ORDER BY memory")


def _select(
    connection: Rows, statement: str, key: str, wanted: MemorySelection, order: str = ""
) -> Iterator[tuple[Any, ...]]:
    """Return all rows in an order, or the rows of the wanted memories."""
    if wanted.nums is not None:
        return connection.select_each(statement, key, wanted.space, sorted(wanted.nums))
    newer = f"AND {key} >= {wanted.since:d}" if wanted.since else ""
    return connection.stream(f"{statement} {newer} {order}", (wanted.space,))
