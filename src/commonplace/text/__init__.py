"""Pure functions on text: analysis for search, snippets, passages, checks."""
