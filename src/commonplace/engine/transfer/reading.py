"""Files that come in: read line by line, and what became of them."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from commonplace.engine.history.timeline import LABEL
from commonplace.engine.model import Origin
from commonplace.errors import NO_ROOM, InvalidInput, StorageFull
from commonplace.storage.database import new_id

BATCH = 500
BATCH_BYTES = 32 * 1024 * 1024
LINE_BYTES = 160 * 1024 * 1024
PROBLEMS = 100
UNTOUCHED = "Nothing was imported: correct the line, and import again."

Progress = Callable[[int, int], None]


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
    """The units of work; undoing one undoes all."""
    _label: str = field(default_factory=lambda: LABEL + new_id())

    def label(self, origin: Origin) -> Origin:
        """Who imports, with what the units of work of this import have in common."""
        return replace(origin, label=self._label)

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


@dataclass(slots=True)
class Meter:
    """Tells how many bytes of all files are done; each is read twice, and then done."""

    progress: Progress | None
    total: int
    done: int = 0

    def at(self, position: int) -> None:
        if self.progress is not None:
            self.progress(min((self.done + position) // 2, self.total), self.total)

    def passed(self, file: Path) -> None:
        self.done += file.stat().st_size
        self.at(0)


@contextlib.contextmanager
def spooled(stream: IO[bytes], name: str) -> Iterator[Path]:
    """What can be read only once, as a private file that is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="commonplace-") as directory:
        file = Path(directory, name)
        try:
            with file.open("xb") as copy:
                shutil.copyfileobj(stream, copy)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise StorageFull(
                f"There is no room to keep {name} while it is imported.",
                hint="Free disk space, or set TMPDIR to a place that has some.",
            ) from error
        yield file


def open_file(file: Path) -> IO[bytes]:
    """A file to read, or InvalidInput."""
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}.", field="path") from error


def read_lines(stream: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """(line number, line with its line feed), never more than one line in memory."""
    number = 0
    while line := stream.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise InvalidInput(f"{name}, line {number}: it is over {LINE_BYTES} bytes long.")
        yield number, line


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def json_object(line: bytes) -> dict[str, Any]:
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
