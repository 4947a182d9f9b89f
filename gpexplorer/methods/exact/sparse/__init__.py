"""Sparse approximations that regress on a subset of kernel columns."""
