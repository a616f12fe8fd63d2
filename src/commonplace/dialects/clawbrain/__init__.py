"""ClawBrain: memories that are Markdown files, ranked by how they proved themselves."""
