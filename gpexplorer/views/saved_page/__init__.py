"""A run as one HTML file, which plays without a server and without a network."""
