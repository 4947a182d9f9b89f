"""Benchmarks: figures printed beside the machine's own floor, never timed assertions."""
