"""How well the eigenfunctions rebuild the covariance of some rows: matrix beside matrix, and error against p."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import ROLES, SEQUENTIAL
from .eigenfunction_curves import basis_at, on_grid

SHOWN, JUDGED, MOST = 60, 200, 1000  # rows of the matrices and of the errors; eigenfunctions judged


def both(run: Run, at: int, count: int) -> tuple[Tensor, Tensor]:
    """K [m, m] of at most `count` rows, ordered by the first input, and Phi' [p, m] there."""
    train, theta = run.problem.train, run.trace[at].step.state.theta
    X = train.X[run_rows.sampled(len(train), count).to(train.X.device)]
    X = X[X[:, 0].argsort()]
    _, basis, _ = basis_at(run, at, min(MOST, run.method.num_eigenfunctions))  # type: ignore[attr-defined]
    with torch.no_grad():
        return run.problem.kernel(theta, X, X).double(), basis(X).double()


def errors(K: Tensor, F: Tensor) -> Tensor:
    """|K - F_p' F_p|_F / |K|_F [p] for every p at once: m p^2 flops."""
    G2, carried = (F @ F.T).square(), ((F @ K) * F).sum(1)
    grown = 2.0 * G2.tril(-1).sum(1) + G2.diagonal()
    return ((K.square().sum() - 2.0 * carried.cumsum(0) + grown.cumsum(0)).clamp_min(0.0) / K.square().sum()).sqrt()


class CovarianceMatrices(View):
    """k(x, x') of some rows as it is, and as the eigenfunctions make it, in one scale of colours."""

    key: ClassVar[str] = "grief-covariance"
    title: ClassVar[str] = "Covariance, exact and rebuilt"
    help: ClassVar[str] = "Is the diagonal as bright on the right, and are there stripes that the left one lacks?"
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 40

    def applies(self, run: Run) -> bool:
        """Methods on a grid that keep the kernel's weights."""
        return super().applies(run) and on_grid(run) and run.method.key == "grief"

    def data(self, run: Run, at: int) -> Layers:
        """One grid of values: exact, a gap, rebuilt."""
        K, F = both(run, at, SHOWN)
        m = len(K)
        gap = K.new_full((m, max(m // 20, 1)), np.nan)
        values = torch.cat([K, gap, F.T @ F], 1).flip(0).cpu().numpy()
        x, y = np.meshgrid(np.arange(values.shape[1], dtype=float), np.arange(m, dtype=float))
        frame = pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "value": values.ravel()})
        frame.attrs |= {"xlabel": "exact, then rebuilt", "ylabel": "row, by the first input"}
        frame.attrs["title"] = (
            f"relative error {float((K - F.T @ F).norm() / K.norm()):.2g} with {len(F)} eigenfunctions"
        )
        return {"map": frame}

    def plot(self, layers: Layers) -> hv.Overlay:
        """Both matrices beside each other."""
        frame = layers["map"]
        values = frame.sort_values(["y", "x"])["value"].to_numpy().reshape(len(np.unique(frame["y"])), -1)
        image = hv.Image((np.unique(frame["x"]), np.unique(frame["y"]), values), ["x", "y"], "value")
        drawn = layer(image, "map", cmap=SEQUENTIAL, colorbar=True, clabel="covariance")
        return hv.Overlay([drawn]).opts(responsive=True, **labels(frame))


class CovarianceError(View):
    """The error of the rebuilt covariance matrix against the eigenfunctions used, and the least that rank allows."""

    key: ClassVar[str] = "grief-error"
    title: ClassVar[str] = "Error against eigenfunctions"
    help: ClassVar[str] = "How close does the grid come to the best of that rank, and does the curve still fall at p?"
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 45

    def applies(self, run: Run) -> bool:
        """Methods on a grid."""
        return super().applies(run) and on_grid(run)

    def data(self, run: Run, at: int) -> Layers:
        """Relative Frobenius errors over at most 200 rows."""
        K, F = both(run, at, JUDGED)
        values = torch.linalg.eigvalsh(K).flip(0).square()
        best = ((values.sum() - values.cumsum(0)).clamp_min(0.0) / values.sum()).sqrt()
        layers = {}
        for name, found in (("grid", errors(K, F)), ("best", best)):
            y = found[: len(F)].clamp_min(1e-12).cpu().numpy()
            layers[name] = pd.DataFrame({"x": np.arange(1.0, len(y) + 1), "y": y})
        layers["grid"].attrs |= {"xlabel": "eigenfunctions", "ylabel": "relative error (Frobenius)"}
        layers["grid"].attrs["title"] = f"covariance of {len(K)} rows"
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Two curves on logarithmic axes."""
        parts = [
            layer(hv.Curve(layers["best"], "x", "y", label="best of this rank"), "best", color=ROLES["reference"],
                  line_dash="dashed"),
            layer(hv.Curve(layers["grid"], "x", "y", label="grid"), "grid", color=ROLES["mean"], line_width=2),
        ]  # fmt: skip
        return hv.Overlay(parts).opts(
            logy=True, legend_position="top_right", responsive=True, show_grid=True, **labels(layers["grid"])
        )
