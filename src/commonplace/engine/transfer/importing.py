"""Importing files: exports of another store, JSON lines, Markdown and plain text.

Files are read twice: first every line is checked, so that a bad line changes nothing, then they
are written. Each batch is one unit of work: after a crash, importing the same file again does the
rest. Imported memories get the trust `external`, unless the caller trusts the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Origin
from commonplace.engine.transfer.plain_files import Notes, check_plain, is_note, plain_objects
from commonplace.engine.transfer.reading import (
    UNTOUCHED,
    ImportReport,
    Meter,
    Progress,
    open_file,
    spooled,
)
from commonplace.engine.transfer.replay import Replay, check_export, is_export
from commonplace.errors import InvalidInput, NotFound, StorageFull

SUFFIXES = (".jsonl", ".md", ".markdown", ".txt")
IMPORT = Origin(client="commonplace", tool="import")


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

    An invalid line is refused before anything is written, and so is a truncated or changed
    export, unless `partial`. `trust_file` keeps the trust that the file states.
    """
    if not isinstance(path, str | Path):
        raise InvalidInput("path must be a path.", hint="Name a file.", field="path")
    path = Path(path)
    if not path.exists():
        raise NotFound(f"There is no file {path}.", hint="Check its name.", field="path")
    if not path.is_file() and not path.is_dir():  # a pipe, which can be read only once
        with open_file(path) as stream, spooled(stream, path.name) as file:
            return import_file(
                space, file, origin=origin, trust_file=trust_file, partial=partial,
                progress=progress,
            )  # fmt: skip
    report = ImportReport()
    files = list(_files(path))
    meter = Meter(progress, sum(file.stat().st_size for file in files))
    exports = [file for file in files if not is_note(file) and is_export(file)]
    plain = [file for file in files if file not in exports]
    for file in exports:
        report.complete &= check_export(file, partial, meter)
        meter.passed(file)
    for where, given in plain_objects(plain, path, ImportReport(), meter, UNTOUCHED):
        check_plain(where, given, origin, trust_file)
    try:
        for file in exports:
            Replay(space, origin, trust_file, report).run(file, partial, meter)
            meter.passed(file)
        if plain:
            Notes(space, origin, trust_file, report).run(plain_objects(plain, path, report, meter))
    except StorageFull as error:
        if not report.operations:
            raise
        raise StorageFull(
            f"The disk is full; {report.added:,} lines were imported before.",
            hint="Free disk space and import the same again: it adds the rest. Or remove what was"
            " imported with 'commonplace undo'.",
        ) from error
    if progress is not None:
        progress(meter.total, meter.total)
    return report


def _files(path: Path) -> Iterator[Path]:
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
