"""Rows of the OAuth tables, each with a MAC; rows that another program wrote are ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from commonplace.storage import oauth as stored
from commonplace.storage.ports import Rows

if TYPE_CHECKING:
    from commonplace.access.vault import Vault

Row = dict[str, Any]


class MacRows:
    """Reads and writes rows with a MAC under the master key."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def get(self, rows: Rows, table: str, key: str | bytes) -> Row | None:
        """Return the row of a key if its MAC matches."""
        found = stored.get(rows, table, key)
        if found is None or not self._vault.check_mac(found[-1], table, *found[:-1]):
            return None
        return dict(zip(stored.COLUMNS[table], found[:-1], strict=True))

    def put(self, rows: Rows, table: str, former: Row | None = None, /, **changes: Any) -> None:
        """Upsert a row: `changes` on top of the values of the `former` row, if any."""
        row = {**(former or {}), **changes}
        values = tuple(row[name] for name in stored.COLUMNS[table])
        stored.put(rows, table, (*values, self._vault.mac(table, *values)))

    def damaged_rows(self, rows: Rows) -> Iterator[str]:
        """Yield rows whose MAC does not match; they are ignored."""
        for table in stored.COLUMNS:
            for key, *rest, mac in stored.listing(rows, table):
                if not self._vault.check_mac(mac, table, key, *rest):
                    shown = key.hex()[:12] if isinstance(key, bytes) else key
                    yield f"The row {shown} of {table}"

    def reseal_rows(self, rows: Rows) -> None:
        """Compute every row's MAC again with the newest master key; skip damaged rows."""
        for table in stored.COLUMNS:
            for *values, mac in stored.listing(rows, table):
                if self._vault.check_mac(mac, table, *values):
                    stored.put(rows, table, (*values, self._vault.mac(table, *values)))
