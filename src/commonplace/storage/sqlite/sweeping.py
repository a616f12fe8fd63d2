"""Search the files of a space for bytes that a purge must have deleted."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from commonplace.storage.ports import SweepResult
from commonplace.storage.sqlite.store import Store
from commonplace.storage.tables import VERSIONED

_HEADER = b"SQLite format 3"  # Every SQLite file starts with this text.
# Other data that may contain words of a purged text: remaining rows, the schema, and the metadata
# of audit rows, but not their arguments or results.
_REMAINING = (
    *(f"SELECT * FROM {table} WHERE space = ?1"  # noqa: S608
      for table in (*(table.name for table in VERSIONED), "versions", "events", "operations",
                    "labels")),
    "SELECT request, dialect, tool, caller, credential, client, session, address FROM audit"
    " WHERE space = ?1",
    "SELECT id, weights FROM models WHERE space = ?1",
    "SELECT name, sql FROM sqlite_schema",
)  # fmt: skip


def sweep(store: Store, windows: Set[bytes]) -> SweepResult:
    """Truncate the log and search the files for these bytes.

    Rewrite the space's file if it contains some that are in no remaining row.
    """
    store.checkpoint()
    files, scanned, found = _scan(store, windows)
    if found - _in_remaining_rows(store, found):
        # Rearranged pages may contain old bytes between their cells.
        store.rewrite()
        files, scanned, found = _scan(store, windows)
    traces = len(found - _in_remaining_rows(store, found))
    copies = store.path.parent.glob(f"{store.space}.before-*.db")
    names = tuple(path.name for path in files)
    return SweepResult(names, scanned, traces, tuple(sorted(path.name for path in copies)))


def _scan(store: Store, windows: Set[bytes]) -> tuple[list[Path], int, set[bytes]]:
    log = store.path.with_name(store.path.name + "-wal")
    files = [path for path in (store.path, log) if path.exists()]
    scanned, found = 0, set[bytes]()
    for path in files:
        data = path.read_bytes()
        scanned += len(data)
        found |= {window for window in windows if window in data}
    return files, scanned, found


def _in_remaining_rows(store: Store, windows: set[bytes]) -> set[bytes]:
    """Return the byte strings that remaining rows contain too; these are not traces of a purge."""
    if not windows:
        return set()
    held = {window for window in windows if window in _HEADER}
    with store.read() as connection:
        for statement in _REMAINING:
            bindings = (store.space,) if "?1" in statement else ()
            for row in connection.execute(statement, bindings):
                for value in row:
                    if isinstance(value, str | bytes):
                        data = value if isinstance(value, bytes) else value.encode()
                        held |= {window for window in windows - held if window in data}
    return held
