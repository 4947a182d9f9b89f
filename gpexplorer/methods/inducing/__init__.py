"""Sparse Gaussian processes with inducing points (Cao et al. 2013) and their baselines."""
