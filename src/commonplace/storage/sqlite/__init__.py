"""SQLite: one file a space, and what only files need (backups, repair, copies, read-only disks)."""

from commonplace.storage.sqlite.store import Store

__all__ = ["Store"]
