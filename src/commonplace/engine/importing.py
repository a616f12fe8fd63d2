"""Importing files: exports of another store, JSON lines, Markdown and plain text.

Each batch is one unit of work, so a kill leaves whole batches, and running the same file again
does the rest. What comes in is of unknown provenance, and so of trust `external`, unless the
caller vouches for the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from commonplace.engine import checks, memories, portable
from commonplace.engine.forms import Past, current_rows, event_mark
from commonplace.engine.memories import Draft, Prepared
from commonplace.engine.model import Origin, moment
from commonplace.engine.opened import OpenSpace
from commonplace.engine.portable import Key
from commonplace.errors import (
    CommonplaceError,
    Conflict,
    InvalidInput,
    NotFound,
    UnsupportedVersion,
)
from commonplace.storage.sqlite import Unit
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

if TYPE_CHECKING:
    import apsw

FORMAT = "commonplace-export"
VERSION = 1
BATCH = 500
MOST_BATCH = 5_000  # an operation is kept in one unit of work up to here
BATCH_BYTES = 32 * 1024 * 1024
LINE_BYTES = 160 * 1024 * 1024
PROBLEMS = 100
SUFFIXES = (".jsonl", ".md", ".markdown", ".txt")
IMPORT = Origin(client="commonplace", tool="import")

_PLAIN = uuid.UUID("6d1f2f55-4d0c-5c7e-9d37-0b5ad2f1c0de")  # names of memories without an id
_DRAFT = tuple(name for name in Draft.__slots__ if name != "vectors")

Progress = Callable[[int, int], None]

# Rows that must be there when a thing comes to be.
_NEEDS: Mapping[Table, Sequence[tuple[str, Table]]] = {
    LINKS: (("source", MEMORIES), ("target", MEMORIES)),
    FACTS: (("memory", MEMORIES),),
    CLUSTERS: (("parent", CLUSTERS),),
    MEMBERS: (("cluster", CLUSTERS), ("memory", MEMORIES)),
    CONTENTS: (("artifact", ARTIFACTS),),
    REVIEWS: (("artifact", ARTIFACTS),),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that was left out, and why."""

    where: str
    what: str
    conflict: bool
    """Whether it contradicts what is here; otherwise it leads nowhere."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"where": self.where, "what": self.what, "conflict": self.conflict}


@dataclass(slots=True)
class ImportReport:
    """What an import did."""

    added: int = 0
    """Lines that changed something; those of history count, too."""
    unchanged: int = 0
    conflicts: int = 0
    skipped: int = 0
    complete: bool = True
    """False when the file was cut or changed, and was taken all the same."""
    counts: Counter[str] = field(default_factory=Counter)
    """Things that are now here, by type."""
    problems: list[Problem] = field(default_factory=list)
    """The first of what was left out."""
    operations: list[str] = field(default_factory=list)
    """The units of work, for undoing."""

    def left_out(self, problem: Problem) -> None:
        """Note a line that was not imported."""
        if problem.conflict:
            self.conflicts += 1
        else:
            self.skipped += 1
        if len(self.problems) < PROBLEMS:
            self.problems.append(problem)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "added": self.added,
            "unchanged": self.unchanged,
            "conflicts": self.conflicts,
            "skipped": self.skipped,
            "complete": self.complete,
            "counts": dict(sorted(self.counts.items())),
            "problems": [problem.as_dict() for problem in self.problems],
            "operations": self.operations,
        }


def import_file(
    space: OpenSpace,
    path: Path,
    *,
    origin: Origin = IMPORT,
    trust_file: bool = False,
    partial: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Import an export, a `.jsonl` of objects with `text`, a `.md` or `.txt`, or a directory.

    A cut or changed export is refused before anything is written, unless `partial`.
    `trust_file` keeps the trust that the file states.
    """
    report = ImportReport()
    files = list(_files(path))
    meter = _Meter(progress, sum(file.stat().st_size for file in files))
    exports = [file for file in files if not _is_note(file) and is_export(file)]
    for file in exports:
        _check_whole(file, partial, report)
    for file in exports:
        _Replay(space, origin, trust_file, report).run(file, partial, meter)
        meter.passed(file)
    plain = [file for file in files if file not in exports]
    if plain:
        _Notes(space, origin, trust_file, report).run(_plain(plain, path, report, meter))
    if progress is not None:
        progress(meter.total, meter.total)
    return report


@dataclass(slots=True)
class _Meter:
    """Tells how many bytes of all files are done."""

    progress: Progress | None
    total: int
    done: int = 0

    def at(self, position: int) -> None:
        if self.progress is not None:
            self.progress(min(self.done + position, self.total), self.total)

    def passed(self, file: Path) -> None:
        self.done += file.stat().st_size
        self.at(0)


def _files(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise NotFound(f"There is no file {path}.", hint="Check its name.", field="path")
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            wanted = file.suffix.lower() in SUFFIXES and not name.startswith(".")
            if wanted and file.is_file() and not file.is_symlink():
                yield file


def _open(file: Path) -> IO[bytes]:
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}.", field="path") from error


def _lines(stream: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """(line number, line with its line feed), never more than one line in memory."""
    number = 0
    while line := stream.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise InvalidInput(f"{name}, line {number}: it is over {LINE_BYTES} bytes long.")
        yield number, line


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _object(line: bytes) -> dict[str, Any]:
    """A line's JSON object, or InvalidInput."""
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"It is not UTF-8 at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise InvalidInput(f"It is not JSON: {error.msg} at character {error.pos}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"It is not JSON that can be read: {str(error)[:80]}.") from None
    if not isinstance(value, dict):
        raise InvalidInput("It is not a JSON object.")
    return value


# Exports


def is_export(file: Path) -> bool:
    """Whether a file's first line says that it is an export."""
    with _open(file) as stream:
        first = stream.readline(10_000)
    try:
        return _object(first).get("format") == FORMAT
    except InvalidInput:
        return False


def _check_whole(file: Path, partial: bool, report: ImportReport) -> None:
    """Refuse a newer version, and a file that is not as it was written."""
    hashed, lines, last = hashlib.sha256(), 0, b""
    with _open(file) as stream:
        for number, line in _lines(stream, file.name):
            if number == 1:
                version = _object(line).get("version")
                if version != VERSION:
                    raise UnsupportedVersion(
                        f"The export has version {ascii(version)[:20]}, this release reads"
                        f" {VERSION}.",
                        hint="Import it with the release that wrote it, or a newer one.",
                    )
            if last:
                hashed.update(last)
                lines += 1
            last = line
    try:
        end = _object(last)
    except InvalidInput:
        end = {}
    if end.get("type") != "end":
        what = "is cut: its last line is missing"
    elif end.get("lines") != lines or end.get("sha256") != hashed.hexdigest():
        what = "was changed after it was written: its lines do not match its digest"
    else:
        return
    report.complete = False
    if not partial:
        raise InvalidInput(
            f"{file.name} {what}. Nothing was imported.",
            hint="Export it again, or take what is there with --partial.",
            field="path",
        )


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


class _Replay:
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

    def run(self, file: Path, partial: bool, meter: _Meter) -> None:
        """Import the file's lines."""
        batch: list[_Line] = []
        touched: set[tuple[str, Key]] = set()
        size = 0
        with _open(file) as stream:
            for number, raw in _lines(stream, file.name):
                where = f"{file.name}, line {number}"
                try:
                    line = self._read(raw, where, number)
                except CommonplaceError as error:
                    if partial and not raw.endswith(b"\n"):
                        break  # the line in which the file was cut
                    raise portable.located(error, where) from error
                if line is None:
                    continue
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

    def _read(self, raw: bytes, where: str, number: int) -> _Line | None:
        parts = _object(raw)
        name = parts.get("type")
        if number == 1 or name in ("operation", "end"):
            return None
        table = portable.TABLES.get(name) if isinstance(name, str) else None
        if table is None and name != "event":
            raise InvalidInput(f"There is no type {ascii(name)[:60]}.", field="type")
        op = portable.enter_count(parts.get("op"), "op")
        form = portable.enter_count(parts.get("form"), "form")
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
            values = portable.enter_key(table, parts.get("value"))
            public = portable.public(table, values)
            mark = ""
        else:
            values = portable.enter(table, parts.get("value"))
            public = portable.public(table, values)
            mark = portable.mark(table, public)
        key = portable.key_of(table, public)
        if table is MEMORIES and "trust" in values and not self._trust_file:
            values["trust"] = "external"
        return _Line(where, op, str(name), table, values, key, mark, form, status, after)

    def _import(self, batch: list[_Line]) -> None:
        if not batch:
            return
        self._prepare(batch)
        with self._space.write("import", self._origin) as unit:
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
                if line.table is MEMORIES and line.status != "removal" and line.form == 1:
                    here = connection.execute(
                        "SELECT 1 FROM memories WHERE space = ? AND id = ?",
                        (self._space.name, line.key[0]),
                    ).fetchone()
                    if not here:
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

    def _memory_number(self, connection: apsw.Connection, identity: str) -> int:
        row = connection.execute(
            "SELECT num FROM memories WHERE space = ? AND id = ?", (self._space.name, identity)
        ).fetchone()
        if row is not None:
            return int(row[0])
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
                kind = portable.NAMES[needed]
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
            newest = unit.connection.execute(
                "SELECT max(position) FROM messages WHERE space = ? AND conversation = ?",
                (unit.space, values["conversation"]),
            ).fetchone()
            values["position"] = int(newest[0]) + 1 if newest else 0
        elif table is CLUSTERS:
            _check_above(unit, values)
        if clause and _holders(unit, table, values, clause, own):
            raise _Taken(f"Another {portable.NAMES[table]} here has the same {clause[0]}.")

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
                event_mark(*row)
                for row in unit.connection.execute(
                    "SELECT kind, subject, at, payload_hash FROM events WHERE space = ?",
                    (unit.space,),
                )
            )
        if self._events[line.mark] >= line.form:
            return False
        self._events[line.mark] += 1
        values, seq = line.values, unit.seq
        row = (unit.next_num(), unit.space, values["kind"], values["subject"], values["at"],
               values["payload_hash"], seq)  # fmt: skip
        unit.connection.execute(
            "INSERT INTO events (num, space, kind, subject, at, payload_hash, seq, payload, hash)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, values["payload"], digest(*row)),
        )
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
    clause = "".join(f"AND {column} = ? " for column in columns) + "AND num <> ?"
    params = [*(values[column] for column in columns), own]
    return table.fetch_one(unit.connection, unit.space, clause, *params) is not None


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
    row = MEMORIES.fetch_one(unit.connection, unit.space, "AND num = ?", num)
    if row is not None:
        from commonplace.storage import derived

        derived.drop(unit.connection, unit.space, num)
        speaker = memories.speaker_of(unit.connection, unit.space, num)
        memories.write_derived(space, unit.connection, [num], [memories.analysed(row, speaker)])
        memories.touch(unit, num)


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
        "at": portable.enter_time(value["at"], "at"),
        "payload_hash": hashed,
    }


# Plain memories


def _is_note(file: Path) -> bool:
    return file.suffix.lower() in (".md", ".markdown", ".txt")


def _plain(
    files: Sequence[Path], root: Path, report: ImportReport, meter: _Meter
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where it stands, its fields) of every memory in the files."""
    for file in files:
        yield from _note(file, root, report) if _is_note(file) else _objects(file, meter)
        meter.passed(file)


def _objects(file: Path, meter: _Meter) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with _open(file) as stream:
        for number, raw in _lines(stream, file.name):
            where = f"{file.name}, line {number}"
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if not line.strip():
                continue
            try:
                yield where, _object(line)
            except CommonplaceError as error:
                raise portable.located(error, where) from error
            if number % BATCH == 0:
                meter.at(stream.tell())


def _note(file: Path, root: Path, report: ImportReport) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A Markdown or text file as one memory, named by its first heading or its file name."""
    name = str(file.relative_to(root)) if root.is_dir() else file.name
    with _open(file) as stream:
        data = stream.read(4 * checks.TEXT_CHARS + 4)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: It is not UTF-8 at byte {error.start}.") from None
    if not text.strip():
        report.left_out(Problem(name, "The file is empty.", conflict=False))
        return
    first = text.lstrip().split("\n", 1)[0]
    title = first.lstrip("#").strip() if first.startswith("#") else ""
    title = (title or file.stem)[: checks.TITLE_CHARS]
    yield name, {"text": text, "title": title, "attrs": {"file": name}}


class _Notes:
    """Imports plain objects, batch by batch."""

    def __init__(
        self, space: OpenSpace, origin: Origin, trust_file: bool, report: ImportReport
    ) -> None:
        self._space = space
        self._origin = origin
        self._trust_file = trust_file
        self._report = report
        with space.store.read() as connection:
            self._past = Past(connection, space.name)

    def run(self, objects: Iterator[tuple[str, Mapping[str, Any]]]) -> None:
        """Import all objects."""
        batch: list[tuple[str, Mapping[str, Any], Prepared]] = []
        size = 0
        for where, given in objects:
            try:
                prepared = memories.prepare(self._draft(given), self._origin)
                for name in ("occurred_at", "created_at"):
                    if prepared.values[name] is not None:
                        moment(prepared.values[name])
            except CommonplaceError as error:
                raise portable.located(error, where) from error
            except (OverflowError, RecursionError):
                beyond = InvalidInput("It has a date or a depth that nothing can hold.")
                raise portable.located(beyond, where) from None
            batch.append((where, given, prepared))
            size += len(prepared.values["text"])
            if len(batch) >= BATCH or size > BATCH_BYTES:
                self._import(batch)
                batch, size = [], 0
        self._import(batch)

    def _draft(self, given: Mapping[str, Any]) -> Draft:
        unknown = given.keys() - set(_DRAFT)
        if unknown:
            raise InvalidInput(
                f"A memory has no {ascii(min(unknown))[:60]}.", hint=f"It has {', '.join(_DRAFT)}."
            )
        if "text" not in given:
            raise InvalidInput("The memory has no text.", field="text")
        details = {name: value for name, value in given.items() if name != "origin"}
        if "origin" in given:
            details["origin"] = Origin.load(portable.enter_origin(given["origin"], "origin"))
        if not self._trust_file:
            details["trust"] = "external"
        if details.get("id") is None:
            said = {name: value for name, value in given.items() if name != "trust"}
            details["id"] = str(uuid.uuid5(_PLAIN, json.dumps(said, sort_keys=True)))
        return Draft(**details)

    def _import(self, batch: Sequence[tuple[str, Mapping[str, Any], Prepared]]) -> None:
        if not batch:
            return
        memories.embed_now(self._space, [prepared for _, _, prepared in batch])
        outcome = ImportReport()
        with self._space.write("import", self._origin) as unit:
            for where, given, prepared in batch:
                try:
                    new = self._apply(unit, given, prepared)
                except Conflict as conflict:
                    outcome.problems.append(Problem(where, conflict.message, True))
                else:
                    outcome.added += new
                    outcome.unchanged += not new
        self._report.added += outcome.added
        self._report.unchanged += outcome.unchanged
        for problem in outcome.problems:
            self._report.left_out(problem)
        if outcome.added:
            self._report.counts["memory"] += outcome.added
            self._report.operations.append(unit.id)

    def _apply(self, unit: Unit, given: Mapping[str, Any], prepared: Prepared) -> bool:
        values = prepared.values
        row = memories.find_row(unit.connection, unit.space, values["id"])
        if row is None and values["ref"] is not None:
            row = MEMORIES.fetch_one(unit.connection, unit.space, "AND ref = ?", values["ref"])
        nums = [row["num"]] if row else self._past.gone(MEMORIES, (values["id"],))
        if not nums:
            memories.put(self._space, unit, [prepared])
            return True
        former = MEMORIES.versions(unit.connection, unit.space, "AND num = ?", nums[-1])
        rows = [before for before, _, _ in former] + ([row] if row else [])
        own = ("trust", "origin", "id")
        same = [name for name in given if name not in own and given[name] is not None]
        if not any(all(each[name] == values[name] for name in same) for each in rows):
            raise Conflict("Another memory with this identity is here.")
        if row is None:
            before, _, vectors = max(former, key=lambda version: version[1])
            memories.restore_row(self._space, unit, None, before, vectors)
            return True
        return False
