"""Login sessions of the consent pages, and the limit on failed attempts."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from commonplace.access.credentials import SECOND, token_digest
from commonplace.access.oauth.rows import MacRows
from commonplace.storage import oauth as stored
from commonplace.storage.accounts import is_removed
from commonplace.storage.credentials import not_before
from commonplace.storage.database import now
from commonplace.storage.ports import Store

LOGIN_SECONDS = 600
LOCK_SECONDS = 30.0
LONGEST_LOCK_SECONDS = 900.0
FORGET_SECONDS = 3_600.0
MOST_KEYS = 50_000


class Logins:
    """Login sessions by the digest of their cookie. Methods block; threads may share an
    instance."""

    def __init__(self, store: Store, mac_rows: MacRows) -> None:
        self._store = store
        self._mac_rows = mac_rows

    def begin(self, user: str) -> str:
        """Begin a login session of ten minutes; return the value of its cookie."""
        cookie, at = secrets.token_urlsafe(32), now()
        with self._store.maintain() as rows:
            at = max(at, not_before(rows, owner=user, space=""))
            stored.delete_expired(rows, "oauth_logins", at)
            self._mac_rows.put(
                rows, "oauth_logins", digest=token_digest(cookie), owner=user, created_at=at,
                expires_at=at + LOGIN_SECONDS * SECOND,
            )  # fmt: skip
        return cookie

    def user_of(self, cookie: str) -> str | None:
        """Return the user of a login cookie, or None."""
        with self._store.read() as rows:
            row = self._mac_rows.get(rows, "oauth_logins", token_digest(cookie))
            if row is None or now() >= row["expires_at"]:
                return None
            user: str = row["owner"]
            ended = row["created_at"] < not_before(rows, owner=user, space="")
            return None if ended or is_removed(rows, user) else user

    def end(self, cookie: str) -> None:
        """End the login session of a cookie."""
        with self._store.maintain() as rows:
            stored.delete_login(rows, token_digest(cookie))


@dataclass(slots=True)
class _Attempts:
    tries: int = 0
    last: float = 0.0
    until: float = 0.0


class Lockout:
    """Counts failed logins by account, by address and by both, and locks for increasing times.

    An attempt is counted before its password is checked, so that parallel attempts are limited
    too; a successful one is taken off again. The limit by account alone is high, so that strangers
    cannot lock out a user easily. Use it on the event loop only.
    """

    FREE_ATTEMPTS = (("both", 5), ("address", 20), ("account", 100))

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: OrderedDict[tuple[str, str], _Attempts] = OrderedDict()

    def count_attempt(self, account: str, address: str) -> int:
        """Count an attempt and return 0; or return the seconds to wait."""
        at = self._clock()
        counts = [(self._attempts(key, at), free) for key, free in self._keys(account, address)]
        wait = max(count.until - at for count, _ in counts)
        if wait > 0:
            return int(wait) + 1
        for count, free in counts:
            count.tries += 1
            count.last = at
            if count.tries > free:
                lock = LOCK_SECONDS * 2.0 ** min(count.tries - free - 1, 10)
                count.until = at + min(lock, LONGEST_LOCK_SECONDS)
        return 0

    def record_success(self, account: str, address: str) -> None:
        """After a successful login, reset the count of this account at this address, and lower the
        counts of the account and of the address by one."""
        for (kind, name), _ in self._keys(account, address):
            if kind == "both":
                self._counts.pop((kind, name), None)
            else:
                count = self._counts.get((kind, name))
                if count is not None:
                    count.tries, count.until = max(0, count.tries - 1), 0.0

    def _keys(self, account: str, address: str) -> list[tuple[tuple[str, str], int]]:
        names = {"both": f"{address} {account}", "address": address, "account": account}
        return [((kind, names[kind]), free) for kind, free in self.FREE_ATTEMPTS]

    def _attempts(self, key: tuple[str, str], at: float) -> _Attempts:
        count = self._counts.get(key)
        if count is None or at - count.last > FORGET_SECONDS:
            count = self._counts[key] = _Attempts()
            if len(self._counts) > MOST_KEYS:
                self._counts.popitem(last=False)
        self._counts.move_to_end(key)
        return count
