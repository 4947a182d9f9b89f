"""Methods whose inducing points move freely by gradient."""
