"""Import files: exports of another store, JSON lines, Markdown and plain text.

Files are read twice: first to check every line, so that a bad line changes nothing, then to write
them. Each batch is one unit of work. After a crash, importing the same file again adds the rest.
Imported memories get the trust `external`, unless the caller trusts the file.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from commonplace.engine import checks
from commonplace.engine.content import memories, write_policy
from commonplace.engine.content.memories import DRAFT_FIELDS, Draft, PreparedMemory
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Origin
from commonplace.engine.transfer import rows
from commonplace.engine.transfer.reading import (
    BATCH,
    BATCH_BYTES,
    CORRECT_THE_LINE,
    NOTHING_IMPORTED,
    CannotImport,
    Importer,
    ImportReport,
    Meter,
    Problem,
    Progress,
    copy_stream,
    decode_text,
    files_below,
    json_object,
    open_file,
    read_lines,
)
from commonplace.engine.transfer.replay import Replay, check_export, is_export
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound, StorageFull
from commonplace.storage import outbox
from commonplace.storage.tables import MEMORIES
from commonplace.storage.writing import Unit

SUFFIXES = (".jsonl", ".md", ".markdown", ".txt")
IMPORT = Origin(client="commonplace", tool="import")
# namespace of the UUIDs for memories without an id
_ID_NAMESPACE = uuid.UUID("6d1f2f55-4d0c-5c7e-9d37-0b5ad2f1c0de")
_IMPORTED_FIELDS = tuple(name for name in DRAFT_FIELDS if name != "vectors")


def import_file(
    space: OpenSpace,
    path: str | Path,
    *,
    origin: Origin = IMPORT,
    trust_file: bool = False,
    partial: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Import an export, a `.jsonl` of objects with `text`, a `.md` or `.txt`, or a directory.

    An invalid line is refused before anything is written. A truncated or changed export is refused
    too, unless `partial` is true. Files of a directory that are not text are reported and skipped.
    `trust_file` keeps the trust that the file states.
    """
    if not isinstance(path, str | Path):
        raise InvalidInput(
            "path must be a string or a Path.", hint="Pass the path of a file.", field="path"
        )
    path = Path(path)
    if not path.exists():
        raise NotFound(f"There is no file {path}.", hint="Check its name.", field="path")
    if not path.is_file() and not path.is_dir():  # The path is a pipe, which can be read only once.
        with open_file(path) as stream, copy_stream(stream, path.name) as file:
            return import_file(
                space, file, origin=origin, trust_file=trust_file, partial=partial,
                progress=progress,
            )  # fmt: skip
    report = ImportReport()
    files = list(_files_to_import(path))
    meter = Meter(progress, sum(file.stat().st_size for file in files))
    exports = [file for file in files if not _is_note(file) and is_export(file)]
    plain = [file for file in files if file not in exports]
    for file in exports:
        report.complete &= check_export(file, partial, meter)
        meter.finish_file(file)
    for where, given in _plain_objects(plain, path, ImportReport(), meter, CORRECT_THE_LINE):
        _check_plain(space, where, given, origin, trust_file)
    try:
        for file in exports:
            Replay(space, origin, trust_file, report).run(file, partial, meter)
            meter.finish_file(file)
        if plain:
            _PlainImporter(space, origin, trust_file, report).run(
                _plain_objects(plain, path, report, meter)
            )
    except StorageFull as error:
        if not report.operations:
            raise
        raise StorageFull(
            f"The disk is full; {report.added:,} lines were imported before that.",
            hint="Free disk space and import the same again: it adds the rest. Or remove what was"
            " imported with 'commonplace undo'.",
        ) from error
    if progress is not None:
        progress(meter.total, meter.total)
    return report


def _files_to_import(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
    else:
        yield from files_below(path, SUFFIXES)


def _is_note(file: Path) -> bool:
    """Return whether the whole file is one memory."""
    return file.suffix.lower() in (".md", ".markdown", ".txt")


def _plain_objects(
    files: Sequence[Path], root: Path, report: ImportReport, meter: Meter, advice: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place in the file and the fields of every memory in the files."""
    for file in files:
        yield from (
            _read_note(file, root, report) if _is_note(file) else _objects_in(file, meter, advice)
        )
        meter.finish_file(file)


def _objects_in(file: Path, meter: Meter, advice: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with open_file(file) as stream:
        for number, raw in read_lines(stream, file.name):
            where = f"{file.name}, line {number}"
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if not line.strip():
                continue
            try:
                yield where, json_object(line)
            except CommonplaceError as error:
                raise rows.with_location(error, where, advice) from error
            if number % BATCH == 0:
                meter.report(stream.tell())


def _read_note(
    file: Path, root: Path, report: ImportReport
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a Markdown or text file as one memory, titled by its first heading or file name."""
    name = str(file.relative_to(root)) if root.is_dir() else file.name
    try:
        with open_file(file) as stream:
            text = decode_text(stream.read(4 * checks.TEXT_CHARS + 4))
    except InvalidInput as error:
        if not root.is_dir():
            raise rows.with_location(error, name, NOTHING_IMPORTED) from None
        report.unreadable += 1
        report.add_problem(Problem(name, error.message, conflict=False))
        return
    if not text.strip():
        report.add_problem(Problem(name, "The file is empty.", conflict=False))
        return
    first = text.lstrip().split("\n", 1)[0]
    title = first.lstrip("#").strip() if first.startswith("#") else ""
    title = (title or file.stem)[: checks.TITLE_CHARS]
    yield name, {"text": text, "title": title, "attrs": {"file": name}}


def _check_plain(
    space: OpenSpace, where: str, given: Mapping[str, Any], origin: Origin, trust_file: bool
) -> None:
    """Raise InvalidInput if an object cannot be stored as a memory."""
    try:
        draft = _draft(given, trust_file)
        checks.text(draft.text)
        # Check everything but the text, whose analysis takes long and runs when it is stored.
        memories.prepare(space, replace(draft, text="-"), origin)
    except CommonplaceError as error:
        raise rows.with_location(error, where, CORRECT_THE_LINE) from error
    except (OverflowError, RecursionError):
        beyond = InvalidInput("The object has a date or a nesting that cannot be stored.")
        raise rows.with_location(beyond, where, CORRECT_THE_LINE) from None


def _draft(given: Mapping[str, Any], trust_file: bool) -> Draft:
    """Return a draft of an object; without an id, its id is computed from its content."""
    unknown = given.keys() - set(_IMPORTED_FIELDS)
    if unknown:
        raise InvalidInput(
            f"A memory has no field {ascii(min(unknown))[:60]}.",
            hint=f"Its fields are {', '.join(_IMPORTED_FIELDS)}.",
        )
    if "text" not in given:
        raise InvalidInput("The memory has no text.", field="text")
    details = {name: value for name, value in given.items() if name != "origin"}
    if "origin" in given:
        details["origin"] = Origin.load(rows.import_origin(given["origin"], "origin"))
    if not trust_file:
        details["trust"] = "external"
    if details.get("id") is None:
        content = {name: value for name, value in given.items() if name != "trust"}
        details["id"] = str(uuid.uuid5(_ID_NAMESPACE, json.dumps(content, sort_keys=True)))
    return Draft(**details)


@dataclass(slots=True)
class _PlainObject:
    where: str
    given: Mapping[str, Any]
    prepared: PreparedMemory
    name: str = "memory"
    status: str = "current"


class _PlainImporter(Importer[_PlainObject]):
    """Imports plain objects in batches."""

    def run(self, objects: Iterator[tuple[str, Mapping[str, Any]]]) -> None:
        """Import all objects, which are checked already."""
        batch: list[_PlainObject] = []
        size = 0
        for where, given in objects:
            prepared = memories.prepare(self._space, _draft(given, self._trust_file), self._origin)
            batch.append(_PlainObject(where, given, prepared))
            size += len(prepared.values["text"])
            if len(batch) >= BATCH or size > BATCH_BYTES:
                self._import(batch)
                batch, size = [], 0
        self._import(batch)

    def _import(self, batch: Sequence[_PlainObject]) -> None:
        if batch:
            with write_policy.apply_policy(lane=outbox.SECOND):
                memories.embed_now(self._space, [note.prepared for note in batch])
                self._write(batch)

    def _apply(self, unit: Unit, line: _PlainObject) -> bool:
        values = line.prepared.values
        row = memories.find_row(unit.connection, unit.space, values["id"])
        if row is None and values["ref"] is not None:
            row = MEMORIES.first(unit.connection, unit.space, ref=values["ref"])
        nums = [row["num"]] if row else self._forms.removed_numbers(MEMORIES, (values["id"],))
        if not nums:
            try:
                memories.insert_prepared(self._space, unit, [line.prepared])
            except Conflict as conflict:
                raise CannotImport(conflict.message) from None
            return True
        former = MEMORIES.past(unit.connection, unit.space, num=nums[-1])
        versions = [before for before, _, _ in former] + ([row] if row else [])
        own = ("trust", "origin", "id")
        same = [name for name, value in line.given.items() if name not in own and value is not None]
        if not any(all(each[name] == values[name] for name in same) for each in versions):
            named = "ref" if row is not None and row["id"] != values["id"] else "id"
            raise CannotImport(f"Another memory with this {named} exists here.")
        if row is not None:
            return False
        before, _, vectors = max(former, key=lambda version: version[1])
        memories.restore_row(self._space, unit, None, before, vectors)
        return True
