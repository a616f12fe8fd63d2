"""How many requests each credential and each address may make."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

MOST_BUCKETS = 50_000


class Rates:
    """Token buckets: a burst, refilled at a steady rate. Used from one thread, the event loop."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, cost: float = 1.0) -> int:
        """Take from the bucket and return 0; or return the seconds to wait."""
        level, at = self._level(who)
        if level < cost:
            return max(1, math.ceil((cost - level) / self._rate))
        self._buckets[who] = (level - cost, at)
        self._buckets.move_to_end(who)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)  # the least recently used
        return 0

    def wait(self, who: str) -> int:
        """The seconds until one more is allowed, without taking it."""
        level, _ = self._level(who)
        return 0 if level >= 1 else max(1, math.ceil((1 - level) / self._rate))

    def _level(self, who: str) -> tuple[float, float]:
        now = self._clock()
        level, at = self._buckets.get(who, (self._burst, now))
        return min(self._burst, level + (now - at) * self._rate), now


@lru_cache(maxsize=1_000)
def block_of(address: str) -> str:
    """The unit of rate limits: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
