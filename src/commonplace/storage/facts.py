"""Statements on the table `facts`."""

from __future__ import annotations

from collections.abc import Iterator

from commonplace.storage.ports import Rows
from commonplace.storage.tables import FACTS, Row

_OPEN = "AND subject_key = ? AND predicate_key = ? AND object_key = ? AND valid_to IS NULL"


def open_facts(rows: Rows, space: str, subject: str, predicate: str, object: str) -> list[Row]:
    """Return facts with these keys and no `valid_to`, newest first."""
    return FACTS.fetch(rows, space, f"{_OPEN} ORDER BY num DESC", subject, predicate, object)


def totals(rows: Rows, space: str) -> tuple[int, int, int, list[str]]:
    """Return the numbers of entities, of facts and of open facts, and the predicates by key.

    An open fact has no `valid_to`.
    """
    count, still = rows.execute(
        "SELECT count(*), count(*) - count(valid_to) FROM facts WHERE space = ?", (space,)
    ).fetchone()
    (entities,) = rows.execute(
        "SELECT count(*) FROM (SELECT subject_key FROM facts WHERE space = ?1"
        " UNION SELECT object_key FROM facts WHERE space = ?1) AS names",
        (space,),
    ).fetchone()
    predicates = rows.execute(
        "SELECT min(predicate) FROM facts WHERE space = ? GROUP BY predicate_key"
        " ORDER BY predicate_key",
        (space,),
    )
    return entities, count, still, [row[0] for row in predicates]


def entity_uses(rows: Rows, space: str) -> Iterator[tuple[str, int, int]]:
    """Return (key, facts that name it, facts with it as subject).

    An entity has one row as a subject, and one as an object.
    """
    found: Iterator[tuple[str, int, int]] = rows.execute(
        "SELECT subject_key, count(*), count(*) FROM facts WHERE space = ?1 GROUP BY subject_key"
        " UNION ALL"
        " SELECT object_key, count(*), 0 FROM facts WHERE space = ?1 GROUP BY object_key",
        (space,),
    )
    return found


def written_since(rows: Rows, space: str, seq: int) -> Iterator[tuple[str, str]]:
    """Return the subject and object of each fact that was written after an operation."""
    found: Iterator[tuple[str, str]] = rows.execute(
        "SELECT subject_key, object_key FROM facts WHERE space = ? AND seq > ?", (space, seq)
    )
    return found


def replaced_since(rows: Rows, space: str, seq: int) -> Iterator[Row]:
    """Return facts as they were at an operation, if they were changed or removed since."""
    found = rows.execute(
        "SELECT row FROM versions WHERE space = ?1 AND entity = ?2 AND since <= ?3"
        " AND until IN (SELECT num FROM operations WHERE space = ?1 AND num > ?3)",
        (space, FACTS.name, seq),
    )
    return (FACTS.load(text) for (text,) in found)
