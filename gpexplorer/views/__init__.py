"""Pictures of runs.

Importing this package imports every module in it, which registers each `View` that has a key. To add a picture, add a
file.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil

import holoviews as hv

from ..runs.run import Run
from .base import BrokenView, View, registry
from .drawing.live import repair_current_document

__all__ = ["View", "for_run"]

log = logging.getLogger(__name__)

if "bokeh" not in hv.Store.loaded_backends():
    hv.util.extension("bokeh")  # not hv.extension, which in a notebook loads files from another host
repair_current_document()


def for_run(run: Run) -> list[View]:
    """Make a new view of every registered kind that applies to this run.

    Parameters
    ----------
    run : Run
        The run, at any step.

    Returns
    -------
    list of View
        In the order of the page: by `View.order`, then by key. A view that raises when it is made, or in `applies`, is
        replaced by a `BrokenView`, which raises that error when it is asked for data; the others are not affected.

    Examples
    --------
    >>> import gpexplorer as gpx
    >>> run = gpx.Spec("cholqr", {"num_inducing": 4}, data="snelson-like").open()
    >>> run.finish(steps=1).reason
    'budget'
    >>> [view.key for view in for_run(run)][:2]
    ['fit', 'convergence']
    """
    views: list[View] = []
    for kind in sorted(registry.values(), key=lambda kind: (kind.order, kind.key)):
        try:
            view: View = kind()
            if view.applies(run):
                views.append(view)
        except Exception as error:
            log.exception("The view %r could not say whether it applies to a run of %s.", kind.key, run.method.key)
            views.append(BrokenView(kind, error))
    return views


for _module in pkgutil.walk_packages(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)
