"""When background work begins: after some seconds at the latest, or when calls pause."""

from __future__ import annotations

import math
import threading
import time


class Deadline:
    """The time at which a background thread begins its work; other threads set it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._latest = self._paused = math.inf

    def set(self, within: float, pause: float = math.inf) -> None:
        """Begin within some seconds, or sooner: when nobody has called this for `pause` seconds.

        Calls that follow each other closely then do not share the processor with that work.
        """
        now = time.monotonic()
        with self._changed:
            before = min(self._latest, self._paused)
            self._latest = min(self._latest, now + within)
            if pause < math.inf:
                self._paused = now + pause
            if min(self._latest, self._paused) < before:
                self._changed.notify()

    def wait(self) -> None:
        """Wait until the work is to begin, and clear the deadline."""
        with self._changed:
            while (left := min(self._latest, self._paused) - time.monotonic()) > 0:
                self._changed.wait(left if left < math.inf else None)
            self._latest = self._paused = math.inf
