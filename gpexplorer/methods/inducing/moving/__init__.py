"""Methods whose inducing inputs move by gradient: FITC, SGPR and k-means."""
