"""What a dialect declares about access: how its tokens look, and its OAuth resources."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from commonplace.access.caller import EVERYTHING, READ_ONLY, Scope

OFFLINE = "offline_access"
"""The scope that asks for a refresh token; unless a contract requires it, every client gets one."""
CHECKSUM_CHARS = 6


@dataclass(frozen=True, slots=True)
class TokenForm:
    """How a token looks: what it begins with, and whether it ends with a checksum of itself."""

    prefix: str
    """The part up to the first underscore must be unique; `{space}` stands for the space."""
    checked: bool = True

    def make(self, space: str) -> str:
        """A new token."""
        token = self.prefix.format(space=space) + secrets.token_urlsafe(32)
        return token + checksum(token) if self.checked else token


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentToken:
    """A token that the operator sets in the environment: the first of some variables."""

    variables: tuple[str, ...]
    user_variable: str = ""
    """The variable with the user; the token counts only if both are set."""
    scopes: frozenset[Scope] = EVERYTHING


@dataclass(frozen=True, slots=True)
class HmacForm:
    """Signed tokens, made here or by another system that shares the key.

    `base64url(user:workspace)` or `base64url(user:workspace:unix_seconds)`, a dot, and the
    hexadecimal HMAC-SHA256 of what is before the dot.
    """

    max_age: float = 300.0
    """For how many seconds a token with a time is accepted; 0 for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtForm:
    """JWTs, signed with HS256, that a personal token is exchanged for."""

    audience: str
    tenant_prefix: str
    """The claim `tenant_id` is this and the name of the space."""
    permissions: Mapping[str, frozenset[Scope]]
    """What each permission in the claim `scopes` allows; others allow nothing."""
    lifetime: int
    """In seconds."""

    def scopes(self, permissions: Iterable[str]) -> frozenset[Scope]:
        """What these permissions allow together."""
        known = (self.permissions.get(each.lower(), frozenset()) for each in permissions)
        return frozenset[Scope]().union(*known)

    def tenant(self, space: str) -> str:
        """The tenant of a space."""
        return f"{self.tenant_prefix}{space}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenForms:
    """The tokens of a dialect: those that a person creates, and those that OAuth issues."""

    personal: TokenForm = TokenForm("cpt_")
    oauth: TokenForm = TokenForm("cpo_")
    refresh: str = "cpr_"
    """The prefix of refresh tokens."""
    signed: HmacForm | None = None
    """Signed tokens; `token create` makes one where it can carry what was asked for."""
    jwt: JwtForm | None = None
    """Access tokens that a personal token is exchanged for."""
    environment: EnvironmentToken | None = None
    in_websocket_query: bool = False
    """Whether a WebSocket may bring a personal token in the query parameter `token`."""
    tells_expiry: bool = False
    """Whether the holder of an expired token is told that it has expired."""
    realm: str = ""
    """The realm in the challenge of a REST request without a valid token."""


OURS = TokenForms()
"""The forms of a dialect that declares none."""


@dataclass(frozen=True, slots=True)
class Permission:
    """An OAuth scope: what it means to a person, and the scopes that it gives."""

    words: str
    scopes: frozenset[Scope]


READ = Permission("Search and read everything in the space", READ_ONLY)
WRITE = Permission("Store new memories, and change those that are there", frozenset({"write"}))
DELETE = Permission("Delete memories", frozenset({"delete"}))
ADMIN = Permission("Manage agents, workflows and settings", frozenset({"admin"}))
MEMORY: Mapping[str, Permission] = {"read": READ, "write": WRITE, "delete": DELETE}
"""The permissions of a dialect that declares none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What an OAuth token can be for: a path of a dialect."""

    dialect: str = ""
    """Set when the dialects are collected."""
    title: str = ""
    permissions: Mapping[str, Permission] = field(default_factory=lambda: dict(MEMORY))
    subject: str = ""
    """The noun for what a token is for, such as `being`, where the path or the person names one;
    `commonplace NOUN list` lists them."""
    below: bool = False
    """Whether every path below it is a part of it."""
    ignored: frozenset[str] = frozenset()
    """Scopes that clients of its contract ask for and that allow nothing here."""
    offline: bool = False
    """Whether a refresh token is given only to clients that ask for `offline_access`."""
    devices: bool = False
    """Whether a device that names no resource gets a token for this one."""
    refresh: str = "cpr_"
    """The prefix of its refresh tokens; set when the dialects are collected."""
    access_seconds: int = 3_600
    """How long its access tokens live."""

    def refreshes(self, scopes: Collection[str]) -> bool:
        """Whether a client that was allowed these scopes gets a refresh token."""
        return not self.offline or OFFLINE in scopes


class Forms:
    """The token forms of every dialect of a program, by the dialect's name."""

    def __init__(self, forms: Mapping[str, TokenForms]) -> None:
        self.dialects = dict(forms)
        self._checked: dict[str, bool] = {}
        for name, each in forms.items():
            for form in (each.personal, each.oauth):
                start = _start(form.prefix)
                if not start or self._checked.setdefault(start, form.checked) != form.checked:
                    raise ValueError(f"{name}: another token form begins with {form.prefix!r}")

    def of(self, dialects: Collection[str] | None, *, oauth: bool) -> TokenForm:
        """The form of a token for these dialects: that of the only one, or the default."""
        only = next(iter(dialects)) if dialects and len(dialects) == 1 else ""
        forms = self.dialects.get(only, OURS)
        return forms.oauth if oauth else forms.personal

    def has_known_prefix(self, token: str) -> bool:
        """Whether a token begins with the prefix of one of these forms."""
        return _start(token) in self._checked

    def well_formed(self, token: str) -> bool:
        """Whether a token has one of these forms, and its checksum is right."""
        checked = self._checked.get(_start(token))
        if checked is None:
            return False
        return not checked or hmac.compare_digest(
            checksum(token[:-CHECKSUM_CHARS]), token[-CHECKSUM_CHARS:]
        )


def _start(token: str) -> str:
    return token[: token.find("_") + 1]


def checksum(token: str) -> str:
    """The characters that a token ends with, so that a mistyped one is not looked up."""
    sum_ = binascii.crc32(token.encode()).to_bytes(4)
    return base64.urlsafe_b64encode(sum_).decode().rstrip("=")
