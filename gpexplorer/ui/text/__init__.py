"""Text on the page: escaping, error sentences and number formats."""
