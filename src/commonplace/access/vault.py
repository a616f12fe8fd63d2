"""Encrypts stored secrets with AES-256-GCM under a master key that is not in the database.

The master key comes from COMMONPLACE_MASTER_KEY, or from DATA/master.key, which is created on first
use. Either may hold several keys, the newest first; older keys can still decrypt secrets. An
encrypted ("sealed") secret is bound to its purpose, space and name, so that it cannot be swapped
with another.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from commonplace.errors import InvalidInput, StorageCorrupt, StorageUnavailable
from commonplace.storage import secrets as stored
from commonplace.storage.directories import replace_file
from commonplace.storage.ports import Rows, Store
from commonplace.storage.tables import digest

KEY_VARIABLE = "COMMONPLACE_MASTER_KEY"
KEY_BYTES = 32
_FILE = "master.key"
_FILE_BYTES = 10_000
_FORMAT = b"\x01"  # format of sealed data: format, key id, nonce, ciphertext with tag
_ID_BYTES = 8
_NONCE_BYTES = 12
_HEAD_BYTES = len(_FORMAT) + _ID_BYTES
_HEADING = (
    "# The master key of this directory, the newest first. Keep a copy of it apart from backups\n"
    "# of the data: without it, stored secrets cannot be read. An older line can be removed when\n"
    "# no secret is encrypted with it any more.\n"
)
_CHECK_NAME = "master key"
_CHECK = ("check", "system", _CHECK_NAME)


class SecretUnreadable(StorageCorrupt):
    """A stored secret was changed, moved, or encrypted with a key that is not available."""

    code = "SECRET_UNREADABLE"


class MasterKeyRefused(StorageUnavailable):
    """There is no usable master key; no secret was read or written."""

    code = "MASTER_KEY_REFUSED"


class _Key:
    """One master key, and the keys derived from it."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.id = _derive(secret, "id")[:_ID_BYTES]
        self.cipher = AESGCM(_derive(secret, "seal"))
        self.signing = _derive(secret, "mac")


def _derive(secret: bytes, purpose: str) -> bytes:
    return hmac.digest(secret, f"commonplace {purpose} 1".encode(), "sha256")


class Vault:
    """Encrypts and decrypts secrets, and computes MACs of rows. Threads may share an instance."""

    def __init__(self, secrets: Sequence[bytes], *, file: Path | None = None) -> None:
        if not secrets or any(len(secret) != KEY_BYTES for secret in secrets):
            raise MasterKeyRefused(
                f"A master key must have {KEY_BYTES} bytes.",
                hint="Make one with 'openssl rand -base64 32'.",
            )
        self.file = file
        """The key file; None if the keys came from the environment."""
        self._lock = threading.Lock()
        self._keys = [_Key(secret) for secret in secrets]

    def __repr__(self) -> str:
        return f"Vault({len(self._keys)} keys)"

    def seal(self, value: bytes, *aad: str) -> bytes:
        """Encrypt a value with the master key, bound to the associated data."""
        key = self._keys[0]
        nonce = os.urandom(_NONCE_BYTES)
        return _FORMAT + key.id + nonce + key.cipher.encrypt(nonce, value, _encoded_data(aad))

    def open(self, sealed: bytes, *aad: str) -> bytes:
        """Decrypt a value with the same associated data; raise SecretUnreadable if that fails."""
        key = self._key(sealed[len(_FORMAT) : _HEAD_BYTES]) if sealed[:1] == _FORMAT else None
        if key is None:
            raise _secret_unreadable("it was encrypted with another master key, or is incomplete")
        nonce, rest = sealed[_HEAD_BYTES:][:_NONCE_BYTES], sealed[_HEAD_BYTES + _NONCE_BYTES :]
        if len(nonce) != _NONCE_BYTES:
            raise _secret_unreadable("it is incomplete")
        try:
            return key.cipher.decrypt(nonce, rest, _encoded_data(aad))
        except InvalidTag:
            raise _secret_unreadable("it was changed, or belongs to another row") from None

    def mac(self, *values: Any) -> bytes:
        """Return a MAC of values under the master key."""
        key = self._keys[0]
        return key.id + hmac.digest(key.signing, digest(*values), "sha256")

    def check_mac(self, mac: bytes, *values: Any) -> bool:
        """Return whether the MAC matches the values."""
        key = self._key(mac[:_ID_BYTES])
        if key is None:
            return False
        made = hmac.digest(key.signing, digest(*values), "sha256")
        return hmac.compare_digest(mac[_ID_BYTES:], made)

    def _key(self, identity: bytes) -> _Key | None:
        """Return the key with an id; read the key file again for an unknown id."""
        for key in self._keys:
            if key.id == identity:
                return key
        if self.file is not None:
            with self._lock:
                self._keys = [_Key(secret) for secret in _read_keys(self.file)]
        return next((key for key in self._keys if key.id == identity), None)

    def rotate(self, store: Store, reseal: Iterable[Callable[[Rows], None]]) -> None:
        """Add a new key, and call each function in `reseal` to encrypt with it; older keys remain.

        With a key file, write a new key to its first line. With the environment variable, the
        operator has already put the new key first; secrets under older keys are encrypted again.
        """
        if self.file is None and len(self._keys) < 2:
            raise InvalidInput(
                f"{KEY_VARIABLE} holds only one key; a rotation needs the new key and the old key.",
                hint="Set it to the new key, a comma, and the old one, and try again.",
            )
        with store.maintain() as rows:  # this lock also excludes other processes
            if self.file is not None:
                secrets = [os.urandom(KEY_BYTES), *_read_keys(self.file)]
                # The key must be on disk before it encrypts anything.
                _write_keys(self.file, secrets)
                with self._lock:
                    self._keys = [_Key(secret) for secret in secrets]
            _store_check_value(rows, self)
            for each in reseal:
                each(rows)


def _encoded_data(aad: Sequence[str]) -> bytes:
    if not aad:
        raise ValueError("a secret needs associated data")
    return digest("commonplace", *aad)


def _secret_unreadable(why: str) -> SecretUnreadable:
    return SecretUnreadable(
        f"A stored secret cannot be read: {why}.",
        hint=f"Start with the master key that sealed it ({KEY_VARIABLE} or {_FILE}),"
        " or store the secret again.",
    )


def open_vault(store: Store, environ: Mapping[str, str] | None = None) -> Vault:
    """Open the vault of a data directory. Refuse a master key that cannot decrypt the stored
    secrets."""
    given = (os.environ if environ is None else environ).get(KEY_VARIABLE, "")
    file = store.path.with_name(_FILE)
    with store.read() as rows:
        check = stored.setting(rows, _CHECK_NAME)
    if given:
        vault = Vault(_parse_keys(given.split(","), KEY_VARIABLE))
    else:
        if check is None and not file.exists():
            _write_keys(file, [os.urandom(KEY_BYTES)], only_new=True)
        vault = Vault(_read_keys(file), file=file)
    if check is None:
        with store.maintain() as rows:
            check = stored.setting(rows, _CHECK_NAME) or _store_check_value(rows, vault)
    try:
        vault.open(check, *_CHECK)
    except SecretUnreadable:
        raise MasterKeyRefused(
            "This is not the master key of the data directory.",
            hint=f"Start with the former master key ({KEY_VARIABLE}, or {file}).",
        ) from None
    return vault


def has_master_key(store: Store) -> bool:
    """Return whether the database has the check value of a master key."""
    with store.read() as rows:
        return stored.setting(rows, _CHECK_NAME) is not None


def _store_check_value(rows: Rows, vault: Vault) -> bytes:
    """Store an encrypted check value, so that a wrong key is detected at the next start."""
    sealed = vault.seal(b"", *_CHECK)
    stored.put_setting(rows, _CHECK_NAME, sealed)
    return sealed


def _write_keys(file: Path, secrets: Sequence[bytes], *, only_new: bool = False) -> None:
    lines = "".join(base64.b64encode(secret).decode() + "\n" for secret in secrets)
    with replace_file(file, only_new=only_new) as stream:
        stream.write((_HEADING + lines).encode())


def _read_keys(file: Path) -> list[bytes]:
    """Read the master keys in a file; raise MasterKeyRefused if it is unreadable or not private."""
    try:
        with file.open("rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise MasterKeyRefused(f"{file} is not a file.", hint="Put the master key there.")
            _check_permissions(file, found)
            content = stream.read(_FILE_BYTES).decode("ascii", "replace")
    except FileNotFoundError:
        raise MasterKeyRefused(
            f"{file} is missing, but stored secrets are encrypted with it.",
            hint=f"Restore it from your copy, or set {KEY_VARIABLE}. Without a copy, restore a"
            " backup into a new directory by 'commonplace restore BACKUP --no-system --data DIR':"
            " it has the memories, and new accounts and tokens can be created there.",
        ) from None
    except OSError as error:
        raise MasterKeyRefused(
            f"{file} cannot be read: {error.strerror}.", hint="Check its permissions and its owner."
        ) from error
    lines = [line.strip() for line in content.splitlines()]
    return _parse_keys([line for line in lines if line and not line.startswith("#")], str(file))


def _check_permissions(file: Path, found: os.stat_result) -> None:
    if os.name != "posix":
        return
    if found.st_mode & 0o077:
        raise MasterKeyRefused(
            f"{file} can be read or written by others (mode {stat.S_IMODE(found.st_mode):04o}).",
            hint=f"Run 'chmod 600 {file}'. If others may have read it, change the key:"
            " 'commonplace token rotate-key --master'.",
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise MasterKeyRefused(
            f"{file} belongs to another user of this machine.",
            hint=f"Run 'chown {os.geteuid()} {file}', or run as its owner.",
        )


def _parse_keys(texts: Iterable[str], where: str) -> list[bytes]:
    keys = [_decode_key(text.strip()) for text in texts]
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise MasterKeyRefused(
            f"{where} does not hold a master key.",
            hint=f"It must be {KEY_BYTES} bytes as base64 or hex; 'openssl rand -base64 32'"
            " makes one.",
        )
    if any(len(set(key)) < 8 for key in keys):
        raise MasterKeyRefused(
            f"{where} holds a key that is not random.",
            hint="Make one with 'openssl rand -base64 32'.",
        )
    return keys


def _decode_key(text: str) -> bytes:
    try:
        if len(text) == 2 * KEY_BYTES:
            return bytes.fromhex(text)
        padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
        return base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    except (ValueError, binascii.Error):
        return b""
