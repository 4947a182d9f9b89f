"""Pictures of the eigenfunction methods."""
