"""Import an export: existing objects stay, and later changes of them are added."""

from __future__ import annotations

import codecs
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commonplace.engine import checks
from commonplace.engine.content import memories
from commonplace.engine.content.memories import PreparedMemory
from commonplace.engine.history.timeline import (
    REFERENCES,
    UNIQUE,
    remove_row,
    restore_row,
)
from commonplace.engine.transfer import rows
from commonplace.engine.transfer.reading import (
    BATCH,
    BATCH_BYTES,
    CORRECT_THE_LINE,
    CannotImport,
    Importer,
    Meter,
    NameTaken,
    json_object,
    open_file,
    read_lines,
)
from commonplace.engine.transfer.rows import Key, current_rows, event_digest
from commonplace.errors import CommonplaceError, InvalidInput, UnsupportedVersion
from commonplace.storage import derived, events, messages
from commonplace.storage import memories as stored
from commonplace.storage.ports import Rows
from commonplace.storage.tables import CLUSTERS, MEMORIES, MESSAGES, Row, Table, digest
from commonplace.storage.writing import Unit

FORMAT = "commonplace-export"
VERSION = 2
READABLE = (1, 2)  # Version 1 had no source of a memory, and no label of an origin.
MOST_BATCH = 5_000  # An operation with more lines than this is imported in several units of work.


def is_export(file: Path) -> bool:
    """Return whether the first line of a file identifies it as an export."""
    with open_file(file) as stream:
        first = stream.readline(10_000)
    try:
        return json_object(first).get("format") == FORMAT
    except InvalidInput:
        return False


def check_export(file: Path, partial: bool, meter: Meter) -> bool:
    """Check the version, every line and the digest of an export.

    Return whether the file is complete. An incomplete file is refused unless `partial` is true.
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
            last = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            try:
                if bad is None:
                    _read_line(line, file.name, number)
            except CommonplaceError as error:
                if not (partial and not line.endswith(b"\n")):
                    bad = rows.with_location(error, f"{file.name}, line {number}", CORRECT_THE_LINE)
            if number % BATCH == 0:
                meter.report(stream.tell())
    try:
        end = json_object(last)
    except InvalidInput:
        end = {}
    what = ""
    if end.get("type") != "end":
        what = "is truncated: its last line is missing"
    elif end.get("lines") != lines or end.get("sha256") != hashed.hexdigest():
        what = "was changed after it was written: its lines do not match its digest"
    if what and not partial:
        raise InvalidInput(
            f"{file.name} {what}. Nothing was imported.",
            hint="Export it again, or import the lines that it has with --partial.",
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
    digest: str
    form: int
    status: str
    after: str | None
    prepared: PreparedMemory | None = None


def _read_line(raw: bytes, file: str, number: int) -> _Line | None:
    """Check a line of an export; return None for a line that is not about an object."""
    where = f"{file}, line {number}"
    parts = json_object(raw)
    name = parts.get("type")
    if number == 1 or name in ("operation", "end"):
        return None
    table = rows.TABLES.get(name) if isinstance(name, str) else None
    if table is None and name != "event":
        raise InvalidInput(f"An export has no lines of the type {ascii(name)[:60]}.", field="type")
    op = checks.integer(parts.get("op"), "op", rows.COUNT_MOST)
    form = checks.integer(parts.get("form"), "form", rows.COUNT_MOST)
    after = parts.get("after")
    if form < 1 or not isinstance(after, str | None):
        raise InvalidInput(
            "'form' must be at least 1, and 'after' must be a string or null.", field="form"
        )
    known = ("current", "replaced", "removed", "removal")
    status = checks.one_of(parts.get("status"), "status", known)
    if table is None:
        values = _checked_event(parts.get("value"))
        form_digest = event_digest(**values)
        values["payload"] = _checked_payload(parts["value"])
        return _Line(where, op, "event", None, values, (form_digest, str(form)), form_digest, form,
                     status, None)  # fmt: skip
    if status == "removal":
        values = rows.import_key(table, parts.get("value"))
        public = rows.public_form(table, values)
        form_digest = ""
    else:
        values = rows.import_row(table, parts.get("value"))
        public = rows.public_form(table, values)
        form_digest = rows.form_digest(table, public)
    key = rows.key_of(table, public)
    return _Line(where, op, str(name), table, values, key, form_digest, form, status, after)


class Replay(Importer[_Line]):
    """Imports the lines of an export, batch by batch."""

    _events: Counter[str] | None = None
    _with_speaker: frozenset[str] = frozenset()
    """The new memories of this batch, with index entries that include their speaker."""

    def run(self, file: Path, partial: bool, meter: Meter) -> None:
        """Import all lines of the file."""
        batch: list[_Line] = []
        touched: set[tuple[str, Key]] = set()
        size = 0
        with open_file(file) as stream:
            for number, raw in read_lines(stream, file.name):
                try:
                    line = _read_line(raw, file.name, number)
                except CommonplaceError as error:
                    if partial and not raw.endswith(b"\n"):
                        break  # The line is the one at which the file was truncated.
                    raise rows.with_location(error, f"{file.name}, line {number}") from error
                if line is None:
                    continue
                if line.table is MEMORIES and "trust" in line.values and not self._trust_file:
                    line.values["trust"] = "external"
                full = len(batch) >= BATCH and line.op != batch[-1].op
                again = (line.name, line.key) in touched
                if full or again or len(batch) >= MOST_BATCH or size > BATCH_BYTES:
                    self._import(batch)
                    meter.report(stream.tell())
                    batch, touched, size = [], set(), 0
                batch.append(line)
                touched.add((line.name, line.key))
                size += len(raw)
        self._import(batch)

    def _import(self, batch: list[_Line]) -> None:
        if not batch:
            return
        # Compute the index entries of new memories before the write lock is taken.
        speakers = {
            line.key[0]: line.values["speaker"]
            for line in batch
            if line.table is MESSAGES and line.status != "removal"
        }
        analysed = []
        with self._space.store.read() as connection:
            for line in batch:
                if line.table is not MEMORIES or line.status == "removal" or line.form != 1:
                    continue
                identity = line.key[0]
                if not stored.numbers_of_id(connection, self._space.name, identity):
                    line.prepared = memories.index_entries(line.values, speakers.get(identity, ""))
                    analysed.append(identity)
        self._with_speaker = frozenset(analysed)
        self._write(batch)

    def _apply(self, unit: Unit, line: _Line) -> bool:
        if line.table is None:
            return self._add_event(unit, line)
        table, values = line.table, dict(line.values)
        if table is MESSAGES:
            values["memory"] = self._memory_number(unit.connection, line.key[0])
        current = current_rows(unit.connection, unit.space, table, values)
        if not current and not self._forms.removed_numbers(table, line.key):
            if line.status == "removal" or line.form > 1:
                raise CannotImport(
                    f"The {line.name} that the line changes does not exist here.", conflict=False
                )
            self._add(unit, line, values)
            return True
        forms = self._forms.of(unit.connection, table, line.key, current)
        if line.status == "removal":
            return self._remove(unit, line, current, [form.digest for form in forms])
        if line.form <= len(forms):
            if forms[line.form - 1].digest != line.digest:
                raise CannotImport(f"Another {line.name} with this identity exists here.")
            was_removed = line.form == len(forms) and not current
            if not was_removed or line.status != "current":
                return False
        elif line.form > len(forms) + 1 or forms[-1].digest != line.after:
            raise CannotImport(f"The {line.name} has been changed differently here.")
        values["num"] = forms[-1].num
        _check_free(unit, table, values, own=forms[-1].num)
        now = current[0] if current else None
        vectors = None
        if table is MEMORIES and now and all(now[n] == values[n] for n in ("title", "text")):
            vectors = memories.stored_vectors(unit.connection, unit.space, now["num"])
        restore_row(self._space, unit, table, now, values, vectors)
        if table is MESSAGES and not now:
            self._derive_again(unit, values["memory"])
        return True

    def _memory_number(self, connection: Rows, identity: str) -> int:
        here = stored.numbers_of_id(connection, self._space.name, identity)
        if here:
            return here[0]
        gone = self._forms.removed_numbers(MEMORIES, (identity,))
        if not gone:
            raise CannotImport(
                "The memory that the line belongs to does not exist here.", conflict=False
            )
        return gone[-1]

    def _add(self, unit: Unit, line: _Line, values: dict[str, Any]) -> None:
        table = line.table
        assert table is not None
        for owner, column, needed, key in REFERENCES:
            if owner is not table or values[column] is None or key != "id":
                continue
            if not needed.by_id(unit.connection, unit.space, values[column]):
                name = rows.NAMES[needed]
                raise CannotImport(
                    f"The {name} that the line belongs to does not exist here.", conflict=False
                )
        _check_free(unit, table, values)
        row = table.insert(unit, values)
        if table is MEMORIES:
            prepared = line.prepared or memories.index_entries(row)
            memories.write_derived(self._space, unit.connection, [row["num"]], [prepared])
        elif table is MESSAGES and line.key[0] not in self._with_speaker:
            self._derive_again(unit, row["memory"])

    def _derive_again(self, unit: Unit, num: int) -> None:
        """Recompute the index entries of a memory that has become a message, with its speaker."""
        row = MEMORIES.first(unit.connection, unit.space, num=num)
        if row is not None:
            derived.drop_entries(unit.connection, unit.space, num)
            speaker = memories.speaker_of(unit.connection, unit.space, num)
            prepared = memories.index_entries(row, speaker)
            memories.write_derived(self._space, unit.connection, [num], [prepared])
            derived.record_derived_change(unit, num)

    def _remove(self, unit: Unit, line: _Line, current: list[Row], digests: Sequence[str]) -> bool:
        assert line.table is not None
        if line.form > len(digests) or digests[line.form - 1] != line.after:
            raise CannotImport(
                f"The {line.name} has been changed differently here, so it was not removed."
            )
        if line.form < len(digests) or not current:
            return False
        remove_row(unit, line.table, current[0])
        self._forms.add_removed(line.table, line.key, current[0]["num"])
        return True

    def _add_event(self, unit: Unit, line: _Line) -> bool:
        """Append an event, unless the space already has that many equal events."""
        if self._events is None:
            self._events = Counter(
                event_digest(*row) for row in events.identities(unit.connection, unit.space)
            )
        if self._events[line.digest] >= line.form:
            return False
        self._events[line.digest] += 1
        values = line.values
        events.insert(
            unit.connection, unit.next_num(), unit.space, values["kind"], values["subject"],
            values["at"], values["payload_hash"], unit.seq, values["payload"],
        )  # fmt: skip
        return True


def _check_free(unit: Unit, table: Table, values: dict[str, Any], own: int | None = None) -> None:
    """Raise NameTaken if another row has the same unique values; a message moves to the end."""
    if table is CLUSTERS:
        _check_no_cycle(unit, values)
    if table is MEMORIES and stored.is_ambiguous(
        unit.connection, unit.space, values["id"], values["ref"]
    ):
        raise NameTaken("The ref of one memory would equal the id of another.")
    for unique, columns, only in UNIQUE:
        if (
            unique is not table
            or any(values[column] is None for column in columns)
            or any(values[column] != value for column, value in only.items())
        ):
            continue
        wanted = {**{column: values[column] for column in columns}, **only}
        if not table.where(unit.connection, unit.space, without=own, **wanted):
            continue
        if table is not MESSAGES:
            raise NameTaken(f"Another {rows.NAMES[table]} here has the same {columns[0]}.")
        newest = messages.newest_position(unit.connection, unit.space, values["conversation"])
        values["position"] = newest + 1


def _check_no_cycle(unit: Unit, values: Mapping[str, Any]) -> None:
    """Raise LeftOut if a cluster would be inside itself."""
    above, seen = values["parent"], {values["id"]}
    while above is not None:
        if above in seen:
            raise CannotImport("The cluster would be inside itself.")
        seen.add(above)
        row = CLUSTERS.by_id(unit.connection, unit.space, above)
        above = row["parent"] if row else None


def _checked_payload(value: Mapping[str, Any]) -> str | None:
    payload = value["payload"]
    return None if payload is None else checks.attrs(payload, "payload")


def _checked_event(value: object) -> dict[str, Any]:
    """Check an event; return the values for its digest."""
    names = {"kind", "subject", "at", "payload", "payload_hash"}
    if not isinstance(value, dict) or value.keys() != names:
        raise InvalidInput(
            f"An event must have exactly these fields: {', '.join(sorted(names))}.", field="value"
        )
    payload, stated = _checked_payload(value), value["payload_hash"]
    try:
        hashed = digest(payload) if payload is not None else bytes.fromhex(stated)
    except (TypeError, ValueError):
        raise InvalidInput("payload_hash must be hexadecimal.", field="payload_hash") from None
    if len(hashed) != 32:
        raise InvalidInput("payload_hash must have 64 digits.", field="payload_hash")
    return {
        "kind": checks.kind(value["kind"]),
        "subject": checks.optional_text(value["subject"], "subject"),
        "at": rows.import_time(value["at"], "at"),
        "payload_hash": hashed,
    }
