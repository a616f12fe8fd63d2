"""Libraries are loaded without the garbage collector, and not scanned by it afterwards."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, sys
from commonplace.platform.loading import import_modules
scans = []
gc.callbacks.append(lambda phase, info: scans.append(phase))
import_modules("commonplace.errors", "pydantic_ai")
assert "pydantic_ai" in sys.modules and gc.isenabled() and scans == []
frozen, left = gc.get_freeze_count(), len(gc.get_objects())
assert frozen > 50_000 > left, (frozen, left)
import_modules("pydantic_ai")
assert gc.get_freeze_count() == frozen
try:
    import_modules("no_such_library")
except ImportError:
    assert gc.isenabled()
"""


def test_what_a_library_makes_is_never_scanned() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
