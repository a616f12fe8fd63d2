"""The ballast: a file of 4 MB beside a database, given up step by step when the disk is full.

The server writes an audit entry for every call, reads included, so a full disk would end reading
too. Work that must go on then (`Store.with_reserve`) shrinks the ballast by a step and tries again.
All other writes need the whole ballast: it is filled up first, and where there is no room for that,
they are refused. The size of the file is the whole state, so that processes agree on it.

`with_reserve` makes the file. A directory that only the library or the command line uses has none,
and a write there may use the last byte. A backup does not copy it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from commonplace.errors import NO_ROOM

BYTES = 4 * 1024 * 1024
STEP = 512 * 1024  # an audit entry and the pages of the log that it takes fit several times
SUFFIX = "-ballast"


class Ballast:
    """The ballast of one database. Threads and processes may use it at the same time."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + SUFFIX)

    def size(self) -> int | None:
        """Its size in bytes; None if there is no file."""
        try:
            return self._path.stat().st_size
        except OSError:
            return None

    def is_whole(self) -> bool:
        """Whether it has its full size, after filling it up if needed; also if there is no file."""
        size = self.size()
        return size is None or size >= BYTES or self.fill()

    def fill(self) -> bool:
        """Make it, or fill it up as far as there is room; False if the disk is too full for that.

        Where there can be none for another reason, the file is removed.
        """
        try:
            found = self.size()
            size = found or 0
            if size >= BYTES:
                return True
            # A new file must not fill the disk itself.
            if self._free() < (2 * BYTES if found is None else min(STEP, BYTES - size)):
                return False
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                while size < BYTES:
                    _extend(descriptor, size, min(STEP, BYTES - size))
                    size = min(size + STEP, BYTES)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in NO_ROOM:
                return False
            with contextlib.suppress(OSError):
                self._path.unlink()
        return True

    def give_up_step(self) -> bool:
        """Shrink it by a step; False if nothing was left."""
        size = self.size()
        if not size:
            return False
        try:
            os.truncate(self._path, max(0, size - STEP))
        except OSError:  # some file systems need free space to truncate; delete the file instead
            with contextlib.suppress(OSError):
                self._path.unlink()
        return True

    def _free(self) -> int:
        """The free bytes of the file system."""
        if not hasattr(os, "statvfs"):
            return 2 * BYTES  # Windows: writing will fail if there is no space
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize


def _extend(descriptor: int, size: int, more: int) -> None:
    """Allocate bytes on disk; on failure the file keeps its size."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, size, more)
            if os.fstat(descriptor).st_blocks * 512 >= size + more:
                return
        # Not allocated, as on compressing file systems: write incompressible bytes.
        os.lseek(descriptor, size, os.SEEK_SET)
        written = 0
        data = os.urandom(more)
        while written < more:
            written += os.write(descriptor, data[written:])
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
