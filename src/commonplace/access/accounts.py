"""Accounts: a name, a password, and the spaces that the account may use.

The name of a removed account stays stored, so that tokens issued to it are never accepted again.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commonplace.access.credentials import (
    SESSION_SORT,
    USER_CHARS,
    Credentials,
    invalidate_created_before_in_transaction,
)
from commonplace.engine import checks
from commonplace.engine.model import iso, moment
from commonplace.errors import Conflict, InvalidInput, NotFound, StorageCorrupt
from commonplace.storage import accounts as stored
from commonplace.storage import credentials as credential_rows
from commonplace.storage import oauth
from commonplace.storage.accounts import AccountRow
from commonplace.storage.database import now
from commonplace.storage.ports import Rows, Store

if TYPE_CHECKING:
    from commonplace.access.vault import Vault

LEAST_PASSWORD_CHARS = 8
MOST_PASSWORD_CHARS = 1_024
SALT_BYTES = 16
HASH_BYTES = 32
HASHES_AT_ONCE = 2  # concurrent hashes; each takes 32 MB
MOST_SPACES = 1_000


@dataclass(frozen=True, slots=True)
class ScryptCost:
    """scrypt's parameters, stored with every hash."""

    n: int = 2**15
    r: int = 8
    p: int = 3

    def hash(self, password: str, salt: bytes) -> bytes:
        """Return the hash of a password."""
        return hashlib.scrypt(
            unicodedata.normalize("NFC", password).encode(),
            salt=salt,
            n=self.n,
            r=self.r,
            p=self.p,
            maxmem=128 * self.r * (self.n + self.p + 2) + 65_536,
            dklen=HASH_BYTES,
        )


@dataclass(frozen=True, slots=True)
class Account:
    """An account; times are UTC microseconds."""

    name: str
    spaces: tuple[str, ...]
    """The account's spaces; the first is the default."""
    created_at: int
    changed_at: int
    """When the password was set."""

    def as_dict(self) -> dict[str, Any]:
        """Return the account as JSON output."""
        return {
            "name": self.name,
            "spaces": list(self.spaces),
            "created_at": iso(moment(self.created_at)),
            "changed_at": iso(moment(self.changed_at)),
        }


class Accounts:
    """The accounts of a data directory."""

    def __init__(
        self,
        store: Store,
        vault: Vault,
        credentials: Credentials,
        *,
        cost: ScryptCost | None = None,
    ) -> None:
        self._store = store
        self._vault = vault
        self._credentials = credentials
        self._cost = cost or ScryptCost()
        self._hashing = threading.BoundedSemaphore(HASHES_AT_ONCE)
        self._unknown_salt = os.urandom(SALT_BYTES)

    def add(self, name: str, password: str, spaces: Iterable[str]) -> Account:
        """Add an account with these spaces."""
        name, password, owned = check_new_account(name, password, spaces)
        salt, hashed, cost = self._new_hash(password)
        with self._store.maintain() as rows:
            known = self._find_row(rows, name)
            if known is not None and known.removed_at is None:
                raise Conflict(
                    f"The user {name} already exists.",
                    hint=f"For a new password: commonplace user password {name}. For another token:"
                    f" commonplace token create --user {name}.",
                    field="name",
                )
            self._refuse_foreign_tokens(rows, name, owned)
            at = now()
            row = AccountRow(name, salt, hashed, cost, json.dumps(owned), at, at)
            self._write_row(rows, row)
        return _account(row)

    def _refuse_foreign_tokens(self, rows: Rows, name: str, spaces: Sequence[str]) -> None:
        """Refuse an account whose name already has tokens for spaces that the account does not
        get."""
        at = now()
        alive = (
            each.space
            for each in credential_rows.select(rows, owner=name, revoked=False)
            if each.expires_at is None or at < each.expires_at
        )
        others = sorted(set(alive) - set(spaces))
        if others:
            raise Conflict(
                f"The user name {name} already has tokens for {', '.join(others)}.",
                hint="Revoke them first with 'commonplace token revoke ID' ('commonplace token list"
                " --user NAME' shows the ids), or add these spaces with --space.",
                field="name",
            )

    def verify(self, name: str, password: str) -> Account | None:
        """Return the account if the password is right. An unknown name takes the same time."""
        try:
            name, password = _checked_name(name), _checked_password(password)
        except InvalidInput:
            name = ""  # an empty name matches no account
            password = password[:MOST_PASSWORD_CHARS].encode("utf-8", "replace").decode()
        with self._store.read() as rows:
            row = self._find_row(rows, name)
        if row is not None and row.removed_at is not None:
            row = None
        salt, expected, cost = self._unknown_salt, bytes(HASH_BYTES), self._cost
        if row is not None:
            salt, expected, cost = row.salt, row.hash, ScryptCost(**json.loads(row.cost))
        with self._hashing:
            given = cost.hash(password, salt)
        if not hmac.compare_digest(given, expected) or row is None:
            return None
        if cost != self._cost:
            self._renew_hash(row, password)
        return _account(row)

    def _renew_hash(self, row: AccountRow, password: str) -> None:
        """Hash a password again with the current parameters."""
        salt, hashed, cost = self._new_hash(password)
        with self._store.maintain() as rows:
            # Store the hash only if the password has not changed since the row was read.
            if self._find_row(rows, row.name) == row:
                self._write_row(rows, row._replace(salt=salt, hash=hashed, cost=cost))

    def get(self, name: str) -> Account:
        """Return the account of that name."""
        with self._store.read() as rows:
            return _account(self._existing_row(rows, name))

    def listing(self) -> list[Account]:
        """Return all accounts in the order of their names, without removed accounts."""
        with self._store.read() as rows:
            found = [row for row in stored.listing(rows) if row.removed_at is None]
            return [_account(self._check_mac(row)) for row in found]

    def change_password(self, name: str, password: str, *, sign_out: bool = False) -> Account:
        """Set a password and end the browser sessions and the sign-ins of the consent pages.

        With `sign_out`, revoke every token too.
        """
        salt, hashed, cost = self._new_hash(_checked_password(password))
        with self._store.maintain() as rows:
            row = self._existing_row(rows, name)._replace(
                salt=salt, hash=hashed, cost=cost, changed_at=now()
            )
            self._write_row(rows, row)
            self._credentials.revoke_all_in_transaction(rows, owner=row.name, sort=SESSION_SORT)
            oauth.delete_logins_of(rows, row.name)
            if sign_out:
                self._end_tokens(rows, row.name)
        return _account(row)

    def remove(self, name: str) -> int:
        """Remove an account, revoke its tokens and return their number. Memories stay."""
        with self._store.maintain() as rows:
            row = self._existing_row(rows, name)
            gone = row._replace(salt=b"", hash=b"", spaces="[]", removed_at=now())
            self._write_row(rows, gone)
            return self._end_tokens(rows, row.name)

    def _end_tokens(self, rows: Rows, name: str) -> int:
        # This also ends signed tokens, which need not be stored.
        invalidate_created_before_in_transaction(rows, "user", name, now())
        return self._credentials.revoke_all_in_transaction(rows, owner=name)

    def reseal_rows(self, rows: Rows) -> None:
        """Compute the MAC of every account again with the newest master key."""
        for row in stored.listing(rows):
            self._write_row(rows, self._check_mac(row))

    def damaged_rows(self, rows: Rows) -> Iterator[str]:
        """Yield accounts whose MAC does not match; nobody can log in to them."""
        for row in stored.listing(rows):
            with contextlib.suppress(StorageCorrupt):
                self._check_mac(row)
                continue
            yield f"The account {row.name}"

    def _new_hash(self, password: str) -> tuple[bytes, bytes, str]:
        salt = os.urandom(SALT_BYTES)
        cost = json.dumps({"n": self._cost.n, "r": self._cost.r, "p": self._cost.p})
        with self._hashing:
            return salt, self._cost.hash(password, salt), cost

    def _existing_row(self, rows: Rows, name: str) -> AccountRow:
        row = self._find_row(rows, _checked_name(name))
        if row is None or row.removed_at is not None:
            raise NotFound(
                f"There is no user {name}.", hint="See 'commonplace user list'.", field="name"
            )
        return row

    def _find_row(self, rows: Rows, name: str) -> AccountRow | None:
        row = stored.get(rows, name)
        return None if row is None else self._check_mac(row)

    def _check_mac(self, row: AccountRow) -> AccountRow:
        if not self._vault.check_mac(row.mac, "user", *row.signed_values):
            raise StorageCorrupt(
                f"The account {row.name} is damaged.",
                hint="Restore system.db from a backup.",
            )
        return row

    def _write_row(self, rows: Rows, row: AccountRow) -> None:
        stored.put(rows, row._replace(mac=self._vault.mac("user", *row.signed_values)))


def _account(row: AccountRow) -> Account:
    return Account(row.name, tuple(json.loads(row.spaces)), row.created_at, row.changed_at)


def check_new_account(
    name: str, password: str, spaces: Iterable[str]
) -> tuple[str, str, list[str]]:
    """Return the name (normalized), the password and the spaces of a new account, if they are
    valid."""
    return _checked_name(name), _checked_password(password), _checked_spaces(spaces)


def _checked_name(value: str) -> str:
    """Return the name in normal form NFC; raise InvalidInput for colons, control characters and
    outer spaces."""
    name = unicodedata.normalize("NFC", checks.text(value, "name", max_chars=USER_CHARS))
    if not name.isprintable() or name != name.strip() or ":" in name:
        raise InvalidInput(
            "A user's name must not have colons, control characters, or spaces at its ends.",
            hint="Choose another.",
            field="name",
        )
    return name


def _checked_password(value: str) -> str:
    """Return the password, if its length is allowed."""
    password = checks.text(value, "password", max_chars=MOST_PASSWORD_CHARS)
    if len(password) < LEAST_PASSWORD_CHARS:
        raise InvalidInput(
            f"A password must have at least {LEAST_PASSWORD_CHARS} characters.",
            hint="Choose a longer one, such as several words.",
            field="password",
        )
    return password


def _checked_spaces(values: Iterable[str]) -> list[str]:
    spaces = list(dict.fromkeys(checks.space(value) for value in values))
    if not 1 <= len(spaces) <= MOST_SPACES:
        raise InvalidInput(
            f"A user must have 1 to {MOST_SPACES:,} spaces.",
            hint="Name one with --space.",
            field="space",
        )
    return spaces
