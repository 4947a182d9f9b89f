"""The numbers of the runs that were open before on a page, of which the best one is drawn behind the open run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...runs import Run, Spec
from ...runs.studies.comparison import Finished
from ...views import View
from ...views.runs.convergence import Convergence

MOST_EARLIER = 12  # runs; of more, the oldest is forgotten


class EarlierRuns:
    """The tables of earlier runs. It keeps nothing else of them."""

    def __init__(self) -> None:
        self._runs: deque[Finished] = deque(maxlen=MOST_EARLIER)

    def add(self, run: Run | None) -> None:
        """Keep the numbers of a run that has taken steps and that a spec describes."""
        if run is not None and isinstance(run.spec, Spec) and run.done > 0:
            self._runs.append(Finished.of(run))

    def show(self, views: Iterable[View]) -> None:
        """Let these pictures draw the best of the runs behind their own."""
        for view in views:
            if isinstance(view, Convergence):
                view.earlier = tuple(self._runs)
