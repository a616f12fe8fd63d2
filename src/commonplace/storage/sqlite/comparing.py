"""What finds memories, compared with what their rows give."""

from __future__ import annotations

import contextlib
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from commonplace.storage import derived
from commonplace.storage.database import Connection
from commonplace.storage.derived import Findable
from commonplace.storage.reports import REPAIR, Diagnosis
from commonplace.storage.sqlite.backup import TABLES, read_rows
from commonplace.storage.tables import MEMORIES, Row
from commonplace.text.analysis import ANALYSIS_VERSION, trigrams

BATCH = 500
DERIVED = ("lexemes", "labels", "passages")
Unreadable = (apsw.Error, UnicodeDecodeError)  # a broken page, or bytes that are no text


@contextlib.contextmanager
def noting(diagnosis: Diagnosis, check: str, hint: str = REPAIR) -> Iterator[None]:
    """A check that cannot be finished is a finding itself."""
    try:
        yield
    except Unreadable as error:
        diagnosis.add(check, f"It cannot be read ({type(error).__name__}: {error}).", hint)


def vector_sizes(
    connection: Connection, space: str, diagnosis: Diagnosis
) -> dict[int, tuple[Any, ...]]:
    """number → (id, weights, bytes of a vector) of the models that made vectors here."""
    with noting(diagnosis, "models"):
        return {
            num: (identity, weights, 4 + dimensions)
            for num, identity, weights, dimensions in connection.execute(
                "SELECT num, id, weights, dimensions FROM models WHERE space = ?", (space,)
            )
        }
    return {}


@dataclass(slots=True)
class Wrong:
    """A memory and what of its derived rows is not what its text gives. No row: they have none."""

    num: int
    row: Row | None
    faults: dict[str, str] = field(default_factory=dict)
    prepared: Findable | None = None
    passages: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Gram:
    """What the substring index must hold of a memory: its size, and a sum over its trigrams."""

    tokens: int
    distinct: int
    sum: int


def compare(
    connection: Connection,
    space: str,
    tables: Sequence[str],
    derive: Callable[[Row, str], Findable],
    grams: dict[int, Gram | None] | None = None,
) -> Iterator[Wrong]:
    """Every memory with what is wrong about its derived rows, and derived rows without a memory."""
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
                continue  # its hash does not match: nothing can be said of what is derived from it
            prepared = derive(row, speakers.get(num, ""))
            wrong = Wrong(num, row, {}, prepared, stored.get("passages", {}).get(num, []))
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
    rest = {table: stored_rows(connection, table, last, 2**63 - 1) for table in tables}
    yield from _without_memory(rest, set())


def _without_memory(
    stored: dict[str, dict[int, list[tuple[Any, ...]]]], known: set[int]
) -> Iterator[Wrong]:
    strays: dict[int, dict[str, str]] = defaultdict(dict)
    for table, rows in stored.items():
        for num in rows.keys() - known:
            strays[num][table] = f"there is no such memory, but {table} of it"
    for num in sorted(strays):
        yield Wrong(num, None, strays[num])


def _speakers(connection: Connection) -> tuple[dict[int, str], set[int]]:
    """Who said which memory, and the memories of which that is not sure."""
    speakers, unsure = {}, set()
    with contextlib.suppress(apsw.Error):
        for _, values, sound in read_rows(connection, TABLES["messages"]):
            if sound:
                speakers[values[1]] = values[5]
            else:
                unsure.add(values[1])
    return speakers, unsure


def _batches(connection: Connection, space: str) -> Iterator[list[tuple[int, Row | None]]]:
    """Memories in the order of their numbers; no row for one that does not match its hash."""
    part: list[tuple[int, Row | None]] = []
    for owner, values, sound in read_rows(connection, TABLES["memories"]):
        row = dict(zip(MEMORIES.fields, values, strict=False)) if sound else None
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


def stored_rows(
    connection: Connection, table: str, after: int, upto: int
) -> dict[int, list[tuple[Any, ...]]]:
    """Derived rows of one table by their memory, for a stretch of numbers."""
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    statement = _SELECTS[table] + " WHERE memory > ? AND memory <= ? ORDER BY memory"
    for memory, *values in connection.execute(statement, (after, upto)):
        found[memory].append(tuple(values))
    return found


def _lexemes_fault(num: int, space: str, prepared: Findable, rows: list[tuple[Any, ...]]) -> str:
    if not rows:
        return "its terms are missing"
    terms = prepared.terms
    expected = (space.encode(), ANALYSIS_VERSION, terms, derived.terms_sum(num, terms))
    return "" if rows == [expected] else "its terms are not those of its text"


def _labels_fault(_: int, space: str, prepared: Findable, rows: list[tuple[Any, ...]]) -> str:
    expected = {(space.encode(), label.encode()) for label in prepared.labels}
    return "" if set(rows) == expected else "its labels are not its own"


def _passages_fault(num: int, space: str, prepared: Findable, rows: list[tuple[Any, ...]]) -> str:
    rows = sorted(rows, key=lambda row: row[1])
    places = [(row[0], *row[1:4]) for row in rows]
    if places != [
        (space.encode(), i, span.start, span.stop) for i, span in enumerate(prepared.spans)
    ]:
        return "its passages are not those of its text"
    return (
        "" if all(passage_sound(num, row) for row in rows) else "a passage does not match its sum"
    )


def passage_sound(num: int, passage: tuple[Any, ...]) -> bool:
    """Whether a stored passage is what was written."""
    _, ordinal, start, stop, model, vector, total = passage
    blob = vector is None or isinstance(vector, bytes)
    return blob and derived.passage_sum(num, ordinal, start, stop, model, vector) == total


_FAULTS = {"lexemes": _lexemes_fault, "labels": _labels_fault, "passages": _passages_fault}


def _trigrams(folded: str) -> list[str]:
    """As FTS5 cuts them: the two noncharacters that end a plane become U+FFFD there."""
    return trigrams(folded.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd"))


def _gram(folded: str) -> Gram:
    grams = _trigrams(folded)
    total = sum(zlib.crc32(gram.encode()) + 1 for gram in grams)
    return Gram(max(0, len(folded) - 2), len(grams), total)


def is_readable(connection: Connection, table: str) -> bool:
    """Whether every row of a table can be read."""
    try:
        for _ in connection.execute(f"SELECT space, * FROM {table}"):  # noqa: S608
            pass
    except UnicodeDecodeError:
        return True  # a label that is no text any more: its row can be replaced
    except apsw.Error:
        return False
    return True
