"""Waves and seasons in a target over one input: what a kernel begins with."""
