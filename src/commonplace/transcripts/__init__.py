"""Parsers for the transcripts of agents; they return records and have no side effects."""
