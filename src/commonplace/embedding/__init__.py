"""Text to vectors: the built-in model, OpenAI-compatible endpoints, calibrated similarity."""
