"""Conjugate gradient solvers, plain and preconditioned."""
