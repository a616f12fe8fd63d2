"""Where a memory lives: SQLite files, and the in-memory index beside them."""
