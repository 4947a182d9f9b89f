"""Code that runs in the browser, or works around what the browser side of the libraries does."""
