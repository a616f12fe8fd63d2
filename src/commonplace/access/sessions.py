"""Sessions of a dialect with JWTs: a client exchanges an API key for access and refresh tokens."""

from __future__ import annotations

from commonplace.access.caller import Caller, Session, TokenExpired
from commonplace.access.credentials import (
    Credential,
    Expired,
    Grant,
    IssuedCredential,
    Unauthenticated,
)
from commonplace.access.signed import Tokens
from commonplace.storage.database import new_id

# matches no served URL, so that the token is accepted for renewal only
REFRESH = "urn:commonplace:refresh"
REFRESH_SECONDS = 30 * 86_400


class Sessions:
    """Issues access tokens for API keys, and new ones for refresh tokens.

    All tokens of one sign-in are a family. Its refresh tokens are stored credentials; using one
    ends the others. Its access tokens name the family and end when no refresh token is valid.
    """

    def __init__(self, tokens: Tokens, dialect: str) -> None:
        self._dialect = dialect
        self._jwt = tokens.jwt[dialect]
        self._credentials = tokens.credentials

    def open(self, key: str) -> Session:
        """Begin a session with an API key; access tokens and refresh tokens are refused."""
        credential = self._credentials.find(key)
        allowed = credential.dialects is None or self._dialect in credential.dialects
        if credential.sort != "token" or credential.resource or not allowed:
            raise Unauthenticated("not an API key")
        refresh = self._credentials.create(self._refresh_grant(credential, new_id()))
        return self._session(credential, refresh)

    def renew(self, token: str) -> tuple[Caller, Session]:
        """Use a refresh token; return its caller and the next session.

        A refresh token may be used again for REPEAT_SECONDS; a later use revokes the whole family.
        """
        try:
            used = self._credentials.find(token, accept_repeated=True)
            if used.resource != REFRESH:
                raise Unauthenticated("not a refresh token")
            credential = self._credentials.get_valid(used.client)
            refresh = self._credentials.replace(
                used.id, self._refresh_grant(credential, used.family)
            )
        except Unauthenticated as refused:
            ended = self._credentials.find_even_if_ended(token)
            if ended is not None and ended.resource == REFRESH and ended.family:
                self._credentials.revoke_all(family=ended.family)
                if isinstance(refused, Expired):
                    raise TokenExpired from None
            raise
        return credential.caller, self._session(credential, refresh)

    def _session(self, credential: Credential, refresh: IssuedCredential) -> Session:
        family = refresh.credential.family
        return Session(
            access_token=self._jwt.issue(credential, family=family),
            refresh_token=refresh.token,
            expires_in=self._jwt.format.lifetime,
            tenant=self._jwt.format.tenant_id(credential.space),
        )

    def _refresh_grant(self, credential: Credential, family: str) -> Grant:
        return credential.as_grant(
            dialects=frozenset({self._dialect}), name="refresh token", subject="", resource=REFRESH,
            client=credential.id, family=family, lifetime=REFRESH_SECONDS, oauth=True,
        )  # fmt: skip
