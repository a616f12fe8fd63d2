"""The system file: accounts, credentials, and the audit entries of calls that reached no space.

`open_system(DATA)` returns a `Store` on DATA/system.db. Writes use `maintain()`, reads use
`read()`. Neither may be opened inside a block of `maintain()`, whose connection must be passed on
instead. `Store.watch` detects changes of the file at low cost.
"""

from __future__ import annotations

from pathlib import Path

from commonplace.errors import StorageUnavailable
from commonplace.storage import schema
from commonplace.storage.database import check_runtime, sync_directory
from commonplace.storage.directories import make_private
from commonplace.storage.sqlite import Store
from commonplace.storage.sqlite.swap import undo_interrupted

NAME = "system"
"""The `space` of the audit rows in this file."""

# No secret is stored in plain text: tokens are SHA-256 digests, signing keys are encrypted,
# passwords are scrypt hashes. `mac` is keyed by the master key and covers the columns that decide
# access, so that a row written by another program is rejected. Lists are JSON.
_ACCESS = """
CREATE TABLE credentials (
  id TEXT NOT NULL PRIMARY KEY, digest BLOB NOT NULL, sort TEXT NOT NULL, name TEXT NOT NULL,
  user TEXT NOT NULL, space TEXT NOT NULL, scopes TEXT NOT NULL, dialects TEXT,
  being TEXT NOT NULL, resource TEXT NOT NULL, client TEXT NOT NULL, family TEXT NOT NULL,
  created_at BIGINT NOT NULL, expires_at BIGINT, revoked_at BIGINT, last_used BIGINT NOT NULL,
  mac BLOB NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX credentials_digest ON credentials (digest);
CREATE INDEX credentials_user ON credentials (user);
CREATE INDEX credentials_space ON credentials (space);
CREATE INDEX credentials_family ON credentials (family) WHERE family != '';
CREATE INDEX credentials_expires ON credentials (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE signing_keys (
  id TEXT NOT NULL PRIMARY KEY, purpose TEXT NOT NULL, sealed BLOB NOT NULL,
  created_at BIGINT NOT NULL, retires_at BIGINT
) WITHOUT ROWID;
CREATE INDEX signing_keys_purpose ON signing_keys (purpose, created_at);

CREATE TABLE not_before (
  subject TEXT NOT NULL, name TEXT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (subject, name)
) WITHOUT ROWID;

CREATE TABLE users (
  name TEXT NOT NULL PRIMARY KEY, salt BLOB NOT NULL, hash BLOB NOT NULL, cost TEXT NOT NULL,
  spaces TEXT NOT NULL, created_at BIGINT NOT NULL, changed_at BIGINT NOT NULL, removed_at BIGINT,
  mac BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE settings (name TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""

# ---- The OAuth tables: clients, codes, families of tokens, sign-ins. They belong to step 1. ----
OAUTH_TABLES = """
CREATE TABLE oauth_clients (
  id TEXT NOT NULL PRIMARY KEY, secret BLOB, metadata TEXT NOT NULL, created_at BIGINT NOT NULL,
  used_at BIGINT NOT NULL, mac BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX oauth_clients_used ON oauth_clients (used_at, created_at);

CREATE TABLE oauth_families (
  id TEXT NOT NULL PRIMARY KEY, client TEXT NOT NULL, client_name TEXT NOT NULL,
  user TEXT NOT NULL, space TEXT NOT NULL, being TEXT NOT NULL, resource TEXT NOT NULL,
  scopes TEXT NOT NULL, refreshable BIGINT NOT NULL, credential TEXT NOT NULL,
  created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, revoked_at BIGINT, mac BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX oauth_families_user ON oauth_families (user);
CREATE INDEX oauth_families_client ON oauth_families (client);
CREATE INDEX oauth_families_expires ON oauth_families (expires_at);

CREATE TABLE oauth_codes (
  digest BLOB NOT NULL PRIMARY KEY, family TEXT NOT NULL, redirect TEXT NOT NULL,
  challenge TEXT NOT NULL, expires_at BIGINT NOT NULL, used_at BIGINT, mac BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX oauth_codes_family ON oauth_codes (family);

CREATE TABLE oauth_refreshes (
  digest BLOB NOT NULL PRIMARY KEY, family TEXT NOT NULL, expires_at BIGINT NOT NULL,
  used_at BIGINT, mac BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX oauth_refreshes_family ON oauth_refreshes (family);
CREATE INDEX oauth_refreshes_expires ON oauth_refreshes (expires_at);

CREATE TABLE oauth_logins (
  digest BLOB NOT NULL PRIMARY KEY, user TEXT NOT NULL, created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL, mac BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX oauth_logins_expires ON oauth_logins (expires_at);
"""
# ---- End of the OAuth tables ----

# Devices that wait for a person's approval (RFC 8628); both codes of a device are SHA-256 digests.
OAUTH_DEVICES = """
CREATE TABLE oauth_devices (
  digest BLOB NOT NULL PRIMARY KEY, code BLOB NOT NULL, client TEXT NOT NULL,
  resource TEXT NOT NULL, scopes TEXT NOT NULL, answer TEXT NOT NULL, family TEXT NOT NULL,
  created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, mac BLOB NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX oauth_devices_code ON oauth_devices (code);
CREATE INDEX oauth_devices_expires ON oauth_devices (expires_at);
"""

# `user` is a reserved word in PostgreSQL.
_OWNER = """
ALTER TABLE credentials RENAME COLUMN user TO owner;
ALTER TABLE oauth_families RENAME COLUMN user TO owner;
ALTER TABLE oauth_logins RENAME COLUMN user TO owner;
"""

SYSTEM_MIGRATIONS: tuple[schema.Step, ...] = (
    _ACCESS + OAUTH_TABLES + schema.AUDIT,
    OAUTH_DEVICES,
    _OWNER,
    schema.AUDIT_FORMAT,
)


def system_file(data: Path) -> Path:
    """Return the path of the file in a data directory."""
    return data.expanduser().absolute() / "system.db"


def open_system(data: Path) -> Store:
    """Open the system file; create it with mode 0600, and its directory with 0700, if needed."""
    path = system_file(data)
    try:
        if not path.parent.exists():  # An existing directory keeps its mode.
            make_private(path.parent)
            sync_directory(path.parent.parent)
        check_runtime(path.parent)
        undo_interrupted(path.parent)  # This undoes a restore that was killed.
        new = not path.exists()
        store = Store(path, NAME, steps=SYSTEM_MIGRATIONS)
        if new:
            sync_directory(path.parent)
    except OSError as error:
        raise StorageUnavailable(
            f"{path.parent} cannot be used: {error.strerror}.",
            hint="Choose another directory with --data or COMMONPLACE_DATA.",
        ) from error
    return store
