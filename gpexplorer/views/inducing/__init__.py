"""Pictures of the inducing-point methods."""
