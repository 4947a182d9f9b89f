"""The pictures of a run on the page, and what a person can do in them."""
