"""The device grant (RFC 8628): a device shows a short code, which a person enters in a browser.

The device polls with its own long code. Its polling interval is held in memory, so that polling
does not write to the database.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from commonplace.access.credentials import SECOND, token_digest
from commonplace.access.oauth.errors import OAuthError, invalid_grant
from commonplace.access.oauth.families import (
    ENDED_SECONDS,
    Consent,
    Families,
    IssuedTokens,
    other_resource_error,
)
from commonplace.access.oauth.rows import MacRows, Row
from commonplace.storage import oauth as stored
from commonplace.storage.database import now
from commonplace.storage.ports import Rows, Store

DEVICE_SECONDS = 900
POLL_SECONDS = 5
SLOW_DOWN_SECONDS = 5
POLL_LEEWAY = 0.5
"""How much earlier than its interval a device may poll, since network delays vary."""
MOST_PENDING = 1_000
CODE_ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
"""The letters of user codes: no vowels, so that no code is a word (RFC 8628, section 6.1)."""
CODE_LENGTH = 8

_REFUSED = "The device code is not valid, or has been used."


class StillPending(OAuthError):
    """The person has not decided yet; the device should poll again."""


@dataclass(frozen=True, slots=True)
class DeviceCodes:
    """The codes of a new device request; only their digests are stored."""

    device_code: str = field(repr=False)
    user_code: str

    def body(self, page: str) -> dict[str, Any]:
        """Return the response body of RFC 8628; `page` is the URL where the person enters the
        code."""
        return {
            "device_code": self.device_code,
            "user_code": self.user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={self.user_code}",
            "expires_in": DEVICE_SECONDS,
            "interval": POLL_SECONDS,
        }


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """The request of a waiting device."""

    client: str
    resource: str
    scopes: tuple[str, ...]


def normalise_user_code(typed: str) -> str:
    """Return a typed user code in the form XXXX-XXXX; empty if it is not valid."""
    letters = "".join(sign for sign in typed.upper() if sign in CODE_ALPHABET)
    others = {sign for sign in typed.upper() if sign not in CODE_ALPHABET} - {" ", "-"}
    return f"{letters[:4]}-{letters[4:]}" if len(letters) == CODE_LENGTH and not others else ""


class Devices:
    """The pending device requests of a data directory. Methods block; threads may share an
    instance."""

    def __init__(
        self,
        store: Store,
        mac_rows: MacRows,
        families: Families,
        *,
        most: int = MOST_PENDING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._mac_rows = mac_rows
        self._families = families
        self._most = most
        self._pace = _PollingPace(most, clock)

    def begin(self, device: DeviceRequest) -> DeviceCodes:
        """Begin a device request."""
        at = now()
        with self._store.maintain() as rows:
            old = at - ENDED_SECONDS * SECOND
            stored.delete_expired(rows, "oauth_devices", old)
            self._check_room(rows, at)
            started = DeviceCodes(f"cpd_{secrets.token_urlsafe(32)}", self._unused_code(rows))
            self._mac_rows.put(
                rows, "oauth_devices", digest=token_digest(started.device_code),
                code=token_digest(started.user_code), client=device.client,
                resource=device.resource, scopes=json.dumps(device.scopes), answer="", family="",
                created_at=at, expires_at=at + DEVICE_SECONDS * SECOND,
            )  # fmt: skip
        return started

    def _check_room(self, rows: Rows, at: int) -> None:
        if stored.count_waiting_devices(rows, at) >= self._most:
            raise OAuthError(
                "temporarily_unavailable",
                "Too many devices are waiting to be allowed; try again later.",
                status=503,
                retry_after=DEVICE_SECONDS,
            )

    def _unused_code(self, rows: Rows) -> str:
        while True:
            code = normalise_user_code(
                "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))
            )
            if stored.device_of_code(rows, token_digest(code)) is None:
                return code

    # The person's decision

    def find(self, user_code: str) -> DeviceRequest | None:
        """Return the pending device request of a user code."""
        with self._store.read() as rows:
            row = self._pending_row(rows, user_code)
        if row is None:
            return None
        return DeviceRequest(row["client"], row["resource"], tuple(json.loads(row["scopes"])))

    def allow(self, user_code: str, allowed: Consent) -> bool:
        """Allow a device request; return False if it is no longer pending."""
        with self._store.maintain() as rows:
            row = self._pending_row(rows, user_code)
            if row is None:
                return False
            family = self._families.begin_in_transaction(rows, allowed, row["expires_at"])
            self._mac_rows.put(rows, "oauth_devices", row, answer="allowed", family=family)
        return True

    def deny(self, user_code: str) -> bool:
        """Deny a device request; return False if it is no longer pending."""
        with self._store.maintain() as rows:
            row = self._pending_row(rows, user_code)
            if row is not None:
                self._mac_rows.put(rows, "oauth_devices", row, answer="denied")
        return row is not None

    def _pending_row(self, rows: Rows, user_code: str) -> Row | None:
        key = stored.device_of_code(rows, token_digest(user_code))
        row = None if key is None else self._mac_rows.get(rows, "oauth_devices", key)
        return row if row and not row["answer"] and now() < row["expires_at"] else None

    # Polling

    def redeem(self, device_code: str, *, client: str, resource: str | None) -> IssuedTokens:
        """Return the tokens once a person has allowed the request; until then raise
        StillPending."""
        digest = token_digest(device_code)
        with self._store.read() as rows:
            row = self._mac_rows.get(rows, "oauth_devices", digest)
        if row is None or row["client"] != client:
            raise invalid_grant(_REFUSED)
        if resource is not None and resource != row["resource"]:
            raise other_resource_error()
        ended = now() >= row["expires_at"]
        if row["answer"] == "denied":
            raise OAuthError("access_denied", "The user denied the request.")
        if ended and row["answer"] != "used":
            raise OAuthError("expired_token", "The request has expired: start again.")
        if not row["answer"]:
            wait = self._pace.seconds_too_early(digest)
            if wait:
                raise StillPending("slow_down", f"Wait {wait} seconds between requests.")
            raise StillPending("authorization_pending", "The person has not decided yet.")
        try:
            return self._families.issue_in_transaction(self._issue_first_tokens, digest)
        finally:
            self._pace.forget(digest)

    def _issue_first_tokens(self, rows: Rows, digest: bytes) -> IssuedTokens | OAuthError:
        row = self._mac_rows.get(rows, "oauth_devices", digest)
        if row is None:
            return invalid_grant(_REFUSED)
        if row["answer"] == "used":  # a second use shows that the code was copied
            self._families.revoke_in_transaction(rows, row["family"])
            return invalid_grant(_REFUSED)
        self._mac_rows.put(rows, "oauth_devices", row, answer="used")
        return self._families.issue_first_in_transaction(rows, row["family"])


class _PollingPace:
    """The time of each device's last poll, and its polling interval."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._asked: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def seconds_too_early(self, digest: bytes) -> int:
        """Return 0 if the device has waited long enough, or else its new interval in seconds."""
        with self._lock:
            at = self._clock()
            last, pause = self._asked.get(digest, (None, POLL_SECONDS))
            early = last is not None and at - last < pause - POLL_LEEWAY
            pause += SLOW_DOWN_SECONDS if early else 0
            self._asked[digest] = (at, pause)
            self._asked.move_to_end(digest)
            if len(self._asked) > self._most:
                self._asked.popitem(last=False)
            return pause if early else 0

    def forget(self, digest: bytes) -> None:
        """Forget the polling state of a device."""
        with self._lock:
            self._asked.pop(digest, None)
