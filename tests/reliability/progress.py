"""How far a long run is, for `tools/soak.py`, which prints it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")

_written = 0.0


def report_progress(done: float, total: float, what: str) -> None:
    """Write how much is done to the file that `SOAK_PROGRESS` names, at most once a second."""
    global _written
    file = os.environ.get("SOAK_PROGRESS")
    if file and time.monotonic() - _written > 1.0:
        _written = time.monotonic()
        Path(file).write_text(f"{done:,.0f} of {total:,.0f} {what}", encoding="utf-8")


def counted(items: Iterable[Item], total: int | Sized, what: str) -> Iterator[Item]:
    """The items, with progress reported for each."""
    most = total if isinstance(total, int) else len(total)
    for number, item in enumerate(items):
        report_progress(number, most, what)
        yield item
