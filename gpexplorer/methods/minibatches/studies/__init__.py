"""Studies beside a run: the bias and spread of minibatch gradients."""
