"""How records are written to disk and read back: journals of checksummed JSON lines."""
