"""The gate that every request to a server of this package passes first, whichever command has started the server."""
