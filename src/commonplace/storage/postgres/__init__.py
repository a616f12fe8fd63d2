"""PostgreSQL behind the same engine: spaces share tables, kept apart by row-level security."""
