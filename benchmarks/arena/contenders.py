"""The contenders of the arena: methods of this package at their defaults, other programs, and models that are no GP.

ours     `recommend`, and each family's method with default settings
GP       Gaussian processes of other programs, and the greedy variance of Burt et al. (2020) by its formula
other    boosted trees and ridge regression, by scikit-learn
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from gpexplorer.data import Split
from gpexplorer.posteriors import Marginals, NormalMarginals
from gpexplorer.problem import Dataset
from gpexplorer.recommendation import recommend
from gpexplorer.recommendation.lanes import step_until
from gpexplorer.runs.spec import Spec

from . import other_programs
from .other_programs import MeanAndVar, arrays
from .simple_models import SIMPLE

EXACT_UP_TO = 5000  # training rows of our exact GP, whose every step costs n^3 operations
SGPR_UP_TO = 100_000  # training rows of GPyTorch's SGPR, whose every step costs n m^2 operations
OURS, GP, OTHER = "ours", "GP", "other"

Fit = Callable[[Split, float, int], Marginals]


@dataclass(frozen=True)
class Contender:
    """One way to predict.

    Attributes
    ----------
    name, group : str
        What the table calls it; one of `OURS`, `GP` and `OTHER`.
    predict : callable
        Takes a split, seconds and a seed, and gives the distributions of y at the test rows.
    most_rows, most_inputs : int or None
        The largest numbers of training rows and of inputs for which it is tried.
    """

    name: str
    group: str
    predict: Fit
    most_rows: int | None = None
    most_inputs: int | None = None

    def is_tried(self, train: Dataset) -> bool:
        """Whether these rows are not too many, nor their inputs."""
        return len(train) <= (self.most_rows or len(train)) and train.d <= (self.most_inputs or train.d)


def recommended(split: Split, seconds: float, seed: int) -> Marginals:
    """`recommend` with all of the time."""
    return recommend(split, seconds=seconds, seed=seed).posterior.marginals(split.test.X)


def run_alone(spec: Callable[[int, int], Spec], split: Split, seconds: float, seed: int) -> Marginals:
    """One run until the time is used. The function makes its spec from the number of rows and the seed."""
    deadline = time.perf_counter() + seconds
    run = spec(len(split.train), seed).open(data=split)
    step_until(run, deadline, lambda: False)
    run.close()
    return run.posterior(of="y").marginals(split.test.X)


def simple(name: str, split: Split, seconds: float, seed: int) -> Marginals:
    """One of the simple models of `recommend`, which need no time worth bounding."""
    return normal(SIMPLE[name](*arrays(split)))


def normal(prediction: MeanAndVar) -> Marginals:
    """Normal distributions with these means and variances [t]."""
    return NormalMarginals(*map(torch.from_numpy, prediction))


def other_program(fit: Callable[[Split, float, int], MeanAndVar]) -> Fit:
    """A contender whose predictions are normal distributions."""
    return lambda split, seconds, seed: normal(fit(split, seconds, seed))


def _defaults(method: str, kernel: str = "se-ard") -> Fit:
    return partial(run_alone, lambda n, seed: Spec(method, kernel=kernel, seed=seed))


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("recommend", OURS, recommended),
        Contender("cholqr", OURS, _defaults("cholqr")),
        Contender("gbcd", OURS, _defaults("gbcd")),
        Contender("ml", OURS, _defaults("ml"), EXACT_UP_TO),
        Contender("grief", OURS, _defaults("grief")),
        Contender("scgd", OURS, _defaults("scgd")),
        Contender("states", OURS, _defaults("states", "matern32"), most_inputs=1),
        Contender("vecchia", OURS, _defaults("vecchia", "matern32-ard"), most_inputs=3),
        Contender("GPyTorch exact", GP, other_program(other_programs.gpytorch_exact)),
        Contender("GPyTorch SGPR", GP, other_program(other_programs.gpytorch_sgpr), SGPR_UP_TO),
        Contender("GPyTorch SVGP", GP, other_program(other_programs.gpytorch_svgp)),
        Contender("greedy variance", GP, _defaults("greedy-variance")),
        Contender("scikit-learn GP", GP, other_program(other_programs.scikit_gp)),
        Contender("GPBoost", GP, other_program(other_programs.gpboost), most_inputs=3),
        Contender("celerite2", GP, other_program(other_programs.celerite2), most_inputs=1),
        Contender("boosted trees", OTHER, partial(simple, "boosted trees")),
        Contender("nearest neighbours", OTHER, partial(simple, "nearest neighbours")),
        Contender("ridge", OTHER, partial(simple, "ridge")),
    )
}
