"""Pictures of the methods that learn hyperparameters by cross-validation."""
