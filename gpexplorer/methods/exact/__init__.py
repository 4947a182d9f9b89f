"""Iterative solvers of the exact Gaussian process (Bo and Sminchisescu 2008) and their baselines."""
