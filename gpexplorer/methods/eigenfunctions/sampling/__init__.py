"""GRIEF with weights and noise sampled by Langevin chains."""
