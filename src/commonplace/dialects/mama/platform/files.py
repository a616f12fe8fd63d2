"""Small files of the platform: a record of the space each, and a copy for people below DATA/mama.

The record is the truth. A file that a person has edited is read in when it is asked for; one that
we have written never is: it may be older than the record, after a restore or beside a server on
another machine.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from commonplace.dialects.mama import RESERVED
from commonplace.dialects.mama.platform.failures import PlatformError
from commonplace.errors import InvalidInput
from commonplace.platform.exclusive import after_commit, exclusive
from commonplace.platform.records import Records
from commonplace.storage.directories import make_private, replacing

if TYPE_CHECKING:
    from commonplace.dialects.mama.platform.service import Service
    from commonplace.engine.commonplace import Commonplace

KIND = "mama_file"
MOST_BYTES = 500_000
COPIES = 20
"""How many of the copies that were written are known again."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)

log = logging.getLogger(__name__)
records = Records(RESERVED)


def put(path: Path, data: bytes) -> None:
    """Write a file atomically, readable by its owner only."""
    make_private(path.parent)
    with replacing(path) as stream:
        stream.write(data)


def write(memory: Commonplace, path: Path, data: bytes) -> None:
    """Put a copy in its place, whole and for its owner alone, once its record is stored.

    A copy without its record would be taken for what a person wrote.
    """

    after_commit(memory, lambda: _tried(path, lambda: put(path, data)))


def remove(memory: Commonplace, path: Path) -> None:
    """Delete a copy once its record is deleted."""
    after_commit(memory, lambda: _tried(path, lambda: path.unlink(missing_ok=True)))


def _tried(path: Path, act: Callable[[], None]) -> None:
    try:
        act()
    except OSError as error:  # the record is stored, and is what counts
        log.warning("a copy was not written", extra={"file": path.name, "why": str(error.errno)})


def read(path: Path, most: int = MOST_BYTES) -> bytes | None:
    """Read a regular file of limited size; None for anything else, also for a link."""
    try:
        with open_regular(path) as file:
            data = file.read(most + 1)
    except OSError:
        return None
    return data if len(data) <= most else None


class NotRegularError(OSError):
    """A pipe, a socket or a device, where a regular file is needed."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, without following a link; OSError for anything else."""

    def opened(name: str, flags: int) -> int:
        # A pipe must not block; a file that is replaced meanwhile must not be a link.
        return os.open(name, flags | _NO_LINK | getattr(os, "O_NONBLOCK", 0))

    file = open(path, "rb", opener=opened)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotRegularError
    return file


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A value that is stored as a record and copied to a file."""

    path: str
    """Below DATA/mama; also what the record goes by."""
    parse: Callable[[bytes], Any]
    """The value of a file; ValueError for one that cannot be read."""
    render: Callable[[Any], bytes]
    """The file of a value; empty to write none."""
    default: Any

    @property
    def ref(self) -> str:
        """The ref of the record."""
        return f"mama:{self.path}"

    def load(
        self, memory: Commonplace, running: Service, edited: Callable[[Any], Any] = lambda it: it
    ) -> Any:
        """The value; `edited` converts a file that a person changed to the value to store."""
        record = records.find(memory, self.ref, KIND)
        data = read(running.folder / self.path)
        if data is not None and (record is None or _digest(data) not in record.attrs["copies"]):
            try:
                self._store(memory, edited(self.parse(data)), _digest(data))
            except (ValueError, RecursionError, InvalidInput, PlatformError) as error:
                # What one file is wrong in must not fail every route that reads it.
                log.warning("a file was not read", extra={"file": self.path, "why": str(error)})
            else:
                return self.load(memory, running)
        return self.default if record is None else record.attrs["content"]

    def save(self, memory: Commonplace, running: Service, value: Any) -> None:
        """Store a new value, and write its copy."""
        data, before = self.render(value), read(running.folder / self.path)
        # Until its copy is written, the file that is there now must not be taken for newer.
        self._store(memory, value, *(_digest(each) for each in (before, data) if each is not None))
        if data:
            write(memory, running.folder / self.path, data)

    def delete(self, memory: Commonplace, running: Service) -> None:
        """Delete the record and its copy."""
        record = records.find(memory, self.ref, KIND)
        if record is not None:
            records.delete(memory, record)
        remove(memory, running.folder / self.path)

    def _store(self, memory: Commonplace, value: Any, *digests: str) -> None:
        with exclusive(memory, f"store {self.path}"):
            record = records.find(memory, self.ref, KIND)
            if record is None:
                attrs = {"content": value, "copies": list(digests)}
                records.add(memory, KIND, self.ref, self.path, attrs)
                return
            copies = [each for each in record.attrs["copies"] if each not in digests]
            copies += digests
            records.change(memory, record, content=value, copies=copies[-COPIES:])
