"""Read files to import, write them in batches, and report the result."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TypeVar

from commonplace.engine.history.timeline import IMPORT, LABEL_PREFIX
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Origin
from commonplace.engine.transfer.rows import Forms
from commonplace.errors import DISK_FULL_ERRNOS, InvalidInput, StorageFull
from commonplace.storage.database import new_id
from commonplace.storage.writing import Unit

BATCH = 500
BATCH_BYTES = 32 * 1024 * 1024
LINE_BYTES = 160 * 1024 * 1024
MOST_PROBLEMS = 100
NOTHING_IMPORTED = "Nothing was imported."
CORRECT_THE_LINE = "Nothing was imported: correct the line, and import again."

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that was not imported, with the reason."""

    where: str
    what: str
    conflict: bool
    """Whether the line contradicts stored data; otherwise data that it refers to is missing."""

    def as_dict(self) -> dict[str, Any]:
        """Return the problem as plain values for JSON."""
        return {"where": self.where, "what": self.what, "conflict": self.conflict}


@dataclass(slots=True)
class ImportReport:
    """The result of an import."""

    added: int = 0
    """Lines that changed something, including former versions."""
    unchanged: int = 0
    conflicts: int = 0
    skipped: int = 0
    unreadable: int = 0
    """Files of a directory that are not text; they count as skipped."""
    complete: bool = True
    """False if the file was truncated or changed, and `partial` was true."""
    counts: Counter[str] = field(default_factory=Counter)
    """Objects that were added, by type."""
    problems: list[Problem] = field(default_factory=list)
    """The first lines that were not imported."""
    operations: list[str] = field(default_factory=list)
    """The operations of the import; undoing one undoes all."""
    _label: str = field(default_factory=lambda: LABEL_PREFIX + new_id())

    def label(self, origin: Origin) -> Origin:
        """Return the origin with the label that all operations of this import share."""
        return replace(origin, label=self._label)

    def add_problem(self, problem: Problem) -> None:
        """Record a line that was not imported."""
        if problem.conflict:
            self.conflicts += 1
        else:
            self.skipped += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def add(self, batch: ImportReport) -> None:
        """Add the result of a batch."""
        self.added += batch.added
        self.unchanged += batch.unchanged
        self.counts += batch.counts
        self.operations += batch.operations
        for problem in batch.problems:
            self.add_problem(problem)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {
            "added": self.added,
            "unchanged": self.unchanged,
            "conflicts": self.conflicts,
            "skipped": self.skipped,
            "unreadable": self.unreadable,
            "complete": self.complete,
            "counts": dict(sorted(self.counts.items())),
            "problems": [problem.as_dict() for problem in self.problems],
            "operations": self.operations,
        }


@dataclass(slots=True)
class Meter:
    """Reports progress in bytes. Every file is read twice: to check it and to import it."""

    progress: Progress | None
    total: int
    done: int = 0

    def report(self, position: int) -> None:
        """Report the progress at a position in the current file."""
        if self.progress is not None:
            self.progress(min((self.done + position) // 2, self.total), self.total)

    def finish_file(self, file: Path) -> None:
        """Add the size of a file that was read, and report the progress."""
        self.done += file.stat().st_size
        self.report(0)


@contextlib.contextmanager
def copy_stream(stream: IO[bytes], name: str) -> Iterator[Path]:
    """Copy a stream that can be read only once to a temporary file."""
    with tempfile.TemporaryDirectory(prefix="commonplace-") as directory:
        file = Path(directory, name)
        try:
            with file.open("xb") as copy:
                shutil.copyfileobj(stream, copy)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            raise StorageFull(
                f"There is not enough disk space to import {name}.",
                hint="Free disk space, or set TMPDIR to a directory that has some.",
            ) from error
        yield file


def open_file(file: Path) -> IO[bytes]:
    """Open a file for reading; raise InvalidInput if that fails."""
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}.", field="path") from error


def decode_text(data: bytes) -> str:
    """Decode the content of a file: UTF-8, or UTF-16 with a byte order mark.

    Raise InvalidInput for anything else.
    """
    marked = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if marked else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"The file is not {'UTF-16' if marked else 'UTF-8'} at byte {error.start}.",
            hint="Convert or remove the file, and import again.",
            field="path",
        ) from None


def files_below(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    """Yield the regular files of a directory with one of these suffixes, except hidden files."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(parent, name)
            wanted = file.suffix.lower() in suffixes and not name.startswith(".")
            if wanted and file.is_file() and not file.is_symlink():
                yield file


def read_lines(stream: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Yield pairs of line number and line, including its line feed; only one line is in memory."""
    number = 0
    while line := stream.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise InvalidInput(
                f"{name}, line {number}: the line is longer than {LINE_BYTES:,} bytes."
            )
        yield number, line


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def json_object(line: bytes) -> dict[str, Any]:
    """Parse a line as a JSON object, or raise InvalidInput. A byte order mark is left out."""
    try:
        value = json.loads(line.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"The line is not UTF-8 at byte {error.start}.", hint="Convert the file to UTF-8."
        ) from None
    except json.JSONDecodeError as error:
        raise InvalidInput(f"The line is not JSON: {error.msg} at character {error.pos}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The line is not valid JSON: {str(error)[:80]}.") from None
    if not isinstance(value, dict):
        raise InvalidInput("The line is not a JSON object.")
    return value


class IncomingLine(Protocol):
    """The properties of a line that a batch needs."""

    where: str
    name: str
    status: str


L = TypeVar("L", bound=IncomingLine)


class CannotImport(Exception):
    """Raised for a line that cannot be imported; the other lines can."""

    def __init__(self, what: str, *, conflict: bool = True) -> None:
        super().__init__(what)
        self.what = what
        self.conflict = conflict


class NameTaken(CannotImport):
    """Raised if another object has the line's name, perhaps until a later line of the batch."""


class Importer(Generic[L]):
    """Writes checked lines in batches, each in one unit of work."""

    def __init__(
        self, space: OpenSpace, origin: Origin, trust_file: bool, report: ImportReport
    ) -> None:
        self._space = space
        self._origin = origin
        self._trust_file = trust_file
        self._report = report
        with space.store.read() as connection:
            self._forms = Forms(connection, space.name)

    def _apply(self, unit: Unit, line: L) -> bool:
        """Import a line; return whether it changed anything. Raise LeftOut if it cannot be
        imported.
        """
        raise NotImplementedError

    def _write(self, batch: Sequence[L]) -> None:
        outcome = ImportReport()
        with self._space.write(IMPORT, self._report.label(self._origin)) as unit:
            waiting = self._try_lines(unit, batch, outcome, last=False)
            self._try_lines(unit, waiting, outcome, last=True)
            if unit.changed:
                outcome.operations.append(unit.id)
        self._report.add(outcome)

    def _try_lines(
        self, unit: Unit, lines: Sequence[L], outcome: ImportReport, *, last: bool
    ) -> list[L]:
        """Apply lines; return those whose name is still taken, unless this is the last try."""
        waiting = []
        for line in lines:
            try:
                new = self._apply(unit, line)
            except CannotImport as left:
                if isinstance(left, NameTaken) and not last:
                    waiting.append(line)
                else:
                    outcome.problems.append(Problem(line.where, left.what, left.conflict))
            else:
                outcome.added += new
                outcome.unchanged += not new
                if new and line.status == "current":
                    outcome.counts[line.name] += 1
        return waiting
