"""The rows of a run in the units of its data file, and the names of its input columns."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.standardising import inputs_in_units, targets
from ...linalg.randomness import generator
from ...problem import Dataset
from ...runs.run import Run

SHOWN = 1500  # rows drawn at most; of a larger data set, a random sample of this size


def numeric(run: Run) -> bool:
    """Return whether the inputs are columns of numbers, rather than a sequence of objects."""
    return isinstance(run.problem.train.X, Tensor)


def inputs_of(data: Dataset) -> np.ndarray:
    """Return the inputs [n, d] in the units of the file."""
    X: np.ndarray = inputs_in_units(data.X, data)
    return X


def targets_of(data: Dataset) -> np.ndarray:
    """Return the targets [n] in the units of the file."""
    return targets(data.y, data).detach().cpu().double().numpy()


def transforms_target(run: Run) -> bool:
    """Return whether a transform of the target is modelled, so that distributions of the target are not normal."""
    scale = run.problem.train.scale
    return scale is not None and scale.transform is not None


@cache
def sampled(n: int, most: int = SHOWN) -> Tensor:
    """Return at most `most` of the row numbers 0 to n - 1, in order; the same ones at every call."""
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=generator(0, "shown"))[:most].sort().values


def input_name(run: Run, q: int) -> str:
    """Return the name of input column q."""
    names = run.problem.train.names
    return names[q] if q < len(names) else f"x{q + 1}"


def plane(run: Run) -> tuple[np.ndarray, tuple[str, str]]:
    """Place the training rows on a plane.

    Returns
    -------
    coordinates
        [n, 2]: the two inputs in the units of the file; of more than two inputs, the first two principal components
        of the scaled inputs.
    names
        What the two axes show.
    """
    train = run.problem.train
    if train.d == 2:
        return inputs_of(train), (input_name(run, 0), input_name(run, 1))
    X = train.X.double() - train.X.double().mean(0)
    values, vectors = torch.linalg.eigh(X.T @ X)
    share = (values / values.sum()).flip(0)
    names = [f"principal component {i + 1} ({100 * float(share[i]):.0f} %)" for i in (0, 1)]
    return (X @ vectors.flip(1)[:, :2]).cpu().numpy(), (names[0], names[1])


def inducing_inputs(run: Run, state: Any) -> np.ndarray:
    """Return the inducing inputs [m, d] in the units of the file, whether or not they are rows.

    The result is [0, d] for a method without inducing points.
    """
    train, index, Z = run.problem.train, inducing_rows(state), getattr(state, "Z", None)
    if index is not None:
        return inputs_of(train)[index.cpu().numpy()]
    if isinstance(Z, Tensor):
        points: np.ndarray = inputs_in_units(Z.detach(), train)
        return points
    return inputs_of(train)[:0]


def inducing_rows(state: Any) -> Tensor | None:
    """Return the numbers of the training rows that are inducing points; None where the inducing points are no rows."""
    return None if getattr(state, "Z", None) is not None else getattr(state, "inducing", None)
