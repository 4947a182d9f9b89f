"""Posteriors outside of this program: in files with their parts, kernels and feature maps, and as torch modules."""
