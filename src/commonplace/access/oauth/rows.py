"""Rows of OAuth's tables, each with a MAC: a row that this program did not write is ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from commonplace.storage import oauth as stored
from commonplace.storage.ports import Rows

if TYPE_CHECKING:
    from commonplace.access.vault import Vault

Row = dict[str, Any]


class MacRows:
    """Reads and writes rows with a MAC made with the master key."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def get(self, rows: Rows, table: str, key: str | bytes) -> Row | None:
        """The row of a key, if its MAC matches."""
        found = stored.get(rows, table, key)
        if found is None or not self._vault.check_mac(found[-1], table, *found[:-1]):
            return None
        return dict(zip(stored.COLUMNS[table], found[:-1], strict=True))

    def put(self, rows: Rows, table: str, former: Row | None = None, /, **changes: Any) -> None:
        """Insert a row, or replace the one of the same key; `changes` to a `former` row, if any."""
        row = {**(former or {}), **changes}
        values = tuple(row[name] for name in stored.COLUMNS[table])
        stored.put(rows, table, (*values, self._vault.mac(table, *values)))

    def damaged_rows(self, rows: Rows) -> Iterator[str]:
        """Rows whose MAC does not match: they are ignored."""
        for table in stored.COLUMNS:
            for key, *rest, mac in stored.listing(rows, table):
                if not self._vault.check_mac(mac, table, key, *rest):
                    shown = key.hex()[:12] if isinstance(key, bytes) else key
                    yield f"The row {shown} of {table}"

    def reseal_rows(self, rows: Rows) -> None:
        """Make every row's MAC with the newest master key; damaged rows are left as they are."""
        for table in stored.COLUMNS:
            for *values, mac in stored.listing(rows, table):
                if self._vault.check_mac(mac, table, *values):
                    stored.put(rows, table, (*values, self._vault.mac(table, *values)))
