"""File locks between processes; the system releases a lock when its process dies."""

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
# On Windows locked bytes cannot be read by others: lock one beyond the end of any file.
_LOCKED_BYTE = 1 << 30

_in_process: dict[str, threading.Lock] = {}
_guard = threading.Lock()


class Busy(CommonplaceError):
    """Another call or process holds the lock."""

    code = "BUSY"


class LockLost(Busy):
    """This process held the lock for too long without renewing it, and another one has it now."""


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if another descriptor holds the lock."""
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
    """Open, or create, and lock a file; None if another process holds the lock."""
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


@contextlib.contextmanager
def file_lock(file: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold a file's lock during the block; Busy if it is not free within some seconds."""
    until = time.monotonic() + seconds
    with _guard:
        lock = _in_process.setdefault(str(file), threading.Lock())
    if not lock.acquire(timeout=max(0.0, seconds)):
        raise Busy("Another call is doing this now.", hint="Try again later.")
    try:
        make_private(file.parent)
        while (descriptor := open_locked(file)) is None:
            if time.monotonic() >= until:
                raise Busy("Another process is doing this now.", hint="Try again later.")
            time.sleep(RETRY_SECONDS)
        try:
            yield
        finally:
            os.close(descriptor)
    finally:
        lock.release()
