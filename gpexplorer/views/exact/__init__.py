"""Pictures of the solvers of the exact Gaussian process."""
