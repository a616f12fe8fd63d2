"""Export a space as JSON lines.

An export holds the history of a space in order: a header, every operation with the forms of the
objects that it wrote, and an end line with counts and a SHA-256 of all lines before it. A form is
an object's state at one time. An import replays the export: existing objects stay unchanged, later
changes of them are added, and contradicting lines are reported and skipped. Nothing is overwritten.
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

from commonplace.engine.history.timeline import UPKEEP, operation_of
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import iso, moment
from commonplace.engine.transfer import rows
from commonplace.engine.transfer.replay import FORMAT, VERSION
from commonplace.engine.transfer.rows import Form, Forms, Key, current_rows, event_digest
from commonplace.storage import events as stored_events
from commonplace.storage import operations as stored_operations
from commonplace.storage import versions
from commonplace.storage.database import now
from commonplace.storage.ports import Rows
from commonplace.storage.tables import CONTENTS, VERSIONED, Row, Table

Progress = Callable[[int, int], None]
Status = Literal["current", "replaced", "removed", "removal"]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Counts of the exported lines and objects."""

    lines: int
    counts: Mapping[str, int]
    """Current objects by type. Former versions are counted only as lines."""
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {"lines": self.lines, "counts": dict(self.counts), "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class Record:
    """One line of an export."""

    type: str
    op: int
    value: Mapping[str, Any]
    form: int = 1
    """The number of this form of the object, from 1. For an event: among equal events."""
    status: Status = "current"
    after: str | None = None
    """The digest of the previous form, or of the form that is removed."""

    def line(self) -> str:
        """Return the record as a line of JSON."""
        parts: dict[str, Any] = {"type": self.type, "op": self.op}
        if self.type != "operation":
            parts |= {"form": self.form, "status": self.status}
        if self.after is not None:
            parts["after"] = self.after
        return _encode({**parts, "value": self.value})


def export_space(
    space: OpenSpace, write: Callable[[str], object], progress: Progress | None = None
) -> ExportReport:
    """Write the space and its history line by line, from one snapshot."""
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
                     "exported_at": iso(moment(now()))}))  # fmt: skip
        for record in _records(connection, space.name):
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
    """Return a digest that is equal for stores with the same objects and the same history.

    Row numbers, operations and the order of unrelated changes do not affect it.
    """
    total = 0
    with space.store.read() as connection:
        for record in _records(connection, space.name):
            if record.type != "operation" and record.status != "removal":
                parts = [record.type, record.form, record.status, record.value]
                one = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()
                total += int.from_bytes(one, "big")
    return f"{total % 2**256:064x}"


# Sort key: the operation; then 0 for an operation, 1 for a removal, 2 for a row version; then the
# row number.
_SortKey = tuple[int, int, int]


def _records(connection: Rows, space: str) -> Iterator[Record]:
    """Yield every record in the order of the operations, with few records in memory."""
    reader = _Reader(connection, space)
    sources: list[Iterator[tuple[_SortKey, Record]]] = [_operations(connection, space)]
    sources.append(_events(connection, space))
    for table in VERSIONED:
        sources += [reader.current(table), reader.former(table), reader.removals(table)]
    for _, record in heapq.merge(*sources, key=lambda placed: placed[0]):
        yield record


def _operations(connection: Rows, space: str) -> Iterator[tuple[_SortKey, Record]]:
    for operation in map(operation_of, stored_operations.in_order(connection, space)):
        if operation.name not in UPKEEP:
            value = operation.as_dict()
            del value["seq"]
            yield (operation.seq, 0, 0), Record("operation", operation.seq, value)


def _events(connection: Rows, space: str) -> Iterator[tuple[_SortKey, Record]]:
    equal: Counter[str] = Counter()
    moment_of_equal = None
    for num in stored_events.numbers_in_order(connection, space):
        (event,) = stored_events.find(connection, space, stored_events.EventConditions(num=num))
        payload = None if event.payload is None else json.loads(event.payload)
        value = {"kind": event.kind, "subject": event.subject, "at": iso(moment(event.at)),
                 "payload": payload, "payload_hash": event.payload_hash.hex()}  # fmt: skip
        if event.at != moment_of_equal:
            moment_of_equal = event.at
            equal.clear()
        mark = event_digest(event.kind, event.subject, event.at, event.payload_hash)
        equal[mark] += 1
        yield (event.seq, 2, num), Record("event", event.seq, value, equal[mark])


class _Reader:
    """Reads a table's rows, current and former, in the order of the operations."""

    def __init__(self, connection: Rows, space: str) -> None:
        self._connection = connection
        self._space = space
        self._history = Forms(connection, space)
        self._known: OrderedDict[tuple[Table, Key], list[Form]] = OrderedDict()

    def current(self, table: Table) -> Iterator[tuple[_SortKey, Record]]:
        """Yield records of current rows."""
        numbers = versions.current_numbers(self._connection, self._space, table)
        while page := list(islice(numbers, _page_size(table))):
            rows = table.by_nums(self._connection, self._space, page)
            for num in page:
                yield (rows[num]["seq"], 2, num), self._record(table, rows[num], None)

    def former(self, table: Table) -> Iterator[tuple[_SortKey, Record]]:
        """Yield records of former rows."""
        for since, num, until in versions.former_spans(self._connection, self._space, table):
            yield (since, 2, num), self._record(table, self._version(table, num, until), until)

    def removals(self, table: Table) -> Iterator[tuple[_SortKey, Record]]:
        """Yield records of removed rows."""
        for num, until in versions.removals(self._connection, self._space, table):
            gone = self._record(table, self._version(table, num, until), until)
            key = {column: gone.value[column] for column in rows.key_columns(table)}
            mark = rows.form_digest(table, gone.value)
            yield (until, 1, num), Record(gone.type, until, key, gone.form, "removal", mark)

    def _version(self, table: Table, num: int, until: int) -> Row:
        ((row, _, _),) = table.past(self._connection, self._space, num=num, until=until)
        return row

    def _record(self, table: Table, row: Row, until: int | None) -> Record:
        value = rows.export_row(self._connection, self._space, table, row)
        name, key = rows.NAMES[table], rows.key_of(table, value)
        changed = (
            until is not None
            or self._history.removed_numbers(table, key)
            or versions.has_versions(self._connection, self._space, table, row["num"])
        )
        if not changed:
            return Record(name, row["seq"], value)
        forms = self._forms_of_object(table, row["num"], key)
        at = next(i for i, f in enumerate(forms) if (f.num, f.since) == (row["num"], row["seq"]))
        replaced = any(form.num == row["num"] and form.since == until for form in forms)
        status: Status = "current" if until is None else "replaced" if replaced else "removed"
        after = forms[at - 1].digest if at else None
        return Record(name, row["seq"], value, at + 1, status, after)

    def _forms_of_object(self, table: Table, num: int, key: Key) -> list[Form]:
        known = self._known.get((table, key))
        if known is None:
            current = table.where(self._connection, self._space, num=num)
            if num in self._history.removed_numbers(table, key):
                # The object may have been added again with another row number.
                for row, _, _ in table.past(self._connection, self._space, num=num, limit=1):
                    current = current_rows(self._connection, self._space, table, row)
            known = self._history.of(self._connection, table, key, current)
            self._known[table, key] = known
            if len(self._known) > 1_000:
                self._known.popitem(last=False)
        return known


def _page_size(table: Table) -> int:
    return 1 if table is CONTENTS else 100
