"""Small programs that ask a running server. They import only the standard library."""
