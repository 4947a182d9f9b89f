"""Rows of a run in the units of its file, and the names its axes carry."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...linalg.randomness import generator
from ...problem import Dataset
from ...runs.run import Run
from ...runs.units import targets

SHOWN = 1500  # rows drawn of a larger set


def numeric(run: Run) -> bool:
    """Whether the inputs are columns of numbers."""
    return isinstance(run.problem.train.X, Tensor)


def inputs_of(data: Dataset) -> np.ndarray:
    """X [n, d] in the units of the file."""
    X, by = data.X, data.scale
    X = X if by is None else X * by.x_sd.to(X) + by.x_mean.to(X)
    return X.detach().cpu().double().numpy()


def targets_of(data: Dataset) -> np.ndarray:
    """y [n] in the units of the file."""
    return targets(data.y, data).detach().cpu().double().numpy()


def sampled(n: int, most: int = SHOWN) -> Tensor:
    """At most `most` row numbers of n, always the same ones, in order."""
    return _sampled(n, most)


@cache
def _sampled(n: int, most: int) -> Tensor:
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=generator(0, "shown"))[:most].sort().values


def input_name(run: Run, q: int) -> str:
    """The name of an input column."""
    names = run.problem.train.names
    return names[q] if q < len(names) else f"x{q + 1}"


def plane(run: Run) -> tuple[np.ndarray, tuple[str, str]]:
    """Training rows on two inputs [n, 2], or on the two directions in which the scaled inputs vary most."""
    train = run.problem.train
    if train.d == 2:
        return inputs_of(train), (input_name(run, 0), input_name(run, 1))
    X = train.X.double() - train.X.double().mean(0)
    values, vectors = torch.linalg.eigh(X.T @ X)
    share = (values / values.sum()).flip(0)
    names = [f"principal component {i + 1} ({100 * float(share[i]):.0f} %)" for i in (0, 1)]
    return (X @ vectors.flip(1)[:, :2]).cpu().numpy(), (names[0], names[1])


def inducing_inputs(run: Run, state: Any) -> np.ndarray:
    """Where the inducing points are [m, d], in the units of the file: rows or not; [0, d] where there are none."""
    train, index, Z = run.problem.train, inducing_rows(state), getattr(state, "Z", None)
    if index is not None:
        return inputs_of(train)[index.cpu().numpy()]
    if isinstance(Z, Tensor):
        return inputs_of(replace(train, X=Z, y=train.y.new_zeros(len(Z))))
    return inputs_of(train)[:0]


def inducing_rows(state: Any) -> Tensor | None:
    """Rows of the training data that are inducing points at this state, where the method has such."""
    return None if getattr(state, "Z", None) is not None else getattr(state, "inducing", None)
