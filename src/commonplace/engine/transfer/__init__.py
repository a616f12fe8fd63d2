"""Export and import of spaces."""
