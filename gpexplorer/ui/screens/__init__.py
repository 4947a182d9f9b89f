"""Pages beside the laboratory: each shows one thing."""
