"""Embeddings: the built-in model, OpenAI-compatible endpoints, calibrated similarity."""
