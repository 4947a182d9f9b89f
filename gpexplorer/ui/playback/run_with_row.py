"""The pictures of a record after one more training row: its posterior is updated, and no step is taken again.

A person who adds a row sees its effect at once, at the hyperparameters and inducing points of the step on the screen,
for the cost of one row (`Posterior.with_rows`). The run is then repeated on all rows, which is what a link describes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor

from ...data.units import inputs, scaled_targets
from ...errors import GPExplorerError
from ...posteriors import InUnits
from ...posteriors.base import Of
from ...problem import Dataset
from ...runs import Run
from ...views import View


class RunWithRow(Run):
    """The records of a run up to one of them, with one more training row. It takes no steps.

    Parameters
    ----------
    run : Run
    at : int
        Index of the record.
    row : sequence of float
        Inputs and target of the new row, in the units of the file.

    Raises
    ------
    DataError
        If the row has another number of inputs.
    """

    def __init__(self, run: Run, at: int, row: Sequence[float]) -> None:
        X, y = torch.tensor([row[:-1]], dtype=torch.float64), torch.tensor(row[-1:], dtype=torch.float64)
        problem = replace(run.problem, train=_with_row(run.problem.train, X, y))
        super().__init__(run.method, problem, run.split, spec=run.spec, resume=run.trace[: at + 1])
        self._run, self._row = run, (X, y)

    def posterior(self, at: int = -1, of: Of = "f") -> InUnits:
        """The posterior of the run before, updated by the row.

        Raises
        ------
        PosteriorError
            If a posterior of this kind cannot be updated.
        """
        return self._run.posterior(at, of).with_rows(*self._row)


def layers_with_row(
    run: Run, at: int, row: Sequence[float], views: Collection[View]
) -> dict[str, Mapping[str, pd.DataFrame]]:
    """Compute the layers of the pictures that rows can be added in, after one more row; none where no update exists."""
    try:
        grown = RunWithRow(run, at, row)
        return {view.key: view.data(grown, at) for view in views if view.editable}
    except GPExplorerError:
        return {}


def _with_row(train: Dataset, X: Tensor, y: Tensor) -> Dataset:
    """These rows and one at the end, in the scale of the others."""
    scaled, target = inputs(X, train), scaled_targets(y, train).to(train.y)
    return replace(train, X=torch.cat([train.X, scaled]), y=torch.cat([train.y, target]))
