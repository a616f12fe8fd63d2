"""Finding memories: recall, ranking, filters, listings, similarity, substrings."""
