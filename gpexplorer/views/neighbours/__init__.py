"""Pictures of methods of near neighbours."""
