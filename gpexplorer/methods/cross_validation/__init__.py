"""Hyperparameters by cross-validation with ADMM (Xu et al. 2019), and the exact baselines ml and loo."""
