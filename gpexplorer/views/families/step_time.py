"""The measured time of a step against the number of rows: only the first pass over the rows depends on n."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any, ClassVar, NamedTuple

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch
from torch import Tensor

from ...features.basis_choices import Leading
from ...linalg.randomness import generator
from ...methods.capabilities import HasWeightPriors, SamplesWeights
from ...methods.eigenfunctions.evidence import evidence_gradient, regress
from ...methods.eigenfunctions.orthogonal_basis import OrthogonalBasis, likelihood, likelihood_terms
from ...methods.eigenfunctions.posteriors import orthogonal_basis
from ...problem import Problem
from ...runs.run import Run
from ..base import Layers, View, dots, line, named, overlay
from ..drawing.palette import ROLES

MIN_ROWS, PER_DECADE = 1000, 2  # the smallest size, and sizes per decade
MAX_FUNCTIONS = 200  # eigenfunctions that are timed
LARGEST = "The largest size that is measured. Rows of this run are repeated. A million rows take about ten seconds."
REPEATS = 25  # evaluations of which the median is taken


class Times(NamedTuple):
    """Seconds at one number of rows."""

    n: int
    once: float  # Phi'Phi, Phi'y and the orthogonal basis
    theta: float  # one likelihood with its gradient in theta
    basis: OrthogonalBasis


class Growth(View):
    """Seconds per evaluation in the orthogonal basis against n, beside the first pass and a step of type II."""

    key: ClassVar[str] = "grief-growth"
    title: ClassVar[str] = "Cost of a step against n"
    help: ClassVar[str] = "The pass over the rows is done once. Does the line of a step stay level while n grows?"
    order: ClassVar[int] = 50
    needs: ClassVar[type] = HasWeightPriors

    largest = param.Selector(default=100_000, objects=[10_000, 100_000, 1_000_000], label="Rows, at most", doc=LARGEST)

    def data(self, run: Run, at: int) -> Layers:
        """Return seconds by n, measured once per run and size: the cost does not depend on theta."""
        tables = self.computed.setdefault(run, {})
        if self.largest not in tables:
            tables[self.largest] = measured(run, at, self.largest)
        table = tables[self.largest]
        layers = {name: pd.DataFrame({"x": table["n"], "y": table[name]}) for name in ("once", "theta", "step")}
        of_chains = f" of {_chains(run)} chains" if _chains(run) > 1 else ""
        microseconds = 1e6 * table["step"].median()
        title = f"{table['p'].iloc[0]:,} eigenfunctions: {microseconds:.0f} microseconds per likelihood{of_chains} "
        named(layers["step"], "rows n", "seconds", f"{title}with all derivatives, for any n")
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw three lines with points on logarithmic axes."""
        meaning = {
            "theta": ("type II: gradient in theta", ROLES["complexity"]),
            "once": ("first pass over the rows", ROLES["reference"]),
            "step": ("type I: gradient in the weights", ROLES["mean"]),
        }
        parts = []
        for name, (label, colour) in meaning.items():
            parts.append(line(layers, name, label, color=colour, line_width=2))
            parts.append(dots(layers, name, label, color=colour, size=6))
        return overlay(parts, layers["step"], 3, logx=True, logy=True)


def measured(run: Run, at: int, largest: int) -> pd.DataFrame:
    """Return a table of n, seconds of each part, and the number p of functions, which is the same at every n."""
    assert isinstance(run.method, HasWeightPriors)
    sizes = np.geomspace(MIN_ROWS, largest, 1 + round(PER_DECADE * np.log10(largest / MIN_ROWS))).round().astype(int)
    state = run.trace[at].step.state
    choice = run.method.eigenfunctions(run.problem, state, min(MAX_FUNCTIONS, run.method.num_eigenfunctions))
    times = [_times(run.problem, choice, state.theta, int(n)) for n in sizes]
    p = min(len(timing.basis.e) for timing in times)
    rows = [(timing.n, timing.once, timing.theta, _step_seconds(timing.basis, p, _chains(run)), p) for timing in times]
    return pd.DataFrame(rows, columns=["n", "once", "theta", "step", "p"])


def _chains(run: Run) -> int:
    return int(run.method.chains) if isinstance(run.method, SamplesWeights) else 1


def _times(problem: Problem, choice: Leading, theta: Tensor, n: int) -> Times:
    """Seconds of the pass over n rows and of type II's step; rows of the problem are drawn with replacement."""
    index = torch.randint(len(problem.train), (n,), generator=generator(0, "grown", n)).to(theta.device)
    train = problem.train.rows(index)
    once, basis = _timed(lambda: orthogonal_basis(replace(problem, train=train), choice, theta, map))
    gradient, _ = _timed(lambda: evidence_gradient(choice, theta, train, regress(choice, theta, train)))
    return Times(n, once, gradient, basis)


def _step_seconds(basis: OrthogonalBasis, p: int, chains: int) -> float:
    """Median seconds of one evaluation with all derivatives, for all chains."""
    terms = likelihood_terms(basis._replace(V=basis.V[:, :p], e=basis.e[:p], u=basis.u[:p]))
    z = basis.e.new_zeros(chains, p + 1)
    likelihood(terms, z)  # the first call allocates arrays
    return median(_timed(lambda: likelihood(terms, z))[0] for _ in range(REPEATS))


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result
