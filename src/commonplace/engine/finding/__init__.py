"""Finding memories: searching, scoring, filters, substrings."""
