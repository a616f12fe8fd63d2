"""Examining a space's file, and rebuilding what is derived from its rows.

Rows are the truth: repair never changes or drops one. What finds them is compared with what
their text gives now, and written anew where it differs, in one transaction. Only where the file's
own structure is broken is it written anew as a whole, aside, and put in place if nothing is lost.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import apsw

from commonplace.embedding.provider import Embedder
from commonplace.engine import backup, memories
from commonplace.engine.backup import KEPT, TABLES, Kept, Progress, named, read_rows
from commonplace.engine.library import Library
from commonplace.engine.model import Origin
from commonplace.errors import (
    CommonplaceError,
    Conflict,
    NotFound,
    StorageCorrupt,
    StorageUnavailable,
)
from commonplace.storage import derived, schema
from commonplace.storage.sqlite import (
    Store,
    connect,
    read_head,
    sync_directory,
    typed,
    write_head,
)
from commonplace.storage.tables import MEMORIES, VERSIONED, Row
from commonplace.text.analysis import ANALYSIS_VERSION
from commonplace.text.fold import trigrams

Severity = Literal["error", "warning", "note"]
Unreadable = (apsw.Error, UnicodeDecodeError)  # a broken page, or a text that is none any more

BATCH = 500
NAMED = 100
SHOWN = 4  # of many rows with the same fault, beside the first
DERIVED = ("lexemes", "labels", "passages")
DOCTOR = Origin(client="commonplace", tool="doctor")
OPERATION = "embed"  # the name by which history knows upkeep: it is neither listed nor undone
REPAIR = "Run 'commonplace doctor --repair': it is rebuilt from the rows."
RESTORE = (
    "Restore it from a backup with 'commonplace restore', or save the sound rows with"
    " 'commonplace doctor --salvage DIR'."
)


@dataclass(slots=True)
class Finding:
    """Something that is not as it should be, of one row or of many."""

    check: str
    severity: Severity
    what: str
    hint: str = ""
    count: int = 1
    rows: list[str] = field(default_factory=list)
    """The first hundred rows of which it is true; `what` names the first."""

    def __str__(self) -> str:
        """As people read it: the first row in full, of the others a few."""
        if self.count == 1:
            return self.what
        shown = ", ".join(self.rows[1 : SHOWN + 1])
        more = ", …" if self.count > SHOWN + 1 else ""
        return f"{self.what} The same of {self.count - 1:,} more: {shown}{more}."

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "check": self.check, "severity": self.severity, "what": self.what, "hint": self.hint,
            "count": self.count, "rows": self.rows,
        }  # fmt: skip


@dataclass(slots=True)
class Diagnosis:
    """What an examination found. A note is no illness."""

    space: str
    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _told: Counter[tuple[str, str]] = field(default_factory=Counter)
    _alike: dict[tuple[str, ...], Finding] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether nothing is damaged or missing."""
        return not any(finding.severity == "error" for finding in self.findings)

    def ill(self, *checks: str) -> bool:
        """Whether one of these checks found damage."""
        return any(f.severity == "error" and f.check in checks for f in self.findings)

    def add(
        self,
        check: str,
        what: str,
        hint: str = "",
        severity: Severity = "error",
        *,
        row: object = None,
    ) -> None:
        """Note a finding; the same of another row, put where `what` says {row}, joins it.

        After a hundred different ones of one check they are only counted.
        """
        key = (check, severity, what, hint)
        same = self._alike.get(key)
        if same is not None:
            if str(row) != same.rows[-1]:  # two passages of one memory are one row
                same.count += 1
                same.rows += [str(row)] if len(same.rows) < NAMED else []
            return
        self._told[check, severity] += 1
        if self._told[check, severity] <= NAMED:
            if row is None:
                self.findings.append(Finding(check, severity, what, hint))
                return
            first = Finding(check, severity, what.replace("{row}", str(row)), hint, rows=[str(row)])
            self._alike[key] = first
            self.findings.append(first)

    def finish(self) -> Diagnosis:
        """Say how many findings were not listed."""
        for (check, severity), count in self._told.items():
            if count > NAMED:
                more = f"{count - NAMED} more of this kind."
                self.findings.append(Finding(check, severity, more))  # type: ignore[arg-type]
        return self

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "space": self.space,
            "healthy": self.healthy,
            "findings": [finding.as_dict() for finding in self.findings],
            "counts": self.counts,
        }


@dataclass(frozen=True, slots=True)
class Repair:
    """What was rebuilt, and the examinations before and after."""

    rebuilt: list[str]
    before: Diagnosis
    after: Diagnosis

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "rebuilt": self.rebuilt,
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Salvage:
    """What could be saved into a new file, and what could not."""

    path: Path
    saved: dict[str, int]
    lost: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"path": str(self.path), "saved": self.saved, "lost": self.lost}


def examine(library: Library, space: str, *, progress: Progress | None = None) -> Diagnosis:
    """Compare all that a space's file holds with what it must be; nothing is changed."""
    diagnosis = Diagnosis(space)
    with _opened(library, space, diagnosis) as store:
        if store is None:
            return diagnosis
        with store.read() as connection:
            _examine(connection, space, library.embedder, diagnosis, progress)
    return diagnosis.finish()


@contextlib.contextmanager
def _opened(library: Library, space: str, diagnosis: Diagnosis) -> Iterator[Store | None]:
    """The file, opened without the library: what the library does first may be what is broken."""
    path = library.file(space)
    if not path.exists():
        raise NotFound(f"There is no space {space}.", field="space")
    try:
        store = Store(path, space)
    except CommonplaceError as error:
        diagnosis.add("file", f"It cannot be opened: {error.message}", RESTORE)
        yield None
        return
    try:
        yield store
    finally:
        store.close()


def _examine(
    connection: apsw.Connection,
    space: str,
    embedder: Embedder | None,
    diagnosis: Diagnosis,
    progress: Progress | None,
) -> None:
    with _noting(diagnosis, "file"):
        _check_file(connection, diagnosis)
    with _noting(diagnosis, "schema", RESTORE):
        _check_schema(connection, diagnosis)
    total = _count(connection, diagnosis)
    _check_rows(connection, space, diagnosis, progress, total)
    with _noting(diagnosis, "head"):
        _check_head(connection, space, diagnosis)
    with _noting(diagnosis, "orphans"):
        _check_orphans(connection, diagnosis)
    pending: set[int] = set()
    with _noting(diagnosis, "outbox"):
        pending = _pending(connection, space, diagnosis)
    seen: dict[int, _Gram | None] = {}
    sizes = _vector_sizes(connection, diagnosis)
    done = 0
    readable = []
    for table in DERIVED:
        if _readable(connection, table):
            readable.append(table)
        else:
            diagnosis.add(table, "It cannot be read.", REPAIR)
    with _noting(diagnosis, "memories", RESTORE):
        for wrong in _compare(connection, space, readable, seen):
            done += 1
            if progress is not None and done % BATCH == 0:
                progress(total + done, 2 * total + 1)
            for check, what in wrong.faults.items():
                diagnosis.add(check, f"Row {{row}} of memories: {what}.", REPAIR, row=wrong.num)
            _check_vectors(wrong, sizes, embedder, pending, diagnosis)
    _check_grams(connection, diagnosis, seen)
    if progress is not None:
        progress(2 * total + 1, 2 * total + 1)


@contextlib.contextmanager
def _noting(diagnosis: Diagnosis, check: str, hint: str = REPAIR) -> Iterator[None]:
    """A check that cannot be finished is a finding itself."""
    try:
        yield
    except Unreadable as error:
        diagnosis.add(check, f"It cannot be read ({type(error).__name__}: {error}).", hint)


def _check_file(connection: apsw.Connection, diagnosis: Diagnosis) -> None:
    for (fault,) in connection.execute(f"PRAGMA integrity_check({NAMED})"):
        if fault == "ok":
            continue
        if "fts5" in fault.lower():
            diagnosis.add("grams", fault + ".", REPAIR)
        else:
            diagnosis.add("file", f"SQLite: {fault}.", REPAIR)


def _reference() -> apsw.Connection:
    """An empty database with the tables as this release makes them."""
    reference = apsw.Connection(":memory:")
    schema.migrate(reference)
    return reference


def _check_schema(connection: apsw.Connection, diagnosis: Diagnosis) -> None:
    reference = _reference()
    statement = "SELECT type || ' ' || name, tbl_name, sql FROM sqlite_schema"
    expected, found = (
        {row[0]: row[1:] for row in each.execute(statement)} for each in (reference, connection)
    )
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            how = "missing" if name not in found else "unknown" if name not in expected else "other"
            diagnosis.add("schema", f"The definition of {name} is {how}.", RESTORE)
    settings = "SELECT k, v FROM grams_config ORDER BY k"
    if connection.execute(settings).fetchall() != reference.execute(settings).fetchall():
        diagnosis.add("grams", "The settings of grams are not those that were made.", REPAIR)


def _count(connection: apsw.Connection, diagnosis: Diagnosis) -> int:
    for kept in KEPT:
        with _noting(diagnosis, kept.name, RESTORE):
            row = connection.execute(f"SELECT count(*) FROM {kept.name} NOT INDEXED").fetchone()  # noqa: S608
            diagnosis.counts[kept.name] = int(row[0]) if row else 0
    return sum(diagnosis.counts.values())


def _check_rows(
    connection: apsw.Connection,
    space: str,
    diagnosis: Diagnosis,
    progress: Progress | None,
    total: int,
) -> None:
    done = 0
    for kept in KEPT:
        hint = REPAIR if kept.name in ("head", "counters") else RESTORE
        with _noting(diagnosis, kept.name, hint):
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


def _check_head(connection: apsw.Connection, space: str, diagnosis: Diagnosis) -> None:
    try:
        seq, next_num = read_head(connection, space)
    except StorageCorrupt:
        return  # its row was already found not to match its hash
    row = connection.execute("SELECT count(*), max(num) FROM operations NOT INDEXED").fetchone()
    count, newest = row or (0, None)
    if count != seq or (newest or 0) != seq:
        what = f"There are {count} operations up to {newest}, and {seq} were counted."
        diagnosis.add("operations", what, RESTORE)
    for table in (*(table.name for table in VERSIONED), "events"):
        row = connection.execute(f"SELECT max(num), max(seq) FROM {table}").fetchone()  # noqa: S608
        num, last = row or (None, None)
        if (num or 0) >= next_num or (last or 0) > seq:
            diagnosis.add("head", f"{table} is ahead of the change counter.", REPAIR)


_ORPHANS = {
    "messages": ("num", "memory NOT IN (SELECT num FROM memories)", "a memory"),
    "members": ("num", "memory NOT IN (SELECT id FROM memories)"
                " OR cluster NOT IN (SELECT id FROM clusters)", "a memory or a cluster"),
    "links": ("num", "source NOT IN (SELECT id FROM memories)"
              " OR target NOT IN (SELECT id FROM memories)", "a memory"),
    "facts": ("num", "memory NOT IN (SELECT id FROM memories)", "a memory"),
    "contents": ("num", "artifact NOT IN (SELECT id FROM artifacts)", "an artifact"),
    "reviews": ("num", "artifact NOT IN (SELECT id FROM artifacts)", "an artifact"),
    "artifacts": ("num", "NOT EXISTS (SELECT 1 FROM contents c WHERE c.artifact = artifacts.id"
                  " AND c.version = artifacts.version)", "a content"),
}  # fmt: skip


def _check_orphans(connection: apsw.Connection, diagnosis: Diagnosis) -> None:
    for table, (key, clause, what) in _ORPHANS.items():
        for (num,) in connection.execute(f"SELECT {key} FROM {table} WHERE {clause}"):  # noqa: S608
            told = f"Row {{row}} of {table} names {what} that is not there."
            hint = "What it names was undone or removed."
            diagnosis.add("orphans", told, hint, "warning", row=num)


def _pending(connection: apsw.Connection, space: str, diagnosis: Diagnosis) -> set[int]:
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


def _vector_sizes(connection: apsw.Connection, diagnosis: Diagnosis) -> dict[int, tuple[Any, ...]]:
    """number → (id, weights, bytes of a vector) of the models that made vectors here."""
    with _noting(diagnosis, "models"):
        return {
            num: (identity, weights, 4 + dimensions)
            for num, identity, weights, dimensions in connection.execute(
                "SELECT num, id, weights, dimensions FROM models"
            )
        }
    return {}


@dataclass(slots=True)
class _Wrong:
    """A memory and what of its derived rows is not what its text gives. No row: they have none."""

    num: int
    row: Row | None
    faults: dict[str, str] = field(default_factory=dict)
    prepared: memories.Prepared | None = None
    passages: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Gram:
    """What the substring index must hold of a memory: its size, and a sum over its trigrams."""

    tokens: int
    distinct: int
    sum: int


def _compare(
    connection: apsw.Connection,
    space: str,
    tables: Sequence[str],
    grams: dict[int, _Gram | None] | None = None,
) -> Iterator[_Wrong]:
    """Every memory with what is wrong about its derived rows, and derived rows without a memory."""
    speakers, unsure = _speakers(connection)
    last = -(2**63)
    for part in _batches(connection, space):
        upto = part[-1][0] if part[-1][0] is not None else last
        stored = {table: _stored(connection, table, last, upto) for table in tables}
        known = set()
        for num, row in part:
            known.add(num)
            if grams is not None:
                grams[num] = None
            if row is None:
                continue  # its hash does not match: nothing can be said of what is derived from it
            prepared = memories.analysed(row, speakers.get(num, ""))
            wrong = _Wrong(num, row, {}, prepared, stored.get("passages", {}).get(num, []))
            for table in tables:
                if not (table == "lexemes" and num in unsure):
                    fault = _FAULTS[table](num, space, prepared, stored[table].get(num, []))
                    if fault:
                        wrong.faults[table] = fault
            if grams is not None:
                grams[num] = _gram(prepared.folded)
            yield wrong
        yield from _without_memory(stored, known)
        last = upto
    rest = {table: _stored(connection, table, last, 2**63 - 1) for table in tables}
    yield from _without_memory(rest, set())


def _without_memory(
    stored: dict[str, dict[int, list[tuple[Any, ...]]]], known: set[int]
) -> Iterator[_Wrong]:
    strays: dict[int, dict[str, str]] = defaultdict(dict)
    for table, rows in stored.items():
        for num in rows.keys() - known:
            strays[num][table] = f"there is no such memory, but {table} of it"
    for num in sorted(strays):
        yield _Wrong(num, None, strays[num])


def _speakers(connection: apsw.Connection) -> tuple[dict[int, str], set[int]]:
    """Who said which memory, and the memories of which that is not sure."""
    speakers, unsure = {}, set()
    with contextlib.suppress(apsw.Error):
        for _, values, sound in read_rows(connection, TABLES["messages"]):
            if sound:
                speakers[values[1]] = values[5]
            else:
                unsure.add(values[1])
    return speakers, unsure


def _batches(connection: apsw.Connection, space: str) -> Iterator[list[tuple[int, Row | None]]]:
    """Memories in the order of their numbers; no row for one that does not match its hash."""
    part: list[tuple[int, Row | None]] = []
    for owner, values, sound in read_rows(connection, TABLES["memories"]):
        row = dict(zip(MEMORIES.fields, values, strict=True)) if sound else None
        part.append((int(values[0]), row if owner == space else None))
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


def _stored(
    connection: apsw.Connection, table: str, after: int, upto: int
) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    statement = _SELECTS[table] + " WHERE memory > ? AND memory <= ? ORDER BY memory"
    for memory, *values in connection.execute(statement, (after, upto)):
        found[memory].append(tuple(values))
    return found


def _lexemes_fault(
    num: int, space: str, prepared: memories.Prepared, rows: list[tuple[Any, ...]]
) -> str:
    if not rows:
        return "its terms are missing"
    terms = prepared.terms
    expected = (space.encode(), ANALYSIS_VERSION, terms, derived.terms_sum(num, terms))
    return "" if rows == [expected] else "its terms are not those of its text"


def _labels_fault(
    _: int, space: str, prepared: memories.Prepared, rows: list[tuple[Any, ...]]
) -> str:
    expected = {(space.encode(), label.encode()) for label in prepared.labels}
    return "" if set(rows) == expected else "its labels are not its own"


def _passages_fault(
    num: int, space: str, prepared: memories.Prepared, rows: list[tuple[Any, ...]]
) -> str:
    rows = sorted(rows, key=lambda row: row[1])
    places = [(row[0], *row[1:4]) for row in rows]
    if places != [
        (space.encode(), i, span.start, span.stop) for i, span in enumerate(prepared.spans)
    ]:
        return "its passages are not those of its text"
    return "" if all(_sound(num, row) for row in rows) else "a passage does not match its sum"


def _sound(num: int, passage: tuple[Any, ...]) -> bool:
    _, ordinal, start, stop, model, vector, total = passage
    blob = vector is None or isinstance(vector, bytes)
    return blob and derived.passage_sum(num, ordinal, start, stop, model, vector) == total


_FAULTS = {"lexemes": _lexemes_fault, "labels": _labels_fault, "passages": _passages_fault}


def _check_vectors(
    wrong: _Wrong,
    sizes: dict[int, tuple[Any, ...]],
    embedder: Embedder | None,
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


def _trigrams(folded: str) -> list[str]:
    """As FTS5 cuts them: the two noncharacters that end a plane become U+FFFD there."""
    return trigrams(folded.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd"))


def _gram(folded: str) -> _Gram:
    grams = _trigrams(folded)
    total = sum(zlib.crc32(gram.encode()) + 1 for gram in grams)
    return _Gram(max(0, len(folded) - 2), len(grams), total)


def _check_grams(
    connection: apsw.Connection, diagnosis: Diagnosis, expected: Mapping[int, _Gram | None]
) -> None:
    """Compare the substring index with what it must hold, memory by memory."""
    with _noting(diagnosis, "grams"):
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


def _vocabulary(connection: apsw.Connection) -> Iterator[tuple[str, int]]:
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


def repair(library: Library, space: str, *, progress: Progress | None = None) -> Repair:
    """Rebuild what is derived from the rows wherever it is not what they give.

    All in one transaction: a kill leaves the old or the new. No row is changed or lost; those
    that do not match their hash are only reported.
    """
    before = examine(library, space, progress=progress)
    rebuilt: list[str] = []
    if before.findings:
        # A page that cannot be read, freed or written over: only a new file helps.
        hopeless = contextlib.suppress(StorageCorrupt, StorageUnavailable, Conflict)
        with hopeless, _opened(library, space, Diagnosis(space)) as store:
            if store is not None:
                rebuilt = _mend(store, library.embedder, before)
        _forget(library, space)
    after = examine(library, space)
    if after.ill("file", "schema", "grams", *DERIVED):
        _write_anew(library, space)
        rebuilt = ["file", *DERIVED, "grams"]
        _forget(library, space)
        after = examine(library, space)
    for table in (table.name for table in VERSIONED):
        if before.counts.get(table, 0) > after.counts.get(table, 0):
            raise StorageCorrupt(f"{table} has fewer rows than before.", hint=RESTORE)
    return Repair(rebuilt, before, after)


def _forget(library: Library, space: str) -> None:
    """What is held in memory of the space is loaded anew."""
    with contextlib.suppress(CommonplaceError), library.lease(space) as opened:
        opened.forget_index()


def _mend(store: Store, embedder: Embedder | None, ills: Diagnosis) -> list[str]:
    rebuilt = []
    with store.maintain() as connection:
        if ills.ill("file"):
            connection.execute("REINDEX")
            rebuilt.append("indexes")
        if ills.ill("head"):
            write_head(connection, store.space, *_true_head(connection, store.space))
            rebuilt.append("head")
        if ills.ill("counters"):
            _reset_counters(connection)
            rebuilt.append("counters")
        if ills.ill("outbox"):
            connection.execute("DELETE FROM outbox")  # what waited is found again by its absence
            rebuilt.append("outbox")
    if not ills.ill("grams", "vectors", "models", *DERIVED):
        return rebuilt
    with store.write(OPERATION, DOCTOR.as_dict()) as unit:
        connection = unit.connection
        before = _row_counts(connection)
        for table in DERIVED:
            if not _readable(connection, table):
                _make_empty(connection, table)
        done = _rebuild(connection, store.space, embedder)
        if ills.ill("grams"):
            _fill_grams(connection)
            done["grams"] = set()
        for num in done.get("lexemes", set()) | done.get("passages", set()):
            memories.touch(unit, num)
        if _row_counts(connection) != before:
            raise StorageCorrupt("The rebuild would have lost rows; nothing was changed.")
    return rebuilt + list(done)


def _row_counts(connection: apsw.Connection) -> dict[str, int]:
    return {
        kept.name: connection.execute(f"SELECT count(*) FROM {kept.name}").fetchone()[0]  # type: ignore[index] # noqa: S608
        for kept in KEPT
        if kept.name not in ("head", "operations")
    }


def _true_head(connection: apsw.Connection, space: str) -> tuple[int, int]:
    """The counters as the sound rows show them."""
    seq = num = 0
    for kept in KEPT:
        if kept.name in ("head", "counters"):
            continue
        at = {column: i for i, column in enumerate(kept.columns)}
        for owner, values, sound in read_rows(connection, kept):
            if not sound or owner != space:
                continue
            if kept.name == "operations":
                seq = max(seq, values[at["num"]])
                continue
            num = max(num, values[at["num"]])
            seq = max(seq, values[at["until" if kept.name == "versions" else "seq"]])
    return seq, num + 1


def _reset_counters(connection: apsw.Connection) -> None:
    kept = TABLES["counters"]
    ill = [values[0] for _, values, sound in read_rows(connection, kept) if not sound]
    for memory in ill:
        connection.execute("DELETE FROM counters WHERE memory = ?", (memory,))


def _readable(connection: apsw.Connection, table: str) -> bool:
    try:
        for _ in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608
            pass
    except UnicodeDecodeError:
        return True  # a label that is no text any more: its row can be replaced
    except apsw.Error:
        return False
    return True


def _make_empty(connection: apsw.Connection, table: str) -> None:
    """The table as the schema defines it, with nothing in it."""
    connection.execute(f"DROP TABLE IF EXISTS {table}")
    for (sql,) in _reference().execute(
        "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND sql IS NOT NULL"
        " ORDER BY type = 'index'",
        (table,),
    ):
        connection.execute(sql)
    if table == "grams":
        connection.execute("INSERT INTO grams (grams, rank) VALUES ('secure-delete', 1)")


def _rebuild(
    connection: apsw.Connection, space: str, embedder: Embedder | None
) -> dict[str, set[int]]:
    """Write anew what is not what the rows give; table → memories for which it was."""
    sizes = _vector_sizes(connection, Diagnosis(space))
    done: dict[str, set[int]] = defaultdict(set)
    for wrong in _compare(connection, space, DERIVED):
        tables = set(wrong.faults)
        if wrong.row is not None and not all(_known(p, sizes) for p in wrong.passages):
            tables.add("passages")
        for table in tables:
            connection.execute(f"DELETE FROM {table} WHERE memory = ?", (wrong.num,))  # noqa: S608
            done[table].add(wrong.num)
        if wrong.prepared is not None:
            _write(connection, space, wrong, tables, sizes, embedder)
    return done


def _known(passage: tuple[Any, ...], sizes: dict[int, tuple[Any, ...]]) -> bool:
    """Whether a passage's vector is of a model that is known here, or it has none."""
    _, _, _, _, model, vector, _ = passage
    if model is None:
        return vector is None
    return model in sizes and isinstance(vector, bytes) and len(vector) == sizes[model][2]


def _write(
    connection: apsw.Connection,
    space: str,
    wrong: _Wrong,
    tables: set[str],
    sizes: dict[int, tuple[Any, ...]],
    embedder: Embedder | None,
) -> None:
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
            memories.enqueue_embedding(connection, space, wrong.num)


def _with_sound_vectors(
    wrong: _Wrong, prepared: memories.Prepared, sizes: dict[int, tuple[Any, ...]]
) -> list[derived.Passage]:
    """The text's passages, each with the vector it had if that is whole and of the same stretch."""
    kept = {
        (row[2], row[3]): (row[4], row[5])
        for row in wrong.passages
        if _sound(wrong.num, row) and _known(row, sizes)
    }
    return [
        derived.Passage(span, *kept.get((span.start, span.stop), (None, None)))
        for span in prepared.spans
    ]


def _fill_grams(connection: apsw.Connection) -> None:
    """The substring index anew; a row that does not match its hash is indexed as it stands."""
    _make_empty(connection, "grams")
    for _, values, sound in read_rows(connection, TABLES["memories"]):
        row = dict(zip(MEMORIES.fields, values, strict=True))
        try:
            folded = memories.analysed(row).folded
        except (ValueError, TypeError, AttributeError):
            if sound:
                raise
            continue
        derived.write_grams(connection, row["num"], folded)


def salvage(
    library: Library, space: str, target: Path, *, progress: Progress | None = None
) -> Salvage:
    """Write every sound row of a damaged space into a new file; what is lost is listed."""
    directory = Path(target).expanduser().absolute()
    path = directory / f"{space}.db"
    if path.exists():
        raise Conflict(f"{path} exists already.", hint="Choose another directory.", field="target")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".part")
    try:
        saved, lost, _ = _save(library, space, aside, progress)
        aside.rename(path)
        sync_directory(directory)
    finally:
        aside.unlink(missing_ok=True)
    return Salvage(path, saved, lost)


def _save(
    library: Library, space: str, aside: Path, progress: Progress | None = None
) -> tuple[dict[str, int], list[str], int]:
    """(rows saved, rows lost, the change counter they were read at)."""
    path = library.file(space)
    if not path.exists():
        raise NotFound(f"There is no space {space}.", field="space")
    if not path.stat().st_size:  # which SQLite would take for a new one, and delete its log
        raise StorageCorrupt("The file is empty: no row is left to save.", hint=RESTORE)
    aside.unlink(missing_ok=True)
    old = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        old.set_busy_timeout(30_000)
        if schema.version_of(old) != len(schema.MIGRATIONS):
            raise StorageCorrupt("The file's schema is not of this release.", hint=RESTORE)
        old.execute("BEGIN")
        new = connect(aside, create=True)
        try:
            schema.migrate(new)
            with new:
                saved, lost = _carry_over(old, new, space, library.embedder, progress)
                seq = read_head(new, space)[0]
            new.pragma("journal_mode", "wal")
        finally:
            new.close(True)
    except apsw.Error as error:
        raise typed(error) from error
    finally:
        old.close(True)
    return saved, lost, seq


def _carry_over(
    old: apsw.Connection,
    new: apsw.Connection,
    space: str,
    embedder: Embedder | None,
    progress: Progress | None,
) -> tuple[dict[str, int], list[str]]:
    saved: dict[str, int] = {}
    lost: list[str] = []
    bound = _bound(old)
    for i, kept in enumerate(KEPT):
        if progress is not None:
            progress(i, len(KEPT) + 1)
        count, found = 0, set()
        at = [kept.columns.index(part) for part in kept.key]
        marks = ", ".join("?" * (len(kept.columns) + 2))
        insert = f"INSERT INTO {kept.name} (space, {', '.join(kept.columns)}, hash)"
        broken: list[str] = []
        for owner, values, sound in _every(old, kept, space, bound, broken):
            if sound and owner == space:
                hashed = kept.hash(space, values)
                new.execute(f"{insert} VALUES ({marks})", (space, *values, hashed))
                count += 1
            elif kept.name not in ("head", "counters"):
                lost.append(named(kept, values))
            found.add(tuple(values[i] for i in at))
        saved[kept.name] = count
        promised = _promised(old, kept, space)
        if promised is not None:
            lost += [f"{kept.name} {key}" for key in sorted(promised - found)]
        elif broken:
            lost.append(f"{kept.name}: no index is left to tell which")
    if not saved["head"]:
        write_head(new, space, *_true_head(new, space))
    with contextlib.suppress(*Unreadable):
        for row in old.execute("SELECT num, id, weights, dimensions FROM models"):
            new.execute(
                "INSERT INTO models (num, id, weights, dimensions) VALUES (?, ?, ?, ?)", row
            )
    with contextlib.suppress(*Unreadable):
        for memory, seq in old.execute("SELECT memory, seq FROM touches WHERE space = ?", (space,)):
            new.execute(
                "INSERT INTO touches (space, memory, seq) VALUES (?, ?, ?)", (space, memory, seq)
            )
    _derive(old, new, space, embedder)
    return saved, lost


def _derive(
    old: apsw.Connection, new: apsw.Connection, space: str, embedder: Embedder | None
) -> None:
    """What finds the saved memories, with the vectors that are still whole."""
    sizes = _vector_sizes(new, Diagnosis(space))
    for wrong in _compare(new, space, DERIVED):
        with contextlib.suppress(apsw.Error):
            wrong.passages = _stored(old, "passages", wrong.num - 1, wrong.num)[wrong.num]
        _write(new, space, wrong, set(DERIVED), sizes, embedder)
    _fill_grams(new)


def _bound(connection: apsw.Connection) -> int:
    """A number above that of every row, as far as can be told."""
    highest = 0
    for kept in KEPT[1:]:
        column = "memory" if kept.name == "counters" else "num"
        with contextlib.suppress(apsw.Error):
            row = connection.execute(f"SELECT max({column}) FROM {kept.name}").fetchone()  # noqa: S608
            highest = max(highest, (row and row[0]) or 0)
    with contextlib.suppress(apsw.Error):
        row = connection.execute("SELECT max(seq), max(next_num) FROM head").fetchone()
        highest = max(highest, *((row and (row[0] or 0, row[1] or 0)) or (0, 0)))
    return min(highest, 50_000_000)


def _every(
    connection: apsw.Connection, kept: Kept, space: str, bound: int, broken: list[str]
) -> Iterator[tuple[Any, tuple[Any, ...], bool]]:
    """All rows that can still be read; where a page is broken, each row behind it by its key."""
    seen: set[tuple[Any, ...]] = set()
    at = [kept.columns.index(part) for part in kept.key]
    try:
        for owner, values, sound in read_rows(connection, kept):
            seen.add(tuple(values[i] for i in at))
            yield owner, values, sound
        return
    except apsw.Error as error:
        broken.append(str(error))
    columns = ", ".join(kept.columns)
    entities = [table.name for table in VERSIONED] if kept.name == "versions" else [None]
    number = "seq" if kept.name == "head" else "memory" if kept.name == "counters" else "num"
    for entity in entities:
        clause = f"space = ? AND {number} = ?" + (" AND entity = ?" if entity else "")
        statement = f"SELECT {columns}, hash FROM {kept.name} WHERE {clause}"  # noqa: S608
        for num in range(1, bound + 1):
            try:
                for *values, hashed in connection.execute(
                    statement, (space, num, *([entity] if entity else []))
                ):
                    if tuple(values[i] for i in at) not in seen:
                        yield space, tuple(values), kept.hash(space, values) == hashed
            except Unreadable:
                continue


_INDEXES = {
    **{table.name: f"{table.name}_seq" for table in VERSIONED},
    "operations": "operations_id", "events": "events_kind", "versions": "versions_until",
}  # fmt: skip


def _promised(connection: apsw.Connection, kept: Kept, space: str) -> set[tuple[Any, ...]] | None:
    """Keys of rows that an index knows of, whatever became of the rows; None if it cannot tell."""
    if kept.name not in _INDEXES:
        return set()
    try:
        return set(
            connection.execute(
                f"SELECT {', '.join(kept.key)} FROM {kept.name}"  # noqa: S608
                f" INDEXED BY {_INDEXES[kept.name]} WHERE space = ?",
                (space,),
            )
        )
    except Unreadable:
        return None


def _write_anew(library: Library, space: str) -> None:
    """Put a new file with all rows in place of one whose structure is broken, or refuse."""
    aside = library.file(space).with_suffix(".db.repairing")
    try:
        _, lost, seq = _save(library, space, aside)
        if lost:
            raise StorageCorrupt(
                f"{len(lost)} rows cannot be read any more, first {lost[0]}; nothing was changed.",
                hint=RESTORE,
            )

        def unchanged(connection: apsw.Connection) -> bool:
            with contextlib.suppress(StorageCorrupt, apsw.Error):
                return read_head(connection, space)[0] == seq
            return True  # the counter is part of the damage: nobody can have written

        backup.put_in_place(library, space, aside, "repair", unchanged=unchanged)
    finally:
        aside.unlink(missing_ok=True)
