"""Gaussian processes on eigenfunctions of a grid (GP-GRIEF, Evans and Nair 2018) and their baselines."""
