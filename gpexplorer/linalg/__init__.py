"""Linear algebra, random numbers and optimisers that several families of methods use."""
