"""Benchmarks: measured times and scores, printed beside what this machine can do at best. None of them is a test."""
