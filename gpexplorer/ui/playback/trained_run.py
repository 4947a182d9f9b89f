"""The trained model of a recommendation as a run that a page can show.

Apart because nothing else turns an answer into a run: pictures and predictions ask a run for its posterior, and an
answer may be an average of several models, of which only the best Gaussian process has a run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...posteriors import AveragePosterior, Marginals, Of
from ...problem import MixedRows, Scale
from ...runs import Run

if TYPE_CHECKING:
    from ...recommendation import Recommendation


class TrainedRun(Run):
    """The records of the run of a recommendation, the last of which predicts with all models of the answer.

    It can go on: later records are those of the best Gaussian process alone. It has no test rows, because the held-out
    rows of the search have chosen and weighed the models.

    Parameters
    ----------
    answer : Recommendation
        Its own run is not changed by further steps.

    Attributes
    ----------
    answered_at : int
        The index of the record that predicts with the answer.
    """

    def __init__(self, answer: Recommendation) -> None:
        run, posterior = answer.run, answer.posterior
        split = run.split and replace(run.split, test=run.split.test.rows(torch.arange(0)))
        records = [record._replace(scores=None) for record in run.trace[:]]
        kept: dict[str, Any] = {"spec": run.spec, "outcome": run.outcome, "start_note": run.start_note}
        super().__init__(run.method, run.problem, split, resume=records, changes=run.changes, **kept)
        is_average, scale = isinstance(posterior, AveragePosterior), run.problem.train.scale
        self._average = _ScaledAverage(posterior, scale) if is_average else None
        self.answered_at = self.done

    def posterior(self, at: int = -1, of: Of = "f") -> Any:
        """The posterior of the answer at its record, and that of the run at all others."""
        if self._average is None or self.trace[at].index != self.answered_at:
            return super().posterior(at, of)
        return self._average.asked_for(of)


class _ScaledAverage(AveragePosterior):
    """An average of models that also takes the rows of a run, whose numbers are scaled."""

    def __init__(self, average: AveragePosterior, scale: Scale | None) -> None:
        super().__init__([part.asked_for(average.of) for part in average.parts], average.weights)
        self._scale = scale

    def marginals_at_scaled(self, X: Any) -> Marginals:
        """The distributions at rows [t] of the run."""
        if self._scale is not None and isinstance(X, MixedRows):
            X = X.with_numbers(self._scale.inputs_in_units(X.numbers))
        elif self._scale is not None and isinstance(X, Tensor):
            X = self._scale.inputs_in_units(X)
        return self.marginals(X)
