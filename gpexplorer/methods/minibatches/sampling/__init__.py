"""Weights of learned features sampled by Langevin chains."""
