"""Limits the requests of a space per minute, if the dialect's contract has such a limit."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from commonplace.access.caller import Caller
from commonplace.dialects.contract import RateLimit, TooManyCalls

MINUTE = 60
MOST_SPACES = 10_000


@dataclass(frozen=True, slots=True)
class RemainingRequests:
    """The requests that a space may still make in this minute."""

    limit: int
    remaining: int
    reset: int
    """The Unix second in which the next minute begins."""
    wait: int
    """Seconds to wait; 0 for an allowed request."""

    def headers(self) -> dict[str, str]:
        """Return the rate limit headers of a response."""
        headers = {
            "x-ratelimit-limit": str(self.limit),
            "x-ratelimit-remaining": str(self.remaining),
            "x-ratelimit-reset": str(self.reset),
        }
        return {**headers, "retry-after": str(self.wait)} if self.wait else headers

    @property
    def error(self) -> TooManyCalls | None:
        """Return the error of a request over the limit; None for an allowed request."""
        if not self.wait:
            return None
        message = f"More than {self.limit} requests in a minute; wait {self.wait} s."
        return TooManyCalls(message, limit=self.limit, wait=self.wait)


class Quota:
    """Counts requests by space and minute, MCP and REST together. Use it on the event loop only."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.time) -> None:
        self._limit = limit
        self._clock = clock
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def count_request(self, space: str) -> RemainingRequests:
        """Count one more request of this space, unless it has reached the limit."""
        now = self._clock()
        minute = int(now // MINUTE)
        reset = (minute + 1) * MINUTE
        began, count = self._counts.get(space, (minute, 0))
        if began != minute:
            count = 0
        if count >= self._limit:
            return RemainingRequests(self._limit, 0, reset, max(1, int(reset - now)))
        self._counts[space] = (minute, count + 1)
        self._counts.move_to_end(space)
        if len(self._counts) > MOST_SPACES:
            self._counts.popitem(last=False)
        return RemainingRequests(self._limit, self._limit - count - 1, reset, 0)

    def count_tool_call(self, caller: Caller) -> TooManyCalls | None:
        """Count one more tool call; return the error if it is over the limit."""
        return self.count_request(caller.space).error


def quota_of(declared: RateLimit | None, environ: Mapping[str, str]) -> Quota | None:
    """Return the quota set in the environment, or else the quota of the dialect."""
    if declared is None:
        return None
    given = environ.get(declared.variable, "")
    limit = int(given) if given.isdecimal() and 0 < int(given) < 10**9 else declared.per_minute
    return Quota(limit)
