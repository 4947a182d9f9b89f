"""Data sets by name: cards of public sets, the download cache, and generators."""
