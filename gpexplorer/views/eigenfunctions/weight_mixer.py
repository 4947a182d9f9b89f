"""Eigenfunctions along one input, with a slider for the weight of each of the first ones and the resulting mean."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch

from ...linalg.cholesky import cholesky
from ...methods.capabilities import EstimatesNoise, HasGridEigenfunctions
from ...objectives import noise_variance
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import CYCLE, ROLES
from .eigenfunction_curves import basis_at

SLIDERS, POINTS = 4, 160  # eigenfunctions with a slider; points of a curve
MAX_ROWS = 2000  # training rows of the regression


def _weight(rank: int) -> Any:
    return param.Number(
        0.0, bounds=(-4.0, 4.0), step=0.25, label=f"log10 weight {rank}",
        doc=f"log10 of the weight of eigenfunction {rank}; 0 is its weight in the kernel.",
    )  # fmt: skip


class Mixer(View):
    """The first eigenfunctions over one input, the others at their medians, and the mean with changed weights."""

    key: ClassVar[str] = "grief-mixer"
    title: ClassVar[str] = "Eigenfunction mixer"
    help: ClassVar[str] = "Change a weight. Which part of the mean depends on that eigenfunction?"
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 30

    first, second, third, fourth = (_weight(rank) for rank in range(1, SLIDERS + 1))
    column = param.Integer(
        1, bounds=(1, None), label="Input", doc="The input on the axis; the others stay at their medians."
    )

    def applies(self, run: Run) -> bool:
        """Applies to methods on a grid."""
        return super().applies(run) and isinstance(run.method, HasGridEigenfunctions)

    def data(self, run: Run, at: int) -> Layers:
        """Return scaled eigenfunctions, and the mean with the weights of the kernel and with changed weights.

        If the target is transformed, the mean of the transformed target becomes the median of the target.
        """
        train, state = run.problem.train, run.trace[at].step.state
        noise = noise_variance(state.theta)
        if isinstance(run.method, EstimatesNoise):
            noise = run.method.noise_variance(run.problem, state)
        part = train.rows(run_rows.sampled(len(train), MAX_ROWS).to(train.y.device))
        grid, basis, index = basis_at(run, at)
        q = min(self.column, train.d) - 1
        line = train.X.median(0).values.repeat(POINTS, 1)
        line[:, q] = torch.linspace(float(grid.axes[q][0]), float(grid.axes[q][-1]), POINTS).to(line)
        with torch.no_grad():
            Phi, Phi_line = basis(part.X).T, basis(line).T  # [rows, p], [POINTS, p]
        x = run_rows.inputs_of(train.__class__(line, line[:, 0], scale=train.scale))[:, q]
        sliders = (self.first, self.second, self.third, self.fourth)
        mixed = torch.ones(len(index)).to(Phi)
        mixed[: len(sliders)] = torch.tensor(sliders[: len(index)]).to(Phi).mul(np.log(10.0)).exp()

        layers = {}
        for name, w in (("mean", torch.ones_like(mixed)), ("mixed", mixed)):
            mean = _mean(Phi * w.sqrt(), Phi_line * w.sqrt(), part.y, noise)
            layers[name] = pd.DataFrame(
                {"x": x, "y": run_rows.targets_of(train.__class__(line, mean, scale=train.scale))}
            )
        layers["mean"].attrs["label"] = "median" if run_rows.transforms_target(run) else "mean"
        spread = float(run_rows.targets_of(train).std()) or 1.0
        for k in range(SLIDERS):
            values = Phi_line[:, k] * mixed[k].sqrt() if k < len(index) else torch.zeros(POINTS)
            layers[f"phi{k + 1}"] = pd.DataFrame({"x": x, "y": spread * values.cpu().double().numpy()})
        layers["mean"].attrs |= {"xlabel": run_rows.input_name(run, q), "ylabel": train.target}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw thin lines for eigenfunctions, a dashed line for the mean, and a thick line for the changed mean."""
        thin = [
            layer(
                hv.Curve(layers[f"phi{k}"], "x", "y", label=f"eigenfunction {k}"), f"phi{k}",
                color=CYCLE[k], line_width=1.2, alpha=0.8,
            )
            for k in range(1, SLIDERS + 1)
        ]  # fmt: skip
        name = layers["mean"].attrs["label"]
        unchanged = layer(
            hv.Curve(layers["mean"], "x", "y", label=name), "mean", color=ROLES["reference"], line_dash="dashed"
        )
        changed = layer(
            hv.Curve(layers["mixed"], "x", "y", label=f"{name}, changed"), "mixed", color=ROLES["mean"], line_width=3
        )
        return hv.Overlay([*thin, unchanged, changed]).opts(
            legend_position="right", responsive=True, show_grid=True, **labels(layers["mean"])
        )


def _mean(Phi: torch.Tensor, Phi_line: torch.Tensor, y: torch.Tensor, s2: float) -> torch.Tensor:
    """Posterior mean [t] of regression on weighted eigenfunctions."""
    A = Phi.T @ Phi
    A.diagonal().add_(s2)
    return Phi_line @ torch.cholesky_solve((Phi.T @ y)[:, None], cholesky(A, "Phi'Phi + s2 I").L)[:, 0]
