"""Questions to a node and the pure parsers of their answers."""
