"""What time does to drawers: those that nobody reads matter less, and the least go out of sight.

Importance falls by the same share each day. As every change keeps a version of the drawer, it is
written once a week, for the days that have passed since; pruning archives, and destroys nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from commonplace.dialects.contract import Setting
from commonplace.dialects.orchestrator import drawers
from commonplace.dialects.orchestrator.workspaces import records
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Origin
from commonplace.errors import CommonplaceError, Conflict
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive

if TYPE_CHECKING:
    from commonplace.engine.model import Memory

DAILY = 0.98
FLOOR = 0.3
OLD_DAYS = 30
UNREAD_DAYS = 7
STEP_DAYS = 7
PRUNED_BELOW = 0.5
READ_OFTEN = 3
SPARED = 100
LOOK_SECONDS = 3_600.0
PAGE = 1_000
UPKEEP = Origin(client="commonplace", tool="palace_upkeep")
LAST = "palace:upkeep"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """What one day's round did."""

    decayed: int = 0
    pruned: int = 0


def decayed(importance: float, days: int) -> float:
    """An importance, counted to 5, that nobody cared for in so many days."""
    return max(min(importance, FLOOR), importance * DAILY**days)


def run(memory: Commonplace, now: datetime | None = None) -> Report:
    """One round, at most once a day for a space; the rest of the day it does nothing."""
    at = now or datetime.now(UTC)
    today = f"{at:%Y-%m-%d}"
    with exclusive(memory, "palace upkeep", UPKEEP):
        last = records.find(memory, LAST)
        if last is not None and last.attrs["day"] >= today:
            return Report()
        if last is None:
            records.add(memory, "palace_upkeep", LAST, "palace upkeep", {"day": today})
        else:
            memory.revise(last.id, attrs={"day": today})
    faded = _fade(memory, at)
    return Report(faded, _prune(memory))


def _fade(memory: Commonplace, at: datetime) -> int:
    changed = 0
    for drawer in list(lookup.every(memory, order="oldest", kinds=drawers.OWN)):
        days = _days_due(memory, drawer, at)
        before = drawer.importance * drawers.SCALE
        after = decayed(before, days)
        if days >= STEP_DAYS and after < before:
            with contextlib.suppress(Conflict):  # it was changed since, and fades another day
                memory.revise(
                    drawer.id,
                    importance=after / drawers.SCALE,
                    origin=UPKEEP,
                    expected_version=drawer.version,
                )
                changed += 1
    return changed


def _days_due(memory: Commonplace, drawer: Memory, at: datetime) -> int:
    """Days since which it fades and that are not yet counted."""
    read = memory.usage(drawer.id).last_access
    if read is not None and at - read < timedelta(days=UNREAD_DAYS):
        return 0
    begins = [drawer.created_at + timedelta(days=OLD_DAYS), drawer.updated_at]
    if read is not None:
        begins.append(read + timedelta(days=UNREAD_DAYS))
    return max(0, (at - max(begins)).days)


def _prune(memory: Commonplace) -> int:
    """Archive what matters least, but for the best of it."""
    faint = [
        drawer
        for drawer in list(lookup.every(memory, order="oldest", kinds=drawers.OWN))
        if drawer.importance * drawers.SCALE < PRUNED_BELOW
        and memory.usage(drawer.id).accesses < READ_OFTEN
    ]
    faint.sort(key=lambda drawer: (-drawer.importance, -drawer.num))
    gone = [drawer.id for drawer in faint[SPARED:]]
    for first in range(0, len(gone), PAGE):
        memory.forget(*gone[first : first + PAGE], origin=UPKEEP)
    return len(gone)


@contextlib.contextmanager
def running(setting: Setting) -> Iterator[None]:
    """Look now and then whether a space's round of the day is due."""
    stop = threading.Event()

    def tend() -> None:
        while not stop.wait(LOOK_SECONDS):
            names = setting.library.spaces() if setting.space is None else [setting.space]
            for name in names:
                if stop.is_set():
                    return
                try:
                    run(Commonplace(space=name, origin=UPKEEP, library=setting.library))
                except CommonplaceError as error:
                    log.warning("the palace's upkeep failed", extra={"why": error.message})

    thread = threading.Thread(target=tend, name="commonplace-palace", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=10)
