"""Data sets by name: cards of public sets, the cache of downloaded files, and generators."""
