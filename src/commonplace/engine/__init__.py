"""What a memory is, and what can be done to it."""
