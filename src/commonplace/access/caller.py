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
    """Who calls: what a credential says, and nothing that a caller could choose."""

    space: str = "default"
    user: str = "local"
    scopes: frozenset[Scope] = EVERYTHING
    credential: str = ""
    """The credential's id; empty for the person at this machine."""
    family: str = ""
    """What stays the same when a credential is renewed; empty for one that is not."""
    dialects: frozenset[str] | None = None
    """The dialects that the credential is for; None for any."""
    being: str = ""
    expires_at: int | None = None
    """When the credential ends by itself, in UTC microseconds; None for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Tokens that end, for a key that does not."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in: int
    tenant: str


class TokenExpired(CommonplaceError):
    """The token was good, and nothing but its time has ended it; nothing was done."""

    code = "TOKEN_EXPIRED"

    def __init__(self) -> None:
        super().__init__("The token has expired.", hint="Get a new one.")
