"""Sparse and scalable Gaussian processes, one step at a time.

Each public name is imported on first use: `import gpexplorer as gpx` is instant, and a drawing library is imported only
when a name that draws, such as `gpx.Explorer`, is used. Modules may move; the public names stay.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import data, errors, kernels, methods, views
    from .data import load
    from .estimator import Estimator
    from .hyperparameters import Hyperparameters
    from .methods.base import Method
    from .recommendation import recommend
    from .runs import Run, Spec, Store
    from .runs.storage.saved_posterior import load_posterior
    from .runs.studies.race import Race
    from .runs.studies.scaling_study import Scaling
    from .runs.studies.sweep import grid, sweep
    from .ui import Explorer, RunWidget
    from .views.picture import Compare, Picture

__version__ = "0.1.0"

# Torch reads this when it is first imported. Else its threads spin while they wait, on cores that SciPy's threads or
# other programs need: a step of sgpr took 2.5 times as long on two idle cores, an inverse thrice or more on busy ones.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_SUBPACKAGES = ("data", "errors", "kernels", "methods", "views")
_MODULE_OF = {
    "Compare": "views.picture",
    "load": "data",
    "load_posterior": "runs.storage.saved_posterior",
    "Method": "methods.base",
    "Spec": "runs",
    "Run": "runs",
    "Store": "runs",
    "Estimator": "estimator",
    "Hyperparameters": "hyperparameters",
    "Explorer": "ui",
    "Picture": "views.picture",
    "Race": "runs.studies.race",
    "RunWidget": "ui",
    "Scaling": "runs.studies.scaling_study",
    "grid": "runs.studies.sweep",
    "recommend": "recommendation",
    "sweep": "runs.studies.sweep",
}
__all__ = [
    "Compare",
    "Estimator",
    "Explorer",
    "Hyperparameters",
    "Method",
    "Picture",
    "Race",
    "Run",
    "RunWidget",
    "Scaling",
    "Spec",
    "Store",
    "data",
    "errors",
    "grid",
    "kernels",
    "load",
    "load_posterior",
    "methods",
    "recommend",
    "sweep",
    "views",
]


def __getattr__(name: str) -> Any:
    if name not in _SUBPACKAGES and name not in _MODULE_OF:
        raise AttributeError(f"gpexplorer has no {name!r}; it has {', '.join(__all__)}.")
    with _without_collection():
        module = importlib.import_module(f".{_MODULE_OF.get(name, name)}", __name__)
        return module if name in _SUBPACKAGES else getattr(module, name)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Import inside the block without garbage collection, which finds nothing to free and takes a tenth longer.

    The next collection would walk through all that was imported, for a quarter of a second, so it is moved to what has
    survived collections. Where a program has frozen objects, they stay frozen.
    """
    collects, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if collects and len(sys.modules) > before and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
