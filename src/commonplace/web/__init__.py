"""The browser application at /viewer, served as static files."""
