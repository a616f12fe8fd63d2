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
from typing import TYPE_CHECKING, Any

from commonplace.dialects.mama import RESERVED
from commonplace.platform.exclusive import exclusive
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


def write(path: Path, data: bytes) -> None:
    """Write a file atomically, readable by its owner only."""
    make_private(path.parent)
    with replacing(path) as stream:
        stream.write(data)


def read(path: Path, most: int = MOST_BYTES) -> bytes | None:
    """Read a regular file of limited size; None for anything else, also for a link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(most + 1)
    return data if len(data) <= most else None


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
                value = self.parse(data)
            except ValueError as error:
                log.warning("a file was not read", extra={"file": self.path, "why": str(error)})
            else:
                self._store(memory, edited(value), _digest(data))
                return self.load(memory, running)
        return self.default if record is None else record.attrs["content"]

    def save(self, memory: Commonplace, running: Service, value: Any) -> None:
        """Store a new value, and write its copy."""
        data = self.render(value)
        self._store(memory, value, _digest(data))
        if data:
            write(running.folder / self.path, data)

    def delete(self, memory: Commonplace, running: Service) -> None:
        """Delete the record and its copy."""
        record = records.find(memory, self.ref, KIND)
        if record is not None:
            records.delete(memory, record)
        (running.folder / self.path).unlink(missing_ok=True)

    def _store(self, memory: Commonplace, value: Any, digest: str) -> None:
        with exclusive(memory, f"store {self.path}"):
            record = records.find(memory, self.ref, KIND)
            if record is None:
                attrs = {"content": value, "copies": [digest]}
                records.add(memory, KIND, self.ref, self.path, attrs)
                return
            copies = [*(each for each in record.attrs["copies"] if each != digest), digest]
            records.change(memory, record, content=value, copies=copies[-COPIES:])
