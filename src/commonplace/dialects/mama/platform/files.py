"""Small files of the platform: each is a record of the space with an editable copy below DATA/mama.

The record is authoritative. `.copies` stores the digest of each file that this machine last wrote
or read. A file with another digest was edited by a person; the next read imports it. A file that
has this digest but differs from the record (after a restore, or a change by a server on another
machine) is written again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from commonplace.dialects.mama import RESERVED
from commonplace.dialects.mama.platform.failures import PlatformError
from commonplace.errors import InvalidInput
from commonplace.platform.exclusive import after_commit, exclusive
from commonplace.platform.records import Records
from commonplace.storage.directories import make_private, replace_file
from commonplace.storage.locking import Busy, file_lock

if TYPE_CHECKING:
    from commonplace.dialects.mama.platform.service import Service
    from commonplace.engine.commonplace import Commonplace

KIND = "mama_file"
MOST_BYTES = 500_000
MAX_COPIES = 20
"""The maximum number of digests of former copies in a record, for a machine without its own."""
DIGEST_FOLDER = ".copies"
LOCK_SECONDS = 10.0
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)

log = logging.getLogger(__name__)
records = Records(RESERVED)


def write_private(path: Path, data: bytes) -> None:
    """Write a file atomically, readable by its owner only."""
    make_private(path.parent)
    with replace_file(path) as stream:
        stream.write(data)


def write_after_commit(memory: Commonplace, path: Path, data: bytes) -> None:
    """Write a copy atomically, readable by its owner only, after its record is committed.

    A copy without a record would look like an edit by a person.
    """
    after_commit(memory, lambda: _change_copy(path, lambda: write_private(path, data)))


def remove_after_commit(memory: Commonplace, path: Path) -> None:
    """Delete a copy after the deletion of its record is committed."""
    after_commit(memory, lambda: _change_copy(path, lambda: path.unlink(missing_ok=True)))


def _change_copy(path: Path, act: Callable[[], None]) -> None:
    """Write or delete a copy; only log an error."""
    try:
        act()
    except OSError as error:  # only the copy is missing; the record is authoritative
        log.warning("a copy was not written", extra={"file": path.name, "why": str(error.errno)})


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes | None:
    """Read a regular file of limited size; return None for anything else, such as a link."""
    try:
        with open_regular(path) as file:
            data = file.read(most + 1)
    except OSError:
        return None
    return data if len(data) <= most else None


class NotRegularError(OSError):
    """The path is a pipe, a socket or a device, but a regular file is needed."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file without following links; raise OSError for anything else."""

    def opened(name: str, flags: int) -> int:
        # Opening a pipe must not block, and a link must not be followed.
        return os.open(name, flags | _NO_LINK | getattr(os, "O_NONBLOCK", 0))

    file = open(path, "rb", opener=opened)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotRegularError
    return file


@contextlib.contextmanager
def _hold_lock(running: Service, *, make: bool = False) -> Iterator[None]:
    """Hold a lock during the block, so that a file and its digest are written together."""
    folder = running.folder / DIGEST_FOLDER
    if not make and not folder.exists():  # no file has been written yet
        yield
        return
    with contextlib.ExitStack() as stack:
        # If the lock fails (a read-only disk, or another process hangs), files are only read.
        with contextlib.suppress(OSError, Busy):
            stack.enter_context(file_lock(folder / "lock", LOCK_SECONDS))
        yield


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A value that is stored as a record and copied to a file."""

    path: str
    """The path below DATA/mama; it also names the record."""
    parse: Callable[[bytes], Any]
    """Parses the bytes of a file; ValueError if they are not valid."""
    render: Callable[[Any], bytes]
    """Renders a value as the bytes of a file; empty to write no file."""
    default: Any

    @property
    def ref(self) -> str:
        """The ref of the record."""
        return f"mama:{self.path}"

    def load(
        self, memory: Commonplace, running: Service, edited: Callable[[Any], Any] = lambda it: it
    ) -> Any:
        """Return the value; `edited` converts an edited file to the value to store."""
        # Read the file first, so that the record is never older than a file of this server.
        with _hold_lock(running):
            data, digests = read_regular(running.folder / self.path), self._stored_digests(running)
        record = records.find(memory, self.ref, KIND)
        copies: list[str] = [] if record is None else record.attrs["copies"]
        if data is not None and _digest(data) not in (copies if digests is None else digests):
            try:
                self._store_record(memory, edited(self.parse(data)), _digest(data))
            except (ValueError, RecursionError, InvalidInput, PlatformError) as error:
                # An invalid file must not break the routes that read it.
                log.warning("a file was not read", extra={"file": self.path, "why": str(error)})
            else:
                note = partial(self._store_digests, running, _digest(data))
                after_commit(memory, lambda: _change_copy(self._digest_file(running), note))
                record = records.find(memory, self.ref, KIND)
        elif record is not None and self._is_outdated(running, data, copies):
            self._write_copy(memory, running, self.render(record.attrs["content"]), data)
        return self.default if record is None else record.attrs["content"]

    def save(self, memory: Commonplace, running: Service, value: Any) -> None:
        """Store a new value, and write its copy."""
        data = self.render(value)
        self._store_record(memory, value, _digest(data))
        self._write_copy(memory, running, data, read_regular(running.folder / self.path))

    def delete(self, memory: Commonplace, running: Service) -> None:
        """Delete the record and its copy."""
        record = records.find(memory, self.ref, KIND)
        if record is not None:
            records.delete(memory, record)
        path, note = running.folder / self.path, self._digest_file(running)

        def act() -> None:
            with _hold_lock(running):
                path.unlink(missing_ok=True)
                note.unlink(missing_ok=True)

        after_commit(memory, lambda: _change_copy(path, act))

    def _is_outdated(self, running: Service, data: bytes | None, copies: list[str]) -> bool:
        """Return whether a file is missing, or is an older copy of the record."""
        if data is None:
            return not os.path.lexists(running.folder / self.path)
        return _digest(data) not in copies[-1:]

    def _write_copy(
        self, memory: Commonplace, running: Service, data: bytes, before: bytes | None
    ) -> None:
        """Write the copy after the record is committed.

        The digest is stored first, so that a crash between the two writes does not make a file look
        edited.
        """
        if not data or data == before:
            return
        path, new = running.folder / self.path, _digest(data)
        former = [] if before is None else [_digest(before)]

        def act() -> None:
            with _hold_lock(running, make=True):
                self._store_digests(running, *former, new)
                write_private(path, data)
                self._store_digests(running, new)

        after_commit(memory, lambda: _change_copy(path, act))

    def _store_digests(self, running: Service, *digests: str) -> None:
        write_private(self._digest_file(running), " ".join(digests).encode())

    def _stored_digests(self, running: Service) -> list[str] | None:
        """Return the digests of the file that this machine last wrote or read, or None."""
        data = read_regular(self._digest_file(running), most=10_000)
        return None if data is None else data.decode("ascii", "replace").split()

    def _digest_file(self, running: Service) -> Path:
        return running.folder / DIGEST_FOLDER / hashlib.sha256(self.path.encode()).hexdigest()[:32]

    def _store_record(self, memory: Commonplace, value: Any, digest: str) -> None:
        with exclusive(memory, f"store {self.path}"):
            record = records.find(memory, self.ref, KIND)
            if record is None:
                attrs = {"content": value, "copies": [digest]}
                records.add(memory, KIND, self.ref, self.path, attrs)
                return
            copies = [each for each in record.attrs["copies"] if each != digest]
            records.change(memory, record, content=value, copies=[*copies, digest][-MAX_COPIES:])
