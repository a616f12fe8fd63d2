"""OAuth families: a family is one consent with its code, refresh tokens and access tokens.

A code can be used once. A used refresh token is accepted again for REPEAT_SECONDS, since some
clients refresh several times in parallel; using one ends the other unused ones. A later use shows
that a token was copied, so the whole family is revoked. Access tokens are stored as credentials
with the id of their family.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from commonplace.access.credentials import (
    SECOND,
    Credentials,
    Grant,
    Unauthenticated,
    is_repeatable,
    time_not_repeatable,
    token_digest,
)
from commonplace.access.declarations import OFFLINE_ACCESS
from commonplace.access.oauth.clients import Client, Clients
from commonplace.access.oauth.errors import OAuthError, invalid_grant, invalid_request
from commonplace.access.oauth.resources import Audience, Resources
from commonplace.access.oauth.rows import MacRows
from commonplace.errors import InvalidInput, NotFound
from commonplace.storage import credentials as stored_credentials
from commonplace.storage import oauth as stored
from commonplace.storage.credentials import not_before
from commonplace.storage.database import now
from commonplace.storage.ports import Rows, Store

CODE_SECONDS = 60
REFRESH_SECONDS = 30 * 86_400
ENDED_SECONDS = 86_400
"""How long an ended family is stored, so that a second use of its code is detected."""

_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_CODE_REFUSED = "The code is not valid, has been used, or has expired."
_REFRESH_REFUSED = "The refresh token is not valid, has been used, or has expired."


def is_challenge(text: str) -> bool:
    """Return whether a text is a well-formed S256 challenge."""
    return _CHALLENGE.fullmatch(text) is not None


def challenge_of(verifier: str) -> str:
    """Return the S256 challenge of a verifier (RFC 7636)."""
    sum_ = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(sum_).decode().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """The rights that a person gave a client on the consent page."""

    client: Client
    user: str
    space: str
    subject: str
    audience: Audience
    scopes: tuple[str, ...]
    """OAuth scope names, with `offline_access` if it was requested."""
    redirect: str = ""
    challenge: str = ""
    """The redirect URI and the PKCE challenge; empty for a device."""


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """A new access token, and a refresh token if the family may have one."""

    access: str = field(repr=False)
    refresh: str | None = field(repr=False)
    scopes: tuple[str, ...]
    seconds: int
    """The lifetime of the access token in seconds."""

    def body(self) -> dict[str, Any]:
        """Return the response of RFC 6749."""
        body: dict[str, Any] = {
            "access_token": self.access,
            "token_type": "Bearer",
            "expires_in": self.seconds,
            "scope": " ".join(self.scopes),
        }
        if self.refresh is not None:
            body["refresh_token"] = self.refresh
        return body


@dataclass(frozen=True, slots=True)
class Family:
    """A consent with its tokens; times are UTC microseconds."""

    id: str
    client: str
    client_name: str
    user: str
    space: str
    being: str
    resource: str
    scopes: tuple[str, ...]
    refreshable: bool
    credential: str
    """The id of the newest access token."""
    created_at: int
    expires_at: int
    revoked_at: int | None


class Families:
    """The OAuth families of a data directory. Methods block; threads may share an instance."""

    def __init__(
        self,
        store: Store,
        mac_rows: MacRows,
        credentials: Credentials,
        clients: Clients,
        resources: Resources,
    ) -> None:
        self._store = store
        self._mac_rows = mac_rows
        self._credentials = credentials
        self._clients = clients
        self._resources = resources

    # Authorization codes

    def begin(self, allowed: Consent) -> str:
        """Begin a family, commit it, and return its code."""
        at, code = now(), f"cpc_{secrets.token_urlsafe(32)}"
        with self._store.maintain() as rows:
            family = self.begin_in_transaction(rows, allowed, at + CODE_SECONDS * SECOND)
            self._mac_rows.put(
                rows, "oauth_codes", digest=token_digest(code), family=family,
                redirect=allowed.redirect, challenge=allowed.challenge,
                expires_at=at + CODE_SECONDS * SECOND, used_at=None,
            )  # fmt: skip
        return code

    def begin_in_transaction(self, rows: Rows, allowed: Consent, until: int) -> str:
        """Begin a family without tokens; return its id. The family expires unless tokens are
        issued."""
        at, family = now(), str(uuid.uuid4())
        self._prune(rows, at)
        resource = allowed.audience.resource
        refreshable = allowed.client.may_refresh and resource.gives_refresh_token(allowed.scopes)
        created = max(at, not_before(rows, owner=allowed.user, space=allowed.space))
        self._mac_rows.put(
            rows, "oauth_families", id=family, client=allowed.client.id,
            client_name=allowed.client.name, owner=allowed.user, space=allowed.space,
            being=allowed.subject, resource=allowed.audience.url,
            scopes=json.dumps(allowed.scopes), refreshable=int(refreshable), credential="",
            created_at=created, expires_at=until, revoked_at=None,
        )  # fmt: skip
        self._clients.record_use(rows, allowed.client.id)
        return family

    def redeem(
        self, code: str, *, client: str, redirect: str, verifier: str, resource: str | None
    ) -> IssuedTokens:
        """Exchange a code for tokens. A refused attempt also uses up the code, unless the verifier
        is malformed."""
        if not _VERIFIER.fullmatch(verifier):
            raise invalid_request("code_verifier must be 43 to 128 unreserved characters.")
        return self.issue_in_transaction(self._redeem, code, client, redirect, verifier, resource)

    def _redeem(
        self, rows: Rows, code: str, client: str, redirect: str, verifier: str, resource: str | None
    ) -> IssuedTokens | OAuthError:
        at = now()
        row = self._mac_rows.get(rows, "oauth_codes", token_digest(code))
        if row is None:
            return invalid_grant(_CODE_REFUSED)
        family = self._valid_family(rows, row["family"])
        if row["used_at"] is not None or family is None:
            self.revoke_in_transaction(rows, row["family"])
            return invalid_grant(_CODE_REFUSED)
        self._mac_rows.put(rows, "oauth_codes", row, used_at=at)
        if at >= row["expires_at"] or not self._is_valid(rows, family):
            return invalid_grant(_CODE_REFUSED)
        if family.client != client:
            return invalid_grant("The code was given to another client.")
        if row["redirect"] != redirect:
            return invalid_grant("redirect_uri is not the one that the code was sent to.")
        if not hmac.compare_digest(row["challenge"], challenge_of(verifier)):
            return invalid_grant("code_verifier does not fit the code_challenge.")
        if resource is not None and resource != family.resource:
            return other_resource_error()
        return self._issue(rows, family, family.scopes, at)

    # Refreshing

    def refresh(
        self, token: str, *, client: str, scopes: Sequence[str] | None, resource: str | None
    ) -> IssuedTokens:
        """Exchange a refresh token for new tokens; its first use ends the family's other tokens."""
        return self.issue_in_transaction(self._refresh, token, client, scopes, resource)

    def _refresh(
        self,
        rows: Rows,
        token: str,
        client: str,
        scopes: Sequence[str] | None,
        resource: str | None,
    ) -> IssuedTokens | OAuthError:
        at = now()
        row = self._mac_rows.get(rows, "oauth_refreshes", token_digest(token))
        if row is None:
            return invalid_grant(_REFRESH_REFUSED)
        family, used_at = self._valid_family(rows, row["family"]), row["used_at"]
        if family is None or (
            used_at is not None and not (is_repeatable(used_at) and family.client == client)
        ):
            self.revoke_in_transaction(rows, row["family"])
            return invalid_grant(_REFRESH_REFUSED)
        if family.client != client:
            return invalid_grant("The refresh token was given to another client.")
        if at >= row["expires_at"] or not self._is_valid(rows, family):
            self.revoke_in_transaction(rows, family.id)
            return invalid_grant(_REFRESH_REFUSED)
        if resource is not None and resource != family.resource:
            return other_resource_error()
        narrowed = family.scopes if scopes is None else tuple(dict.fromkeys(scopes))
        if not set(narrowed) <= {*family.scopes, OFFLINE_ACCESS}:
            return OAuthError(
                "invalid_scope", "A refresh cannot request more scopes than were allowed."
            )
        if not set(narrowed) - {OFFLINE_ACCESS}:
            return OAuthError("invalid_scope", "The requested scopes allow nothing.")
        if used_at is None:
            self._mac_rows.put(rows, "oauth_refreshes", row, used_at=at)
            for key in stored.unused_refreshes(rows, family.id):
                other = self._mac_rows.get(rows, "oauth_refreshes", key)
                if other is not None:
                    self._mac_rows.put(
                        rows, "oauth_refreshes", other, used_at=time_not_repeatable(at)
                    )
            self._credentials.revoke_all_in_transaction(rows, family=family.id)
        return self._issue(rows, family, narrowed, at)

    def issue_first_in_transaction(self, rows: Rows, identity: str) -> IssuedTokens | OAuthError:
        """Issue the first tokens of a family, if it is still valid."""
        family = self._valid_family(rows, identity)
        if family is None or not self._is_valid(rows, family):
            return invalid_grant("The authorization has been revoked.")
        return self._issue(rows, family, family.scopes, now())

    def _issue(
        self, rows: Rows, family: Family, scopes: tuple[str, ...], at: int
    ) -> IssuedTokens | OAuthError:
        audience = self._resources.find_by_url(family.resource)
        known = audience.resource.permissions if audience else {}
        inside = frozenset(s for name in scopes if name in known for s in known[name].scopes)
        if audience is None or not inside:
            return invalid_grant("The authorized resource is no longer served.")
        seconds = audience.resource.access_seconds
        issued = self._credentials.create_in_transaction(
            rows,
            Grant(
                user=family.user, space=family.space, scopes=inside,
                dialects=frozenset({audience.resource.dialect}), name=family.client_name,
                subject=family.being, resource=family.resource, client=family.client,
                family=family.id, lifetime=seconds, oauth=True,
            ),
        )  # fmt: skip
        refresh, expires = None, at + seconds * SECOND
        if family.refreshable:
            prefix = audience.resource.refresh
            refresh, expires = f"{prefix}{secrets.token_urlsafe(32)}", at + REFRESH_SECONDS * SECOND
            self._mac_rows.put(
                rows, "oauth_refreshes", digest=token_digest(refresh), family=family.id,
                expires_at=expires, used_at=None,
            )  # fmt: skip
        row = self._mac_rows.get(rows, "oauth_families", family.id)
        changed = {"credential": issued.credential.id, "expires_at": expires}
        self._mac_rows.put(rows, "oauth_families", row, **changed)
        return IssuedTokens(issued.token, refresh, scopes, seconds)

    def _is_valid(self, rows: Rows, family: Family) -> bool:
        """Return whether nothing has ended the family: it and its newest access token are not
        revoked, and it is not older than the `not_before` of its user and space."""
        if family.revoked_at is not None:
            return False
        if family.created_at < not_before(rows, owner=family.user, space=family.space):
            return False
        row = stored_credentials.by_id(rows, family.credential)
        return row is None or row.revoked_at is None

    # Revocation

    def revoke(self, token: str, *, client: str) -> None:
        """Revoke a token of the client, and with it the whole family (RFC 7009)."""
        with self._store.maintain() as rows:
            row = self._mac_rows.get(rows, "oauth_refreshes", token_digest(token))
            family = self._valid_family(rows, row["family"]) if row else None
            if family is not None:
                if family.client == client:
                    self.revoke_in_transaction(rows, family.id)
                return
        try:
            credential = self._credentials.find(token)
        except Unauthenticated:
            return
        if credential.family and credential.client == client:
            self._credentials.revoke(credential.id)

    def revoke_in_transaction(self, rows: Rows, family: str) -> None:
        """Revoke a family with all its tokens, in the caller's transaction."""
        row = self._mac_rows.get(rows, "oauth_families", family)
        if row is not None and row["revoked_at"] is None:
            self._mac_rows.put(rows, "oauth_families", row, revoked_at=now())
        self._credentials.revoke_all_in_transaction(rows, family=family)

    def listing(self, user: str | None = None) -> list[Family]:
        """Return the valid families, the newest first."""
        with self._store.read() as rows:
            found = [
                self._valid_family(rows, key) for key in stored.live_families(rows, now(), user)
            ]
        return [family for family in found if family is not None]

    def _prune(self, rows: Rows, at: int) -> None:
        """Delete expired rows that are no longer needed to detect a second use."""
        old = at - ENDED_SECONDS * SECOND
        stored.delete_expired(rows, "oauth_refreshes", old)
        stored.delete_ended_families(rows, old)

    def issue_in_transaction(
        self, issue: Callable[..., IssuedTokens | OAuthError], *arguments: Any
    ) -> IssuedTokens:
        """Run a function in a transaction; return its tokens, or raise the error that it returns.

        The function must return the error instead of raising it, so that revocations are committed.
        """
        try:
            with self._store.maintain() as rows:
                outcome = issue(rows, *arguments)
        except (NotFound, InvalidInput):  # the user was removed
            raise invalid_grant("The user who allowed this was removed.") from None
        if isinstance(outcome, OAuthError):
            raise outcome
        return outcome

    def _valid_family(self, rows: Rows, identity: str) -> Family | None:
        row = self._mac_rows.get(rows, "oauth_families", identity)
        if row is None:
            return None
        row["user"], row["refreshable"] = row.pop("owner"), bool(row["refreshable"])
        return Family(**row | {"scopes": tuple(json.loads(row["scopes"]))})


def other_resource_error() -> OAuthError:
    """Return the error for a resource that the person has not allowed."""
    return OAuthError("invalid_target", "The resource is not the one that was allowed.")
