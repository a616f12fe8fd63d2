"""Audit entries for requests that `Door` refuses; many requests of unknown callers share an entry.

Each call of a known caller gets its own entry. Unknown callers can send thousands of requests: for
each address, path and reason, the first refusal in a second gets an entry, and one further entry
holds the number of the others in that second. A request without a valid token has its own entry,
too, until its address has sent so many that `Door` answers "too many requests".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from commonplace.access.caller import Caller
from commonplace.access.rates import network_of
from commonplace.dialects.contract import RequestInfo
from commonplace.dialects.rest import Rejected
from commonplace.errors import CommonplaceError
from commonplace.server.calls import Workers
from commonplace.server.gate import Gate

FLUSH_SECONDS = 1.0
# most combinations of address, path and reason within a second; further addresses are one
MOST_FLOODS = 100
SEVERAL = "several"

CalledTool = tuple[str, Mapping[str, Any]]
"""The name of an operation, and its arguments."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Flood:
    """A refusal, and the number of equal refusals after it."""

    request_info: RequestInfo
    error: CommonplaceError
    others: int = 0


class Refusals:
    """Writes the audit entries. Use it on the event loop only."""

    def __init__(self, gate: Gate, workers: Workers) -> None:
        self._gate = gate
        self._workers = workers
        self._floods: dict[tuple[str, str, str, str], _Flood] = {}

    async def audit(
        self,
        caller: Caller | None,
        request_info: RequestInfo,
        dialect: str,
        calls: Sequence[CalledTool],
        error: CommonplaceError,
    ) -> None:
        """Write an entry for each call, in the caller's space or in system.db."""
        for name, arguments in calls:
            try:
                await self._workers.run(
                    self._gate.refuse, caller, request_info, dialect, name, arguments, error
                )
            except CommonplaceError as failure:  # the call stays refused
                extra = {"call": name[:80], "why": failure.code}
                log.error("a refusal could not be audited", extra=extra)

    async def audit_unknown(
        self, request_info: RequestInfo, dialect: str, request: str, error: CommonplaceError
    ) -> None:
        """Write an entry at once, or count it for the entry at the end of the second.

        `request` must not contain text of the client: each distinct value gets an entry.
        """
        key = (network_of(request_info.address), dialect, request, error.code)
        if key not in self._floods and len(self._floods) >= MOST_FLOODS:
            key = (SEVERAL, *key[1:])
            request_info = replace(request_info, address=SEVERAL)
        flood = self._floods.get(key)
        if flood is not None:
            flood.others += 1
            return
        self._floods[key] = _Flood(request_info, error)
        await self.audit(None, request_info, dialect, [(request, {})], error)

    async def flush(self) -> None:
        """Write entries for the refusals counted since the last flush."""
        floods, self._floods = self._floods, {}
        for (_, dialect, name, _), flood in floods.items():
            if flood.others:
                calls = [(name, {"requests": flood.others})]
                message = (
                    f"{flood.others:,} more requests like the previous one. {flood.error.message}"
                )
                error = Rejected(429, flood.error.code, message)
                await self.audit(None, flood.request_info, dialect, calls, error)

    async def run(self) -> None:
        """Flush every second until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()
