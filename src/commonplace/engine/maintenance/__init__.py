"""Background embedding, purges, and copies of memories in files."""
