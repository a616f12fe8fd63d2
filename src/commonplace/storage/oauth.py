"""The OAuth tables in system.db: clients, connections with their tokens, devices, sign-ins.

A row is a tuple of its table's columns, with a `mac` at the end that the caller computes and
checks.
"""

from __future__ import annotations

from typing import Any

from commonplace.storage.ports import Rows

# The first column is the key. Each table has one more column, `mac`, which covers all others.
COLUMNS: dict[str, tuple[str, ...]] = {
    "oauth_clients": ("id", "secret", "metadata", "created_at", "used_at"),
    "oauth_families": (
        "id", "client", "client_name", "owner", "space", "being", "resource", "scopes",
        "refreshable", "credential", "created_at", "expires_at", "revoked_at",
    ),
    "oauth_codes": ("digest", "family", "redirect", "challenge", "expires_at", "used_at"),
    "oauth_refreshes": ("digest", "family", "expires_at", "used_at"),
    "oauth_devices": (
        "digest", "code", "client", "resource", "scopes", "answer", "family", "created_at",
        "expires_at",
    ),
    "oauth_logins": ("digest", "owner", "created_at", "expires_at"),
}  # fmt: skip


def get(rows: Rows, table: str, key: str | bytes) -> tuple[Any, ...] | None:
    """Return the row with a key."""
    columns = COLUMNS[table]
    found: tuple[Any, ...] | None = rows.execute(
        f"SELECT {', '.join(columns)}, mac FROM {table} WHERE {columns[0]} = ?",  # noqa: S608
        (key,),
    ).fetchone()
    return found


def listing(rows: Rows, table: str) -> list[tuple[Any, ...]]:
    """Return every row of a table."""
    found: list[tuple[Any, ...]] = rows.execute(
        f"SELECT {', '.join(COLUMNS[table])}, mac FROM {table}"  # noqa: S608
    ).fetchall()
    return found


def put(rows: Rows, table: str, row: tuple[Any, ...]) -> None:
    """Insert a row, or replace the row with the same key."""
    columns = (*COLUMNS[table], "mac")
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    rows.execute(
        f"INSERT INTO {table} ({', '.join(columns)})"  # noqa: S608
        f" VALUES ({', '.join('?' * len(columns))})"
        f" ON CONFLICT ({columns[0]}) DO UPDATE SET {changes}",
        row,
    )


def unused_refreshes(rows: Rows, family: str) -> list[bytes]:
    """Return the keys of a connection's refresh tokens that have not been used."""
    found = rows.execute(
        "SELECT digest FROM oauth_refreshes WHERE family = ? AND used_at IS NULL", (family,)
    )
    return [bytes(digest) for (digest,) in found]


def delete_expired(rows: Rows, table: str, before: int) -> None:
    """Delete the rows of a table that expired before a moment."""
    rows.execute(f"DELETE FROM {table} WHERE expires_at < ?", (before,))  # noqa: S608


def count_clients(rows: Rows) -> int:
    """Return how many clients are registered."""
    return int(rows.execute("SELECT count(*) FROM oauth_clients").fetchone()[0])


def delete_unused_clients(rows: Rows, created_before: int) -> None:
    """Delete clients older than a time that never got an authorization."""
    rows.execute(
        "DELETE FROM oauth_clients WHERE used_at = 0 AND created_at < ?", (created_before,)
    )


def delete_idle_clients(rows: Rows, used_before: int) -> None:
    """Delete clients that have no connection and were last used before a moment."""
    rows.execute(
        "DELETE FROM oauth_clients WHERE used_at BETWEEN 1 AND ? AND id NOT IN"
        " (SELECT client FROM oauth_families)",
        (used_before,),
    )


def live_families(rows: Rows, at: int, owner: str | None) -> list[str]:
    """Return the ids of valid connections of one owner, or of all owners, newest first."""
    clause, values = ("", (at,)) if owner is None else (" AND owner = ?", (at, owner))
    found = rows.execute(
        "SELECT id FROM oauth_families WHERE revoked_at IS NULL AND expires_at > ?"  # noqa: S608
        f" AND credential != ''{clause} ORDER BY created_at DESC, id",
        values,
    )
    return [identity for (identity,) in found]


def delete_ended_families(rows: Rows, before: int) -> None:
    """Delete connections that expired before a moment, with their codes and refresh tokens."""
    gone = "SELECT id FROM oauth_families WHERE expires_at < ?"
    for table in ("oauth_codes", "oauth_refreshes"):
        rows.execute(f"DELETE FROM {table} WHERE family IN ({gone})", (before,))  # noqa: S608
    delete_expired(rows, "oauth_families", before)


def count_waiting_devices(rows: Rows, at: int) -> int:
    """Return how many device authorizations are pending."""
    found = rows.execute(
        "SELECT count(*) FROM oauth_devices WHERE answer = '' AND expires_at > ?", (at,)
    ).fetchone()
    return int(found[0])


def device_of_code(rows: Rows, code: bytes) -> bytes | None:
    """Return the key of the device authorization with this user code, given as a digest."""
    found = rows.execute("SELECT digest FROM oauth_devices WHERE code = ?", (code,)).fetchone()
    return None if found is None else bytes(found[0])


def delete_login(rows: Rows, digest: bytes) -> None:
    """Delete a browser's sign-in."""
    rows.execute("DELETE FROM oauth_logins WHERE digest = ?", (digest,))


def delete_logins_of(rows: Rows, owner: str) -> None:
    """Delete all sign-ins of an account."""
    rows.execute("DELETE FROM oauth_logins WHERE owner = ?", (owner,))
