"""Storage: SQLite files or PostgreSQL, and the in-memory index."""
