"""A circuit breaker: after repeated failures, make no calls for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FAILURES_TO_OPEN = 5
SECONDS_OPEN = 30.0


class CircuitBreaker:
    """Opens after consecutive failures; after a while, one call is allowed as a probe."""

    def __init__(
        self,
        *,
        failures_to_open: int = FAILURES_TO_OPEN,
        seconds_open: float = SECONDS_OPEN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failures_to_open = failures_to_open
        self._seconds_open = seconds_open
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether calls are refused, except for the probe."""
        return self._opened_at is not None

    def seconds_until_probe(self) -> float | None:
        """Return None if a call may be made, otherwise the seconds to wait.

        After None, the caller must report the outcome with `record_success`, `record_failure` or
        `record_neither`. While another call is the probe, the result is 0.
        """
        with self._lock:
            if self._opened_at is None:
                return None
            left = self._opened_at + self._seconds_open - self._clock()
            if left > 0:
                return left
            if self._probing:
                return 0.0
            self._probing = True
            return None

    def record_success(self) -> None:
        with self._lock:
            self._failures, self._opened_at, self._probing = 0, None, False

    def record_failure(self) -> None:
        with self._lock:
            self._failures += 1
            if self._probing or self._failures >= self._failures_to_open:
                self._opened_at = self._clock()
            self._probing = False

    def record_neither(self) -> None:
        """Report a call that shows nothing about the service, such as one with a bad request."""
        with self._lock:
            self._probing = False
