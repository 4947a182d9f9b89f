"""Sparse baselines: f is a sum over few rows, and its weights are fitted to all rows."""
