"""Loading modules without stopping other threads for the garbage collector."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

_loading = threading.Lock()


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


def load(*modules: str) -> None:
    """Import modules, and exclude their objects from later collections.

    A full collection of a server with all libraries takes 170 ms, in which no thread runs.
    """
    with _loading:  # two threads that import parts of one package may see it half loaded
        missing = [name for name in modules if name not in sys.modules]
        if missing:
            with without_garbage_collection():
                for name in missing:
                    import_module(name)
                gc.freeze()  # before the collector is enabled: it would begin at once
