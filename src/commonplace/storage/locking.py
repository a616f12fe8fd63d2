"""File locks between processes. The system releases a lock when its process dies."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from commonplace.errors import CommonplaceError
from commonplace.storage.directories import make_private

RETRY_SECONDS = 0.05
# On Windows, other processes cannot read a locked byte: lock a byte beyond the end of any file.
_LOCKED_BYTE = 1 << 30

_locks_in_process: dict[str, threading.Lock] = {}
_guard = threading.Lock()


class Busy(CommonplaceError):
    """Raised if another call or process holds the lock."""

    code = "BUSY"


class LockLost(Busy):
    """Raised if another process took the lock, because this process did not renew it in time."""


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; return False if another descriptor holds the lock."""
    try:
        try:
            import fcntl
        except ImportError:  # Windows
            import msvcrt

            at = os.lseek(descriptor, 0, os.SEEK_CUR)
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
            finally:
                os.lseek(descriptor, at, os.SEEK_SET)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def open_locked(file: Path) -> int | None:
    """Open or create a file and lock it; return None if another process holds the lock."""
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


@contextlib.contextmanager
def file_lock(file: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of a file during the block; raise Busy if it is not free in time."""
    until = time.monotonic() + seconds
    with _guard:
        lock = _locks_in_process.setdefault(str(file), threading.Lock())
    if not lock.acquire(timeout=max(0.0, seconds)):
        raise Busy("Another call is running the same task now.", hint="Try again later.")
    try:
        make_private(file.parent)
        while (descriptor := open_locked(file)) is None:
            if time.monotonic() >= until:
                raise Busy("Another process is running the same task now.", hint="Try again later.")
            time.sleep(RETRY_SECONDS)
        try:
            yield
        finally:
            os.close(descriptor)
    finally:
        lock.release()
