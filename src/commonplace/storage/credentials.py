"""The tables `credentials` and `not_before` of system.db.

A credential is looked up by its digest before its space is known, so these statements do not select
by space. The column `space` names the space that the credential gives access to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from commonplace.storage.ports import Rows


class CredentialRow(NamedTuple):
    """A row of `credentials`. Lists are JSON; times are UTC microseconds."""

    id: str
    digest: bytes
    sort: str
    name: str
    owner: str
    space: str
    scopes: str
    dialects: str | None
    being: str
    resource: str
    client: str
    family: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used: int
    mac: bytes

    @property
    def signed_values(self) -> tuple[object, ...]:
        """The values that `mac` signs: all columns before `last_used`."""
        return tuple(self[:-2])


_COLUMNS = CredentialRow._fields
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM credentials"  # noqa: S608
_FILTERS = ("sort", "owner", "space", "being", "client", "family")


def insert(rows: Rows, row: CredentialRow) -> None:
    """Add a row."""
    marks = ", ".join("?" * len(_COLUMNS))
    rows.execute(f"INSERT INTO credentials ({', '.join(_COLUMNS)}) VALUES ({marks})", row)  # noqa: S608


def by_digest(rows: Rows, digest: bytes) -> CredentialRow | None:
    """Return the credential with that token digest."""
    found = rows.execute(f"{_SELECT} WHERE digest = ?", (digest,)).fetchone()
    return None if found is None else CredentialRow(*found)


def by_prefix(rows: Rows, prefix: str) -> list[CredentialRow]:
    """Return at most two rows whose id begins with the hexadecimal prefix."""
    found = rows.execute(f"{_SELECT} WHERE id >= ? AND id < ? LIMIT 2", (prefix, prefix + "g"))
    return [CredentialRow(*row) for row in found]


def by_id(rows: Rows, identity: str) -> CredentialRow | None:
    """Return the credential with that id."""
    found = rows.execute(f"{_SELECT} WHERE id = ?", (identity,)).fetchone()
    return None if found is None else CredentialRow(*found)


def select(rows: Rows, *, revoked: bool = True, **equal: str | None) -> list[CredentialRow]:
    """Return the credentials with these values, newest first; `revoked=False` leaves out revoked
    ones.
    """
    given = {name: value for name, value in equal.items() if value is not None}
    if not given.keys() <= set(_FILTERS):
        raise ValueError(f"credentials are selected by {', '.join(_FILTERS)}")
    terms = [f"{name} = ?" for name in given] + ([] if revoked else ["revoked_at IS NULL"])
    clause = f" WHERE {' AND '.join(terms)}" if terms else ""
    found = rows.execute(f"{_SELECT}{clause} ORDER BY created_at DESC, id", tuple(given.values()))
    return [CredentialRow(*row) for row in found]


def set_revoked(rows: Rows, identity: str, at: int, mac: bytes) -> None:
    """Mark a row as revoked."""
    rows.execute("UPDATE credentials SET revoked_at = ?, mac = ? WHERE id = ?", (at, mac, identity))


def set_mac(rows: Rows, identity: str, mac: bytes) -> None:
    """Replace a row's mac."""
    rows.execute("UPDATE credentials SET mac = ? WHERE id = ?", (mac, identity))


def set_last_used(rows: Rows, used: Iterable[tuple[int, str]]) -> None:
    """Update `last_used` of credentials, given as pairs of (time, id)."""
    rows.executemany(
        "UPDATE credentials SET last_used = ?1 WHERE id = ?2 AND last_used < ?1", list(used)
    )


def delete_ended(rows: Rows, before: int) -> int:
    """Delete unsigned credentials that ended before a time; return their number."""
    deleted = rows.execute(
        "DELETE FROM credentials WHERE sort != 'signed'"
        " AND (expires_at < ?1 OR revoked_at < ?1) RETURNING id",
        (before,),
    )
    return len(deleted.fetchall())


def not_before(rows: Rows, *, owner: str, space: str) -> int:
    """Return the time before which all tokens of the owner and of the space are invalid."""
    row = rows.execute(
        "SELECT max(at) FROM not_before"
        " WHERE (subject = 'user' AND name = ?) OR (subject = 'space' AND name = ?)",
        (owner, space),
    ).fetchone()
    return int(row[0] or 0)


def set_not_before(rows: Rows, subject: str, name: str, at: int) -> int:
    """Set the time before which all tokens of a user or a space are invalid.

    The time never moves back. Return the stored time.
    """
    row = rows.execute(
        "INSERT INTO not_before (subject, name, at) VALUES (?, ?, ?)"
        " ON CONFLICT (subject, name) DO UPDATE SET"
        " at = CASE WHEN excluded.at > not_before.at THEN excluded.at ELSE not_before.at END"
        " RETURNING at",
        (subject, name, at),
    ).fetchone()
    return int(row[0])
