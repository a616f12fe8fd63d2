"""What people see in a browser: the pages at /viewer, served as static files."""
