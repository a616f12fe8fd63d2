"""Embedding in the background, purges, and copies in files."""
