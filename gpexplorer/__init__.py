"""Sparse and scalable Gaussian processes, one step at a time.

The public shelf, filled on first use: `import gpexplorer as gpx` is instant, `gpx.Explorer` is what imports a
drawing library, and the packages behind the names may move while the names stay.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import data, kernels, methods
    from .data import load
    from .estimator import Estimator
    from .methods.base import Method
    from .recommendation import recommend
    from .runs import Run, Spec, Store
    from .runs.storage.saved_posterior import load_posterior
    from .ui import Explorer

__version__ = "0.1.0"

_PACKAGES = ("data", "kernels", "methods")
_SHELF = {
    "load": "data",
    "load_posterior": "runs.storage.saved_posterior",
    "Method": "methods.base",
    "Spec": "runs",
    "Run": "runs",
    "Store": "runs",
    "Estimator": "estimator",
    "Explorer": "ui",
    "recommend": "recommendation",
}
__all__ = [
    "Estimator",
    "Explorer",
    "Method",
    "Run",
    "Spec",
    "Store",
    "data",
    "kernels",
    "load",
    "load_posterior",
    "methods",
    "recommend",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name in _SHELF:
        return getattr(importlib.import_module(f".{_SHELF[name]}", __name__), name)
    raise AttributeError(f"gpexplorer has no {name!r}; it has {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
