"""One at a time, over all processes of a machine: a lock that ends with who holds it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from commonplace.errors import CommonplaceError

_here: dict[str, threading.Lock] = {}
_guard = threading.Lock()


class Busy(CommonplaceError):
    """Another does it now."""

    code = "BUSY"


@contextlib.contextmanager
def turn(file: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold the turn that a file stands for; Busy if it is not had within some seconds."""
    until = time.monotonic() + seconds
    with _guard:
        lock = _here.setdefault(str(file), threading.Lock())
    if not lock.acquire(timeout=max(0.0, seconds)):
        raise Busy("Another does this now.", hint="Try again later.")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            while not _locked(descriptor):
                if time.monotonic() >= until:
                    raise Busy("Another process does this now.", hint="Try again later.")
                time.sleep(0.05)
            yield  # closing the file lets go of it
        finally:
            os.close(descriptor)
    finally:
        lock.release()


def _locked(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
