"""Who calls, and what they may do."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

from commonplace.errors import CommonplaceError

Scope = Literal["read", "write", "delete", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "delete", "admin")
FULL: frozenset[Scope] = frozenset({"read", "write", "delete"})
READ_ONLY: frozenset[Scope] = frozenset({"read"})
EVERYTHING: frozenset[Scope] = frozenset(SCOPES)

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request being served, for the log and the audit."""


class NotPermitted(CommonplaceError):
    """The credential does not allow this operation; nothing was done."""

    code = "FORBIDDEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls, as the credential says; nothing in it comes from the request itself."""

    space: str = "default"
    user: str = "local"
    scopes: frozenset[Scope] = EVERYTHING
    credential: str = ""
    """The credential's id; empty for the person at this machine."""
    family: str = ""
    """The OAuth consent that the credential was issued for; empty for others."""
    dialects: frozenset[str] | None = None
    """The dialects that the credential is for; None for any."""
    subject: str = ""
    """What the caller acts as, in a dialect with subjects, such as a being; empty for nothing."""
    expires_at: int | None = None
    """When the credential expires, in UTC microseconds; None for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An access token and a refresh token, issued for an API key."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in: int
    tenant: str


class TokenExpired(CommonplaceError):
    """The token has expired; nothing was done."""

    code = "TOKEN_EXPIRED"

    def __init__(self) -> None:
        super().__init__("The token has expired.", hint="Get a new one.")
