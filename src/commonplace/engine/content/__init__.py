"""What a space holds, and every change of it: memories, links, facts, clusters and the rest."""
