"""Pictures of the cross-validation methods."""
