"""One module for each category of tools; every function marked in them is found by itself."""
