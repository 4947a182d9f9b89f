"""Hyperparameters by cross-validation with ADMM (Xu et al. 2019) and exact baselines."""
