"""Posteriors in files: their parts, the kernels and feature maps in them, and the file itself."""
