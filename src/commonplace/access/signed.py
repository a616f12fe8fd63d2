"""Signed tokens and JWTs of dialects; and `Tokens`, which accepts tokens of every format.

A signed token (`declarations.HmacTokenFormat`) contains no key id, so every live key is tried. It
becomes invalid when its key retires, by a `not_before` of its workspace or user, or, if it was
issued here and therefore stored, by revocation. A token without a time is accepted after a
`not_before` only if its key is newer.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jwt

from commonplace.access.caller import FULL_SCOPES, SCOPES, Caller
from commonplace.access.credentials import (
    MOST_CACHED,
    SECOND,
    TOKEN_CHARS,
    Credential,
    Credentials,
    Expired,
    Grant,
    IssuedCredential,
    Unauthenticated,
    token_digest,
)
from commonplace.access.declarations import AllTokenFormats, HmacTokenFormat, JwtTokenFormat
from commonplace.engine import checks
from commonplace.errors import Conflict, InvalidInput, StorageCorrupt
from commonplace.storage import secrets as stored
from commonplace.storage.accounts import is_removed
from commonplace.storage.credentials import not_before
from commonplace.storage.database import now
from commonplace.storage.ports import Rows, Store

if TYPE_CHECKING:
    from commonplace.access.vault import Vault

LEEWAY_SECONDS = 60
KEY_BYTES = 32
LEAST_KEY_BYTES = 16
MOST_KEY_BYTES = 1_024
MOST_LIVE_KEYS = 16
_ALGORITHM = "HS256"
_TO_STANDARD_BASE64 = str.maketrans("-_+/", "+/  ")  # only base64url is accepted
_CLAIMS = ("iss", "aud", "sub", "tenant_id", "scopes", "iat", "exp", "jti", "key")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs the tokens of one dialect (`purpose`); times are UTC microseconds."""

    id: str
    purpose: str
    secret: bytes = field(repr=False)
    created_at: int
    retires_at: int | None

    def is_live(self, at: int) -> bool:
        """Return whether tokens signed with this key are accepted at a time."""
        return self.retires_at is None or at < self.retires_at


def check_new_key(
    formats: AllTokenFormats, purpose: str, secret: bytes | None, overlap: float
) -> None:
    """Raise InvalidInput if a signing key with these values cannot be added."""
    signed = [name for name, each in formats.dialects.items() if each.signed or each.jwt]
    checks.one_of(purpose, "purpose", signed)
    if secret is not None and not LEAST_KEY_BYTES <= len(secret) <= MOST_KEY_BYTES:
        raise InvalidInput(
            f"A signing key must have {LEAST_KEY_BYTES} to {MOST_KEY_BYTES:,} bytes.",
            hint="Make one with 'openssl rand -hex 32'.",
            field="key",
        )
    if not 0 <= overlap <= 366 * 86_400:
        raise InvalidInput("The overlap must be 0 to 366 days.", field="overlap")


class SigningKeys:
    """The signing keys of a data directory, encrypted by its vault."""

    def __init__(self, store: Store, vault: Vault, credentials: Credentials) -> None:
        self._store = store
        self._vault = vault
        self._watch = credentials.watch
        self._formats = credentials.formats
        self._cached: tuple[tuple[int, int], list[SigningKey]] | None = None

    def live_keys(self, purpose: str) -> list[SigningKey]:
        """Return the keys whose tokens are accepted, the newest first."""
        at = now()
        return [key for key in self.listing() if key.purpose == purpose and key.is_live(at)]

    def listing(self) -> list[SigningKey]:
        """Return all keys, the newest first."""
        version, cached = self._watch.version(), self._cached
        if cached is None or cached[0] != version:
            with self._store.read() as rows:
                cached = self._cached = (version, self._read_keys(rows))
        return cached[1]

    def newest(self, purpose: str) -> SigningKey:
        """Return the key that signs new tokens; create it if there is none."""
        found = self.live_keys(purpose)
        return found[0] if found else self._add_key(purpose, None, 0.0, only_if_none=True)

    def rotate(
        self, purpose: str, *, secret: bytes | None = None, overlap: float = 0.0
    ) -> SigningKey:
        """Add a new key; accept tokens signed with older keys for `overlap` more seconds.

        With `secret`, the key is shared with another system.
        """
        return self._add_key(purpose, secret, overlap, only_if_none=False)

    def _add_key(
        self, purpose: str, secret: bytes | None, overlap: float, *, only_if_none: bool
    ) -> SigningKey:
        check_new_key(self._formats, purpose, secret, overlap)
        # Hexadecimal text, since the key may be needed as text in the configuration of other
        # systems.
        secret = secrets.token_hex(KEY_BYTES).encode() if secret is None else secret
        with self._store.maintain() as rows:
            at = now()
            known = [key for key in self._read_keys(rows) if key.purpose == purpose]
            found = [key for key in known if key.is_live(at)]
            if only_if_none and found:
                return found[0]
            if len(found) >= MOST_LIVE_KEYS:
                raise Conflict(
                    f"There are already {len(found)} live keys.",
                    hint="Wait until some of them retire.",
                )
            if any(hmac.compare_digest(key.secret, secret) for key in known):
                raise Conflict("This key was used before.", hint="Use a new key.")
            for key in found:
                end = at + int(overlap * SECOND)
                self._write_key(
                    rows, key, end if key.retires_at is None else min(end, key.retires_at)
                )
            # The time is later than that of all other keys, even if the clock was set back.
            created = max([at, *(key.created_at + 1 for key in known)])
            new = SigningKey(secrets.token_hex(8), purpose, secret, created, None)
            self._write_key(rows, new, None)
        return new

    def _read_keys(self, rows: Rows) -> list[SigningKey]:
        return [self._decrypt(row) for row in stored.signing_keys(rows)]

    def _decrypt(self, row: stored.SigningKeyRow) -> SigningKey:
        bound = _associated_data(row.purpose, row.id, row.created_at, row.retires_at)
        secret = self._vault.open(row.sealed, *bound)
        return SigningKey(row.id, row.purpose, secret, row.created_at, row.retires_at)

    def _write_key(self, rows: Rows, key: SigningKey, retires_at: int | None) -> None:
        bound = _associated_data(key.purpose, key.id, key.created_at, retires_at)
        sealed = self._vault.seal(key.secret, *bound)
        row = stored.SigningKeyRow(key.id, key.purpose, sealed, key.created_at, retires_at)
        stored.put_signing_key(rows, row)

    def reseal_rows(self, rows: Rows) -> None:
        """Encrypt every key again with the newest master key."""
        for key in self._read_keys(rows):
            self._write_key(rows, key, key.retires_at)

    def damaged_rows(self, rows: Rows) -> Iterator[str]:
        """Yield keys that cannot be decrypted; tokens signed with them are refused."""
        for row in stored.signing_keys(rows):
            with contextlib.suppress(StorageCorrupt):
                self._decrypt(row)
                continue
            yield f"The signing key {row.id}"


def _associated_data(
    purpose: str, identity: str, created_at: int, retires_at: int | None
) -> tuple[str, ...]:
    """Return the associated data of an encrypted key, with its times, so that they are
    authenticated."""
    return ("signing key", purpose, identity, str(created_at), str(retires_at))


@dataclass(frozen=True, slots=True)
class _VerifiedToken:
    """A token whose signature was checked, cached with the version of system.db."""

    version: tuple[int, int]
    caller: Caller
    key: SigningKey
    issued_at: int | None
    """The Unix second of issue, if the token has one; `expires_at` is the second of expiry."""
    expires_at: int | None
    credential_id: str
    """The id of the stored credential, if there is one."""


class _SignedTokens:
    """Verifies tokens of one format; caches checked signatures while system.db does not change."""

    def __init__(
        self, dialect: str, store: Store, keys: SigningKeys, credentials: Credentials
    ) -> None:
        self._dialect = dialect
        self._store = store
        self._keys = keys
        self._credentials = credentials
        self._seen: dict[bytes, _VerifiedToken] = {}

    def _verify_cached(self, *parts: str) -> _VerifiedToken:
        """Verify a token given by its parts; raise Unauthenticated for a wrong signature or retired
        key."""
        digest, version = token_digest(".".join(parts)), self._credentials.watch.version()
        seen = self._seen.get(digest)
        if seen is None or seen.version != version:
            seen = self._verify(*parts, version=version)
            if len(self._seen) >= MOST_CACHED:
                self._seen = {}
            self._seen[digest] = seen
        if not seen.key.is_live(now()):
            raise Unauthenticated("signing key retired")
        return seen

    def _verify(self, *parts: str, version: tuple[int, int]) -> _VerifiedToken:
        raise NotImplementedError


class HmacTokens(_SignedTokens):
    """The signed tokens of a dialect, with and without a time."""

    format: HmacTokenFormat

    def issue(
        self, user: str, workspace: str, *, with_time: bool = False, name: str = ""
    ) -> IssuedCredential:
        """Issue a token for a user in a workspace, stored so that it can be revoked."""
        for part, field_name in ((user, "user"), (workspace, "workspace")):
            if ":" in checks.text(part, field_name, max_chars=200):
                raise InvalidInput(
                    f"{field_name} has a colon, which separates the token's parts.",
                    hint="Choose another.",
                    field=field_name,
                )
        key = self._keys.newest(self._dialect)
        space = space_of(workspace)
        grant = Grant(user=user, space=space, dialects=frozenset({self._dialect}), name=name)
        with self._store.maintain() as rows:
            ended = not_before(rows, owner=user, space=space)
            if not with_time and key.created_at < ended:
                raise Conflict(
                    "Tokens without a timestamp are no longer accepted for this user or space.",
                    hint="Create a newer key first: 'commonplace token rotate-key'.",
                )
            payload = f"{user}:{workspace}"
            if with_time:
                payload += f":{_first_second_after(ended)}"
            token = signed_token(payload, key.secret)
            return IssuedCredential(
                token, self._credentials.record_in_transaction(rows, grant, token)
            )

    def recognise(self, token: str) -> Caller:
        """Return the caller of a token; raise Unauthenticated if it is unknown, revoked or
        expired."""
        seen = self._verify_cached(*_split_token(token))
        if seen.issued_at is not None:
            age, longest = now() - seen.issued_at * SECOND, self.format.max_age * SECOND
            if longest and age > longest:
                raise Expired
            if -age > (longest or LEEWAY_SECONDS * SECOND):
                raise Unauthenticated("not yet valid")
        if seen.credential_id:
            self._credentials.get_valid(seen.credential_id, seen.version)
        return seen.caller

    def _verify(self, *parts: str, version: tuple[int, int]) -> _VerifiedToken:
        payload, signature = parts
        given = signature.encode()
        signer: SigningKey | None = None
        # Try all keys, so that the time does not show which key matched.
        for key in self._keys.live_keys(self._dialect):
            made = hmac.new(key.secret, payload.encode(), hashlib.sha256).hexdigest().encode()
            if hmac.compare_digest(made, given) and signer is None:
                signer = key
        if signer is None:
            raise Unauthenticated("bad signature")
        user, workspace, issued_at = _parse_payload(payload)
        space = space_of(workspace)
        with self._store.read() as rows:
            ended = not_before(rows, owner=user, space=space)
            gone = is_removed(rows, user)
        if gone:
            raise Unauthenticated("user removed")
        if (signer.created_at if issued_at is None else issued_at * SECOND) < ended:
            raise Unauthenticated("not before")
        known = self._credentials.find_signed(f"{payload}.{signature}")
        ends = None
        if issued_at is not None and self.format.max_age:
            ends = issued_at * SECOND + int(self.format.max_age * SECOND)
        caller = Caller(
            space=space, user=user, scopes=FULL_SCOPES, expires_at=ends,
            credential=known.id if known else f"key:{signer.id}:{user}",
            dialects=frozenset({self._dialect}),
        )  # fmt: skip
        return _VerifiedToken(version, caller, signer, issued_at, None, known.id if known else "")


class JwtTokens(_SignedTokens):
    """The access tokens of a dialect: JWTs that a client gets in exchange for an API key.

    They become invalid when the API key or the family of their refresh tokens is revoked.
    """

    format: JwtTokenFormat
    issuer: str

    def issue(
        self, credential: Credential, *, family: str = "", lifetime: int | None = None
    ) -> str:
        """Issue an access token with the rights of the credential; it ends with it and its
        family."""
        key = self._keys.newest(self._dialect)
        with self._store.read() as rows:
            ended = not_before(rows, owner=credential.user, space=credential.space)
        issued = _first_second_after(ended)
        claims = {
            "iss": self.issuer,
            "aud": self.format.audience,
            "sub": credential.user,
            "tenant_id": self.format.tenant_id(credential.space),
            "scopes": [scope for scope in SCOPES if scope in credential.scopes],
            "iat": issued,
            "exp": issued + (self.format.lifetime if lifetime is None else lifetime),
            "jti": secrets.token_hex(16),
            "key": credential.id,
        }
        if family:
            claims["family"] = family
        return jwt.encode(claims, key.secret, algorithm=_ALGORITHM, headers={"kid": key.id})

    def recognise(self, token: str) -> Caller:
        """Return the caller of a token; raise Unauthenticated if it is unknown, revoked or
        expired."""
        if len(token) > TOKEN_CHARS or not token.isascii():
            raise Unauthenticated("malformed")
        seen, at = self._verify_cached(token), now()
        assert seen.issued_at is not None and seen.expires_at is not None
        self._credentials.get_valid(seen.credential_id, seen.version)
        if at >= (seen.expires_at + LEEWAY_SECONDS) * SECOND:
            raise Expired
        if at < (seen.issued_at - LEEWAY_SECONDS) * SECOND:
            raise Unauthenticated("not yet valid")
        return seen.caller

    def _verify(self, *parts: str, version: tuple[int, int]) -> _VerifiedToken:
        (token,) = parts
        try:
            identity = jwt.get_unverified_header(token).get("kid")
            live = self._keys.live_keys(self._dialect)
            key = next((key for key in live if key.id == identity), None)
            if key is None:
                raise Unauthenticated("unknown key")
            claims: dict[str, Any] = jwt.decode(
                token,
                key.secret,
                algorithms=[_ALGORITHM],
                audience=self.format.audience,
                issuer=self.issuer,
                leeway=LEEWAY_SECONDS,
                # Check expiry last: only an otherwise valid token is reported as expired.
                options={"require": list(_CLAIMS), "strict_aud": True, "verify_exp": False},
            )
        except jwt.ImmatureSignatureError:
            raise Unauthenticated("not yet valid") from None
        except jwt.InvalidAlgorithmError:
            raise Unauthenticated("wrong algorithm") from None
        except jwt.InvalidSignatureError:
            raise Unauthenticated("bad signature") from None
        except jwt.InvalidTokenError as error:
            raise Unauthenticated(f"not a valid JWT: {type(error).__name__}") from None
        credential = self._credentials.get_valid(str(claims["key"]))
        if (
            claims["tenant_id"] != self.format.tenant_id(credential.space)
            or claims["sub"] != credential.user
        ):
            raise Unauthenticated("the token's claims name another tenant")
        # Revoking a family changes the version of system.db, so the result can be cached.
        if "family" in claims and not self._credentials.is_family_valid(str(claims["family"])):
            raise Unauthenticated("family ended")
        with self._store.read() as rows:
            ended = not_before(rows, owner=credential.user, space=credential.space)
        try:
            made, ends = int(claims["iat"]), int(claims["exp"])
        except (TypeError, ValueError, OverflowError):
            raise Unauthenticated("not a valid JWT: bad times") from None
        if made * SECOND < ended:
            raise Unauthenticated("not before")
        caller = replace(
            credential.caller,
            scopes=self.format.scopes_of(map(str, claims["scopes"])) & credential.scopes,
            dialects=frozenset({self._dialect}), family="", subject="",
            expires_at=min(ends * SECOND, credential.expires_at or ends * SECOND),
        )  # fmt: skip
        return _VerifiedToken(version, caller, key, made, ends, credential.id)


@dataclass(frozen=True, slots=True)
class _EnvironmentToken:
    digest: bytes = field(repr=False)
    caller: Caller

    def session_mark(self, cookie: str) -> str:
        """Return an identifier of the token for a browser session; it is keyed with the cookie,
        which is not stored, so that nobody can guess the token from it."""
        bound = hmac.digest(cookie.encode(), self.digest, "sha256")
        return f"{self.caller.credential} {bound.hex()}"


def environment_tokens(
    environ: Mapping[str, str], formats: AllTokenFormats
) -> list[_EnvironmentToken]:
    """Return the tokens in the environment variables that the dialects declare."""
    found = []
    for dialect, each in formats.dialects.items():
        declared = each.environment
        if declared is None:
            continue
        name = next((name for name in declared.variables if environ.get(name)), "")
        user = environ.get(declared.user_variable, "") if declared.user_variable else "local"
        if name and user:
            caller = Caller(
                user=user, scopes=declared.scopes, credential=f"environment:{name}",
                dialects=frozenset({dialect}),
            )  # fmt: skip
            found.append(_EnvironmentToken(_sha256(environ[name]), caller))
    return found


def _sha256(token: str) -> bytes:
    """Return the digest of a token, so that a comparison takes the same time for every length."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class Tokens:
    """Finds the caller of a token of any format."""

    def __init__(
        self,
        store: Store,
        vault: Vault,
        formats: AllTokenFormats,
        *,
        issuer: str = "commonplace",
        max_age: float | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.credentials = Credentials(store, vault, formats)
        self.keys = SigningKeys(store, vault, self.credentials)
        self.hmac: dict[str, HmacTokens] = {}
        """The verifiers of HMAC-signed tokens by dialect; `jwt` holds those of JWTs."""
        self.jwt: dict[str, JwtTokens] = {}
        for name, each in formats.dialects.items():
            if each.signed is not None:
                signed = HmacTokens(name, store, self.keys, self.credentials)
                signed.format = each.signed if max_age is None else HmacTokenFormat(max_age)
                self.hmac[name] = signed
            if each.jwt is not None:
                exchanged = JwtTokens(name, store, self.keys, self.credentials)
                exchanged.format, exchanged.issuer = each.jwt, issuer
                self.jwt[name] = exchanged
        self._configured = environment_tokens(os.environ if environ is None else environ, formats)

    def recognise(self, token: str, *, resource: str | None = None) -> Caller:
        """Return the caller of a token of any format; raise Unauthenticated if it is not valid."""
        if not token:
            raise Unauthenticated("missing")
        if (found := self._find_environment_token(token)) is not None:
            return found.caller
        if self.credentials.formats.has_known_prefix(token):
            return self.credentials.recognise(token, resource=resource)
        refused = Unauthenticated("malformed")
        for each in (self.jwt if token.count(".") == 2 else self.hmac).values():
            try:
                return each.recognise(token)
            except Expired:
                raise
            except Unauthenticated as error:
                refused = error
        raise refused

    def _find_environment_token(self, token: str) -> _EnvironmentToken | None:
        given = _sha256(token)
        found = None
        for each in self._configured:
            if hmac.compare_digest(each.digest, given):
                found = each
        return found

    def session_of_environment_token(self, token: str, cookie: str) -> tuple[Caller, str] | None:
        """Return the caller of an environment token, and its identifier for a browser session with
        this cookie (`session_mark`); None for any other token."""
        found = self._find_environment_token(token)
        return None if found is None else (found.caller, found.session_mark(cookie))

    def is_environment_token_set(self, mark: str, cookie: str) -> bool:
        """Return whether the token with this identifier is still set in the environment."""
        return any(
            hmac.compare_digest(each.session_mark(cookie).encode(), mark.encode())
            for each in self._configured
        )

    def close(self) -> None:
        """Store the times of last use of credentials, and close the connection."""
        self.credentials.close()


def signed_token(payload: str, secret: bytes) -> str:
    """Return a signed token: the payload as base64url without padding, and its HMAC."""
    encoded = base64.urlsafe_b64encode(payload.encode()).decode().rstrip("=")
    return f"{encoded}.{hmac.new(secret, encoded.encode(), hashlib.sha256).hexdigest()}"


def space_of(workspace: str) -> str:
    """Return the space of a workspace: its id if that is a valid space name, or else a digest."""
    try:
        return checks.space(workspace)
    except InvalidInput:
        return f"workspace-{hashlib.sha256(workspace.encode()).hexdigest()[:40]}"


def _split_token(token: str) -> tuple[str, str]:
    """Split a token into the signed payload and the signature in lower case."""
    payload, dot, signature = token.partition(".")
    if len(token) > TOKEN_CHARS or not token.isascii() or not dot or len(signature) != 64:
        raise Unauthenticated("malformed")
    return payload, signature.lower()


def _parse_payload(payload: str) -> tuple[str, str, int | None]:
    """Return the user, the workspace, and the time of issue in seconds, if the token has one."""
    try:
        padded = payload.translate(_TO_STANDARD_BASE64) + "=" * (-len(payload) % 4)
        text = base64.b64decode(padded, validate=True).decode()
    except (binascii.Error, ValueError):
        raise Unauthenticated("malformed") from None
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts) or not text.isprintable():
        raise Unauthenticated("malformed")
    if len(parts) == 2:
        return parts[0], parts[1], None
    if not (parts[2].isascii() and parts[2].isdigit() and len(parts[2]) <= 11):
        raise Unauthenticated("malformed")
    return parts[0], parts[1], int(parts[2])


def _first_second_after(ended: int) -> int:
    """Return the current second, or the first whole second after a later `not_before` time."""
    return max(now() // SECOND, math.ceil(ended / SECOND))
