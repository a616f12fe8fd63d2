"""Rebuild the data derived from the rows, without ever changing content."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from commonplace.errors import StorageCorrupt
from commonplace.storage import derived, outbox, schema
from commonplace.storage.database import Connection
from commonplace.storage.derived import Model, Passage
from commonplace.storage.ports import Contents
from commonplace.storage.reports import RESTORE, Diagnosis
from commonplace.storage.sqlite import Store
from commonplace.storage.sqlite.check import (
    DERIVED,
    ComparedMemory,
    Derive,
    compare_derived,
    empty_database,
    has_known_vector,
    is_intact_passage,
    is_readable,
    vector_models,
)
from commonplace.storage.sqlite.hashed_rows import TABLES, read_rows
from commonplace.storage.tables import COUNTERS, MEMORIES, OPERATIONS, VERSIONS
from commonplace.storage.writing import Head, write_head

DOCTOR = {"client": "commonplace", "tool": "doctor"}
OPERATION = "embed"  # The history does not list operations of this name, and undo skips them.


def rebuild(store: Store, library: Contents, diagnosis: Diagnosis) -> list[str]:
    """Rebuild the parts that a diagnosis found damaged; return their names."""
    rebuilt = []
    with store.maintain() as connection:
        if diagnosis.has_damage_in("file"):
            connection.execute("REINDEX")
            rebuilt.append("indexes")
        if diagnosis.has_damage_in("head"):
            write_head(connection, store.space, head_from_rows(connection, store.space))
            rebuilt.append("head")
        if diagnosis.has_damage_in("counters"):
            connection.executemany(
                "DELETE FROM counters WHERE space = ? AND memory = ?",
                [(row["space"], row["memory"]) for row, sound in read_rows(connection, COUNTERS)
                 if not sound],
            )  # fmt: skip
            rebuilt.append("counters")
        if diagnosis.has_damage_in("outbox"):
            connection.execute("DELETE FROM outbox")  # Missing vectors are requested again.
            rebuilt.append("outbox")
    if not diagnosis.has_damage_in("grams", "vectors", "models", *DERIVED):
        return rebuilt
    with store.write(OPERATION, DOCTOR) as unit, store.read() as connection:
        before = _row_counts(connection, store.space)
        for table in DERIVED:
            if not is_readable(connection, table):
                _recreate_table(connection, table)
        done = _rebuild_derived(connection, store.space, library)
        if diagnosis.has_damage_in("grams"):
            fill_grams(connection, library.derive)
            done["grams"] = set()
        for num in done.get("lexemes", set()) | done.get("passages", set()):
            derived.record_derived_change(unit, num)
        if _row_counts(connection, store.space) != before:
            raise StorageCorrupt(
                "The rebuild would have lost rows; nothing was changed.", hint=RESTORE
            )
    return rebuilt + list(done)


def _row_counts(connection: Connection, space: str) -> dict[str, Any]:
    return {
        name: connection.execute(
            f"SELECT count(*) FROM {name} WHERE space = ?",  # noqa: S608
            (space,),
        ).fetchone()
        for name in TABLES
        if name not in ("head", "operations")
    }


def head_from_rows(connection: Connection, space: str) -> Head:
    """Return the counters of the space, computed from the intact rows."""
    seq = num = 0
    newest, identity = 0, ""
    for name, table in TABLES.items():
        if name in ("head", "counters"):
            continue
        for row, sound in read_rows(connection, table):
            if not sound or row["space"] != space:
                continue
            if table is OPERATIONS:
                # The rows are ordered by number, so the last one is the newest.
                newest, identity = row["num"], row["id"]
                seq = max(seq, newest)
                continue
            num = max(num, row["num"])
            seq = max(seq, row["until" if table is VERSIONS else "seq"])
    change = derived.newest_change(connection, space)
    return Head(seq, num + 1, identity if newest == seq else "", change)


def _recreate_table(connection: Connection, table: str) -> None:
    """Replace a table by an empty one."""
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    for (sql,) in empty_database(schema.MIGRATIONS).execute(
        "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND sql IS NOT NULL"
        " ORDER BY type = 'index'",
        (table,),
    ):
        connection.execute(sql)
    if table == "grams":
        connection.execute("INSERT INTO grams (grams, rank) VALUES ('secure-delete', 1)")


def _rebuild_derived(connection: Connection, space: str, library: Contents) -> dict[str, set[int]]:
    """Replace derived rows that do not match the text; return the affected memories by table."""
    models = vector_models(connection, space, Diagnosis(space))
    done: dict[str, set[int]] = defaultdict(set)
    for memory in compare_derived(connection, space, DERIVED, library.derive):
        tables = set(memory.faults)
        if memory.row is not None and not all(has_known_vector(p, models) for p in memory.passages):
            tables.add("passages")
        for table in tables:
            connection.execute(f"DELETE FROM {table} WHERE memory = ?", (memory.num,))  # noqa: S608
            done[table].add(memory.num)
        if memory.prepared is not None:
            write_derived(connection, space, memory, tables, models, library.embedder)
    return done


def write_derived(
    connection: Connection,
    space: str,
    memory: ComparedMemory,
    tables: set[str],
    models: dict[int, tuple[str, str, int]],
    embedder: Model | None,
) -> None:
    """Write a memory's derived rows into these tables, with the intact stored vectors."""
    prepared = memory.prepared
    assert prepared is not None
    if "lexemes" in tables:
        row = derived.lexeme_row(space, memory.num, prepared.terms)
        derived.write_rows(connection, "lexemes", [row])
    if "labels" in tables:
        rows = derived.label_rows(space, memory.num, prepared.labels)
        derived.write_rows(connection, "labels", rows)
    if "passages" in tables:
        vectors = {
            (start, stop): (model, vector)
            for _, _, start, stop, model, vector, _ in (
                row for row in memory.passages
                if is_intact_passage(memory.num, row) and has_known_vector(row, models)
            )
        }  # fmt: skip
        passages = [
            Passage(span, *vectors.get((span.start, span.stop), (None, None)))
            for span in prepared.spans
        ]
        derived.write_rows(
            connection, "passages", derived.passage_rows(space, memory.num, passages)
        )
        if embedder is not None and any(passage.vector is None for passage in passages):
            outbox.add(connection, space, memory.num)


def fill_grams(connection: Connection, derive: Derive) -> None:
    """Rebuild the trigram index, including damaged rows."""
    _recreate_table(connection, "grams")
    for row, sound in read_rows(connection, MEMORIES):
        try:
            folded = derive(row, "").folded
        except (ValueError, TypeError, AttributeError):
            if sound:
                raise
            continue
        connection.add_grams("", [(row["num"], folded)])  # The space of a damaged row may be wrong.
