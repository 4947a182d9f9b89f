"""The player thread, the orders and frames that pass between it and the page, and the transport controls."""
