"""Marginal likelihood of a finite-dimensional kernel, by minibatches: unbiased (MINIMAX, SCGD) and not."""
