"""Pictures of the minibatch methods."""
