"""Storage: SQLite files or PostgreSQL, and the index in memory."""
