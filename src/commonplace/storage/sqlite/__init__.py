"""SQLite storage: one file for each space, with backups, repair, copies and read-only disks."""

from commonplace.storage.sqlite.store import Store

__all__ = ["Store"]
