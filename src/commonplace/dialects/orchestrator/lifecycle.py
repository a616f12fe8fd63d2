"""Decay and prune drawers that nobody reads.

Importance falls by a constant factor each day. The new value is stored once a week, because every
change stores a version of the drawer. Pruning archives drawers and deletes none.
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

DAILY_FACTOR = 0.98  # the factor of the decay of a day
MIN_DECAYED_IMPORTANCE = 0.3  # decay does not lower the importance below this
OLD_DAYS = 30  # younger drawers do not decay
UNREAD_DAYS = 7  # drawers that were read since do not decay
STEP_DAYS = 7  # the decay of so many days is stored at once
PRUNED_BELOW = 0.5  # less important drawers are archived,
READ_OFTEN = 3  # unless they were read so often
SPARED_DRAWERS = 100  # the best of the drawers to archive, which stay
CHECK_SECONDS = 3_600.0  # how often spaces are checked for due upkeep
PAGE = 1_000
UPKEEP = Origin(client="commonplace", tool="palace_upkeep")
LAST_RUN_REF = "palace:upkeep"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of drawers that a daily run changed."""

    decayed: int = 0
    pruned: int = 0


def decayed_importance(importance: float, days: int) -> float:
    """Return the importance (0 to 5) after some days of decay."""
    return max(min(importance, MIN_DECAYED_IMPORTANCE), importance * DAILY_FACTOR**days)


def run_upkeep(memory: Commonplace, now: datetime | None = None) -> Report:
    """Decay and prune the drawers of a space, at most once a day."""
    at = now or datetime.now(UTC)
    today = f"{at:%Y-%m-%d}"
    with exclusive(memory, "palace upkeep", UPKEEP):
        last = records.find(memory, LAST_RUN_REF)
        if last is not None and last.attrs["day"] >= today:
            return Report()
        if last is None:
            records.add(memory, "palace_upkeep", LAST_RUN_REF, "palace upkeep", {"day": today})
        else:
            memory.revise(last.id, attrs={"day": today})
    faded = _decay_drawers(memory, at)
    return Report(faded, _prune_drawers(memory))


def _decay_drawers(memory: Commonplace, at: datetime) -> int:
    changed = 0
    for drawer in list(lookup.all_memories(memory, order="oldest", kinds=drawers.OWN_KINDS)):
        days = _unstored_decay_days(memory, drawer, at)
        before = drawer.importance * drawers.IMPORTANCE_SCALE
        after = decayed_importance(before, days)
        if days >= STEP_DAYS and after < before:
            with contextlib.suppress(Conflict):  # another caller has changed the drawer
                memory.revise(
                    drawer.id,
                    importance=after / drawers.IMPORTANCE_SCALE,
                    origin=UPKEEP,
                    expected_version=drawer.version,
                )
                changed += 1
    return changed


def _unstored_decay_days(memory: Commonplace, drawer: Memory, at: datetime) -> int:
    """Return the number of days whose decay is not stored yet."""
    read = memory.usage(drawer.id).last_access
    if read is not None and at - read < timedelta(days=UNREAD_DAYS):
        return 0
    begins = [drawer.created_at + timedelta(days=OLD_DAYS), drawer.updated_at]
    if read is not None:
        begins.append(read + timedelta(days=UNREAD_DAYS))
    return max(0, (at - max(begins)).days)


def _prune_drawers(memory: Commonplace) -> int:
    """Archive unimportant drawers that are rarely read, except for the best SPARED_DRAWERS of them.

    Pinned drawers stay.
    """
    faint = [
        drawer
        for drawer in list(lookup.all_memories(memory, order="oldest", kinds=drawers.OWN_KINDS))
        if not drawer.pinned
        and drawer.importance * drawers.IMPORTANCE_SCALE < PRUNED_BELOW
        and memory.usage(drawer.id).accesses < READ_OFTEN
    ]
    faint.sort(key=lambda drawer: (-drawer.importance, -drawer.num))
    gone = [drawer.id for drawer in faint[SPARED_DRAWERS:]]
    for first in range(0, len(gone), PAGE):
        memory.forget(*gone[first : first + PAGE], origin=UPKEEP)
    return len(gone)


@contextlib.contextmanager
def background_upkeep(setting: Setting) -> Iterator[None]:
    """Run the daily decay and pruning of all spaces in the background."""
    stop = threading.Event()

    def upkeep() -> None:
        while not stop.wait(CHECK_SECONDS):
            names = setting.library.spaces() if setting.space is None else [setting.space]
            for name in names:
                if stop.is_set():
                    return
                try:
                    run_upkeep(Commonplace(space=name, origin=UPKEEP, library=setting.library))
                except CommonplaceError as error:
                    log.warning("the palace's upkeep failed", extra={"why": error.message})

    thread = threading.Thread(target=upkeep, name="commonplace-palace", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=10)
