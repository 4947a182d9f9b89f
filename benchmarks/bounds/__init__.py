"""The variational bound beside its tighter form, on held-out rows of public sets."""

from .held_out_bounds import command

__all__ = ["command"]
