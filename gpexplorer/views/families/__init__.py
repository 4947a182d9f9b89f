"""Pictures of one family of methods each."""
