"""The caller of a request, and the rights of the caller."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

from commonplace.errors import CommonplaceError

Scope = Literal["read", "write", "delete", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "delete", "admin")
FULL_SCOPES: frozenset[Scope] = frozenset({"read", "write", "delete"})
READ_ONLY_SCOPES: frozenset[Scope] = frozenset({"read"})
ALL_SCOPES: frozenset[Scope] = frozenset(SCOPES)

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request being served, for the log and the audit."""


class NotPermitted(CommonplaceError):
    """The credential does not allow this operation; nothing was changed."""

    code = "FORBIDDEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The authenticated caller. Who it is and what it may do comes from the credential alone; a
    request can at most choose one of the credential's subjects, or get fewer scopes."""

    space: str = "default"
    user: str = "local"
    scopes: frozenset[Scope] = ALL_SCOPES
    credential: str = ""
    """The credential's id; empty for the local user."""
    family: str = ""
    """The OAuth consent that the credential was issued for; empty if it is not an OAuth token."""
    dialects: frozenset[str] | None = None
    """The dialects that the credential is valid for; None for all."""
    subject: str = ""
    """The subject, such as a being, that the caller acts as; empty if there is none."""
    expires_at: int | None = None
    """The expiry of the credential in UTC microseconds; None for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An access token and a refresh token, issued for an API key."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in: int
    tenant: str


class TokenExpired(CommonplaceError):
    """The token has expired; nothing was changed."""

    code = "TOKEN_EXPIRED"

    def __init__(self) -> None:
        super().__init__("The token has expired.", hint="Get a new token.")
