"""One run whose steps are worked on elsewhere: its method's pieces go to a Dask scheduler's workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..run import Run
from .cluster import connected, mapped


@contextmanager
def working(run: Run, scheduler: str) -> Iterator[None]:
    """While this lasts, independent pieces of a step (folds, strips of rows) are worked on there; here without one.

    The trajectory stays here, and the numbers are the same. Workers that are processes count no kernel entries for us.
    """
    if not scheduler:
        yield
        return
    with connected(scheduler) as client, run.using_mapper(mapped(client)):
        yield
