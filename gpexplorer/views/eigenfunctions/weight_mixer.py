"""Eigenfunctions along one input, and a slider for the weight of each of the first: the posterior answers at once."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch

from ...linalg.cholesky import cholesky
from ...objectives import noise_variance
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import CYCLE, ROLES
from .eigenfunction_curves import basis_at, on_grid

SHOWN, POINTS, ROWS = 4, 160, 2000


def _weight(rank: int) -> Any:
    return param.Number(
        0.0, bounds=(-4.0, 4.0), step=0.25, label=f"log10 weight {rank}",
        doc=f"Weight of eigenfunction {rank}, in decades from the one that the kernel gives it.",
    )  # fmt: skip


class Mixer(View):
    """The first eigenfunctions over one input, the others at their medians, and the mean with their weights changed."""

    key: ClassVar[str] = "grief-mixer"
    title: ClassVar[str] = "Eigenfunction mixer"
    help: ClassVar[str] = "Turn a weight up or down: which part of the mean leans on that eigenfunction?"
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 30

    first, second, third, fourth = (_weight(rank) for rank in range(1, SHOWN + 1))
    column = param.Integer(
        1, bounds=(1, None), label="Input", doc="The input on the axis; the others stay at their medians."
    )

    def applies(self, run: Run) -> bool:
        """Methods on a grid."""
        return super().applies(run) and on_grid(run)

    def data(self, run: Run, at: int) -> Layers:
        """Eigenfunctions scaled by their weights, the mean as it is and as mixed; over at most 2000 rows."""
        train, theta = run.problem.train, run.trace[at].step.state.theta
        part = train.rows(run_rows.sampled(len(train), ROWS).to(train.y.device))
        grid, _, index = basis_at(run, at)
        q = min(self.column, train.d) - 1
        line = train.X.median(0).values.repeat(POINTS, 1)
        line[:, q] = torch.linspace(float(grid.axes[q][0]), float(grid.axes[q][-1]), POINTS).to(line)
        Phi, at_line = (grid.features(theta, X, index) for X in (part.X, line))
        x = run_rows.inputs_of(train.__class__(line, line[:, 0], scale=train.scale))[:, q]
        chosen = (self.first, self.second, self.third, self.fourth)
        mixed = torch.ones(len(index)).to(Phi)
        mixed[: len(chosen)] = torch.tensor(chosen[: len(index)]).to(Phi).mul(np.log(10.0)).exp()

        layers = {}
        for name, w in (("found", torch.ones_like(mixed)), ("mixed", mixed)):
            mean = _mean(Phi * w.sqrt(), at_line * w.sqrt(), part.y, noise_variance(theta))
            layers[name] = pd.DataFrame(
                {"x": x, "y": run_rows.targets_of(train.__class__(line, mean, scale=train.scale))}
            )
        spread = float(run_rows.targets_of(train).std()) or 1.0
        for k in range(SHOWN):
            values = at_line[:, k] * mixed[k].sqrt() if k < len(index) else torch.zeros(POINTS)
            layers[f"phi{k + 1}"] = pd.DataFrame({"x": x, "y": spread * values.cpu().double().numpy()})
        layers["found"].attrs |= {"xlabel": run_rows.input_name(run, q), "ylabel": train.target}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Thin lines for eigenfunctions, a dashed one for the mean as found, a thick one as mixed."""
        thin = [
            layer(
                hv.Curve(layers[f"phi{k}"], "x", "y", label=f"eigenfunction {k}"), f"phi{k}",
                color=CYCLE[k], line_width=1.2, alpha=0.8,
            )
            for k in range(1, SHOWN + 1)
        ]  # fmt: skip
        found = layer(
            hv.Curve(layers["found"], "x", "y", label="mean"), "found", color=ROLES["reference"], line_dash="dashed"
        )
        mixed = layer(
            hv.Curve(layers["mixed"], "x", "y", label="mean, mixed"), "mixed", color=ROLES["mean"], line_width=3
        )
        return hv.Overlay([*thin, found, mixed]).opts(
            legend_position="right", responsive=True, show_grid=True, **labels(layers["found"])
        )


def _mean(Phi: torch.Tensor, at: torch.Tensor, y: torch.Tensor, s2: float) -> torch.Tensor:
    """Posterior mean [t] of regression on weighted eigenfunctions."""
    A = Phi.T @ Phi
    A.diagonal().add_(s2)
    return at @ torch.cholesky_solve((Phi.T @ y)[:, None], cholesky(A, "Phi'Phi + s2 I").L)[:, 0]
