"""`python -m gpexplorer`: starts the command line, which the package `cli` holds."""

from __future__ import annotations

from .cli import app, main

__all__ = ["app", "main"]

if __name__ == "__main__":
    main()
