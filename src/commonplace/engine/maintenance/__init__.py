"""Work that keeps a space in order: vectors, purges, copies in files."""
