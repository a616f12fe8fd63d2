"""Ships in a harbor."""
