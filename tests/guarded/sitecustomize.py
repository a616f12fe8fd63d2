"""Loaded by the processes that tests start: a database on the event loop ends them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import loop_guard

loop_guard.watch(ends=True)
sys.path.pop(0)
