"""The rows of OAuth's tables: none is believed that this program did not write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import apsw

    from commonplace.access.vault import Vault

Row = dict[str, Any]

# The first column is the key. Each table has one more, `mac`, over all the others.
COLUMNS: dict[str, tuple[str, ...]] = {
    "oauth_clients": ("id", "secret", "metadata", "created_at", "used_at"),
    "oauth_families": (
        "id", "client", "client_name", "user", "space", "being", "resource", "scopes",
        "refreshable", "credential", "created_at", "expires_at", "revoked_at",
    ),
    "oauth_codes": ("digest", "family", "redirect", "challenge", "expires_at", "used_at"),
    "oauth_refreshes": ("digest", "family", "expires_at", "used_at"),
    "oauth_devices": (
        "digest", "code", "client", "resource", "scopes", "answer", "family", "created_at",
        "expires_at",
    ),
    "oauth_logins": ("digest", "user", "created_at", "expires_at"),
}  # fmt: skip


class Rows:
    """Reads and writes whole rows, each vouched for by the master key."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def get(self, connection: apsw.Connection, table: str, key: str | bytes) -> Row | None:
        """The row of a key, if it is as it was written."""
        columns = COLUMNS[table]
        found: Any = connection.execute(
            f"SELECT {', '.join(columns)}, mac FROM {table} WHERE {columns[0]} = ?",  # noqa: S608
            (key,),
        ).fetchone()
        if found is None or not self._vault.vouches(found[-1], table, *found[:-1]):
            return None
        return dict(zip(columns, found[:-1], strict=True))

    def put(self, connection: apsw.Connection, table: str, row: Row) -> None:
        """Write a row, over the one of the same key."""
        columns = COLUMNS[table]
        values = [row[name] for name in columns]
        changes = ", ".join(f"{name} = excluded.{name}" for name in (*columns[1:], "mac"))
        connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}, mac)"  # noqa: S608
            f" VALUES ({', '.join('?' * len(columns))}, ?)"
            f" ON CONFLICT ({columns[0]}) DO UPDATE SET {changes}",
            (*values, self._vault.mac(table, *values)),
        )

    def damaged_in(self, connection: apsw.Connection) -> Iterator[str]:
        """Rows that are not as they were stored: they are not believed."""
        for table, columns in COLUMNS.items():
            rows: Any = connection.execute(
                f"SELECT {', '.join(columns)}, mac FROM {table}"  # noqa: S608
            )
            for key, *rest, mac in rows:
                if not self._vault.vouches(mac, table, key, *rest):
                    shown = key.hex()[:12] if isinstance(key, bytes) else key
                    yield f"The row {shown} of {table}"

    def reseal_in(self, connection: apsw.Connection) -> None:
        """Vouch for every row by the newest master key; one that is damaged stays so."""
        for table, columns in COLUMNS.items():
            keys: list[Any] = connection.execute(
                f"SELECT {columns[0]} FROM {table}"  # noqa: S608
            ).fetchall()
            for (key,) in keys:
                row = self.get(connection, table, key)
                if row is not None:
                    self.put(connection, table, row)
