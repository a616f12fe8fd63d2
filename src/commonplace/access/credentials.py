"""Credentials with opaque tokens: create, list, revoke and verify them.

A token has 256 random bits and is shown once; only its SHA-256 is stored. The response to a refused
token does not contain the reason, except expiry where the contract requires it; the log does.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from commonplace.access.caller import (
    ALL_SCOPES,
    FULL_SCOPES,
    READ_ONLY_SCOPES,
    SCOPES,
    Caller,
    Scope,
)
from commonplace.access.declarations import AllTokenFormats
from commonplace.engine import checks
from commonplace.engine.model import iso, moment
from commonplace.errors import (
    CommonplaceError,
    Conflict,
    InvalidInput,
    NotFound,
    StorageFull,
    StorageUnavailable,
)
from commonplace.storage import credentials as stored
from commonplace.storage.accounts import is_removed
from commonplace.storage.credentials import CredentialRow, not_before
from commonplace.storage.database import new_id, now
from commonplace.storage.ports import Rows, Store

if TYPE_CHECKING:
    from commonplace.access.vault import Vault

SECOND = 1_000_000
TOKEN_CHARS = 4_096
MOST_CACHED = 10_000
STORE_USE_SECONDS = 60
KEEP_ENDED_DAYS = 30
REPEAT_SECONDS = 60
"""How long a used refresh token is accepted again, since some clients refresh in parallel."""
LIFETIME_SECONDS = 100 * 366 * 86_400
USER_CHARS = 200
SESSION_SORT = "session"
"""The `sort` of browser sessions, whose tokens are accepted as cookies only."""
CODE_SORT = "code"
"""The `sort` of one-time codes, which begin one browser session."""
CODE_SECONDS = 60

SCOPE_NAMES: dict[str, frozenset[Scope]] = {
    "full": FULL_SCOPES,
    "read-only": READ_ONLY_SCOPES,
    "admin": ALL_SCOPES,
}


class Unauthenticated(CommonplaceError):
    """There is no accepted credential; nothing was changed. The reason is only logged."""

    code = "UNAUTHORIZED"

    def __init__(self, reason: str) -> None:
        given = reason not in ("no token", "missing")
        super().__init__(
            "The token is not accepted." if given else "No token was given.",
            hint="Create a token: 'commonplace token create'.",
        )
        self.reason = reason


class Expired(Unauthenticated):
    """The credential has expired; few contracts let the client know (`TokenForms.tells_expiry`)."""

    def __init__(self) -> None:
        super().__init__("expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rights:
    """The rights of a credential, and its user."""

    user: str = "local"
    space: str = "default"
    scopes: frozenset[Scope] = FULL_SCOPES
    dialects: frozenset[str] | None = None
    """The dialects that the credential is valid for; None for all."""
    name: str = ""
    subject: str = ""
    """The subject, such as a being, that the credential is limited to; empty for all."""
    resource: str = ""
    """The URL that the credential is limited to; empty for every URL of this server."""
    client: str = ""
    family: str = ""
    """OAuth: the client, and the consent that the token was issued for. For a browser session or
    the refresh token of a JWT, `client` identifies the API token that began it, if one did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(_Rights):
    """The properties of a credential to be created."""

    lifetime: float | None = None
    """Seconds; None for no expiry."""
    oauth: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential(_Rights):
    """A credential as it is stored; times are UTC microseconds."""

    id: str
    sort: str
    """token, oauth, signed, session, or code."""
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used: int

    @property
    def caller(self) -> Caller:
        """Return the caller with the rights of this credential."""
        return Caller(
            space=self.space,
            user=self.user,
            scopes=self.scopes,
            credential=self.id,
            family=self.family,
            dialects=self.dialects,
            subject=self.subject,
            expires_at=self.expires_at,
        )

    def as_grant(self, **changes: Any) -> Grant:
        """Return a grant of the same rights, with some changes."""
        return Grant(**{each.name: getattr(self, each.name) for each in fields(_Rights)} | changes)

    def as_dict(self) -> dict[str, Any]:
        """Return the credential as JSON output, without its secret."""
        return {
            "id": self.id,
            "sort": self.sort,
            "name": self.name,
            "user": self.user,
            "space": self.space,
            "scope": scope_name(self.scopes),
            "dialects": None if self.dialects is None else sorted(self.dialects),
            "being": self.subject,
            "resource": self.resource,
            "client": self.client,
            "created_at": iso(moment(self.created_at)),
            "expires_at": None if self.expires_at is None else iso(moment(self.expires_at)),
            "revoked_at": None if self.revoked_at is None else iso(moment(self.revoked_at)),
            "last_used": iso(moment(self.last_used)) if self.last_used else None,
        }


@dataclass(frozen=True, slots=True)
class IssuedCredential:
    """A new credential with its token; the token itself is not stored."""

    token: str = field(repr=False)
    credential: Credential


@dataclass(frozen=True, slots=True)
class _CachedCredential:
    """A credential, cached with the version of system.db at which it was read."""

    version: tuple[int, int]
    credential: Credential
    caller: Caller
    refusal: str
    """Why the credential is refused, except expiry; empty if it is accepted."""


class Credentials:
    """The credentials of a data directory. Threads may share it; processes may share the file."""

    def __init__(self, store: Store, vault: Vault, formats: AllTokenFormats) -> None:
        self._store = store
        self._vault = vault
        self.formats = formats
        self.watch = store.watch()
        self._known: dict[bytes, _CachedCredential] = {}
        self._ids: dict[str, bytes] = {}
        self._used: dict[str, int] = {}
        self._flushing = threading.Lock()

    # Creation

    def create(self, grant: Grant) -> IssuedCredential:
        """Create a credential and commit it; its token cannot be shown again."""
        with self._store.maintain() as rows:
            return self.create_in_transaction(rows, grant)

    def create_in_transaction(self, rows: Rows, grant: Grant) -> IssuedCredential:
        """Like `create`, within the caller's own transaction."""
        self._check_grant_and_dialects(grant)
        token = self.formats.format_for(grant.dialects, oauth=grant.oauth).new_token(grant.space)
        sort = "oauth" if grant.oauth else "token"
        return IssuedCredential(token, self._insert(rows, grant, token, sort))

    def _check_grant_and_dialects(self, grant: Grant) -> None:
        check_grant(grant)
        known = self.formats.dialects
        if grant.dialects is not None and not (grant.dialects and grant.dialects <= known.keys()):
            raise InvalidInput(
                f"Unknown dialect: {', '.join(sorted(grant.dialects - known.keys()))}.",
                hint=f"The dialects are: {', '.join(known)}.",
                field="dialect",
            )

    def record_in_transaction(self, rows: Rows, grant: Grant, token: str) -> Credential:
        """Store the digest of a signed token, so that it can be listed and revoked."""
        self._check_grant_and_dialects(grant)
        row = stored.by_digest(rows, token_digest(token))
        if row is None:
            return self._insert(rows, grant, token, "signed")
        known = _credential(row)
        if known.revoked_at is not None:
            raise Conflict(
                f"The same token was revoked before ({known.id}).",
                hint="Rotate the key first: 'commonplace token rotate-key'.",
            )
        return known

    def create_session(self, grant: Grant, cookie: str) -> Credential:
        """Store a browser session, whose token is the value of its cookie."""
        check_grant(grant)
        with self._store.maintain() as rows:
            return self._insert(rows, grant, cookie, SESSION_SORT)

    def create_code(self, grant: Grant) -> str:
        """Store a code that begins one browser session with this grant, within CODE_SECONDS."""
        check_grant(grant)
        code = f"cpc_{secrets.token_urlsafe(32)}"
        with self._store.maintain() as rows:
            self._insert(rows, replace(grant, lifetime=CODE_SECONDS), code, CODE_SORT)
        return code

    def use_code(self, code: str) -> Credential:
        """Use up a one-time code and return its credential; raise Unauthenticated if it is not
        valid."""
        with self._store.maintain() as rows:
            row = stored.by_digest(rows, token_digest(code))
            if row is None or row.sort != CODE_SORT or not self._mac_matches(row):
                raise Unauthenticated("unknown")
            if row.revoked_at is not None or is_removed(rows, row.owner):
                raise Unauthenticated("revoked")
            if row.created_at < not_before(rows, owner=row.owner, space=row.space):
                raise Unauthenticated("not before")
            if row.expires_at is None or now() >= row.expires_at:
                raise Expired
            return _credential(self._revoke(rows, row))

    def _insert(self, rows: Rows, grant: Grant, token: str, sort: str) -> Credential:
        if is_removed(rows, grant.user):
            raise NotFound(
                f"The user {grant.user} was removed.",
                hint="Add the user again first: 'commonplace user add'.",
                field="user",
            )
        # Not earlier than `not_before`, even if the clock was set back.
        created = max(now(), not_before(rows, owner=grant.user, space=grant.space))
        expires = None if grant.lifetime is None else created + int(grant.lifetime * SECOND)
        dialects = None if grant.dialects is None else json.dumps(sorted(grant.dialects))
        row = CredentialRow(
            id=new_id(),
            digest=token_digest(token),
            sort=sort,
            name=grant.name,
            owner=grant.user,
            space=grant.space,
            scopes=json.dumps([scope for scope in SCOPES if scope in grant.scopes]),
            dialects=dialects,
            being=grant.subject,
            resource=grant.resource,
            client=grant.client,
            family=grant.family,
            created_at=created,
            expires_at=expires,
            revoked_at=None,
            last_used=0,
            mac=b"",
        )
        stored.insert(rows, row._replace(mac=self._mac(row)))
        return _credential(row)

    # Listing

    def listing(self, *, user: str | None = None, space: str | None = None) -> list[Credential]:
        """Return all credentials, the newest first; ended ones are included until they are
        pruned."""
        with self._store.read() as rows:
            return [_credential(row) for row in stored.select(rows, owner=user, space=space)]

    def get(self, identity: str) -> Credential:
        """Return the credential with an id or a unique prefix of an id."""
        with self._store.read() as rows:
            return _credential(_row_by_id(rows, identity))

    # Revocation

    def revoke(self, identity: str) -> Credential:
        """Revoke a credential and the rest of its family; all processes refuse them at once."""
        with self._store.maintain() as rows:
            row = _row_by_id(rows, identity)
            if row.family:
                self.revoke_all_in_transaction(rows, family=row.family)
            return _credential(self._revoke(rows, row))

    def replace(self, identity: str, grant: Grant) -> IssuedCredential:
        """Replace a refresh token: create its successor and end the other tokens of the family.

        For REPEAT_SECONDS the token can be replaced again; afterwards raise Unauthenticated.
        """
        with self._store.maintain() as rows:
            row = _row_by_id(rows, identity)
            others = stored.select(rows, revoked=False, family=row.family)
            if row.revoked_at is None:
                self._revoke(rows, row)
                for other in others:
                    if other.id != row.id:
                        self._revoke(rows, other, time_not_repeatable(now()))
            elif not others or not is_repeatable(row.revoked_at):
                raise Unauthenticated("revoked")
            return self.create_in_transaction(rows, grant)

    def revoke_all(self, **which: str) -> int:
        """Revoke all credentials of an owner, space, being, client or family; return their
        number."""
        with self._store.maintain() as rows:
            return self.revoke_all_in_transaction(rows, **which)

    def revoke_all_in_transaction(self, rows: Rows, **which: str) -> int:
        """Like `revoke_all`, within the caller's own transaction."""
        if not which:
            raise ValueError("revoke_all needs an owner, space, being, client or family")
        found = stored.select(rows, revoked=False, **which)
        for row in found:
            self._revoke(rows, row)
        return len(found)

    def _revoke(self, rows: Rows, row: CredentialRow, at: int | None = None) -> CredentialRow:
        if row.revoked_at is not None:
            return row
        at = now() if at is None else at
        row = row._replace(revoked_at=at)
        stored.set_revoked(rows, row.id, at, self._mac(row))
        return row

    def invalidate_created_before(self, space: str, at: int | None = None) -> int:
        """Invalidate all tokens of a space created before a time; return the stored time."""
        checks.space(space)
        with self._store.maintain() as rows:
            return invalidate_created_before_in_transaction(
                rows, "space", space, now() if at is None else at
            )

    def prune(self, days: float = KEEP_ENDED_DAYS) -> int:
        """Delete opaque tokens that ended more than `days` ago; return their number."""
        before = now() - int(days * 86_400 * SECOND)
        with self._store.maintain() as rows:
            return stored.delete_ended(rows, before)

    # Verifying tokens

    def recognise(self, token: str, *, resource: str | None = None) -> Caller:
        """Return the caller of a token; raise Unauthenticated if it is unknown, revoked or expired.

        With `resource`, refuse a token for another URL too.
        """
        known = self._find_cached(token)
        bound = known.credential.resource
        if bound and resource is not None and bound.rstrip("/") != resource.rstrip("/"):
            raise Unauthenticated("other resource")
        return known.caller

    def find(self, token: str, *, accept_repeated: bool = False) -> Credential:
        """Return the valid credential of a token; raise Unauthenticated like `recognise`.

        With `accept_repeated`, also accept a token that was revoked at most REPEAT_SECONDS ago.
        """
        return self._find_cached(token, accept_repeated=accept_repeated).credential

    def _find_cached(self, token: str, *, accept_repeated: bool = False) -> _CachedCredential:
        if len(token) > TOKEN_CHARS or not token.isascii():
            raise Unauthenticated("malformed")
        digest = token_digest(token)
        if digest not in self._known and not self.formats.is_well_formed(token):
            raise Unauthenticated("malformed")
        known = self._find_by_digest(digest)
        if known is None or known.credential.sort in (SESSION_SORT, CODE_SORT):
            raise Unauthenticated("unknown")
        revoked = known.credential.revoked_at if known.refusal == "revoked" else None
        if not (accept_repeated and revoked is not None and is_repeatable(revoked)):
            self._admit(known)
        return known

    def find_session(self, cookie: str) -> Credential:
        """Return the valid browser session of a cookie; raise Unauthenticated like `recognise`."""
        known = self._find_by_digest(token_digest(cookie)) if cookie else None
        if known is None or known.credential.sort != SESSION_SORT:
            raise Unauthenticated("unknown")
        self._admit(known)
        return known.credential

    def find_even_if_ended(self, token: str) -> Credential | None:
        """Return the credential of a token, even if it is revoked or expired; None if it is
        unknown."""
        known = (
            self._find_by_digest(token_digest(token))
            if self.formats.is_well_formed(token)
            else None
        )
        return None if known is None else known.credential

    def get_valid(self, identity: str, version: tuple[int, int] | None = None) -> Credential:
        """Return the valid credential of an id, or raise Unauthenticated.

        `version` is the current result of `watch.version()`, if it is already known.
        """
        digest = self._ids.get(identity)
        if digest is None:
            with self._store.read() as rows:
                row = stored.by_id(rows, identity)
            if row is None:
                raise Unauthenticated("unknown")
            digest = row.digest
            if len(self._ids) >= MOST_CACHED:
                self._ids = {}
            self._ids[identity] = digest  # the digest of an id never changes, so it can be cached
        known = self._find_by_digest(digest, version)
        if known is None:
            raise Unauthenticated("unknown")
        self._admit(known)
        return known.credential

    def is_family_valid(self, family: str) -> bool:
        """Return whether the family still has a valid credential."""
        with self._store.read() as rows:
            found = stored.select(rows, revoked=False, family=family) if family else []
        live = [row for row in found if row.expires_at is None or row.expires_at > now()]
        return any(self._mac_matches(row) for row in live)

    def find_signed(self, token: str) -> Credential | None:
        """Return the stored credential of a signed token, or None; raise Unauthenticated if it has
        ended."""
        known = self._find_by_digest(token_digest(token))
        if known is None:
            return None
        self._admit(known)
        return known.credential

    def _admit(self, known: _CachedCredential) -> None:
        """Accept a credential and record its use; raise Unauthenticated if it is refused or
        expired."""
        if known.refusal:
            raise Unauthenticated(known.refusal)
        credential, at = known.credential, now()
        if credential.expires_at is not None and at >= credential.expires_at:
            raise Expired
        if at - credential.last_used >= STORE_USE_SECONDS * SECOND:
            self._used.setdefault(credential.id, at)

    def _find_by_digest(
        self, digest: bytes, version: tuple[int, int] | None = None
    ) -> _CachedCredential | None:
        """Return the credential of a digest, from the cache unless system.db has changed."""
        # Read the version before the row, so that a cached row is never older than its version.
        version = version or self.watch.version()
        known = self._known.get(digest)
        if known is not None and known.version == version:
            return known
        with self._store.read() as rows:
            row = stored.by_digest(rows, digest)
            if row is None:
                self._known.pop(digest, None)
                return None
            ended = not_before(rows, owner=row.owner, space=row.space)
            gone = is_removed(rows, row.owner)
        credential = _credential(row)
        refusal = ""
        if not self._mac_matches(row) or not hmac.compare_digest(row.digest, digest):
            refusal = "damaged"
        elif credential.revoked_at is not None:
            refusal = "revoked"
        elif gone:
            refusal = "user removed"
        elif credential.created_at < ended:
            refusal = "not before"
        known = _CachedCredential(version, credential, credential.caller, refusal)
        if len(self._known) >= MOST_CACHED:
            self._known = {}
        self._known[digest] = known
        return known

    def store_last_use(self) -> int:
        """Store the times of last use of credentials; return their number."""
        with self._flushing:
            used, self._used = self._used, {}
            if not used:
                return 0
            try:
                with self._store.maintain() as rows:
                    stored.set_last_used(rows, [(at, identity) for identity, at in used.items()])
            except CommonplaceError:
                self._used = {**used, **self._used}
                raise
            return len(used)

    def close(self) -> None:
        """Store the times of last use of credentials, and close the connection."""
        try:
            # Closing must succeed even with a full disk or an unreachable database.
            with contextlib.suppress(StorageFull, StorageUnavailable):
                self.store_last_use()
        finally:
            self.watch.close()

    # MACs of rows

    def reseal_rows(self, rows: Rows) -> None:
        """Compute every row's MAC again with the newest master key; skip damaged rows."""
        for row in stored.select(rows):
            if self._mac_matches(row):
                stored.set_mac(rows, row.id, self._mac(row))

    def damaged_rows(self, rows: Rows) -> Iterator[str]:
        """Yield tokens whose MAC does not match; they are refused."""
        for row in stored.select(rows):
            if not self._mac_matches(row):
                yield f"The token {row.id}"

    def _mac(self, row: CredentialRow) -> bytes:
        return self._vault.mac("credential", *row.signed_values)

    def _mac_matches(self, row: CredentialRow) -> bool:
        return self._vault.check_mac(row.mac, "credential", *row.signed_values)


def _credential(row: CredentialRow) -> Credential:
    values = row._asdict()
    del values["digest"], values["mac"]
    values["user"], values["subject"] = values.pop("owner"), values.pop("being")
    values["scopes"] = frozenset(json.loads(row.scopes))
    values["dialects"] = None if row.dialects is None else frozenset(json.loads(row.dialects))
    return Credential(**values)


def token_digest(token: str) -> bytes:
    """Return the SHA-256 of a token, which is stored in its place."""
    return hashlib.sha256(token.encode()).digest()


def is_repeatable(used_at: int) -> bool:
    """Return whether a refresh token used at this time may still be used again."""
    return 0 <= now() - used_at <= REPEAT_SECONDS * SECOND


def time_not_repeatable(at: int) -> int:
    """Return a time of use so early that a replaced refresh token cannot be used again."""
    return at - REPEAT_SECONDS * SECOND - 1


def scope_name(scopes: frozenset[Scope]) -> str:
    """Return `full`, `read-only` or `admin`, or the scopes separated by spaces."""
    for name, meant in SCOPE_NAMES.items():
        if meant == scopes:
            return name
    return " ".join(scope for scope in SCOPES if scope in scopes)


def invalidate_created_before_in_transaction(rows: Rows, subject: str, name: str, at: int) -> int:
    """Invalidate all tokens of a user or space created before a time; the time never decreases."""
    if at > now() + SECOND:
        raise InvalidInput("The time is in the future.", hint="Use 'now', or a time in the past.")
    return stored.set_not_before(rows, subject, name, at)


def check_grant(grant: Grant) -> None:
    """Raise InvalidInput for a grant that no credential can have."""
    checks.space(grant.space)
    checks.text(grant.user, "user", max_chars=USER_CHARS)
    for name, most in (("name", 200), ("subject", 200), ("resource", 2_000), ("client", 500)):
        checks.optional_text(getattr(grant, name), name, max_chars=most)
    if not grant.scopes or not grant.scopes <= ALL_SCOPES:
        raise InvalidInput(
            "A credential needs scopes.",
            hint=f"The scopes are: {', '.join(SCOPES)}.",
            field="scopes",
        )
    if grant.lifetime is not None and not 0 < grant.lifetime <= LIFETIME_SECONDS:
        raise InvalidInput(
            "The lifetime must be more than 0 and at most 100 years.",
            hint="Choose another lifetime, or omit it for no expiry.",
            field="expires",
        )


def _row_by_id(rows: Rows, identity: str) -> CredentialRow:
    """Return the row with an id or a unique prefix of an id."""
    if len(identity) < 4 or not all(sign in "0123456789abcdef-" for sign in identity):
        raise InvalidInput(
            "Invalid id: give at least the first 4 of its characters 0-9, a-f and '-'.",
            hint="See 'commonplace token list'.",
        )
    found = stored.by_prefix(rows, identity)
    if not found:
        raise NotFound(f"There is no credential {identity}.", hint="See 'commonplace token list'.")
    if len(found) > 1:
        raise Conflict(
            f"Several ids begin with {identity}.", hint="Enter more characters of the id."
        )
    return found[0]
