"""Kernels by key: `kernels.make("se-ard", d=8)`, `kernels.make("se * periodic + linear", d=1)`.

The package walk registers each class that has a `key`, so adding a kernel is adding a file.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import SupportsIndex

from ..errors import KernelError
from .base import Covariance, registry
from .composites import Product, Sum, parse

__all__ = ["Covariance", "Product", "Sum", "available", "make"]

LONGEST = 500  # characters of a kernel's text

for _found in pkgutil.walk_packages(__path__, prefix=f"{__name__}."):
    importlib.import_module(_found.name)


def available() -> dict[str, str]:
    """Every kernel key with its title."""
    return {key: registry[key].title for key in sorted(registry)}


def make(text: str, d: SupportsIndex = 1) -> Covariance:
    """The kernel named by a key, or by keys joined with + and *, for d inputs. KernelError says what is wrong."""
    if not isinstance(text, str) or not text.strip():
        raise KernelError(f"A kernel is named by text such as 'se-ard', not by {text!r}.")
    if len(text) > LONGEST:
        raise KernelError(f"A kernel's text may have {LONGEST} characters; this one has {len(text)}.")
    if not hasattr(d, "__index__") or isinstance(d, bool):
        raise KernelError(f"Kernel {text!r}: d is {d!r}; give the number of inputs, such as 8.")

    def atom(key: str) -> Covariance:
        if key not in registry:
            close = difflib.get_close_matches(key.lower(), registry, n=3)
            way_out = (
                f"did you mean {' or '.join(close)}?" if close else f"choose one of {', '.join(sorted(registry))}."
            )
            raise KernelError(f"Kernel {key!r} is not known; {way_out}")
        return registry[key](int(d))

    return parse(text, atom)
