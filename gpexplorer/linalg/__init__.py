"""Linear algebra that the methods share."""
