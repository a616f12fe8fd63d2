"""Moving what a space holds: exporting it as JSON lines, and importing files.

An export is the space's story in order: a header, then every operation with the forms it gave to
things, and an end line with counts and a SHA-256 of all lines before it. Importing replays it:
what is here already is left alone, what goes on from here is added, what contradicts it is
reported and skipped. Nothing here is ever overwritten.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from commonplace.engine.history.forms import Form, Past, current_rows, event_mark
from commonplace.engine.history.timeline import UPKEEP, operation_of
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Operation, iso, moment
from commonplace.engine.transfer import rows
from commonplace.engine.transfer.importing import import_file
from commonplace.engine.transfer.reading import ImportReport
from commonplace.engine.transfer.replay import FORMAT, VERSION
from commonplace.engine.transfer.rows import Key
from commonplace.storage import events as stored_events
from commonplace.storage import operations as stored_operations
from commonplace.storage import versions
from commonplace.storage.database import now
from commonplace.storage.ports import Rows
from commonplace.storage.tables import CONTENTS, VERSIONED, Row, Table

__all__ = ["ExportReport", "ImportReport", "digest", "export_space", "import_file"]

Progress = Callable[[int, int], None]
Status = Literal["current", "replaced", "removed", "removal"]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export wrote."""

    lines: int
    counts: Mapping[str, int]
    """Things that there are now, by type; their former selves are lines, too."""
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"lines": self.lines, "counts": dict(self.counts), "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a space's story."""

    type: str
    op: int
    value: Mapping[str, Any]
    form: int = 1
    """Which form of the thing this is, from 1; for an event, which of several equal ones."""
    status: Status = "current"
    after: str | None = None
    """The mark of the form before it, or of the one that is removed."""

    def line(self) -> str:
        """As an export holds it."""
        parts: dict[str, Any] = {"type": self.type, "op": self.op}
        if self.type != "operation":
            parts |= {"form": self.form, "status": self.status}
        if self.after is not None:
            parts["after"] = self.after
        return _encode({**parts, "value": self.value})


def export_space(
    space: OpenSpace, write: Callable[[str], object], progress: Progress | None = None
) -> ExportReport:
    """Write all that the space holds and held, line by line, as it is at this moment."""
    hashed, lines = hashlib.sha256(), 0
    counts: Counter[str] = Counter()

    def put(line: str) -> None:
        nonlocal lines
        hashed.update(line.encode() + b"\n")
        lines += 1
        write(line + "\n")

    with space.store.read() as connection:
        total = versions.count(connection, space.name) if progress else 0
        put(_encode({"format": FORMAT, "version": VERSION, "space": space.name,
                     "exported_at": iso_now()}))  # fmt: skip
        for record in _story(connection, space.name):
            put(record.line())
            if record.status == "current" and record.type != "operation":
                counts[record.type] += 1
            if progress is not None and lines % 100 == 0:
                progress(min(lines, total), total)
    if progress is not None:
        progress(total, total)
    report = ExportReport(lines + 1, dict(sorted(counts.items())), hashed.hexdigest())
    end = {"type": "end", "lines": lines, "counts": report.counts, "sha256": report.sha256}
    write(_encode(end) + "\n")
    return report


def digest(space: OpenSpace) -> str:
    """Equal for two stores exactly when they hold the same things with the same past.

    Row numbers, operations and the order of unrelated changes do not count.
    """
    total = 0
    with space.store.read() as connection:
        for record in _story(connection, space.name):
            if record.type != "operation" and record.status != "removal":
                parts = [record.type, record.form, record.status, record.value]
                one = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()
                total += int.from_bytes(one, "big")
    return f"{total % 2**256:064x}"


def iso_now() -> str:
    """The wall clock, as an export says it."""
    return str(iso(moment(now())))


_Place = tuple[int, int, int]  # operation; 0 itself, 1 a removal, 2 a form; row number


def _story(connection: Rows, space: str) -> Iterator[Record]:
    """Every record in the order in which it came to be, without holding more than a few."""
    teller = _Teller(connection, space)
    sources: list[Iterator[tuple[_Place, Record]]] = [_told(connection, space)]
    sources.append(_happened(connection, space))
    for table in VERSIONED:
        sources += [teller.current(table), teller.former(table), teller.removals(table)]
    for _, record in heapq.merge(*sources, key=lambda placed: placed[0]):
        yield record


def _told(connection: Rows, space: str) -> Iterator[tuple[_Place, Record]]:
    for operation in map(operation_of, stored_operations.in_order(connection, space)):
        if operation.name not in UPKEEP:
            yield (operation.seq, 0, 0), Record("operation", operation.seq, _public(operation))


def _public(operation: Operation) -> dict[str, Any]:
    value = operation.as_dict()
    del value["seq"]
    return value


def _happened(connection: Rows, space: str) -> Iterator[tuple[_Place, Record]]:
    equal: Counter[str] = Counter()
    moment_of_equal = None
    for num in stored_events.in_order(connection, space):
        (event,) = stored_events.find(connection, space, stored_events.Wanted(num=num))
        payload = None if event.payload is None else json.loads(event.payload)
        value = {"kind": event.kind, "subject": event.subject, "at": iso(moment(event.at)),
                 "payload": payload, "payload_hash": event.payload_hash.hex()}  # fmt: skip
        if event.at != moment_of_equal:
            moment_of_equal = event.at
            equal.clear()
        mark = event_mark(event.kind, event.subject, event.at, event.payload_hash)
        equal[mark] += 1
        yield (event.seq, 2, num), Record("event", event.seq, value, equal[mark])


class _Teller:
    """Reads one table's rows, present and past, in the order of the operations."""

    def __init__(self, connection: Rows, space: str) -> None:
        self._connection = connection
        self._space = space
        self._past = Past(connection, space)
        self._known: OrderedDict[tuple[Table, Key], list[Form]] = OrderedDict()

    def current(self, table: Table) -> Iterator[tuple[_Place, Record]]:
        """Rows as they are."""
        numbers = versions.current(self._connection, self._space, table)
        while page := list(islice(numbers, _page(table))):
            rows = table.by_nums(self._connection, self._space, page)
            for num in page:
                yield (rows[num]["seq"], 2, num), self._record(table, rows[num], None)

    def former(self, table: Table) -> Iterator[tuple[_Place, Record]]:
        """Rows as they were."""
        for since, num, until in versions.former(self._connection, self._space, table):
            yield (since, 2, num), self._record(table, self._version(table, num, until), until)

    def removals(self, table: Table) -> Iterator[tuple[_Place, Record]]:
        """Moments at which a row ceased to be."""
        for num, until in versions.removals(self._connection, self._space, table):
            gone = self._record(table, self._version(table, num, until), until)
            key = {column: gone.value[column] for column in rows.key_columns(table)}
            mark = rows.mark(table, gone.value)
            yield (until, 1, num), Record(gone.type, until, key, gone.form, "removal", mark)

    def _version(self, table: Table, num: int, until: int) -> Row:
        ((row, _, _),) = table.past(self._connection, self._space, num=num, until=until)
        return row

    def _record(self, table: Table, row: Row, until: int | None) -> Record:
        value = rows.leave(self._connection, self._space, table, row)
        name, key = rows.NAMES[table], rows.key_of(table, value)
        if until is None and not self._changed(table, row["num"], key):
            return Record(name, row["seq"], value)
        forms = self._forms(table, row["num"], key)
        at = next(i for i, f in enumerate(forms) if (f.num, f.since) == (row["num"], row["seq"]))
        replaced = any(form.num == row["num"] and form.since == until for form in forms)
        status: Status = "current" if until is None else "replaced" if replaced else "removed"
        after = forms[at - 1].mark if at else None
        return Record(name, row["seq"], value, at + 1, status, after)

    def _changed(self, table: Table, num: int, key: Key) -> bool:
        if self._past.gone(table, key):
            return True
        return versions.exist(self._connection, self._space, table, num)

    def _forms(self, table: Table, num: int, key: Key) -> list[Form]:
        known = self._known.get((table, key))
        if known is None:
            current = table.where(self._connection, self._space, num=num)
            gone = self._past.gone(table, key)
            if num in gone:  # the thing may be here again under another number
                current = self._namesakes(table, num)
            known = self._past.forms(self._connection, table, key, current)
            self._known[table, key] = known
            if len(self._known) > 1_000:
                self._known.popitem(last=False)
        return known

    def _namesakes(self, table: Table, num: int) -> list[Row]:
        for row, _, _ in table.past(self._connection, self._space, num=num, limit=1):
            return current_rows(self._connection, self._space, table, row)
        return []


def _page(table: Table) -> int:
    return 1 if table is CONTENTS else 100
