"""The engine: what a memory is, and what can be done with it."""
