"""Read-only files: the disk is mounted read-only, or the permissions are missing.

SQLite creates files next to a database with a write-ahead log, even to read it. If the disk is
read-only, no process can change the file, and it is opened as immutable. If only permissions are
missing, another process may write, so a copy is read. A copy is also read if a killed process left
a log, because the log may contain committed writes.
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


def is_writable(place: Path) -> bool:
    """Return whether the disk and the permissions allow writes to a file or directory."""
    return os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def is_read_only(path: Path) -> bool:
    """Return whether a file, or its directory, is not writable."""
    return not is_writable(path.parent) or (path.exists() and not is_writable(path))


def write_refused_error(path: Path) -> StorageReadOnly:
    """Return the error for a write to a read-only directory."""
    return StorageReadOnly(
        f"{path.parent} is read-only; nothing was stored.",
        hint="Mount its disk for writing, change its permissions, or choose another directory with"
        " --data or COMMONPLACE_DATA.",
    )


def migration_refused_error(path: Path, version: int) -> UnsupportedVersion:
    """Return the error for a read-only file that needs a migration."""
    return UnsupportedVersion(
        f"{path.name} has schema version {version} and is read-only, so it cannot be migrated.",
        hint="Make it writable and open it once, or restore a backup of it elsewhere.",
    )


def connect_immutable(path: Path) -> Connection:
    """Open a file that no process changes, without creating other files next to it."""
    return Connection(
        f"{path.absolute().as_uri()}?immutable=1",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
    )


class ReadOnlyFile:
    """Opens connections to a file that is not writable."""

    def __init__(self, path: Path) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._path = path
        log = path.with_name(path.name + "-wal")
        left = log.exists() and log.stat().st_size > 0
        if left or not _is_on_read_only_disk(path):
            self._folder = tempfile.TemporaryDirectory(prefix="commonplace-reading-")
            self._path = Path(self._folder.name) / path.name
            for suffix in _LOGS:
                if Path(f"{path}{suffix}").exists():
                    shutil.copyfile(f"{path}{suffix}", f"{self._path}{suffix}")

    def connect(self) -> Connection:
        """Return a connection for reading."""
        if self._folder is None:
            return connect_immutable(self._path)
        return Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)

    def close(self) -> None:
        """Remove the copy, if one was made."""
        if self._folder is not None:
            self._folder.cleanup()


def _is_on_read_only_disk(path: Path) -> bool:
    """Return whether the disk is read-only, so that no process can write to it."""
    if not hasattr(os, "statvfs"):
        return False
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
