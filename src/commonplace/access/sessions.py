"""A lasting key for tokens that end: Penfield's way to sign in, and to stay signed in."""

from __future__ import annotations

import threading

from commonplace.access.caller import Caller, Session, TokenExpired
from commonplace.access.credentials import Credential, Expired, Grant, Unauthenticated
from commonplace.access.signed import JWT_SECONDS, PENFIELD, Tokens, tenant_of
from commonplace.storage.database import new_id

REFRESH = "urn:commonplace:refresh"  # no address of ours: a refresh token opens no other door
REFRESH_SECONDS = 30 * 86_400


class Sessions:
    """Access tokens for API keys, and new ones for refresh tokens, each of which works once."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._credentials = tokens.credentials
        self._renewing = threading.Lock()

    def open(self, key: str) -> Session:
        """A session for an API key; a token that ends itself cannot be made to last."""
        credential = self._credentials.find(key)
        for_penfield = credential.dialects is None or PENFIELD in credential.dialects
        if credential.sort != "token" or credential.resource or not for_penfield:
            raise Unauthenticated("not an API key")
        return self._issue(credential, new_id())

    def renew(self, token: str) -> tuple[Caller, Session]:
        """Who renews, and the next session; a refresh token seen twice ends all of its family."""
        with self._renewing:
            try:
                used = self._credentials.find(token)
            except Unauthenticated as refused:
                ended = self._credentials.ended(token)
                if ended is not None and ended.resource == REFRESH and ended.family:
                    self._credentials.revoke_all(family=ended.family)
                    if isinstance(refused, Expired):
                        raise TokenExpired from None
                raise
            if used.resource != REFRESH:
                raise Unauthenticated("not a refresh token")
            credential = self._credentials.alive(used.client)
            self._credentials.revoke(used.id)
        return credential.caller, self._issue(credential, used.family)

    def _issue(self, credential: Credential, family: str) -> Session:
        refresh = self._credentials.create(
            Grant(
                user=credential.user,
                space=credential.space,
                scopes=credential.scopes,
                dialects=frozenset({PENFIELD}),
                name="refresh token",
                resource=REFRESH,
                client=credential.id,
                family=family,
                lifetime=REFRESH_SECONDS,
                oauth=True,
            )
        )
        return Session(
            access_token=self._tokens.penfield.issue(credential),
            refresh_token=refresh.token,
            expires_in=JWT_SECONDS,
            tenant=tenant_of(credential.space),
        )
