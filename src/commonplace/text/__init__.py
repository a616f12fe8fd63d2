"""Functions on text without side effects: analysis for search, snippets, passages, checks."""
