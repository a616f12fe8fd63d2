"""How many requests a tenant may make: so many a minute, and headers that say how many are left."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from commonplace.access.caller import Caller
from commonplace.dialects.contract import TooManyCalls

A_MINUTE = 250
MINUTE = 60
MOST_TENANTS = 10_000
SETTING = "COMMONPLACE_PENFIELD_RATE"


@dataclass(frozen=True, slots=True)
class Left:
    """Where a tenant stands in its minute."""

    limit: int
    remaining: int
    reset: int
    """The second, as Unix counts, in which the next minute begins."""
    wait: int
    """Seconds to wait; 0 for a request that may pass."""

    def headers(self) -> dict[str, str]:
        """As every answer tells it."""
        told = {
            "x-ratelimit-limit": str(self.limit),
            "x-ratelimit-remaining": str(self.remaining),
            "x-ratelimit-reset": str(self.reset),
        }
        return {**told, "retry-after": str(self.wait)} if self.wait else told

    @property
    def message(self) -> str:
        """What somebody is told who has to wait."""
        return f"More than {self.limit} requests in a minute; wait {self.wait} s."


class Minutes:
    """Counts by tenant and minute. Used from one thread, the event loop."""

    def __init__(self, limit: int = A_MINUTE, clock: Callable[[], float] = time.time) -> None:
        self._limit = limit
        self._clock = clock
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def take(self, tenant: str) -> Left:
        """One request more of this tenant, unless its minute is used up."""
        now = self._clock()
        minute = int(now // MINUTE)
        reset = (minute + 1) * MINUTE
        began, count = self._counts.get(tenant, (minute, 0))
        if began != minute:
            count = 0
        if count >= self._limit:
            return Left(self._limit, 0, reset, max(1, int(reset - now)))
        self._counts[tenant] = (minute, count + 1)
        self._counts.move_to_end(tenant)
        if len(self._counts) > MOST_TENANTS:
            self._counts.popitem(last=False)
        return Left(self._limit, self._limit - count - 1, reset, 0)

    def refusal(self, caller: Caller) -> TooManyCalls | None:
        """One call of a tool more; why it has to wait, if it has to."""
        left = self.take(caller.space)
        return TooManyCalls(left.message) if left.wait else None


def minutes_of(environ: Mapping[str, str]) -> Minutes:
    """The counts of one server, for its tools and for REST together."""
    return Minutes(limit_of(environ))


def limit_of(environ: Mapping[str, str]) -> int:
    """What an operator has set, or the default."""
    said = environ.get(SETTING, "")
    return int(said) if said.isdecimal() and 0 < int(said) < 10**9 else A_MINUTE
