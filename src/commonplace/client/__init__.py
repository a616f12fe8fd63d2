"""Small client programs of a running server. They import only the standard library."""
