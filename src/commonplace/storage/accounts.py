"""The table `users` of system.db: accounts."""

from __future__ import annotations

from typing import NamedTuple

from commonplace.storage.ports import Rows


class AccountRow(NamedTuple):
    """A row of `users`. `cost` and `spaces` are JSON; times are UTC microseconds."""

    name: str
    salt: bytes
    hash: bytes
    cost: str
    spaces: str
    created_at: int
    changed_at: int
    removed_at: int | None = None
    mac: bytes = b""

    @property
    def signed_values(self) -> tuple[object, ...]:
        """The values that `mac` signs."""
        return tuple(self[:-1])


_COLUMNS = AccountRow._fields
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM users"  # noqa: S608


def get(rows: Rows, name: str) -> AccountRow | None:
    """Return the account of that name, which may be a removed account; or None."""
    found = rows.execute(f"{_SELECT} WHERE name = ?", (name,)).fetchone()
    return None if found is None else AccountRow(*found)


def listing(rows: Rows) -> list[AccountRow]:
    """Return all accounts by name, including removed accounts."""
    return [AccountRow(*row) for row in rows.execute(f"{_SELECT} ORDER BY name")]


def is_removed(rows: Rows, name: str) -> bool:
    """Return whether an account of that name was removed."""
    found = rows.execute(
        "SELECT 1 FROM users WHERE name = ? AND removed_at IS NOT NULL", (name,)
    ).fetchone()
    return found is not None


def put(rows: Rows, row: AccountRow) -> None:
    """Insert or replace the account of that name."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
    rows.execute(
        f"INSERT INTO users ({', '.join(_COLUMNS)})"  # noqa: S608
        f" VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT (name) DO UPDATE SET {changes}",
        row,
    )
