"""The tables `settings` and `signing_keys` of system.db: encrypted values."""

from __future__ import annotations

from typing import NamedTuple

from commonplace.storage.ports import Rows


def setting(rows: Rows, name: str) -> bytes | None:
    """Return the value of a setting."""
    found = rows.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return None if found is None else bytes(found[0])


def settings(rows: Rows, prefix: str) -> list[tuple[str, bytes]]:
    """Return the name and value of each setting whose name begins with a prefix."""
    found = rows.execute(
        "SELECT name, value FROM settings WHERE substr(name, 1, ?) = ? ORDER BY name",
        (len(prefix), prefix),
    )
    return [(name, bytes(value)) for name, value in found]


def put_setting(rows: Rows, name: str, value: bytes) -> None:
    """Set a setting."""
    rows.execute(
        "INSERT INTO settings (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def delete_setting(rows: Rows, name: str) -> bool:
    """Delete a setting; return whether it existed."""
    found = rows.execute("DELETE FROM settings WHERE name = ? RETURNING name", (name,))
    return bool(found.fetchall())


class SigningKeyRow(NamedTuple):
    """A row of `signing_keys`; times are UTC microseconds."""

    id: str
    purpose: str
    sealed: bytes
    created_at: int
    retires_at: int | None


def signing_keys(rows: Rows) -> list[SigningKeyRow]:
    """Return all signing keys, the newest first."""
    found = rows.execute(
        "SELECT id, purpose, sealed, created_at, retires_at FROM signing_keys"
        " ORDER BY created_at DESC, id"
    )
    return [SigningKeyRow(*row) for row in found]


def put_signing_key(rows: Rows, row: SigningKeyRow) -> None:
    """Insert a signing key, or update its encrypted value and the time of its retirement."""
    rows.execute(
        "INSERT INTO signing_keys (id, purpose, sealed, created_at, retires_at)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
        " sealed = excluded.sealed, retires_at = excluded.retires_at",
        row,
    )
