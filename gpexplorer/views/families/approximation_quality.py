"""How good the eigenfunctions are: the spectrum of the grid, and the covariance matrices that they approximate."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ...methods.capabilities import HasFeatureMap, HasGridEigenfunctions, SamplesWeights
from ...runs.run import Run
from ..base import Layers, View, dots, image, line, named, overlay
from ..drawing import run_rows
from ..drawing.palette import ROLES
from .eigenfunction_curves import basis_at, grid_method

FACTOR = 2  # at least this many times as many eigenvalues are drawn as are kept
DROPPED = 1000  # of the dropped eigenvalues, at most this many are drawn
MATRIX_ROWS, ERROR_ROWS = 60, 200  # rows of the matrices that are drawn, and of those whose error is measured
MAX_FUNCTIONS = 1000  # eigenfunctions, at most


class Spectrum(View):
    """log10 of the eigenvalues by rank; a product over many inputs may be smaller than any floating-point number."""

    key: ClassVar[str] = "grief-spectrum"
    title: ClassVar[str] = "Spectrum"
    help: ClassVar[str] = (
        "Is the last kept eigenvalue far below the noise variance? If not, more eigenfunctions help. Where the "
        "evidence chooses the functions, which ranks does it need?"
    )
    order: ClassVar[int] = 20
    needs: ClassVar[type] = HasGridEigenfunctions

    def data(self, run: Run, at: int) -> Layers:
        """Return log10 of the kept eigenvalues, of as many dropped ones, and of the noise variance."""
        method, state = grid_method(run), run.trace[at].step.state
        theta_chosen, _ = method.origin(state)
        choice = method.eigenfunctions(run.problem, state)
        count = FACTOR * method.num_eigenfunctions
        if state.functions is not None:
            count = max(count, method.candidates)
        spectrum = choice.grid.spectrum(theta_chosen, count)
        logs = spectrum.log_values.cpu().double().numpy() / np.log(10.0)
        frame, title = by_rank(logs), f"a grid of {number_of_points(choice.grid.axes)} points"
        is_kept = rows_among(spectrum.axis_indices, choice.index).cpu().numpy()
        dropped = np.flatnonzero(~is_kept)
        noise = float(2 * state.theta[-1]) / np.log(10.0)
        return {
            "kept": named(frame[is_kept].reset_index(drop=True), "rank", "log10 eigenvalue", title),
            "dropped": frame.iloc[dropped[:: -(-len(dropped) // DROPPED) or 1]].reset_index(drop=True),
            "noise": pd.DataFrame({"x": [1.0, float(len(logs))], "y": [noise, noise]}),
        }

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the eigenvalues, and a line at the noise variance."""
        parts = [
            line(layers, "noise", "noise variance", color=ROLES["reference"], line_dash="dashed"),
            dots(layers, "dropped", "dropped", color=ROLES["data"], size=4),
            dots(layers, "kept", "kept", color=ROLES["mean"], size=5),
        ]
        return overlay(parts, layers["kept"], 3)


def by_rank(values: np.ndarray) -> pd.DataFrame:
    """Return these values over their ranks, which begin at 1."""
    return pd.DataFrame({"x": np.arange(1.0, len(values) + 1), "y": values})


def number_of_points(axes: Iterable[Sized]) -> str:
    """Write how many points a grid with these axes has, as a power of ten from ten million on."""
    decades = sum(np.log10(len(U)) for U in axes)  # the number itself may be too large
    return f"{10**decades:,.0f}" if decades < 7 else f"10^{decades:.0f}"


def rows_among(rows: Tensor, others: Tensor) -> Tensor:
    """Return a mask [n] of the rows [n, d] that are also among the others [m, d]. O((n + m) log (n + m))."""
    _, place = torch.unique(torch.cat([others.to(rows), rows]), dim=0, return_inverse=True)
    return torch.isin(place[len(others) :], place[: len(others)])


def covariance_and_features(run: Run, at: int, count: int) -> tuple[Tensor, Tensor]:
    """Return K [m, m] of at most `count` rows, ordered by the first input, and their Phi' [p, m]."""
    train, theta = run.problem.train, run.trace[at].step.state.theta
    X = train.X[run_rows.sampled(len(train), count).to(train.X.device)]
    X = X[X[:, 0].argsort()]
    if isinstance(run.method, HasFeatureMap):
        basis = run.method.feature_map(run.problem, run.trace[at].step.state)
    else:
        _, basis, _ = basis_at(run, at, min(MAX_FUNCTIONS, grid_method(run).num_eigenfunctions))
    with torch.no_grad():
        return run.problem.kernel(theta, X, X).double(), basis(X).double()


def errors(K: Tensor, F: Tensor) -> Tensor:
    """Return |K - F_p' F_p|_F / |K|_F [p] for every number p of functions at once, in m p^2 flops.

    Parameters
    ----------
    K : tensor [m, m]
        The covariance matrix.
    F : tensor [p, m]
        The functions at its rows; F_p are the first p of them.
    """
    products2, quadratic = (F @ F.T).square(), ((F @ K) * F).sum(1)  # [p, p] (f_i'f_j)^2, [p] f_i'K f_i
    increments = 2.0 * products2.tril(-1).sum(1) + products2.diagonal()  # [p] of |F_p'F_p|^2
    norm2 = K.square().sum()
    return ((norm2 - 2.0 * quadratic.cumsum(0) + increments.cumsum(0)).clamp_min(0.0) / norm2).sqrt()


class CovarianceMatrices(View):
    """The exact covariance matrix of some rows, and its approximation by functions, with one colour scale."""

    key: ClassVar[str] = "grief-covariance"
    title: ClassVar[str] = "Covariance, exact and approximate"
    help: ClassVar[str] = "Is the diagonal as bright on the right, and are there stripes that are missing on the left?"
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 40

    def applies(self, run: Run) -> bool:
        """Return whether the functions have the weights of the kernel, which chains change."""
        approximates = isinstance(run.method, HasGridEigenfunctions | HasFeatureMap)
        return super().applies(run) and approximates and not isinstance(run.method, SamplesWeights)

    def data(self, run: Run, at: int) -> Layers:
        """Return one array of values: the exact matrix, a gap, and the approximation."""
        K, F = covariance_and_features(run, at, MATRIX_ROWS)
        m = len(K)
        gap = K.new_full((m, max(m // 20, 1)), np.nan)
        values = torch.cat([K, gap, F.T @ F], 1).flip(0).cpu().numpy()
        x, y = np.meshgrid(np.arange(values.shape[1], dtype=float), np.arange(m, dtype=float))
        frame = pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "value": values.ravel()})
        title = f"relative error {float((K - F.T @ F).norm() / K.norm()):.2g} with {len(F)} functions"
        return {"map": named(frame, "exact, then approximate", "row, by the first input", title)}

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw both matrices side by side."""
        return overlay([image(layers, "map", clabel="covariance")], layers["map"], 0, show_grid=False)


class CovarianceError(View):
    """The error of the approximate covariance matrix against p, and the smallest possible error of that rank."""

    key: ClassVar[str] = "grief-error"
    title: ClassVar[str] = "Error against eigenfunctions"
    help: ClassVar[str] = (
        "How close is the grid to the best approximation of the same rank, and does its error still decrease at p?"
    )
    order: ClassVar[int] = 45
    needs: ClassVar[type] = HasGridEigenfunctions

    def data(self, run: Run, at: int) -> Layers:
        """Return relative Frobenius errors on at most 200 rows."""
        K, F = covariance_and_features(run, at, ERROR_ROWS)
        values = torch.linalg.eigvalsh(K).flip(0).square()
        best = ((values.sum() - values.cumsum(0)).clamp_min(0.0) / values.sum()).sqrt()
        grid, best = (by_rank(error[: len(F)].clamp_min(1e-12).cpu().numpy()) for error in (errors(K, F), best))
        named(grid, "eigenfunctions", "relative error (Frobenius)", f"covariance of {len(K):,} rows")
        return {"grid": grid, "best": best}

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw two curves with a logarithmic axis of errors."""
        parts = [
            line(layers, "best", "best of this rank", color=ROLES["reference"], line_dash="dashed"),
            line(layers, "grid", "grid", color=ROLES["mean"], line_width=2),
        ]
        return overlay(parts, layers["grid"], logy=True, legend_position="top_right")
