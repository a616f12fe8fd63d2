"""Loads modules, and sets up the garbage collector and the thread switch interval of a server."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

# While another thread computes, a call waits that long each time it needs the interpreter. It needs
# it some twenty times, and Python's default is 5 ms.
SWITCH_SECONDS = 0.001

_loading = threading.Lock()


def prepare_for_calls() -> None:
    """Keep other threads and the garbage collector from delaying calls of this server."""
    gc.freeze()  # what is loaded stays; to scan it would stop all threads for 50 ms
    sys.setswitchinterval(SWITCH_SECONDS)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector in the block: its scans take a tenth of the loading time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def import_modules(*modules: str) -> None:
    """Import modules, and exclude their objects from later collections.

    A full collection with all libraries loaded takes 170 ms, during which no thread runs.
    """
    with _loading:  # two threads that import from one package may see it half loaded
        missing = [name for name in modules if name not in sys.modules]
        if missing:
            with without_garbage_collection():
                for name in missing:
                    import_module(name)
                gc.freeze()  # freeze before the collector is enabled, since it would run at once
