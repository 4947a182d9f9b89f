"""Finite feature maps whose inner products stand for a kernel."""
