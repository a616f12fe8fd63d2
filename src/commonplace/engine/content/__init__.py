"""Storing and changing memories, links, facts, clusters, artifacts and other content."""
