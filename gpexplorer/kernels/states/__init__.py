"""Kernels of one input as processes with a small state: filtering and smoothing in time O(n)."""
