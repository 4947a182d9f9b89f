"""Readers of data files, one module per format, with limits checked before anything is parsed."""
