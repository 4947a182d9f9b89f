"""The entries of theta: their names and units, their prior densities, and what restricts them."""
