"""Eigenfunctions themselves: curves over one input, a map over two, and one curve an input where there are more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch
from torch import Tensor

from ...features.grid_eigenfunctions import Eigenfunctions, Grid
from ...methods.eigenfunctions.grids import leading
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import CYCLE, ROLES, SEQUENTIAL

POINTS, SIDE, TOGETHER, INPUTS = 200, 60, 4, 8


def on_grid(run: Run) -> bool:
    """Whether the run's method lays a grid and keeps eigenfunctions of it."""
    return {"num_eigenfunctions", "grid_points"} <= set(run.method.param)


def grid_of(run: Run, at: int) -> Grid:
    """The grid of the run's method, as it lays it at a record."""
    state = run.trace[at].step.state
    return leading(run.method, run.problem, state.theta, getattr(state, "spacing", "")).grid


def chosen_by(state: Any) -> Tensor:
    """The theta whose largest eigenfunctions the basis is: the state's own, where the method keeps no other."""
    return getattr(state, "chosen", state.theta)


def basis_at(run: Run, at: int, most: int | None = None) -> tuple[Grid, Eigenfunctions, Tensor]:
    """The grid, the eigenfunctions a record's answers are made of, and what [p, d] they are made of."""
    method: Any = run.method
    state = run.trace[at].step.state
    theta, grid = state.theta, grid_of(run, at)
    index = grid.spectrum(chosen_by(state), most or method.num_eigenfunctions).made_of
    return grid, Eigenfunctions(grid, theta, index), index


class EigenfunctionsView(View):
    """phi_j as Nystrom's formula gives it on the grid, scaled by the root of its eigenvalue."""

    key: ClassVar[str] = "grief-eigenfunctions"
    title: ClassVar[str] = "Eigenfunctions"
    help: ClassVar[str] = (
        "The further down the rank, the more often it changes sign: where do such waves stop to matter?"
    )
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 15

    rank = param.Integer(
        1, bounds=(1, None), softbounds=(1, 100), label="Rank", doc="The first eigenfunction drawn; 1 is the largest."
    )

    def applies(self, run: Run) -> bool:
        """Methods on a grid."""
        return super().applies(run) and on_grid(run)

    def data(self, run: Run, at: int) -> Layers:
        """Curves for one input, a map for two, a curve an input for more."""
        return {1: self._curves, 2: self._map}.get(run.problem.train.d, self._along)(run, at)

    def _first(self, p: int) -> int:
        return min(self.rank, p) - 1

    def _curves(self, run: Run, at: int) -> Layers:
        grid, basis, index = basis_at(run, at, self.rank + TOGETHER)
        line, first = torch.linspace(float(grid.axes[0][0]), float(grid.axes[0][-1]), POINTS), self._first(len(index))
        X = line[:, None].to(run.problem.train.X)
        x, values = _file(run, X)[:, 0], _values(basis, X)
        layers = {}
        for k in range(TOGETHER):
            known = first + k < len(index)
            frame = pd.DataFrame({"x": x, "y": values[first + k] if known else np.full(POINTS, np.nan)})
            layers[f"phi{k + 1}"] = frame
        layers["phi1"].attrs |= {"xlabel": run_rows.input_name(run, 0), "ylabel": "eigenfunction"}
        layers["phi1"].attrs["title"] = f"ranks {first + 1} to {min(first + TOGETHER, len(index))}"
        return layers

    def _map(self, run: Run, at: int) -> Layers:
        grid, basis, index = basis_at(run, at, self.rank)
        sides = [torch.linspace(float(U[0]), float(U[-1]), SIDE) for U in grid.axes]
        X = torch.cartesian_prod(*sides).to(run.problem.train.X)
        first, x = self._first(len(index)), _file(run, X)
        frame = pd.DataFrame({"x": x[:, 0], "y": x[:, 1], "value": _values(basis, X)[first]})
        frame.attrs |= {"xlabel": run_rows.input_name(run, 0), "ylabel": run_rows.input_name(run, 1)}
        frame.attrs["title"] = f"rank {first + 1}, of 1-D ranks {', '.join(str(k + 1) for k in index[first].tolist())}"
        return {"map": frame}

    def _along(self, run: Run, at: int) -> Layers:
        grid, basis, index = basis_at(run, at, self.rank)
        X, first, layers = run.problem.train.X, self._first(len(index)), {}
        middle = X.median(0).values
        for q in range(min(run.problem.train.d, INPUTS)):
            line = middle.repeat(POINTS, 1)
            line[:, q] = torch.linspace(float(grid.axes[q][0]), float(grid.axes[q][-1]), POINTS).to(line)
            values = _values(basis, line)[first]
            layers[f"input{q + 1}"] = pd.DataFrame({"x": np.linspace(0.0, 1.0, POINTS), "y": values})
            layers[f"input{q + 1}"].attrs["name"] = run_rows.input_name(run, q)
        layers["input1"].attrs |= {"xlabel": "along each input's grid, the others at their medians"}
        layers["input1"].attrs |= {"ylabel": "eigenfunction", "title": f"rank {first + 1}"}
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Lines, or a map."""
        if "map" in layers:
            frame = layers["map"]
            values = frame.sort_values(["y", "x"])["value"].to_numpy().reshape(SIDE, SIDE)
            image = hv.Image((np.unique(frame["x"]), np.unique(frame["y"]), values), ["x", "y"], "value")
            drawn = layer(image, "map", cmap=SEQUENTIAL, colorbar=True, clabel="eigenfunction")
            return hv.Overlay([drawn]).opts(responsive=True, **labels(frame))
        lines = [
            layer(
                hv.Curve(frame, "x", "y", label=frame.attrs.get("name", f"rank + {k}" if k else "rank")), name,
                color=CYCLE[k % len(CYCLE)], line_width=2,
            )
            for k, (name, frame) in enumerate(layers.items())
        ]  # fmt: skip
        first = next(iter(layers.values()))
        zero = hv.HLine(0.0).opts(color=ROLES["reference"], line_width=1)
        return hv.Overlay([zero, *lines]).opts(
            legend_position="right", responsive=True, show_grid=True, **labels(first)
        )


def _values(basis: Eigenfunctions, X: Tensor) -> np.ndarray:
    with torch.no_grad():
        return basis(X).cpu().double().numpy()


def _file(run: Run, X: Tensor) -> np.ndarray:
    return run_rows.inputs_of(replace(run.problem.train, X=X, y=X[:, 0]))
