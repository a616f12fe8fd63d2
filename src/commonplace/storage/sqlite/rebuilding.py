"""Writing anew what is derived from the rows; never a row itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from commonplace.errors import StorageCorrupt
from commonplace.storage import derived, outbox
from commonplace.storage.database import Connection
from commonplace.storage.derived import Findable, Model
from commonplace.storage.ports import Contents
from commonplace.storage.reports import Diagnosis
from commonplace.storage.sqlite import Store
from commonplace.storage.sqlite.backup import KEPT, TABLES, read_rows
from commonplace.storage.sqlite.comparing import (
    DERIVED,
    Wrong,
    compare,
    is_readable,
    passage_sound,
    vector_sizes,
)
from commonplace.storage.sqlite.examining import empty_reference
from commonplace.storage.tables import MEMORIES, Row
from commonplace.storage.writing import Head, write_head

DOCTOR = {"client": "commonplace", "tool": "doctor"}
OPERATION = "embed"  # the name by which history knows upkeep: it is neither listed nor undone


def mend(store: Store, library: Contents, ills: Diagnosis) -> list[str]:
    """Rebuild what an examination found ill; what that was."""
    rebuilt = []
    with store.maintain() as connection:
        if ills.ill("file"):
            connection.execute("REINDEX")
            rebuilt.append("indexes")
        if ills.ill("head"):
            write_head(connection, store.space, true_head(connection, store.space))
            rebuilt.append("head")
        if ills.ill("counters"):
            _reset_counters(connection)
            rebuilt.append("counters")
        if ills.ill("outbox"):
            connection.execute("DELETE FROM outbox")  # what waited is found again by its absence
            rebuilt.append("outbox")
    if not ills.ill("grams", "vectors", "models", *DERIVED):
        return rebuilt
    with store.write(OPERATION, DOCTOR) as unit, store.read() as connection:
        before = _row_counts(connection, store.space)
        for table in DERIVED:
            if not is_readable(connection, table):
                _make_empty(connection, table)
        done = _rebuild(connection, store.space, library)
        if ills.ill("grams"):
            fill_grams(connection, library.derive)
            done["grams"] = set()
        for num in done.get("lexemes", set()) | done.get("passages", set()):
            derived.touch(unit, num)
        if _row_counts(connection, store.space) != before:
            raise StorageCorrupt("The rebuild would have lost rows; nothing was changed.")
    return rebuilt + list(done)


def _row_counts(connection: Connection, space: str) -> dict[str, Any]:
    return {
        kept.name: connection.execute(
            f"SELECT count(*) FROM {kept.name} WHERE space = ?",  # noqa: S608
            (space,),
        ).fetchone()
        for kept in KEPT
        if kept.name not in ("head", "operations")
    }


def true_head(connection: Connection, space: str) -> Head:
    """The counters as the sound rows show them."""
    seq = num = 0
    ids: dict[int, str] = {}
    for kept in KEPT:
        if kept.name in ("head", "counters"):
            continue
        at = {column: i for i, column in enumerate(kept.columns)}
        for owner, values, sound in read_rows(connection, kept):
            if not sound or owner != space:
                continue
            if kept.name == "operations":
                seq = max(seq, values[at["num"]])
                ids = {values[at["num"]]: values[at["id"]]}  # rows come in order: the newest
                continue
            num = max(num, values[at["num"]])
            seq = max(seq, values[at["until" if kept.name == "versions" else "seq"]])
    return Head(seq, num + 1, ids.get(seq, ""))


def _reset_counters(connection: Connection) -> None:
    kept = TABLES["counters"]
    ill = [(owner, values[0]) for owner, values, sound in read_rows(connection, kept) if not sound]
    connection.executemany("DELETE FROM counters WHERE space = ? AND memory = ?", ill)


def _make_empty(connection: Connection, table: str) -> None:
    """The table as the schema defines it, with nothing in it."""
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    for (sql,) in empty_reference().execute(
        "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND sql IS NOT NULL"
        " ORDER BY type = 'index'",
        (table,),
    ):
        connection.execute(sql)
    if table == "grams":
        connection.execute("INSERT INTO grams (grams, rank) VALUES ('secure-delete', 1)")


def _rebuild(connection: Connection, space: str, library: Contents) -> dict[str, set[int]]:
    """Write anew what is not what the rows give; table → memories for which it was."""
    sizes = vector_sizes(connection, space, Diagnosis(space))
    done: dict[str, set[int]] = defaultdict(set)
    for wrong in compare(connection, space, DERIVED, library.derive):
        tables = set(wrong.faults)
        if wrong.row is not None and not all(_known(p, sizes) for p in wrong.passages):
            tables.add("passages")
        for table in tables:
            connection.execute(f"DELETE FROM {table} WHERE memory = ?", (wrong.num,))  # noqa: S608
            done[table].add(wrong.num)
        if wrong.prepared is not None:
            write_derived(connection, space, wrong, tables, sizes, library.embedder)
    return done


def _known(passage: tuple[Any, ...], sizes: dict[int, tuple[Any, ...]]) -> bool:
    """Whether a passage's vector is of a model that is known here, or it has none."""
    _, _, _, _, model, vector, _ = passage
    if model is None:
        return vector is None
    return model in sizes and isinstance(vector, bytes) and len(vector) == sizes[model][2]


def write_derived(
    connection: Connection,
    space: str,
    wrong: Wrong,
    tables: set[str],
    sizes: dict[int, tuple[Any, ...]],
    embedder: Model | None,
) -> None:
    """Write what finds a memory, in these tables."""
    prepared = wrong.prepared
    assert prepared is not None
    if "lexemes" in tables:
        derived.write_terms(connection, space, wrong.num, prepared.terms)
    if "labels" in tables:
        derived.write_labels(connection, space, wrong.num, prepared.labels)
    if "passages" in tables:
        passages = _with_sound_vectors(wrong, prepared, sizes)
        derived.write_passages(connection, space, wrong.num, passages)
        if embedder is not None and any(passage.vector is None for passage in passages):
            outbox.add(connection, space, wrong.num)


def _with_sound_vectors(
    wrong: Wrong, prepared: Findable, sizes: dict[int, tuple[Any, ...]]
) -> list[derived.Passage]:
    """The text's passages, each with the vector it had if that is whole and of the same stretch."""
    kept = {
        (row[2], row[3]): (row[4], row[5])
        for row in wrong.passages
        if passage_sound(wrong.num, row) and _known(row, sizes)
    }
    return [
        derived.Passage(span, *kept.get((span.start, span.stop), (None, None)))
        for span in prepared.spans
    ]


def fill_grams(connection: Connection, derive: Callable[[Row, str], Findable]) -> None:
    """The substring index anew; a row that does not match its hash is indexed as it stands."""
    _make_empty(connection, "grams")
    for _, values, sound in read_rows(connection, TABLES["memories"]):
        row = dict(zip(MEMORIES.fields, values, strict=False))
        try:
            folded = derive(row, "").folded
        except (ValueError, TypeError, AttributeError):
            if sound:
                raise
            continue
        connection.add_grams("", [(row["num"], folded)])  # whatever space a damaged row names
