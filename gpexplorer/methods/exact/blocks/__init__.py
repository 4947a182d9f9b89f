"""Block coordinate descent with other rules for the choice of blocks than the greedy one."""
