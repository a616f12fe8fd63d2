"""Loading the modules of a server faster."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
