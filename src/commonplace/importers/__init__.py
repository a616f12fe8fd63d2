"""Import from other programs, and export to them; one module for each format."""
