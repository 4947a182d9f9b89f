"""Readers of data files, one module per format. Size limits are checked before anything is parsed."""
