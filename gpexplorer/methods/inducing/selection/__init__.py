"""Methods that choose the inducing set one row at a time, or at random."""
