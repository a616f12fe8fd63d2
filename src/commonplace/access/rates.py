"""Rate limits for credentials and addresses."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

MOST_BUCKETS = 50_000


class RateLimiter:
    """Token buckets: a burst, refilled at a steady rate. Use them on the event loop only."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, cost: float = 1.0) -> int:
        """Take from the bucket and return 0, or return the seconds to wait."""
        level, at = self._level(who)
        if level < cost:
            return max(1, math.ceil((cost - level) / self._rate))
        self._buckets[who] = (level - cost, at)
        self._buckets.move_to_end(who)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)  # remove the least recently used bucket
        return 0

    def seconds_to_wait(self, who: str) -> int:
        """Return the seconds until one more request is allowed, without taking from the bucket."""
        level, _ = self._level(who)
        return 0 if level >= 1 else max(1, math.ceil((1 - level) / self._rate))

    def _level(self, who: str) -> tuple[float, float]:
        now = self._clock()
        level, at = self._buckets.get(who, (self._burst, now))
        return min(self._burst, level + (now - at) * self._rate), now


@lru_cache(maxsize=1_000)
def network_of(address: str) -> str:
    """Return the network that shares a rate limit: an IPv4 address, or the /64 of an IPv6
    address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
