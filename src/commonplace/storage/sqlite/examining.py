"""Every check of a space's file, from SQLite's own to each derived row."""

from __future__ import annotations

import contextlib
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from commonplace.errors import StorageCorrupt
from commonplace.storage import schema
from commonplace.storage.database import Connection, migrate
from commonplace.storage.derived import Model
from commonplace.storage.ports import Contents
from commonplace.storage.reports import NAMED, REPAIR, RESTORE, RESTORE_SYSTEM, Diagnosis, Progress
from commonplace.storage.sqlite import beside
from commonplace.storage.sqlite.backup import KEPT, named, read_rows
from commonplace.storage.sqlite.comparing import (
    BATCH,
    DERIVED,
    Gram,
    Wrong,
    compare,
    is_readable,
    noting,
    vector_sizes,
)
from commonplace.storage.system import SYSTEM_MIGRATIONS
from commonplace.storage.tables import VERSIONED
from commonplace.storage.writing import read_head


def examine_file(
    connection: Connection,
    space: str,
    library: Contents,
    diagnosis: Diagnosis,
    progress: Progress | None,
) -> None:
    """Every check, one after the other; what each finds is noted."""
    with noting(diagnosis, "file"):
        _check_file(connection, diagnosis)
    with noting(diagnosis, "schema", RESTORE):
        _check_schema(connection, diagnosis)
    total = _count(connection, space, diagnosis)
    _check_rows(connection, space, diagnosis, progress, total)
    with noting(diagnosis, "head"):
        _check_head(connection, space, diagnosis)
    with noting(diagnosis, "orphans"):
        _check_orphans(connection, space, diagnosis)
    pending: set[int] = set()
    with noting(diagnosis, "outbox"):
        pending = _pending(connection, space, diagnosis)
    seen: dict[int, Gram | None] = {}
    sizes = vector_sizes(connection, space, diagnosis)
    done = 0
    readable = []
    for table in DERIVED:
        if is_readable(connection, table):
            readable.append(table)
        else:
            diagnosis.add(table, "It cannot be read.", REPAIR)
    with noting(diagnosis, "memories", RESTORE):
        for wrong in compare(connection, space, readable, library.derive, seen):
            done += 1
            if progress is not None and done % BATCH == 0:
                progress(total + done, 2 * total + 1)
            for check, what in wrong.faults.items():
                diagnosis.add(check, f"Row {{row}} of memories: {what}.", REPAIR, row=wrong.num)
            _check_vectors(wrong, sizes, library.embedder, pending, diagnosis)
    _check_grams(connection, diagnosis, seen)
    if progress is not None:
        progress(2 * total + 1, 2 * total + 1)


def _check_file(connection: Connection, diagnosis: Diagnosis) -> None:
    for (fault,) in connection.execute(f"PRAGMA integrity_check({NAMED})"):
        if fault == "ok":
            continue
        if "fts5" in fault.lower():
            diagnosis.add("grams", fault + ".", REPAIR)
        else:
            diagnosis.add("file", f"SQLite: {fault}.", REPAIR)


def empty_reference(steps: Sequence[schema.Step] | None = None) -> Connection:
    """An empty database with the tables as this release makes them."""
    reference = Connection(":memory:")
    migrate(reference, schema.MIGRATIONS if steps is None else steps)
    return reference


def _check_schema(connection: Connection, diagnosis: Diagnosis) -> None:
    reference = empty_reference()
    _compare_definitions(connection, reference, diagnosis, RESTORE)
    settings = "SELECT k, v FROM grams_config ORDER BY k"
    if connection.execute(settings).fetchall() != reference.execute(settings).fetchall():
        diagnosis.add("grams", "The settings of grams are not those that were made.", REPAIR)


def _compare_definitions(
    connection: Connection, reference: Connection, diagnosis: Diagnosis, hint: str
) -> None:
    statement = "SELECT type || ' ' || name, tbl_name, sql FROM sqlite_schema"
    expected, found = (
        {row[0]: row[1:] for row in each.execute(statement)} for each in (reference, connection)
    )
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            how = "missing" if name not in found else "unknown" if name not in expected else "other"
            diagnosis.add("schema", f"The definition of {name} is {how}.", hint)


def examine_beside(connection: Connection, name: str, diagnosis: Diagnosis) -> None:
    """The checks of a file that belongs to no space."""
    with noting(diagnosis, "file", RESTORE_SYSTEM):
        for what in beside.faults(connection, name):
            check = "file" if what.startswith("SQLite") else "audit"
            diagnosis.add(check, f"{what}.", RESTORE_SYSTEM)
    with noting(diagnosis, "schema", RESTORE_SYSTEM):
        if name == beside.SYSTEM:
            reference = empty_reference(SYSTEM_MIGRATIONS)
            _compare_definitions(connection, reference, diagnosis, RESTORE_SYSTEM)
        diagnosis.counts.update(beside.summary(connection, name)["rows"])


def _count(connection: Connection, space: str, diagnosis: Diagnosis) -> int:
    for kept in KEPT:
        with noting(diagnosis, kept.name, RESTORE):
            row = connection.execute(
                f"SELECT count(*) FROM {kept.name} NOT INDEXED WHERE space = ?",  # noqa: S608
                (space,),
            ).fetchone()
            diagnosis.counts[kept.name] = int(row[0]) if row else 0
    return sum(diagnosis.counts.values())


def _check_rows(
    connection: Connection,
    space: str,
    diagnosis: Diagnosis,
    progress: Progress | None,
    total: int,
) -> None:
    done = 0
    for kept in KEPT:
        hint = REPAIR if kept.name in ("head", "counters") else RESTORE
        with noting(diagnosis, kept.name, hint):
            for owner, values, sound in read_rows(connection, kept):
                done += 1
                if not sound:
                    what = "Row {row} does not match its hash."
                    diagnosis.add(kept.name, what, hint, row=named(kept, values))
                elif owner != space:
                    what = f"Row {{row}} belongs to the space {owner}."
                    diagnosis.add(kept.name, what, hint, row=named(kept, values))
                if progress is not None and done % 1_000 == 0:
                    progress(done, 2 * total + 1)


def _check_head(connection: Connection, space: str, diagnosis: Diagnosis) -> None:
    try:
        seq, next_num, operation = read_head(connection, space)
    except StorageCorrupt:
        return  # its row was already found not to match its hash
    row = connection.execute(
        "SELECT count(*), max(num) FROM operations NOT INDEXED WHERE space = ?", (space,)
    ).fetchone()
    count, newest = row or (0, None)
    if count != seq or (newest or 0) != seq:
        what = f"There are {count} operations up to {newest}, and {seq} were counted."
        diagnosis.add("operations", what, RESTORE)
    newest_id = connection.execute(
        "SELECT id FROM operations WHERE space = ? AND num = ?", (space, seq)
    ).fetchone()
    if operation and newest_id is not None and newest_id[0] != operation:
        diagnosis.add("head", "The change counter names another operation.", REPAIR)
    for table in (*(table.name for table in VERSIONED), "events"):
        row = connection.execute(
            f"SELECT max(num), max(seq) FROM {table} WHERE space = ?",  # noqa: S608
            (space,),
        ).fetchone()
        num, last = row or (None, None)
        if (num or 0) >= next_num or (last or 0) > seq:
            diagnosis.add("head", f"{table} is ahead of the change counter.", REPAIR)


_NO_MEMORY = "{} NOT IN (SELECT id FROM memories WHERE space = ?1)"
_NO_CLUSTER = "cluster NOT IN (SELECT id FROM clusters WHERE space = ?1)"
_NO_ARTIFACT = "artifact NOT IN (SELECT id FROM artifacts WHERE space = ?1)"
_ORPHANS = {
    "messages": ("memory NOT IN (SELECT num FROM memories WHERE space = ?1)", "a memory"),
    "members": (f"{_NO_MEMORY.format('memory')} OR {_NO_CLUSTER}", "a memory or a cluster"),
    "links": (f"{_NO_MEMORY.format('source')} OR {_NO_MEMORY.format('target')}", "a memory"),
    "facts": (f"memory IS NOT NULL AND {_NO_MEMORY.format('memory')}", "a memory"),
    "contents": (_NO_ARTIFACT, "an artifact"),
    "reviews": (_NO_ARTIFACT, "an artifact"),
    "artifacts": ("NOT EXISTS (SELECT 1 FROM contents c WHERE c.space = ?1"
                  " AND c.artifact = artifacts.id AND c.version = artifacts.version)",
                  "a content"),
}  # fmt: skip


def _check_orphans(connection: Connection, space: str, diagnosis: Diagnosis) -> None:
    for table, (clause, what) in _ORPHANS.items():
        statement = f"SELECT num FROM {table} WHERE space = ?1 AND ({clause})"  # noqa: S608
        for (num,) in connection.execute(statement, (space,)):
            told = f"Row {{row}} of {table} names {what} that is not there."
            hint = "What it names was undone or removed."
            diagnosis.add("orphans", told, hint, "warning", row=num)


def _pending(connection: Connection, space: str, diagnosis: Diagnosis) -> set[int]:
    """Memories whose vectors wait to be made."""
    found = set()
    for num, owner, kind, subject in connection.execute(
        "SELECT num, CAST(space AS BLOB), CAST(kind AS BLOB), CAST(subject AS BLOB) FROM outbox"
    ):
        if owner != space.encode() or (kind == b"embed" and not subject.isdigit()):
            diagnosis.add("outbox", "Row {row} of outbox is damaged.", REPAIR, row=num)
        elif kind == b"embed":
            found.add(int(subject))
    diagnosis.counts["pending"] = len(found)
    if found:
        diagnosis.add("vectors", f"{len(found)} memories wait for their vectors.", "", "note")
    return found


def _check_vectors(
    wrong: Wrong,
    sizes: dict[int, tuple[Any, ...]],
    embedder: Model | None,
    pending: set[int],
    diagnosis: Diagnosis,
) -> None:
    """Each passage has a vector of the present model, or waits for one."""
    if wrong.row is None or "passages" in wrong.faults:
        return
    where, num = "Row {row} of memories: a passage", wrong.num
    for _, _, _, _, model, vector, _ in wrong.passages:
        if (model is None) != (vector is None):
            diagnosis.add("vectors", f"{where} has a vector without a model.", REPAIR, row=num)
        elif model is not None and model not in sizes:
            diagnosis.add("vectors", f"{where} has a vector of an unknown model.", REPAIR, row=num)
        elif model is not None and len(vector) != sizes[model][2]:
            diagnosis.add("vectors", f"{where} has a vector of the wrong length.", REPAIR, row=num)
        elif (
            embedder is not None
            and wrong.num not in pending
            and (model is None or sizes[model][:2] != (embedder.id, embedder.weights))
        ):
            diagnosis.add(
                "vectors", f"{where} has no vector of {embedder.id} and does not wait for one.",
                "It is asked for when the space is opened.", "warning", row=num,
            )  # fmt: skip


def _check_grams(
    connection: Connection, diagnosis: Diagnosis, expected: Mapping[int, Gram | None]
) -> None:
    """Compare the substring index with what it must hold, memory by memory."""
    with noting(diagnosis, "grams"):
        sizes = dict(connection.execute("SELECT id, sz FROM grams_docsize"))
        held: defaultdict[int, int] = defaultdict(int)
        sums: defaultdict[int, int] = defaultdict(int)
        last, code = "", 0
        for term, doc in _vocabulary(connection):
            if term != last:
                last, code = term, zlib.crc32(term.encode()) + 1
            held[doc] += 1
            sums[doc] += code
        for num in sorted(sizes.keys() | held.keys() | expected.keys()):
            gram = expected.get(num)
            if num not in expected:
                what = "There is no memory {row}, but trigrams of it."
                diagnosis.add("grams", what, REPAIR, row=num)
            elif num not in sizes:
                what = "Row {row} of memories: its trigrams are missing."
                diagnosis.add("grams", what, REPAIR, row=num)
            elif gram is not None and (
                (held[num], sums[num]) != (gram.distinct, gram.sum)
                or sizes[num] != _varint(gram.tokens)
            ):
                what = "Row {row} of memories: its trigrams are not those of its text."
                diagnosis.add("grams", what, REPAIR, row=num)


def _vocabulary(connection: Connection) -> Iterator[tuple[str, int]]:
    """Every trigram with every memory that holds it."""
    readonly = bool(connection.pragma("query_only"))
    connection.pragma("query_only", False)  # the view of the index is a temporary table
    try:
        connection.execute(
            "CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'grams', 'instance')"
        )
        yield from connection.execute("SELECT term, doc FROM temp.vocabulary")
    finally:
        with contextlib.suppress(apsw.Error):
            connection.execute("DROP TABLE IF EXISTS temp.vocabulary")
        connection.pragma("query_only", readonly)


def _varint(number: int) -> bytes:
    """A whole number as SQLite packs it."""
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))
