"""The checks of a space's file, from SQLite's integrity check to each derived row."""

from __future__ import annotations

import contextlib
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from commonplace.errors import StorageCorrupt
from commonplace.storage import derived, schema
from commonplace.storage.database import Connection, migrate
from commonplace.storage.derived import SCALE_BYTES, DerivedData, Model
from commonplace.storage.ports import Contents
from commonplace.storage.reports import (
    MOST_LISTED,
    REPAIR,
    RESTORE,
    RESTORE_SYSTEM,
    Diagnosis,
    Progress,
)
from commonplace.storage.sqlite import shared_files
from commonplace.storage.sqlite.hashed_rows import TABLES, read_rows, row_name
from commonplace.storage.system import SYSTEM_MIGRATIONS
from commonplace.storage.tables import MEMORIES, MESSAGES, VERSIONED, Row
from commonplace.storage.writing import read_head
from commonplace.text.analysis import ANALYSIS_VERSION, trigrams

BATCH = 500
DERIVED = ("lexemes", "labels", "passages")
# These errors occur when a damaged page, or text that is not UTF-8, is read.
READ_ERRORS = (apsw.Error, UnicodeDecodeError)

Derive = Callable[[Row, str], DerivedData]
Grams = tuple[int, int, int]
"""The number of trigrams in a text, of distinct trigrams, and a sum over the distinct ones."""


def check_space(
    connection: Connection,
    space: str,
    library: Contents,
    diagnosis: Diagnosis,
    progress: Progress | None,
) -> None:
    """Run all checks of a space's file, and add their findings to the diagnosis."""
    with report_read_errors(diagnosis, "file"):
        _check_file(connection, diagnosis)
    with report_read_errors(diagnosis, "schema", RESTORE):
        _check_schema(connection, diagnosis)
    total = _count(connection, space, diagnosis)
    _check_rows(connection, space, diagnosis, progress, total)
    with report_read_errors(diagnosis, "head"):
        _check_head(connection, space, diagnosis)
    with report_read_errors(diagnosis, "orphans"):
        _check_orphans(connection, space, diagnosis)
    pending: set[int] = set()
    with report_read_errors(diagnosis, "outbox"):
        pending = _memories_without_vectors(connection, space, diagnosis)
    grams: dict[int, Grams | None] = {}
    models = vector_models(connection, space, diagnosis)
    readable = [table for table in DERIVED if is_readable(connection, table)]
    for table in DERIVED:
        if table not in readable:
            diagnosis.add(table, "The table cannot be read.", REPAIR)
    done = 0
    with report_read_errors(diagnosis, "memories", RESTORE):
        for memory in compare_derived(connection, space, readable, library.derive, grams):
            done += 1
            if progress is not None and done % BATCH == 0:
                progress(total + done, 2 * total + 1)
            for check, what in memory.faults.items():
                diagnosis.add(check, f"Row {{row}} of memories: {what}.", REPAIR, row=memory.num)
            _check_vectors(memory, models, library.embedder, pending, diagnosis)
    _check_grams(connection, diagnosis, grams)
    if progress is not None:
        progress(2 * total + 1, 2 * total + 1)


def check_shared_file(connection: Connection, name: str, diagnosis: Diagnosis) -> None:
    """Run the checks of a file that belongs to no space."""
    with report_read_errors(diagnosis, "file", RESTORE_SYSTEM):
        for what in shared_files.file_faults(connection, name):
            check = "file" if what.startswith("SQLite") else "audit"
            diagnosis.add(check, f"{what}.", RESTORE_SYSTEM)
    with report_read_errors(diagnosis, "schema", RESTORE_SYSTEM):
        if name == shared_files.SYSTEM:
            reference = empty_database(SYSTEM_MIGRATIONS)
            _compare_definitions(connection, reference, diagnosis, RESTORE_SYSTEM)
        diagnosis.counts.update(shared_files.file_summary(connection, name)["rows"])


@contextlib.contextmanager
def report_read_errors(diagnosis: Diagnosis, check: str, hint: str = REPAIR) -> Iterator[None]:
    """Add a finding if a check fails with a read error."""
    try:
        yield
    except READ_ERRORS as error:
        diagnosis.add(check, f"The data cannot be read ({type(error).__name__}: {error}).", hint)


def _check_file(connection: Connection, diagnosis: Diagnosis) -> None:
    for (fault,) in connection.execute(f"PRAGMA integrity_check({MOST_LISTED})"):
        if fault == "ok":
            continue
        if "fts5" in fault.lower():
            diagnosis.add("grams", fault + ".", REPAIR)
        else:
            diagnosis.add("file", f"SQLite: {fault}.", REPAIR)


def empty_database(steps: Sequence[schema.Step]) -> Connection:
    """Return an empty in-memory database with the tables of these migration steps."""
    reference = Connection(":memory:")
    migrate(reference, steps)
    return reference


def _check_schema(connection: Connection, diagnosis: Diagnosis) -> None:
    reference = empty_database(schema.MIGRATIONS)
    _compare_definitions(connection, reference, diagnosis, RESTORE)
    settings = "SELECT k, v FROM grams_config ORDER BY k"
    if connection.execute(settings).fetchall() != reference.execute(settings).fetchall():
        diagnosis.add("grams", "The settings of the trigram index were changed.", REPAIR)


def _compare_definitions(
    connection: Connection, reference: Connection, diagnosis: Diagnosis, hint: str
) -> None:
    statement = "SELECT type || ' ' || name, tbl_name, sql FROM sqlite_schema"
    expected, found = (
        {row[0]: row[1:] for row in each.execute(statement)} for each in (reference, connection)
    )
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            how = "is missing" if name not in found else "was changed"
            how = how if name in expected else "is unknown to this release"
            diagnosis.add("schema", f"The definition of {name} {how}.", hint)


def _count(connection: Connection, space: str, diagnosis: Diagnosis) -> int:
    for name in TABLES:
        with report_read_errors(diagnosis, name, RESTORE):
            row = connection.execute(
                f"SELECT count(*) FROM {name} NOT INDEXED WHERE space = ?",  # noqa: S608
                (space,),
            ).fetchone()
            diagnosis.counts[name] = int(row[0]) if row else 0
    return sum(diagnosis.counts.values())


def _check_rows(
    connection: Connection,
    space: str,
    diagnosis: Diagnosis,
    progress: Progress | None,
    total: int,
) -> None:
    done = 0
    for name, table in TABLES.items():
        hint = REPAIR if name in ("head", "counters") else RESTORE
        with report_read_errors(diagnosis, name, hint):
            for row, sound in read_rows(connection, table):
                done += 1
                what = ""
                if not sound:
                    what = "Row {row} does not match its hash."
                elif row["space"] != space:
                    what = f"Row {{row}} belongs to the space {row['space']}."
                if what:
                    diagnosis.add(name, what, hint, row=row_name(table, row))
                if progress is not None and done % 1_000 == 0:
                    progress(done, 2 * total + 1)


def _check_head(connection: Connection, space: str, diagnosis: Diagnosis) -> None:
    try:
        seq, next_num, operation, _ = read_head(connection, space)
    except StorageCorrupt:
        return  # A finding already reports that this row does not match its hash.
    row = connection.execute(
        "SELECT count(*), max(num) FROM operations NOT INDEXED WHERE space = ?", (space,)
    ).fetchone()
    count, newest = row or (0, None)
    if count != seq or (newest or 0) != seq:
        what = f"There are {count} operations and the newest is {newest}, but the counter is {seq}."
        diagnosis.add("operations", what, RESTORE)
    newest_id = connection.execute(
        "SELECT id FROM operations WHERE space = ? AND num = ?", (space, seq)
    ).fetchone()
    if operation and newest_id is not None and newest_id[0] != operation:
        diagnosis.add("head", "The change counter does not name the newest operation.", REPAIR)
    for table in (*(table.name for table in VERSIONED), "events"):
        row = connection.execute(
            f"SELECT max(num), max(seq) FROM {table} WHERE space = ?",  # noqa: S608
            (space,),
        ).fetchone()
        num, last = row or (None, None)
        if (num or 0) >= next_num or (last or 0) > seq:
            diagnosis.add(
                "head", f"{table} has rows that are newer than the change counter.", REPAIR
            )


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
            fault = f"Row {{row}} of {table} refers to {what} that does not exist."
            hint = "The referenced row was probably undone or removed."
            diagnosis.add("orphans", fault, hint, "warning", row=num)


def _memories_without_vectors(connection: Connection, space: str, diagnosis: Diagnosis) -> set[int]:
    """Return the memories whose vectors are not computed yet."""
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
        waits = "memory is waiting for its" if len(found) == 1 else "memories are waiting for their"
        diagnosis.add("vectors", f"{len(found)} {waits} vectors.", "", "note")
    return found


def vector_models(
    connection: Connection, space: str, diagnosis: Diagnosis
) -> dict[int, tuple[str, str, int]]:
    """Return, by number, the id, weights and vector size of the models with stored vectors."""
    with report_read_errors(diagnosis, "models"):
        return {
            num: (identity, weights, SCALE_BYTES + dimensions)
            for num, identity, weights, dimensions in connection.execute(
                "SELECT num, id, weights, dimensions FROM models WHERE space = ?", (space,)
            )
        }
    return {}


@dataclass(slots=True)
class ComparedMemory:
    """A memory, and the faults of its derived rows. `row` is None if the memory does not exist."""

    num: int
    row: Row | None
    faults: dict[str, str] = field(default_factory=dict)
    prepared: DerivedData | None = None
    passages: list[tuple[Any, ...]] = field(default_factory=list)


def compare_derived(
    connection: Connection,
    space: str,
    tables: Sequence[str],
    derive: Derive,
    grams: dict[int, Grams | None] | None = None,
) -> Iterator[ComparedMemory]:
    """Compare the stored derived rows with those computed from each memory's text.

    Derived rows without a memory are reported too. `grams` is filled with the expected content of
    the trigram index for each memory.
    """
    speakers, unsure = _speakers(connection)
    last = -(2**63)
    for part in _batches(connection, space):
        upto = part[-1][0] if part[-1][0] is not None else last
        stored = {table: stored_rows(connection, table, last, upto) for table in tables}
        known = set()
        for num, row in part:
            known.add(num)
            if grams is not None:
                grams[num] = None
            if row is None:
                continue  # The derived rows of a damaged row cannot be checked.
            prepared = derive(row, speakers.get(num, ""))
            memory = ComparedMemory(num, row, {}, prepared, stored.get("passages", {}).get(num, []))
            for table in tables:
                if not (table == "lexemes" and num in unsure):
                    fault = _FAULTS[table](num, space, prepared, stored[table].get(num, []))
                    if fault:
                        memory.faults[table] = fault
            if grams is not None:
                grams[num] = _expected_grams(prepared.folded)
            yield memory
        yield from _rows_without_memory(stored, known)
        last = upto
    rest = {table: stored_rows(connection, table, last, 2**63 - 1) for table in tables}
    yield from _rows_without_memory(rest, set())


def _rows_without_memory(
    stored: dict[str, dict[int, list[tuple[Any, ...]]]], known: set[int]
) -> Iterator[ComparedMemory]:
    strays: dict[int, dict[str, str]] = defaultdict(dict)
    for table, rows in stored.items():
        for num in rows.keys() - known:
            strays[num][table] = f"there is no such memory, but it has rows in {table}"
    for num in sorted(strays):
        yield ComparedMemory(num, None, strays[num])


def _speakers(connection: Connection) -> tuple[dict[int, str], set[int]]:
    """Return the speaker of each memory, and the memories whose message row is damaged."""
    speakers, unsure = {}, set()
    with contextlib.suppress(apsw.Error):
        for row, sound in read_rows(connection, MESSAGES):
            if sound:
                speakers[row["memory"]] = row["speaker"]
            else:
                unsure.add(row["memory"])
    return speakers, unsure


def _batches(connection: Connection, space: str) -> Iterator[list[tuple[int, Row | None]]]:
    """Yield memories in the order of their numbers, with None for a damaged row."""
    part: list[tuple[int, Row | None]] = []
    for row, sound in read_rows(connection, MEMORIES):
        part.append((int(row["num"]), row if sound and row["space"] == space else None))
        if len(part) == BATCH:
            yield part
            part = []
    if part:
        yield part


_SELECTS = {
    "lexemes": "SELECT memory, CAST(space AS BLOB), analysis, terms, sum FROM lexemes",
    "labels": "SELECT memory, CAST(space AS BLOB), CAST(label AS BLOB) FROM labels",
    "passages": "SELECT memory, CAST(space AS BLOB), ordinal, start, stop, model, vector, sum"
    " FROM passages",
}


def stored_rows(
    connection: Connection, table: str, after: int, upto: int
) -> dict[int, list[tuple[Any, ...]]]:
    """Return the derived rows of one table by their memory, for a range of memories."""
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    statement = _SELECTS[table] + " WHERE memory > ? AND memory <= ? ORDER BY memory"
    for memory, *values in connection.execute(statement, (after, upto)):
        found[memory].append(tuple(values))
    return found


def _lexemes_fault(num: int, space: str, prepared: DerivedData, rows: list[tuple[Any, ...]]) -> str:
    if not rows:
        return "its terms are missing"
    terms = prepared.terms
    expected = (space.encode(), ANALYSIS_VERSION, terms, derived.terms_sum(num, terms))
    return "" if rows == [expected] else "its terms do not match its text"


def _labels_fault(_: int, space: str, prepared: DerivedData, rows: list[tuple[Any, ...]]) -> str:
    expected = {(space.encode(), label.encode()) for label in prepared.labels}
    return "" if set(rows) == expected else "its labels do not match its tags, origin and trust"


def _passages_fault(
    num: int, space: str, prepared: DerivedData, rows: list[tuple[Any, ...]]
) -> str:
    rows = sorted(rows, key=lambda row: row[1])
    places = [(row[0], *row[1:4]) for row in rows]
    if places != [
        (space.encode(), i, span.start, span.stop) for i, span in enumerate(prepared.spans)
    ]:
        return "its passages do not match its text"
    return (
        ""
        if all(is_intact_passage(num, row) for row in rows)
        else "a passage does not match its checksum"
    )


def is_intact_passage(num: int, passage: tuple[Any, ...]) -> bool:
    """Return whether a stored passage matches its checksum."""
    _, ordinal, start, stop, model, vector, total = passage
    blob = vector is None or isinstance(vector, bytes)
    return blob and derived.passage_sum(num, ordinal, start, stop, model, vector) == total


_FAULTS = {"lexemes": _lexemes_fault, "labels": _labels_fault, "passages": _passages_fault}


def is_readable(connection: Connection, table: str) -> bool:
    """Return whether every row of a table can be read."""
    try:
        for _ in connection.execute(f"SELECT space, * FROM {table}"):  # noqa: S608
            pass
    except UnicodeDecodeError:
        return True  # A label is not UTF-8; its row can be replaced.
    except apsw.Error:
        return False
    return True


def has_known_vector(passage: tuple[Any, ...], models: Mapping[int, tuple[str, str, int]]) -> bool:
    """Return whether a passage has no vector, or one of a known model with the right length."""
    _, _, _, _, model, vector, _ = passage
    if model is None:
        return vector is None
    return model in models and isinstance(vector, bytes) and len(vector) == models[model][2]


def _check_vectors(
    memory: ComparedMemory,
    models: dict[int, tuple[str, str, int]],
    embedder: Model | None,
    pending: set[int],
    diagnosis: Diagnosis,
) -> None:
    """Check that each passage has a vector of the current model, or a request for one."""
    if memory.row is None or "passages" in memory.faults:
        return
    where, num = "Row {row} of memories: a passage", memory.num
    for _, _, _, _, model, vector, _ in memory.passages:
        if (model is None) != (vector is None):
            diagnosis.add("vectors", f"{where} has a vector without a model.", REPAIR, row=num)
        elif model is not None and model not in models:
            diagnosis.add("vectors", f"{where} has a vector of an unknown model.", REPAIR, row=num)
        elif model is not None and len(vector) != models[model][2]:
            diagnosis.add("vectors", f"{where} has a vector of the wrong length.", REPAIR, row=num)
        elif (
            embedder is not None
            and memory.num not in pending
            and (model is None or models[model][:2] != (embedder.id, embedder.weights))
        ):
            diagnosis.add(
                "vectors", f"{where} has no vector of {embedder.id} and no request for one.",
                "The vector is requested when the space is opened.", "warning", row=num,
            )  # fmt: skip


def _expected_grams(folded: str) -> Grams:
    # FTS5 replaces the two noncharacters at the end of a plane by U+FFFD.
    grams = trigrams(folded.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd"))
    total = sum(zlib.crc32(gram.encode()) + 1 for gram in grams)
    return max(0, len(folded) - 2), len(grams), total


def _check_grams(
    connection: Connection, diagnosis: Diagnosis, expected: Mapping[int, Grams | None]
) -> None:
    """Compare the trigram index with its expected content for each memory."""
    with report_read_errors(diagnosis, "grams"):
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
            what, grams = "", expected.get(num)
            if num not in expected:
                what = "There is no memory {row}, but the index has trigrams of it."
            elif num not in sizes:
                what = "Row {row} of memories: its trigrams are missing."
            elif grams and (sizes[num], held[num], sums[num]) != (_varint(grams[0]), *grams[1:]):
                what = "Row {row} of memories: its trigrams do not match its text."
            if what:
                diagnosis.add("grams", what, REPAIR, row=num)


def _vocabulary(connection: Connection) -> Iterator[tuple[str, int]]:
    """Yield every trigram with every memory that contains it."""
    readonly = bool(connection.pragma("query_only"))
    connection.pragma("query_only", False)  # The view of the index is a temporary table.
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
    """Return an integer in SQLite's variable-length encoding."""
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))
