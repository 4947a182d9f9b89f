"""What several benchmarks share: the speed limits of this machine, and learning by minibatches from start to end."""
