"""Import from other programs, and export for them: one file for each format."""
