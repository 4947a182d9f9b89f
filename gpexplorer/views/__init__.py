"""Pictures of runs. The package walk registers each View that has a key, so adding a picture is adding a file."""

from __future__ import annotations

import importlib
import pkgutil

import holoviews as hv

from ..runs.run import Run
from .base import View, registry

__all__ = ["View", "for_run"]

if "bokeh" not in hv.Store.loaded_backends():
    hv.extension("bokeh", logo=False)

for _found in pkgutil.walk_packages(__path__, prefix=f"{__name__}."):
    importlib.import_module(_found.name)


def for_run(run: Run) -> list[View]:
    """A fresh view of every kind that applies to this run, in the order of the page."""
    views = [kind() for kind in sorted(registry.values(), key=lambda kind: (kind.order, kind.key))]
    return [view for view in views if view.applies(run)]
