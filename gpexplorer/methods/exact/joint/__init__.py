"""Many right-hand sides through the same blocks of kernel rows: variances, samples, and gradients of the likelihood."""
