"""Replaying an export: what is here stays, what goes on from here is added."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commonplace.engine import checks
from commonplace.engine.content import memories
from commonplace.engine.content.memories import Prepared
from commonplace.engine.history.forms import Past, current_rows, event_mark
from commonplace.engine.history.timeline import IMPORT
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Origin
from commonplace.engine.transfer import rows
from commonplace.engine.transfer.reading import (
    BATCH,
    BATCH_BYTES,
    UNTOUCHED,
    ImportReport,
    Meter,
    Problem,
    json_object,
    open_file,
    read_lines,
)
from commonplace.engine.transfer.rows import Key
from commonplace.errors import CommonplaceError, InvalidInput, UnsupportedVersion
from commonplace.storage import derived, events, messages
from commonplace.storage import memories as stored
from commonplace.storage.ports import Rows
from commonplace.storage.tables import (
    ARTIFACTS,
    CLUSTERS,
    CONTENTS,
    FACTS,
    LINKS,
    MEMBERS,
    MEMORIES,
    MESSAGES,
    REVIEWS,
    Row,
    Table,
    digest,
)
from commonplace.storage.writing import Unit

FORMAT = "commonplace-export"
VERSION = 2
READABLE = (1, 2)  # the first had no source of a memory, and no label of an origin
MOST_BATCH = 5_000  # an operation is kept in one unit of work up to here

# Rows that must be there when a thing comes to be.
_NEEDS: Mapping[Table, Sequence[tuple[str, Table]]] = {
    LINKS: (("source", MEMORIES), ("target", MEMORIES)),
    FACTS: (("memory", MEMORIES),),
    CLUSTERS: (("parent", CLUSTERS),),
    MEMBERS: (("cluster", CLUSTERS), ("memory", MEMORIES)),
    CONTENTS: (("artifact", ARTIFACTS),),
    REVIEWS: (("artifact", ARTIFACTS),),
}


def is_export(file: Path) -> bool:
    """Whether a file's first line says that it is an export."""
    with open_file(file) as stream:
        first = stream.readline(10_000)
    try:
        return json_object(first).get("format") == FORMAT
    except InvalidInput:
        return False


def check_export(file: Path, partial: bool, meter: Meter) -> bool:
    """Refuse a newer version, a file that is not as it was written, and any bad line.

    Whether the file is whole; one that is not passes only if that is asked for.
    """
    hashed, lines, last = hashlib.sha256(), 0, b""
    bad: InvalidInput | None = None
    with open_file(file) as stream:
        for number, line in read_lines(stream, file.name):
            if number == 1:
                version = json_object(line).get("version")
                if version not in READABLE:
                    raise UnsupportedVersion(
                        f"The export has version {ascii(version)[:20]}, this release reads up to"
                        f" {VERSION}.",
                        hint="Import it with the release that wrote it, or a newer one.",
                    )
            if last:
                hashed.update(last)
                lines += 1
            last = line
            try:
                if bad is None:
                    _read_line(line, file.name, number)
            except CommonplaceError as error:
                if not (partial and not line.endswith(b"\n")):
                    bad = rows.located(error, f"{file.name}, line {number}", UNTOUCHED)
            if number % BATCH == 0:
                meter.at(stream.tell())
    try:
        end = json_object(last)
    except InvalidInput:
        end = {}
    what = ""
    if end.get("type") != "end":
        what = "is cut: its last line is missing"
    elif end.get("lines") != lines or end.get("sha256") != hashed.hexdigest():
        what = "was changed after it was written: its lines do not match its digest"
    if what and not partial:
        raise InvalidInput(
            f"{file.name} {what}. Nothing was imported.",
            hint="Export it again, or take what is there with --partial.",
            field="path",
        )
    if bad is not None:
        raise bad
    return not what


@dataclass(slots=True)
class _Line:
    """A checked line of an export."""

    where: str
    op: int
    name: str
    table: Table | None
    """None for an event."""
    values: dict[str, Any]
    key: Key
    mark: str
    form: int
    status: str
    after: str | None
    prepared: Prepared | None = None


class _LeftOut(Exception):
    """This line cannot be imported; the others can."""

    def __init__(self, what: str, *, conflict: bool = True) -> None:
        super().__init__(what)
        self.what = what
        self.conflict = conflict


class _Taken(_LeftOut):
    """Something else has its name; perhaps only until a later line of the batch."""


def _read_line(raw: bytes, file: str, number: int) -> _Line | None:
    """A checked line of an export; None for one that says nothing of a thing."""
    where = f"{file}, line {number}"
    parts = json_object(raw)
    name = parts.get("type")
    if number == 1 or name in ("operation", "end"):
        return None
    table = rows.TABLES.get(name) if isinstance(name, str) else None
    if table is None and name != "event":
        raise InvalidInput(f"There is no type {ascii(name)[:60]}.", field="type")
    op = rows.enter_count(parts.get("op"), "op")
    form = rows.enter_count(parts.get("form"), "form")
    after = parts.get("after")
    if form < 1 or not isinstance(after, str | None):
        raise InvalidInput("form must be 1 or more, after a text.", field="form")
    known = ("current", "replaced", "removed", "removal")
    status = checks.one_of(parts.get("status"), "status", known)
    if table is None:
        values = _event(parts.get("value"))
        mark = event_mark(**values)
        values["payload"] = _payload(parts["value"])
        return _Line(where, op, "event", None, values, (mark, str(form)), mark, form,
                     status, None)  # fmt: skip
    if status == "removal":
        values = rows.enter_key(table, parts.get("value"))
        public = rows.public(table, values)
        mark = ""
    else:
        values = rows.enter(table, parts.get("value"))
        public = rows.public(table, values)
        mark = rows.mark(table, public)
    key = rows.key_of(table, public)
    return _Line(where, op, str(name), table, values, key, mark, form, status, after)


class Replay:
    """Replays an export, batch by batch."""

    def __init__(
        self, space: OpenSpace, origin: Origin, trust_file: bool, report: ImportReport
    ) -> None:
        self._space = space
        self._origin = origin
        self._trust_file = trust_file
        self._report = report
        self._events: Counter[str] | None = None
        self._voiced: set[str] = set()  # memories of this batch that know their speaker
        with space.store.read() as connection:
            self._past = Past(connection, space.name)

    def run(self, file: Path, partial: bool, meter: Meter) -> None:
        """Import the file's lines."""
        batch: list[_Line] = []
        touched: set[tuple[str, Key]] = set()
        size = 0
        with open_file(file) as stream:
            for number, raw in read_lines(stream, file.name):
                try:
                    line = _read_line(raw, file.name, number)
                except CommonplaceError as error:
                    if partial and not raw.endswith(b"\n"):
                        break  # the line in which the file was cut
                    raise rows.located(error, f"{file.name}, line {number}") from error
                if line is None:
                    continue
                if line.table is MEMORIES and "trust" in line.values and not self._trust_file:
                    line.values["trust"] = "external"
                full = len(batch) >= BATCH and line.op != batch[-1].op
                again = (line.name, line.key) in touched
                if full or again or len(batch) >= MOST_BATCH or size > BATCH_BYTES:
                    self._import(batch)
                    meter.at(stream.tell())
                    batch, touched, size = [], set(), 0
                batch.append(line)
                touched.add((line.name, line.key))
                size += len(raw)
        self._import(batch)

    def _import(self, batch: list[_Line]) -> None:
        if not batch:
            return
        self._prepare(batch)
        with self._space.write(IMPORT, self._report.label(self._origin)) as unit:
            outcome = ImportReport()
            waiting = self._try(unit, batch, outcome, last=False)
            self._try(unit, waiting, outcome, last=True)
        report = self._report
        report.added += outcome.added
        report.unchanged += outcome.unchanged
        report.counts += outcome.counts
        for problem in outcome.problems:
            report.left_out(problem)
        if unit.changed:
            report.operations.append(unit.id)

    def _prepare(self, batch: list[_Line]) -> None:
        """Analyse new memories before the write lock is held."""
        speakers = _speakers(batch)
        self._voiced = set()
        with self._space.store.read() as connection:
            for line in batch:
                if line.table is not MEMORIES or line.status == "removal" or line.form != 1:
                    continue
                if not stored.numbers(connection, self._space.name, line.key[0]):
                    speaker = speakers.get(line.key[0], "")
                    line.prepared = memories.analysed(line.values, speaker)
                    self._voiced.add(line.key[0])

    def _try(
        self, unit: Unit, lines: list[_Line], outcome: ImportReport, *, last: bool
    ) -> list[_Line]:
        """Apply lines; those whose name is still taken come back, unless this is the last try."""
        waiting = []
        for line in lines:
            try:
                new = self._apply(unit, line)
            except _Taken as taken:
                if not last:
                    waiting.append(line)
                    continue
                outcome.problems.append(Problem(line.where, taken.what, True))
            except _LeftOut as left:
                outcome.problems.append(Problem(line.where, left.what, left.conflict))
            else:
                outcome.added += new
                outcome.unchanged += not new
                if new and line.status == "current":
                    outcome.counts[line.name] += 1
        return waiting

    def _apply(self, unit: Unit, line: _Line) -> bool:
        """Make the line true here; whether that changed anything."""
        if line.table is None:
            return self._happen(unit, line)
        table, values = line.table, dict(line.values)
        if table is MESSAGES:
            values["memory"] = self._memory_number(unit.connection, line.key[0])
        current = current_rows(unit.connection, unit.space, table, values)
        if not current and not self._past.gone(table, line.key):
            if line.status == "removal" or line.form > 1:
                raise _LeftOut(f"The {line.name} it goes on from is not here.", conflict=False)
            self._add(unit, line, values)
            return True
        forms = self._past.forms(unit.connection, table, line.key, current)
        if line.status == "removal":
            return self._remove(unit, line, current, [form.mark for form in forms])
        if line.form <= len(forms):
            if forms[line.form - 1].mark != line.mark:
                raise _LeftOut(f"Another {line.name} with this identity is here.")
            here_no_more = line.form == len(forms) and not current
            if not here_no_more or line.status != "current":
                return False
        elif line.form > len(forms) + 1 or forms[-1].mark != line.after:
            raise _LeftOut(f"The {line.name} has been changed here in another way.")
        values["num"] = forms[-1].num
        self._check_free(unit, table, values, own=forms[-1].num)
        if table is MEMORIES:
            self._set_memory(unit, current[0] if current else None, values)
        elif current:
            table.replace(unit, current[0], values)
        else:
            table.restore(unit, values)
            if table is MESSAGES:
                _derive_again(self._space, unit, values["memory"])
        return True

    def _memory_number(self, connection: Rows, identity: str) -> int:
        here = stored.numbers(connection, self._space.name, identity)
        if here:
            return here[0]
        gone = self._past.gone(MEMORIES, (identity,))
        if not gone:
            raise _LeftOut("The memory it belongs to is not here.", conflict=False)
        return gone[-1]

    def _add(self, unit: Unit, line: _Line, values: dict[str, Any]) -> None:
        table = line.table
        assert table is not None
        for column, needed in _NEEDS.get(table, ()):
            found = values[column] is None or current_rows(
                unit.connection, unit.space, needed, {"id": values[column]}
            )
            if not found:
                kind = rows.NAMES[needed]
                raise _LeftOut(f"The {kind} it belongs to is not here.", conflict=False)
        self._check_free(unit, table, values, own=None)
        row = table.insert(unit, values)
        if table is MEMORIES:
            prepared = line.prepared or memories.analysed(row)
            memories.write_derived(self._space, unit.connection, [row["num"]], [prepared])
        elif table is MESSAGES and line.key[0] not in self._voiced:
            _derive_again(self._space, unit, row["memory"])

    def _check_free(
        self, unit: Unit, table: Table, values: dict[str, Any], own: int | None
    ) -> None:
        """Refuse a name that something else has; a taken place in a conversation moves on."""
        own = -1 if own is None else own
        clause: tuple[str, ...] = ()
        if table is MEMORIES and values["ref"] is not None:
            clause = ("ref",)
        elif table is LINKS:
            clause = ("source", "target", "kind")
        elif table is ARTIFACTS and values["path"] is not None and values["state"] == "active":
            clause = ("path", "state")
        elif table is MESSAGES:
            if not _holders(unit, table, values, ("conversation", "position"), own):
                return
            newest = messages.newest_position(unit.connection, unit.space, values["conversation"])
            values["position"] = newest + 1
        elif table is CLUSTERS:
            _check_above(unit, values)
        if clause and _holders(unit, table, values, clause, own):
            raise _Taken(f"Another {rows.NAMES[table]} here has the same {clause[0]}.")

    def _set_memory(self, unit: Unit, current: Row | None, values: dict[str, Any]) -> None:
        vectors = None
        if current is not None and all(current[n] == values[n] for n in ("title", "text")):
            vectors = memories.stored_vectors(unit.connection, unit.space, current["num"])
        memories.restore_row(self._space, unit, current, values, vectors)

    def _remove(self, unit: Unit, line: _Line, current: list[Row], marks: Sequence[str]) -> bool:
        assert line.table is not None
        if line.form > len(marks) or marks[line.form - 1] != line.after:
            raise _LeftOut(f"The {line.name} it removes is another one here.")
        if line.form < len(marks) or not current:
            return False
        if line.table is MEMORIES:
            memories.remove_row(unit, current[0])
        else:
            line.table.remove(unit, current[0])
        self._past.left(line.table, line.key, current[0]["num"])
        return True

    def _happen(self, unit: Unit, line: _Line) -> bool:
        """Append an event, unless as many equal ones are here."""
        if self._events is None:
            self._events = Counter(
                event_mark(*row) for row in events.identities(unit.connection, unit.space)
            )
        if self._events[line.mark] >= line.form:
            return False
        self._events[line.mark] += 1
        values, seq = line.values, unit.seq
        events.insert(
            unit.connection, unit.next_num(), unit.space, values["kind"], values["subject"],
            values["at"], values["payload_hash"], seq, values["payload"],
        )  # fmt: skip
        return True


def _speakers(batch: Sequence[_Line]) -> dict[str, str]:
    """Who says the memories of a batch that are lines of conversations."""
    return {
        line.key[0]: line.values["speaker"]
        for line in batch
        if line.table is MESSAGES and line.status != "removal"
    }


def _holders(
    unit: Unit, table: Table, values: Mapping[str, Any], columns: Sequence[str], own: int
) -> bool:
    wanted = {column: values[column] for column in columns}
    return bool(table.where(unit.connection, unit.space, without=own, **wanted))


def _check_above(unit: Unit, values: Mapping[str, Any]) -> None:
    """Refuse a cluster that would lie within itself."""
    above, seen = values["parent"], {values["id"]}
    while above is not None:
        if above in seen:
            raise _LeftOut("The cluster would lie within itself.")
        seen.add(above)
        rows = current_rows(unit.connection, unit.space, CLUSTERS, {"id": above})
        above = rows[0]["parent"] if rows else None


def _derive_again(space: OpenSpace, unit: Unit, num: int) -> None:
    """Let a memory be found by its speaker, too."""
    row = MEMORIES.first(unit.connection, unit.space, num=num)
    if row is not None:
        derived.drop(unit.connection, unit.space, num)
        speaker = memories.speaker_of(unit.connection, unit.space, num)
        memories.write_derived(space, unit.connection, [num], [memories.analysed(row, speaker)])
        derived.touch(unit, num)


def _payload(value: Mapping[str, Any]) -> str | None:
    payload = value["payload"]
    return None if payload is None else checks.attrs(payload, "payload")


def _event(value: object) -> dict[str, Any]:
    """A checked event: what its mark is made of."""
    names = {"kind", "subject", "at", "payload", "payload_hash"}
    if not isinstance(value, dict) or value.keys() != names:
        raise InvalidInput(f"An event has {', '.join(sorted(names))}.", field="value")
    payload, stated = _payload(value), value["payload_hash"]
    try:
        hashed = digest(payload) if payload is not None else bytes.fromhex(stated)
    except (TypeError, ValueError):
        raise InvalidInput("payload_hash must be hexadecimal.", field="payload_hash") from None
    if len(hashed) != 32:
        raise InvalidInput("payload_hash must have 64 digits.", field="payload_hash")
    return {
        "kind": checks.kind(value["kind"]),
        "subject": checks.optional(value["subject"], "subject"),
        "at": rows.enter_time(value["at"], "at"),
        "payload_hash": hashed,
    }
