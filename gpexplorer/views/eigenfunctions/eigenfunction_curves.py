"""The eigenfunctions: as curves or maps, and with a slider for the weight of each of the first ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch
from torch import Tensor

from ...features.basis_choices import Basis
from ...features.grid_eigenfunctions import Grid
from ...linalg.cholesky import cholesky
from ...methods.capabilities import EstimatesNoise, HasGridEigenfunctions
from ...objectives import noise_variance
from ...runs.run import Run
from ..base import Layers, View, image, line, overlay
from ..drawing import run_rows
from ..drawing.palette import CYCLE, ROLES

POINTS, SIDE = 200, 60  # points of a curve; points along a side of the map
CURVES, INPUTS = 4, 8  # eigenfunctions drawn together over one input; inputs drawn along their axes
SLIDERS, MIXER_POINTS = 4, 160  # eigenfunctions with a slider; points of a curve beside them
MAX_ROWS = 2000  # training rows of the regression on weighted eigenfunctions
RANK = "The rank of the first eigenfunction drawn; 1 has the largest eigenvalue."


def grid_method(run: Run) -> HasGridEigenfunctions:
    """Return the method of a run, which must have the eigenfunctions of a grid."""
    assert isinstance(run.method, HasGridEigenfunctions)
    return run.method


def basis_at(run: Run, at: int, count: int = 0) -> tuple[Grid, Basis, Tensor]:
    """Return the grid of a record, its eigenfunctions, and their indices [p, d].

    Parameters
    ----------
    at : int
        The index of the record.
    count : int, optional
        How many eigenfunctions; by default those from which the predictions are made.
    """
    state = run.trace[at].step.state
    choice = grid_method(run).eigenfunctions(run.problem, state, count)
    return choice.grid, choice(state.theta), choice.index


def posterior_weights(run: Run, at: int, basis: Basis) -> Tensor:
    """Return the posterior means [p] of the weights of eigenfunctions, from at most `MAX_ROWS` rows.

    Parameters
    ----------
    at : int
        The index of the record.
    basis : Basis
        The p functions of `basis_at`; the prediction of a model of these alone is their sum with these weights.
    """
    part = run.problem.train.rows(run_rows.sampled(len(run.problem.train), MAX_ROWS).to(run.problem.train.y.device))
    with torch.no_grad():
        return _weights(basis(part.X).T, part.y, _noise(run, at))


def _noise(run: Run, at: int) -> float:
    state = run.trace[at].step.state
    if isinstance(run.method, EstimatesNoise):
        return run.method.noise_variance(run.problem, state)
    return noise_variance(state.theta)


class EigenfunctionsView(View):
    """phi_j on its grid, scaled by the root of its eigenvalue (Evans and Nair 2018, eqs 3 and 15), and its weight.

    Over one input, the weighted sum of all functions up to the last one drawn is beside them.
    """

    key: ClassVar[str] = "grief-eigenfunctions"
    title: ClassVar[str] = "Eigenfunctions"
    help: ClassVar[str] = (
        "Eigenfunctions of higher rank change sign more often. From which rank on do they no longer matter?"
    )
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 15
    hero: ClassVar[bool] = True

    rank = param.Integer(1, bounds=(1, None), softbounds=(1, 100), label="Rank", doc=RANK)

    def applies(self, run: Run) -> bool:
        """Applies to methods on a grid."""
        return super().applies(run) and isinstance(run.method, HasGridEigenfunctions)

    def data(self, run: Run, at: int) -> Layers:
        """Return curves for one input, a map for two, and one curve per input for more."""
        return {1: self._curves, 2: self._map}.get(run.problem.train.d, self._along_axes)(run, at)

    def _first(self, p: int) -> int:
        return min(self.rank, p) - 1

    def _curves(self, run: Run, at: int) -> Layers:
        grid, basis, index = basis_at(run, at, self.rank - 1 + CURVES)
        line, first = torch.linspace(float(grid.axes[0][0]), float(grid.axes[0][-1]), POINTS), self._first(len(index))
        weights = posterior_weights(run, at, basis).cpu().double().numpy()
        X = line[:, None].to(run.problem.train.X)
        x, values = _in_file_units(run, X)[:, 0], _values(basis, X)
        layers = {}
        for k in range(CURVES):
            exists = first + k < len(index)
            y = values[first + k] if exists else np.full(POINTS, np.nan)
            layers[f"phi{k + 1}"] = pd.DataFrame({"x": x, "y": y})
        layers["phi1"].attrs |= {"xlabel": run_rows.input_name(run, 0), "ylabel": "eigenfunction"}
        last = min(first + CURVES, len(index))
        listed = ", ".join(f"{weight:.2g}".replace("-", "−") for weight in weights[first:last])
        layers["phi1"].attrs["title"] = f"ranks {first + 1} to {last}, with weights {listed}"
        layers["sum"] = pd.DataFrame({"x": x, "y": weights[:last] @ values[:last]})
        return layers

    def _map(self, run: Run, at: int) -> Layers:
        grid, basis, index = basis_at(run, at, self.rank)
        sides = [torch.linspace(float(U[0]), float(U[-1]), SIDE) for U in grid.axes]
        X = torch.cartesian_prod(*sides).to(run.problem.train.X)
        first, x = self._first(len(index)), _in_file_units(run, X)
        frame = pd.DataFrame({"x": x[:, 0], "y": x[:, 1], "value": _values(basis, X)[first]})
        frame.attrs |= {"map": True, "xlabel": run_rows.input_name(run, 0), "ylabel": run_rows.input_name(run, 1)}
        ranks = ", ".join(str(k + 1) for k in index[first].tolist())
        weight = f"{float(posterior_weights(run, at, basis)[first]):.2g}".replace("-", "−")
        frame.attrs["title"] = f"rank {first + 1} with weight {weight}, a product of the 1-D ranks {ranks}"
        return {"map": frame}

    def _along_axes(self, run: Run, at: int) -> Layers:
        grid, basis, index = basis_at(run, at, self.rank)
        X, first, layers = run.problem.train.X, self._first(len(index)), {}
        middle = X.median(0).values
        for q in range(min(run.problem.train.d, INPUTS)):
            line = middle.repeat(POINTS, 1)
            line[:, q] = torch.linspace(float(grid.axes[q][0]), float(grid.axes[q][-1]), POINTS).to(line)
            values = _values(basis, line)[first]
            layers[f"input{q + 1}"] = pd.DataFrame({"x": np.linspace(0.0, 1.0, POINTS), "y": values})
            layers[f"input{q + 1}"].attrs["name"] = run_rows.input_name(run, q)
        layers["input1"].attrs |= {"xlabel": "position on the axis of each input, the others at their medians"}
        layers["input1"].attrs |= {"ylabel": "eigenfunction", "title": f"rank {first + 1}"}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw lines, or a map."""
        if "map" in layers:
            return overlay([image(layers, "map", clabel="eigenfunction")], layers["map"], 0, show_grid=False)
        lines = [
            line(layers, name, frame.attrs.get("name", f"rank + {k}" if k else "rank"), color=colour, line_width=2)
            for k, ((name, frame), colour) in enumerate(zip(layers.items(), CYCLE, strict=False))
            if name != "sum"
        ]
        if "sum" in layers:
            lines.append(line(layers, "sum", "sum up to here", color=ROLES["mean"], line_width=4, line_alpha=0.7))
        zero = hv.HLine(0.0).opts(color=ROLES["reference"], line_width=1)
        return overlay([zero, *lines], next(iter(layers.values())), legend_position="right")


def _values(basis: Basis, X: Tensor) -> np.ndarray:
    with torch.no_grad():
        return basis(X).cpu().double().numpy()


def _in_file_units(run: Run, X: Tensor) -> np.ndarray:
    return run_rows.inputs_of(replace(run.problem.train, X=X, y=X[:, 0]))


def _weight(rank: int) -> Any:
    doc = f"log10 of the weight of eigenfunction {rank}; 0 is its weight in the kernel."
    return param.Number(0.0, bounds=(-4.0, 4.0), step=0.25, label=f"log10 weight {rank}", doc=doc)


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
        train, noise = run.problem.train, _noise(run, at)
        part = train.rows(run_rows.sampled(len(train), MAX_ROWS).to(train.y.device))
        grid, basis, index = basis_at(run, at)
        q = min(self.column, train.d) - 1
        line = train.X.median(0).values.repeat(MIXER_POINTS, 1)
        line[:, q] = torch.linspace(float(grid.axes[q][0]), float(grid.axes[q][-1]), MIXER_POINTS).to(line)
        with torch.no_grad():
            Phi, Phi_line = basis(part.X).T, basis(line).T  # [rows, p], [MIXER_POINTS, p]
        x = run_rows.inputs_of(train.__class__(line, line[:, 0], scale=train.scale))[:, q]
        sliders = (self.first, self.second, self.third, self.fourth)
        mixed = torch.ones(len(index)).to(Phi)
        mixed[: len(sliders)] = torch.tensor(sliders[: len(index)]).to(Phi).mul(np.log(10.0)).exp()

        layers = {}
        for name, w in (("mean", torch.ones_like(mixed)), ("mixed", mixed)):
            mean = (Phi_line * w.sqrt()) @ _weights(Phi * w.sqrt(), part.y, noise)
            layers[name] = pd.DataFrame(
                {"x": x, "y": run_rows.targets_of(train.__class__(line, mean, scale=train.scale))}
            )
        layers["mean"].attrs["label"] = "median" if run_rows.transforms_target(run) else "mean"
        spread = float(run_rows.targets_of(train).std()) or 1.0
        for k in range(SLIDERS):
            values = Phi_line[:, k] * mixed[k].sqrt() if k < len(index) else torch.zeros(MIXER_POINTS)
            layers[f"phi{k + 1}"] = pd.DataFrame({"x": x, "y": spread * values.cpu().double().numpy()})
        layers["mean"].attrs |= {"xlabel": run_rows.input_name(run, q), "ylabel": train.target}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw thin lines for eigenfunctions, a dashed line for the mean, and a thick line for the changed mean."""
        thin = {"line_width": 1.2, "alpha": 0.8}
        parts = [line(layers, f"phi{k}", f"eigenfunction {k}", color=CYCLE[k], **thin) for k in range(1, SLIDERS + 1)]
        name = layers["mean"].attrs["label"]
        parts.append(line(layers, "mean", name, color=ROLES["reference"], line_dash="dashed"))
        parts.append(line(layers, "mixed", f"{name}, changed", color=ROLES["mean"], line_width=3))
        return overlay(parts, layers["mean"], legend_position="right")


def _weights(Phi: Tensor, y: Tensor, s2: float) -> Tensor:
    """Posterior mean [p] of the weights of regression on functions with the values Phi [n, p]."""
    A = Phi.T @ Phi
    A.diagonal().add_(s2)
    return torch.cholesky_solve((Phi.T @ y)[:, None], cholesky(A, "Phi'Phi + s2 I").L)[:, 0]
