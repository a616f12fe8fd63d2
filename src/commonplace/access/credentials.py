"""Opaque tokens: made, listed, ended, and known again on every request.

A token is 256 random bits and is shown once; what is stored is its SHA-256. Whether it is unknown
or revoked makes no difference to who sends it; the log is told. That one has expired is told where
the contract says so.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from commonplace.access.caller import EVERYTHING, FULL, READ_ONLY, SCOPES, Caller, Scope
from commonplace.engine import checks
from commonplace.engine.model import iso, moment
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound
from commonplace.storage.database import new_id, now
from commonplace.storage.sqlite import Store
from commonplace.storage.system import Watch

if TYPE_CHECKING:
    import apsw

    from commonplace.access.vault import Vault

SECOND = 1_000_000
TOKEN_CHARS = 4_096
CACHED = 10_000
USED_SECONDS = 60
ENDED_DAYS = 30
LIFETIME_SECONDS = 100 * 366 * 86_400
USER_CHARS = 200

SCOPE_NAMES: dict[str, frozenset[Scope]] = {
    "full": FULL,
    "read-only": READ_ONLY,
    "admin": EVERYTHING,
}

# What a Penfield permission allows; its other scopes (profile, offline_access, …) allow nothing.
_PENFIELD: dict[str, frozenset[Scope]] = {
    "read": READ_ONLY,
    "write": frozenset({"write"}),
    "delete": frozenset({"delete"}),
    "relationships_delete": frozenset({"delete"}),
    "admin": EVERYTHING,
}


@dataclass(frozen=True, slots=True)
class _Form:
    """How a token looks: what it begins with, and whether it ends with a check of itself."""

    prefix: str
    checked: bool = True

    def make(self, space: str) -> str:
        token = self.prefix.format(space=space) + secrets.token_urlsafe(32)
        return token + _check(token) if self.checked else token


_OURS = _Form("cpt_"), _Form("cpo_")
# For each dialect: the token that a person makes, and the one that OAuth hands out.
FORMS: dict[str, tuple[_Form, _Form]] = {
    "commonplace": _OURS,
    "being": (_Form("brt_"), _Form("bto_", checked=False)),
    "clawbrain": _OURS,
    "mama": _OURS,
    "orchestrator": _OURS,  # beside its signed ones
    "penfield": (_Form("tm_{space}_ak_"), _Form("cpo_")),
    "server": _OURS,  # its own operations alone, such as /metrics
}
_PREFIXES = {
    form.prefix.partition("{")[0]: form for pair in FORMS.values() for form in pair
}  # fmt: skip
_CHECK_CHARS = 6


class Unauthenticated(CommonplaceError):
    """No credential, or none that is accepted; nothing was done. The reason is for the log."""

    code = "UNAUTHORIZED"

    def __init__(self, reason: str) -> None:
        given = reason not in ("no token", "missing")
        super().__init__(
            "The token is not accepted." if given else "No token was given.",
            hint="Get a new one: 'commonplace token create'.",
        )
        self.reason = reason


class Expired(Unauthenticated):
    """The credential was good, and nothing but its time has ended it; it looks like any other."""

    def __init__(self) -> None:
        super().__init__("expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a new credential is to say."""

    user: str = "local"
    space: str = "default"
    scopes: frozenset[Scope] = FULL
    dialects: frozenset[str] | None = None
    """None for any."""
    name: str = ""
    being: str = ""
    resource: str = ""
    """The address that it is for; empty for any of this server."""
    client: str = ""
    family: str = ""
    """OAuth: whom it was given to, and the sign-in that it comes from."""
    lifetime: float | None = None
    """Seconds; None for no end."""
    oauth: bool = False


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential as it is stored; times are UTC microseconds."""

    id: str
    sort: str
    """token, oauth, or signed."""
    name: str
    user: str
    space: str
    scopes: frozenset[Scope]
    dialects: frozenset[str] | None
    being: str
    resource: str
    client: str
    family: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used: int

    @property
    def caller(self) -> Caller:
        """Who calls with it."""
        return Caller(
            space=self.space,
            user=self.user,
            scopes=self.scopes,
            credential=self.id,
            family=self.family,
            dialects=self.dialects,
            being=self.being,
            expires_at=self.expires_at,
        )

    def as_dict(self) -> dict[str, Any]:
        """The credential as a script reads it; it holds no secret."""
        return {
            "id": self.id,
            "sort": self.sort,
            "name": self.name,
            "user": self.user,
            "space": self.space,
            "scope": scope_name(self.scopes),
            "dialects": None if self.dialects is None else sorted(self.dialects),
            "being": self.being,
            "resource": self.resource,
            "client": self.client,
            "created_at": iso(moment(self.created_at)),
            "expires_at": None if self.expires_at is None else iso(moment(self.expires_at)),
            "revoked_at": None if self.revoked_at is None else iso(moment(self.revoked_at)),
            "last_used": iso(moment(self.last_used)) if self.last_used else None,
        }


@dataclass(frozen=True, slots=True)
class Issued:
    """A new credential with its token, which is not stored anywhere."""

    token: str = field(repr=False)
    credential: Credential


@dataclass(frozen=True, slots=True)
class _Known:
    """A credential as it was at a version of the file."""

    version: tuple[int, int]
    credential: Credential
    caller: Caller
    refusal: str
    """Why it is refused at any hour; empty if it is not."""


_COLUMNS = (
    "id", "digest", "sort", "name", "user", "space", "scopes", "dialects", "being", "resource",
    "client", "family", "created_at", "expires_at", "revoked_at", "last_used", "mac",
)  # fmt: skip
_VOUCHED = len(_COLUMNS) - 2  # all but what follows uses, and the code itself
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM credentials"  # noqa: S608
_INSERT = (
    f"INSERT INTO credentials ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
)
_FILTERS = ("user", "space", "being", "client", "family")


class Credentials:
    """Every credential of a data directory. Threads may share it, and processes the file."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store = store
        self._vault = vault
        self.watch = Watch(store.path)
        self._known: dict[bytes, _Known] = {}
        self._ids: dict[str, bytes] = {}
        self._used: dict[str, int] = {}
        self._flushing = threading.Lock()

    # Making

    def create(self, grant: Grant) -> Issued:
        """A new token, durable on return. It cannot be shown again."""
        with self._store.maintain() as connection:
            return self.create_in(connection, grant)

    def create_in(self, connection: apsw.Connection, grant: Grant) -> Issued:
        """As `create`, as a part of the caller's own transaction."""
        _check_grant(grant)
        token = _form(grant).make(grant.space)
        return Issued(token, self._insert(connection, grant, token, _sort(grant)))

    def record_in(self, connection: apsw.Connection, grant: Grant, token: str) -> Credential:
        """Note a signed token, so that it can be listed and ended by itself."""
        _check_grant(grant)
        row = connection.execute(f"{_SELECT} WHERE digest = ?", (token_digest(token),)).fetchone()
        if row is None:
            return self._insert(connection, grant, token, "signed")
        known = self._credential(row)
        if known.revoked_at is not None:
            raise Conflict(
                f"The same token was revoked ({known.id}).",
                hint="Rotate the key first: 'commonplace token rotate-key'.",
            )
        return known

    def _insert(
        self, connection: apsw.Connection, grant: Grant, token: str, sort: str
    ) -> Credential:
        if removed(connection, grant.user):
            raise NotFound(
                f"The user {grant.user} was removed.",
                hint="Add the user again first: 'commonplace user add'.",
                field="user",
            )
        # Not before the moment that ends older ones, also when the clock was set back.
        created = max(now(), not_before(connection, user=grant.user, space=grant.space))
        expires = None if grant.lifetime is None else created + int(grant.lifetime * SECOND)
        dialects = None if grant.dialects is None else json.dumps(sorted(grant.dialects))
        values = (
            new_id(), token_digest(token), sort, grant.name, grant.user, grant.space,
            json.dumps([scope for scope in SCOPES if scope in grant.scopes]), dialects,
            grant.being, grant.resource, grant.client, grant.family, created, expires, None,
        )  # fmt: skip
        row = (*values, 0, self._vault.mac("credential", *values))
        connection.execute(_INSERT, row)
        return self._credential(row)

    # Looking

    def listing(self, *, user: str | None = None, space: str | None = None) -> list[Credential]:
        """All of them, the newest first; those that have ended are there until they are pruned."""
        clause, values = _where(user=user, space=space)
        with self._store.read() as connection:
            rows = connection.execute(f"{_SELECT}{clause} ORDER BY created_at DESC, id", values)
            return [self._credential(row) for row in rows]

    def get(self, identity: str) -> Credential:
        """The one of that id, or of an id that begins so."""
        with self._store.read() as connection:
            return self._credential(_row(connection, identity))

    # Ending

    def revoke(self, identity: str) -> Credential:
        """End one: nobody is let in with it from here on, in any process."""
        with self._store.maintain() as connection:
            row = _row(connection, identity)
            self._revoke(connection, row)
            return self._credential(_row(connection, row[0]))

    def replace(self, identity: str, grant: Grant) -> Issued:
        """End one and create its successor in one transaction; Unauthenticated if it has ended."""
        with self._store.maintain() as connection:
            row = _row(connection, identity)
            if self._credential(row).revoked_at is not None:
                raise Unauthenticated("revoked")
            self._revoke(connection, row)
            return self.create_in(connection, grant)

    def revoke_all(self, **which: str) -> int:
        """End all of a user, space, being, client or family; how many were alive."""
        with self._store.maintain() as connection:
            return self.revoke_all_in(connection, **which)

    def revoke_all_in(self, connection: apsw.Connection, **which: str) -> int:
        """As `revoke_all`, as a part of the caller's own transaction."""
        if not which or not set(which) <= set(_FILTERS):
            raise ValueError(f"revoke_all needs some of {', '.join(_FILTERS)}")
        clause, values = _where(**which)
        rows = connection.execute(f"{_SELECT}{clause} AND revoked_at IS NULL", values).fetchall()
        for row in rows:
            self._revoke(connection, row)
        return len(rows)

    def _revoke(self, connection: apsw.Connection, row: tuple[Any, ...]) -> None:
        values = dict(zip(_COLUMNS, row, strict=True))
        if values["revoked_at"] is not None:
            return
        values["revoked_at"] = now()
        mac = self._vault.mac("credential", *list(values.values())[:_VOUCHED])
        connection.execute(
            "UPDATE credentials SET revoked_at = ?, mac = ? WHERE id = ?",
            (values["revoked_at"], mac, values["id"]),
        )

    def end_before(self, space: str, at: int | None = None) -> int:
        """End every token of a space from before a moment (now); the moment that holds."""
        checks.space(space)
        with self._store.maintain() as connection:
            return set_not_before(connection, "space", space, now() if at is None else at)

    def prune(self, days: float = ENDED_DAYS) -> int:
        """Forget opaque tokens that ended so long ago; how many there were."""
        before = now() - int(days * 86_400 * SECOND)
        with self._store.maintain() as connection:
            connection.execute(
                "DELETE FROM credentials WHERE sort != 'signed'"
                " AND (expires_at < ?1 OR revoked_at < ?1)",
                (before,),
            )
            return connection.changes()

    # Knowing again

    def recognise(self, token: str, *, resource: str | None = None) -> Caller:
        """Who calls with this token; Unauthenticated if it is not one of ours, or has ended.

        With `resource`, a token that is for another address is refused too.
        """
        known = self._find(token)
        bound = known.credential.resource
        if bound and resource is not None and bound.rstrip("/") != resource.rstrip("/"):
            raise Unauthenticated("other resource")
        return known.caller

    def find(self, token: str) -> Credential:
        """The live credential of this token; Unauthenticated as in `recognise`."""
        return self._find(token).credential

    def _find(self, token: str) -> _Known:
        if len(token) > TOKEN_CHARS or not token.isascii():
            raise Unauthenticated("malformed")
        digest = token_digest(token)
        if digest not in self._known and not _well_formed(token):
            raise Unauthenticated("malformed")
        known = self._at(digest)
        if known is None:
            raise Unauthenticated("unknown")
        self._admit(known)
        return known

    def ended(self, token: str) -> Credential | None:
        """The credential of a token that may have ended; None if there never was one."""
        known = self._at(token_digest(token)) if _well_formed(token) else None
        return None if known is None else known.credential

    def alive(self, identity: str, version: tuple[int, int] | None = None) -> Credential:
        """The credential of an id, if it would be let in; otherwise Unauthenticated.

        `version` is what `watch` has just said, if somebody asked it already.
        """
        digest = self._ids.get(identity)
        if digest is None:
            with self._store.read() as connection:
                row: Any = connection.execute(
                    "SELECT digest FROM credentials WHERE id = ?", (identity,)
                ).fetchone()
            if row is None:
                raise Unauthenticated("unknown")
            digest = bytes(row[0])
            if len(self._ids) >= CACHED:
                self._ids = {}
            self._ids[identity] = digest  # an id's digest never changes
        known = self._at(digest, version)
        if known is None:
            raise Unauthenticated("unknown")
        self._admit(known)
        return known.credential

    def stands(self, identity: str) -> bool:
        """Whether a credential that was let in would be let in again."""
        try:
            self.alive(identity)
        except Unauthenticated:
            return False
        return True

    def family_alive(self, family: str) -> bool:
        """Whether a credential of the family has neither been revoked nor expired."""
        with self._store.read() as connection:
            rows = connection.execute(
                f"{_SELECT} WHERE family = ? AND family != '' AND revoked_at IS NULL"
                " AND (expires_at IS NULL OR expires_at > ?)",
                (family, now()),
            ).fetchall()
        return any(self._vouched(row) for row in rows)

    def known_signed(self, token: str) -> Credential | None:
        """What is noted of a signed token, if anything is; Unauthenticated if it has ended."""
        known = self._at(token_digest(token))
        if known is None:
            return None
        self._admit(known)
        return known.credential

    def _admit(self, known: _Known) -> None:
        """Let a credential pass, and note that it was used."""
        if known.refusal:
            raise Unauthenticated(known.refusal)
        credential, at = known.credential, now()
        if credential.expires_at is not None and at >= credential.expires_at:
            raise Expired
        if at - credential.last_used >= USED_SECONDS * SECOND:
            self._used.setdefault(credential.id, at)

    def _at(self, digest: bytes, version: tuple[int, int] | None = None) -> _Known | None:
        """What the file says now of a token; it is read again only if the file has changed."""
        # The version is asked for before the row is read: a row can only be newer than its mark.
        version = version or self.watch.version()
        known = self._known.get(digest)
        if known is not None and known.version == version:
            return known
        with self._store.read() as connection:
            row: Any = connection.execute(f"{_SELECT} WHERE digest = ?", (digest,)).fetchone()
            if row is None:
                self._known.pop(digest, None)
                return None
            ended = not_before(connection, user=row[4], space=row[5])
            gone = removed(connection, row[4])
        credential = self._credential(row)
        refusal = ""
        if not self._vouched(row) or not hmac.compare_digest(row[1], digest):
            refusal = "damaged"
        elif credential.revoked_at is not None:
            refusal = "revoked"
        elif gone:
            refusal = "user removed"
        elif credential.created_at < ended:
            refusal = "not before"
        known = _Known(version, credential, credential.caller, refusal)
        if len(self._known) >= CACHED:
            self._known = {}
        self._known[digest] = known
        return known

    def flush(self) -> int:
        """Write down which credentials were used since the last time; how many."""
        with self._flushing:
            used, self._used = self._used, {}
            if not used:
                return 0
            try:
                with self._store.maintain() as connection:
                    connection.executemany(
                        "UPDATE credentials SET last_used = ?1 WHERE id = ?2 AND last_used < ?1",
                        [(at, identity) for identity, at in list(used.items())],
                    )
            except CommonplaceError:
                self._used = {**used, **self._used}
                raise
            return len(used)

    def close(self) -> None:
        """Write down what was used, and let go of the file."""
        try:
            self.flush()
        finally:
            self.watch.close()

    # Rows

    def reseal_in(self, connection: apsw.Connection) -> None:
        """Vouch for every row by the newest master key; one that is damaged stays so."""
        for row in connection.execute(_SELECT).fetchall():
            if self._vouched(row):
                connection.execute(
                    "UPDATE credentials SET mac = ? WHERE id = ?",
                    (self._vault.mac("credential", *row[:_VOUCHED]), row[0]),
                )

    def damaged_in(self, connection: apsw.Connection) -> Iterator[str]:
        """Tokens that are not as they were stored: they let nobody in."""
        for row in connection.execute(_SELECT):
            if not self._vouched(row):
                yield f"The token {row[0]}"

    def _vouched(self, row: tuple[Any, ...]) -> bool:
        return self._vault.vouches(row[-1], "credential", *row[:_VOUCHED])

    def _credential(self, row: tuple[Any, ...]) -> Credential:
        values: Mapping[str, Any] = dict(zip(_COLUMNS, row, strict=True))
        dialects = values["dialects"]
        return Credential(
            id=values["id"],
            sort=values["sort"],
            name=values["name"],
            user=values["user"],
            space=values["space"],
            scopes=frozenset(json.loads(values["scopes"])),
            dialects=None if dialects is None else frozenset(json.loads(dialects)),
            being=values["being"],
            resource=values["resource"],
            client=values["client"],
            family=values["family"],
            created_at=values["created_at"],
            expires_at=values["expires_at"],
            revoked_at=values["revoked_at"],
            last_used=values["last_used"],
        )


def token_digest(token: str) -> bytes:
    """What is stored of a token: enough to know it again, nothing to make it from."""
    return hashlib.sha256(token.encode()).digest()


def scope_name(scopes: frozenset[Scope]) -> str:
    """full, read-only, admin, or the scopes themselves."""
    for name, meant in SCOPE_NAMES.items():
        if meant == scopes:
            return name
    return " ".join(scope for scope in SCOPES if scope in scopes)


def penfield_scopes(permissions: Iterable[str]) -> frozenset[Scope]:
    """What Penfield's permissions allow here; those that it does not know allow nothing."""
    allowed: frozenset[Scope] = frozenset()
    for permission in permissions:
        allowed |= _PENFIELD.get(permission.lower(), frozenset())
    return allowed


def not_before(connection: apsw.Connection, *, user: str, space: str) -> int:
    """The moment before which every token of the user, or of the space, has ended."""
    row: Any = connection.execute(
        "SELECT max(at) FROM not_before"
        " WHERE (subject = 'user' AND name = ?) OR (subject = 'space' AND name = ?)",
        (user, space),
    ).fetchone()
    return row[0] or 0


def set_not_before(connection: apsw.Connection, subject: str, name: str, at: int) -> int:
    """End every token of a user or a space from before a moment; it never moves back."""
    if at > now() + SECOND:
        raise InvalidInput(
            "The moment lies in the future.", hint="Give 'now', or a moment in the past."
        )
    row: Any = connection.execute(
        "INSERT INTO not_before (subject, name, at) VALUES (?, ?, ?)"
        " ON CONFLICT (subject, name) DO UPDATE SET at = max(at, excluded.at) RETURNING at",
        (subject, name, at),
    ).fetchone()
    held: int = row[0]
    return held


def removed(connection: apsw.Connection, user: str) -> bool:
    """Whether there was an account of that name, and it was taken away."""
    row = connection.execute(
        "SELECT 1 FROM users WHERE name = ? AND removed_at IS NOT NULL", (user,)
    ).fetchone()
    return row is not None


def _check(token: str) -> str:
    """Six characters that a token ends with, so that a mistyped one is not looked up."""
    sum_ = binascii.crc32(token.encode()).to_bytes(4)
    return base64.urlsafe_b64encode(sum_).decode().rstrip("=")


def opaque(token: str) -> bool:
    """Whether a token begins as one of the opaque ones does."""
    return token[: token.find("_") + 1] in _PREFIXES


def _well_formed(token: str) -> bool:
    form = _PREFIXES.get(token[: token.find("_") + 1])
    if form is None:
        return False
    return not form.checked or hmac.compare_digest(
        _check(token[:-_CHECK_CHARS]), token[-_CHECK_CHARS:]
    )


def _form(grant: Grant) -> _Form:
    """How the token of a grant looks: as its only dialect has it, otherwise as ours."""
    only = next(iter(grant.dialects)) if grant.dialects and len(grant.dialects) == 1 else ""
    return FORMS.get(only, _OURS)[1 if grant.oauth else 0]


def _sort(grant: Grant) -> str:
    return "oauth" if grant.oauth else "token"


def _check_grant(grant: Grant) -> None:
    checks.space(grant.space)
    checks.text(grant.user, "user", max_chars=USER_CHARS)
    for name, most in (("name", 200), ("being", 200), ("resource", 2_000), ("client", 500)):
        checks.optional(getattr(grant, name), name, max_chars=most)
    if not grant.scopes or not grant.scopes <= EVERYTHING:
        raise InvalidInput(
            "A credential needs scopes.", hint=f"There are: {', '.join(SCOPES)}.", field="scopes"
        )
    if grant.dialects is not None and not (grant.dialects and grant.dialects <= FORMS.keys()):
        raise InvalidInput(
            f"There is no such dialect: {', '.join(sorted(grant.dialects - FORMS.keys()))}.",
            hint=f"There are: {', '.join(FORMS)}.",
            field="dialect",
        )
    if grant.lifetime is not None and not 0 < grant.lifetime <= LIFETIME_SECONDS:
        raise InvalidInput(
            "A credential lives for more than nothing and at most 100 years.",
            hint="Give another time, or none for no end.",
            field="expires",
        )


def _where(**values: str | None) -> tuple[str, list[str]]:
    given = {name: value for name, value in values.items() if value is not None}
    clause = " AND ".join(f"{name} = ?" for name in given)
    return (f" WHERE {clause}" if clause else ""), list(given.values())


def _row(connection: apsw.Connection, identity: str) -> tuple[Any, ...]:
    """The row of an id, or of the only id that begins so."""
    if len(identity) < 4 or not all(sign in "0123456789abcdef-" for sign in identity):
        raise InvalidInput(
            "That is no id: it has 0-9, a-f and '-', and at least its first 4 characters.",
            hint="See 'commonplace token list'.",
        )
    rows = connection.execute(
        f"{_SELECT} WHERE id >= ? AND id < ? LIMIT 2", (identity, identity + "g")
    ).fetchall()
    if not rows:
        raise NotFound(f"There is no credential {identity}.", hint="See 'commonplace token list'.")
    if len(rows) > 1:
        raise Conflict(f"Several ids begin with {identity}.", hint="Give more of it.")
    return rows[0]
