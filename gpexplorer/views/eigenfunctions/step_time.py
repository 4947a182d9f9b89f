"""What a step costs against the rows there are, measured: the pass over them is made once, what follows knows none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch
from torch import Tensor

from ...bench.limits import median_seconds
from ...features.basis_choices import Leading
from ...linalg.randomness import generator
from ...methods.eigenfunctions.evidence import gradient, gram
from ...methods.eigenfunctions.orthogonal_basis import Rotated, halves, likelihood
from ...methods.eigenfunctions.posteriors import basis_of
from ...problem import Problem
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES
from .eigenfunction_curves import grid_of

FEWEST, MOST, REPEATS = 1000, 200, 25  # rows begun with; eigenfunctions; evaluations of which the median is taken
PER_DECADE = 2
OWN = ("grief", "grief-mcmc")


class Spent(NamedTuple):
    """Seconds at n rows."""

    n: int
    once: float  # Phi'Phi, Phi'y and the rotation
    theta: float  # likelihood and slopes in theta
    basis: Rotated


class Growth(View):
    """Seconds of an evaluation in the orthogonal basis against n, beside what is paid once, and type II's own step."""

    key: ClassVar[str] = "grief-growth"
    title: ClassVar[str] = "Cost of a step against n"
    help: ClassVar[str] = "Rows are paid for once, above; does the line of a step stay level while they grow?"
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 50

    largest = param.Selector(
        default=100_000, objects=[10_000, 100_000, 1_000_000], label="Rows, at most",
        doc="The largest size measured, rows of this run taken again and again; a million takes some ten seconds.",
    )  # fmt: skip

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._measured: WeakKeyDictionary[Run, dict[int, pd.DataFrame]] = WeakKeyDictionary()

    def applies(self, run: Run) -> bool:
        """Both types; interpolation and waves have no orthogonal basis."""
        return super().applies(run) and run.method.key in OWN

    def data(self, run: Run, at: int) -> Layers:
        """Measured once a run and size, whatever record is looked at: theta has no part in the cost."""
        held = self._measured.setdefault(run, {})
        if self.largest not in held:
            held[self.largest] = measured(run, at, self.largest)
        table = held[self.largest]
        layers = {name: pd.DataFrame({"x": table["n"], "y": table[name]}) for name in ("once", "theta", "step")}
        chains = getattr(run.method, "chains", 1)
        layers["step"].attrs |= {"xlabel": "rows n", "ylabel": "seconds"}
        layers["step"].attrs["title"] = (
            f"{table['p'].iloc[0]} eigenfunctions: {1e6 * table['step'].median():.0f} microseconds "
            f"a likelihood{f' of {chains} chains' if chains > 1 else ''} with all slopes, whatever n"
        )
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Three lines with their points on logarithmic axes."""
        meant = {
            "theta": ("type II: slopes in theta", ROLES["complexity"]),
            "once": ("set-up, once", ROLES["reference"]),
            "step": ("type I: slopes in weights", ROLES["mean"]),
        }
        parts = []
        for name, (said, colour) in meant.items():
            parts.append(layer(hv.Curve(layers[name], "x", "y", label=said), name, color=colour, line_width=2))
            parts.append(layer(hv.Scatter(layers[name], "x", "y", label=said), name, color=colour, size=6))
        return hv.Overlay(parts).opts(
            logx=True, logy=True, legend_position="top", legend_cols=3, responsive=True, show_grid=True,
            **labels(layers["step"]),
        )  # fmt: skip


def measured(run: Run, at: int, largest: int) -> pd.DataFrame:
    """n, seconds once, a step's of each type, and the functions p timed: the same number at every n."""
    sizes = np.geomspace(FEWEST, largest, 1 + round(PER_DECADE * np.log10(largest / FEWEST))).round().astype(int)
    method: Any = run.method
    grid, theta = grid_of(run, at), run.trace[at].step.state.theta
    choice = Leading(grid, grid.spectrum(theta, min(MOST, method.num_eigenfunctions)).made_of)
    found = [_spent(run.problem, choice, theta, int(n)) for n in sizes]
    p = min(len(one.basis.e) for one in found)
    chains = int(getattr(method, "chains", 1))
    rows = [(one.n, one.once, one.theta, _step(one.basis, p, chains), p) for one in found]
    return pd.DataFrame(rows, columns=["n", "once", "theta", "step", "p"])


def _spent(problem: Problem, choice: Leading, theta: Tensor, n: int) -> Spent:
    """What the pass over n rows takes; rows are drawn from the problem's with replacement."""
    index = torch.randint(len(problem.train), (n,), generator=generator(0, "grown", n)).to(theta.device)
    train = problem.train.rows(index)
    once, basis = _took(lambda: basis_of(replace(problem, train=train), choice, theta, map))
    slopes, _ = _took(lambda: gradient(choice, theta, train, gram(choice, theta, train)))
    return Spent(n, once, slopes, basis)


def _step(basis: Rotated, p: int, chains: int) -> float:
    """One evaluation with all slopes, of every chain."""
    given = halves(basis._replace(V=basis.V[:, :p], e=basis.e[:p], u=basis.u[:p]))
    z = basis.e.new_zeros(chains, p + 1)
    return median_seconds(lambda: likelihood(given, z), REPEATS)


def _took(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result
