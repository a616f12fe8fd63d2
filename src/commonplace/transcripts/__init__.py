"""The histories that agents keep of their conversations, read as records. Pure parsing."""
