"""Memories and everything else that is stored: links, facts, clusters, artifacts, and so on."""
