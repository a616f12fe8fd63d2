"""Files that can only be read: on a disk that is mounted so, or without the right to write.

SQLite needs to write beside a file with a write-ahead log, even to read it. Where the disk itself
is read-only nobody can change the file, and it is opened as one that never changes; where only the
rights are missing, somebody else may write, and a copy made at the opening is read. So is a file
whose last writer died and left a log, since that may hold what was acknowledged.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import apsw

from commonplace.errors import StorageReadOnly, UnsupportedVersion
from commonplace.storage.database import Connection

_LOGS = ("", "-wal")


def writable(place: Path) -> bool:
    """Whether a file or directory can be written, by its disk and by its rights."""
    return os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def is_read_only(path: Path) -> bool:
    """Whether a file, which may be there or not, or its directory cannot be written."""
    return not writable(path.parent) or (path.exists() and not writable(path))


def refused(path: Path) -> StorageReadOnly:
    """What a write gets."""
    return StorageReadOnly(
        f"{path.parent} can only be read; nothing was stored.",
        hint="Mount its disk for writing or give yourself the right to write, or choose another"
        " directory with --data or COMMONPLACE_DATA.",
    )


def old(path: Path, version: int) -> UnsupportedVersion:
    """What a file gets whose tables would have to be brought up to date first."""
    return UnsupportedVersion(
        f"{path.name} has schema version {version} and can only be read.",
        hint="Open it once where it can be written, or restore a backup of it elsewhere.",
    )


class Sealed:
    """Opens connections to a file that cannot be written."""

    def __init__(self, path: Path) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._path = path
        log = path.with_name(path.name + "-wal")
        left = log.exists() and log.stat().st_size > 0
        if left or not _never_changes(path):
            self._folder = tempfile.TemporaryDirectory(prefix="commonplace-reading-")
            self._path = Path(self._folder.name) / path.name
            for suffix in _LOGS:
                if Path(f"{path}{suffix}").exists():
                    shutil.copyfile(f"{path}{suffix}", f"{self._path}{suffix}")

    def connect(self) -> Connection:
        """A connection that reads."""
        if self._folder is None:
            return Connection(
                f"{self._path.absolute().as_uri()}?immutable=1",
                flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )
        return Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)

    def close(self) -> None:
        """Remove the copy, if one was made."""
        if self._folder is not None:
            self._folder.cleanup()


def _never_changes(path: Path) -> bool:
    """Whether the disk is read-only, so that nobody can write while it is read."""
    if not hasattr(os, "statvfs"):
        return False
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
