"""CholQR: inducing points chosen from the training rows by swapping."""
