"""Minibatch learning of a finite-dimensional kernel (Shoham and Avron 2025) and its baselines."""
