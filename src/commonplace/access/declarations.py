"""A dialect's declarations of token formats and OAuth resources."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from commonplace.access.caller import ALL_SCOPES, READ_ONLY_SCOPES, Scope

OFFLINE_ACCESS = "offline_access"
"""The scope that requests a refresh token; most dialects issue refresh tokens without it."""
CHECKSUM_CHARS = 6


@dataclass(frozen=True, slots=True)
class TokenFormat:
    """The format of a token: its prefix, and whether it ends with a checksum."""

    prefix: str
    """The prefix, in which `{space}` is replaced. Formats with the same part up to the first
    underscore must all have a checksum, or none."""
    has_checksum: bool = True

    def new_token(self, space: str) -> str:
        """Return a new token."""
        token = self.prefix.format(space=space) + secrets.token_urlsafe(32)
        return token + checksum(token) if self.has_checksum else token


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentToken:
    """A token in an environment variable, namely the first of `variables` that is set."""

    variables: tuple[str, ...]
    user_variable: str = ""
    """The variable with the user name; the token is ignored unless both are set."""
    scopes: frozenset[Scope] = ALL_SCOPES


@dataclass(frozen=True, slots=True)
class HmacTokenFormat:
    """The format of signed tokens, issued here or by another system that shares the key.

    `base64url(user:workspace)` or `base64url(user:workspace:unix_seconds)`, a dot, and the
    hexadecimal HMAC-SHA256 of the part before the dot.
    """

    max_age: float = 300.0
    """Lifetime in seconds of a token with a time; 0 for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtTokenFormat:
    """The format of JWTs, signed with HS256, that clients get in exchange for an API key."""

    audience: str
    tenant_prefix: str
    """The claim `tenant_id` consists of this prefix and the name of the space."""
    permissions: Mapping[str, frozenset[Scope]]
    """The scopes that each permission in the claim `scopes` gives; unknown permissions give
    none."""
    lifetime: int
    """In seconds."""

    def scopes_of(self, permissions: Iterable[str]) -> frozenset[Scope]:
        """Return the scopes that these permissions give together."""
        known = (self.permissions.get(each.lower(), frozenset()) for each in permissions)
        return frozenset[Scope]().union(*known)

    def tenant_id(self, space: str) -> str:
        """Return the value of `tenant_id` for a space."""
        return f"{self.tenant_prefix}{space}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFormats:
    """The token formats of a dialect: for personal tokens, OAuth tokens and signed tokens."""

    personal: TokenFormat = TokenFormat("cpt_")
    oauth: TokenFormat = TokenFormat("cpo_")
    refresh: str = "cpr_"
    """The prefix of refresh tokens."""
    signed: HmacTokenFormat | None = None
    """Signed tokens; `token create` issues one if its format has room for the requested rights."""
    jwt: JwtTokenFormat | None = None
    """Access tokens that a client gets in exchange for an API key."""
    environment: EnvironmentToken | None = None
    in_websocket_query: bool = False
    """Whether a WebSocket may send its token in the query parameter `token`."""
    tells_expiry: bool = False
    """Whether the response to an expired token says that it has expired."""
    realm: str = ""
    """The realm in the challenge of a REST request without a valid token."""


DEFAULT_TOKEN_FORMATS = TokenFormats()
"""The default token formats of a dialect."""


@dataclass(frozen=True, slots=True)
class Permission:
    """An OAuth scope: its description on the consent page, and the scopes that it gives."""

    description: str
    scopes: frozenset[Scope]


READ_PERMISSION = Permission("Search and read everything in the space", READ_ONLY_SCOPES)
WRITE_PERMISSION = Permission("Store new memories, and change existing ones", frozenset({"write"}))
DELETE_PERMISSION = Permission("Delete memories", frozenset({"delete"}))
ADMIN_PERMISSION = Permission("Manage agents, workflows and settings", frozenset({"admin"}))
DEFAULT_PERMISSIONS: Mapping[str, Permission] = {
    "read": READ_PERMISSION,
    "write": WRITE_PERMISSION,
    "delete": DELETE_PERMISSION,
}
"""The default permissions of a dialect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An OAuth resource: a path of a dialect that a token is issued for."""

    dialect: str = ""
    """Set when the dialects are collected."""
    title: str = ""
    permissions: Mapping[str, Permission] = field(default_factory=lambda: dict(DEFAULT_PERMISSIONS))
    subject: str = ""
    """The noun for a subject, such as `being`, if a token is limited to one subject;
    `commonplace NOUN list` lists them."""
    includes_below: bool = False
    """Whether the resource includes every path below its own."""
    ignored: frozenset[str] = frozenset()
    """Scopes that clients request but that give no rights on this server."""
    needs_offline_access: bool = False
    """Whether a refresh token is issued only to clients that request `offline_access`."""
    devices: bool = False
    """Whether this is the default resource for devices."""
    refresh: str = "cpr_"
    """The prefix of its refresh tokens; set when the dialects are collected."""
    access_seconds: int = 3_600
    """How long its access tokens live."""

    def gives_refresh_token(self, scopes: Collection[str]) -> bool:
        """Return whether a client with these scopes gets a refresh token."""
        return not self.needs_offline_access or OFFLINE_ACCESS in scopes


class AllTokenFormats:
    """The token formats of all dialects, by the dialect's name."""

    def __init__(self, formats: Mapping[str, TokenFormats]) -> None:
        self.dialects = dict(formats)
        self._has_checksum: dict[str, bool] = {}
        for name, each in formats.items():
            for one in (each.personal, each.oauth):
                start = _prefix_to_underscore(one.prefix)
                known = self._has_checksum.setdefault(start, one.has_checksum)
                if not start or known != one.has_checksum:
                    raise ValueError(f"{name}: another token format begins with {one.prefix!r}")

    def format_for(self, dialects: Collection[str] | None, *, oauth: bool) -> TokenFormat:
        """Return the token format for these dialects: the format of a single dialect, or the
        default."""
        only = next(iter(dialects)) if dialects and len(dialects) == 1 else ""
        formats = self.dialects.get(only, DEFAULT_TOKEN_FORMATS)
        return formats.oauth if oauth else formats.personal

    def has_known_prefix(self, token: str) -> bool:
        """Return whether a token begins with the prefix of one of these formats."""
        return _prefix_to_underscore(token) in self._has_checksum

    def is_well_formed(self, token: str) -> bool:
        """Return whether a token has one of these formats, and its checksum is right."""
        has_checksum = self._has_checksum.get(_prefix_to_underscore(token))
        if has_checksum is None:
            return False
        return not has_checksum or hmac.compare_digest(
            checksum(token[:-CHECKSUM_CHARS]), token[-CHECKSUM_CHARS:]
        )


def _prefix_to_underscore(token: str) -> str:
    return token[: token.find("_") + 1]


def checksum(token: str) -> str:
    """Return the checksum at the end of a token, which detects typing errors without a query."""
    sum_ = binascii.crc32(token.encode()).to_bytes(4)
    return base64.urlsafe_b64encode(sum_).decode().rstrip("=")
