"""Sign-in by password, with a rate limit, a lock after too many attempts, and audit entries."""

from __future__ import annotations

import contextlib
import json
import logging
import time
import unicodedata
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar

from anyio import CancelScope, CapacityLimiter, to_thread

from commonplace.access.accounts import Account, Accounts
from commonplace.access.caller import request_id
from commonplace.access.oauth.devices import StillPending
from commonplace.access.oauth.errors import OAuthError, slow_down
from commonplace.access.oauth.logins import Lockout
from commonplace.access.rates import RateLimiter, network_of
from commonplace.engine.history import audit
from commonplace.errors import CommonplaceError
from commonplace.storage.ports import Store

T = TypeVar("T")
THREADS = 8
LOGIN_THREADS = 4
RATES = {  # requests per second and burst, for one address or, with "all", for all addresses
    "page": (1.0, 120), "token": (2.0, 240), "register": (20 / 3_600, 20),
    "all register": (200 / 3_600, 200), "device": (20 / 3_600, 20),
    "all device": (200 / 3_600, 200), "code": (1 / 30, 20), "all code": (1.0, 300),
    "lookup": (0.1, 10), "all lookup": (0.5, 60),
}  # fmt: skip

log = logging.getLogger(__name__)


class SignIn:
    """The sign-in of the console and of OAuth: password check, rate limits and audit.

    It needs no issuer, so that it also works on a server without HTTPS.
    """

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts
        self.lockout = Lockout()
        self._workers = CapacityLimiter(THREADS)
        self._login_workers = CapacityLimiter(LOGIN_THREADS)
        self.rates = {name: RateLimiter(rate, burst) for name, (rate, burst) in RATES.items()}

    def check_rate(self, what: str, address: str, page: str = "") -> None:
        """Count a request against the rate limits of RATES; raise OAuthError if one is exceeded."""
        for name, who in ((what, f"{page} {network_of(address)}"), (f"all {what}", "")):
            wait = self.rates[name].take(who) if name in self.rates else 0
            if wait:
                raise slow_down(wait)

    async def verify(self, name: str, password: str, address: str) -> Account | None:
        """Return the account if the password is right; raise OAuthError after too many attempts."""
        account = unicodedata.normalize("NFC", name[:200])
        async with self.audit_entry("log in", user=account, address=address) as failed:
            wait = self.lockout.count_attempt(account, network_of(address))
            if wait:
                log.warning("login locked", extra={"address": address})
                raise slow_down(wait)
            found: Account | None = await to_thread.run_sync(
                partial(self._accounts.verify, name, password), limiter=self._login_workers
            )
            if found is None:
                log.warning("login failed", extra={"address": address})
                failed("wrong name or password")
                return None
            self.lockout.record_success(account, network_of(address))
            return found

    @contextlib.asynccontextmanager
    async def audit_entry(
        self, what: str, *, user: str = "", client: str = "", address: str = "", **details: Any
    ) -> AsyncIterator[Callable[[str], None]]:
        """Write an audit entry for the block, with the action and its error, and without secrets.

        The block may also set the failure itself. Polling by a pending device is not audited.
        """
        begun, wrong, decided = time.monotonic(), list[str](), True
        try:
            yield wrong.append
        except StillPending:
            decided = False
            raise
        except OAuthError as refused:
            wrong.append(f"{refused.error}: {refused.message}")
            raise
        except Exception as failure:
            code = failure.code if isinstance(failure, CommonplaceError) else "INTERNAL_ERROR"
            wrong[:] = wrong or [code]
            raise
        finally:
            entry = audit.Entry(
                request=request_id.get(), dialect="oauth", tool=what, caller=_printable_line(user),
                client=_printable_line(client), address=address[:200], success=not wrong,
                error="".join(wrong)[:1000], result="{}",
                arguments=json.dumps(details, ensure_ascii=False, separators=(",", ":")),
                milliseconds=int((time.monotonic() - begun) * 1000),
            )  # fmt: skip
            if decided:
                with CancelScope(shield=True):
                    await self.run_in_thread(audit.append, self._store, entry)

    async def run_in_thread(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run a blocking call in a worker thread."""
        return await to_thread.run_sync(partial(call, *arguments, **named), limiter=self._workers)


def _printable_line(text: str) -> str:
    """Return a name as one printable line."""
    return ascii(text[:200])[1:-1]
