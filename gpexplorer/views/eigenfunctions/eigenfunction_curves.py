"""The eigenfunctions: curves over one input, a map over two inputs, and one curve per input for more inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch
from torch import Tensor

from ...features.basis_choices import Basis
from ...features.grid_eigenfunctions import Grid
from ...methods.capabilities import HasGridEigenfunctions
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing import run_rows
from ..drawing.palette import CYCLE, ROLES, SEQUENTIAL

POINTS, SIDE = 200, 60  # points of a curve; points along a side of the map
CURVES, INPUTS = 4, 8  # eigenfunctions drawn together over one input; inputs drawn along their axes


def grid_method(run: Run) -> HasGridEigenfunctions:
    """Return the method of a run, which must have the eigenfunctions of a grid."""
    assert isinstance(run.method, HasGridEigenfunctions)
    return run.method


def basis_at(run: Run, at: int, count: int = 0) -> tuple[Grid, Basis, Tensor]:
    """Return the grid of a record, its eigenfunctions, and their indices [p, d].

    Parameters
    ----------
    run : Run
    at : int
        The index of the record.
    count : int, optional
        How many eigenfunctions; by default those from which the predictions are made.
    """
    state = run.trace[at].step.state
    choice = grid_method(run).eigenfunctions(run.problem, state, count)
    return choice.grid, choice(state.theta), choice.index


class EigenfunctionsView(View):
    """phi_j on its grid, scaled by the root of its eigenvalue (Evans and Nair 2018, eqs 3 and 15)."""

    key: ClassVar[str] = "grief-eigenfunctions"
    title: ClassVar[str] = "Eigenfunctions"
    help: ClassVar[str] = (
        "Eigenfunctions of higher rank change sign more often. From which rank on do they no longer matter?"
    )
    family: ClassVar[str] = "eigenfunctions"
    order: ClassVar[int] = 15
    hero: ClassVar[bool] = True

    rank = param.Integer(
        1, bounds=(1, None), softbounds=(1, 100), label="Rank",
        doc="The rank of the first eigenfunction drawn; 1 has the largest eigenvalue.",
    )  # fmt: skip

    def applies(self, run: Run) -> bool:
        """Applies to methods on a grid."""
        return super().applies(run) and isinstance(run.method, HasGridEigenfunctions)

    def data(self, run: Run, at: int) -> Layers:
        """Return curves for one input, a map for two, and one curve per input for more."""
        return {1: self._curves, 2: self._map}.get(run.problem.train.d, self._along_axes)(run, at)

    def _first(self, p: int) -> int:
        return min(self.rank, p) - 1

    def _curves(self, run: Run, at: int) -> Layers:
        grid, basis, index = basis_at(run, at, self.rank + CURVES)
        line, first = torch.linspace(float(grid.axes[0][0]), float(grid.axes[0][-1]), POINTS), self._first(len(index))
        X = line[:, None].to(run.problem.train.X)
        x, values = _in_file_units(run, X)[:, 0], _values(basis, X)
        layers = {}
        for k in range(CURVES):
            exists = first + k < len(index)
            y = values[first + k] if exists else np.full(POINTS, np.nan)
            layers[f"phi{k + 1}"] = pd.DataFrame({"x": x, "y": y})
        layers["phi1"].attrs |= {"xlabel": run_rows.input_name(run, 0), "ylabel": "eigenfunction"}
        layers["phi1"].attrs["title"] = f"ranks {first + 1} to {min(first + CURVES, len(index))}"
        return layers

    def _map(self, run: Run, at: int) -> Layers:
        grid, basis, index = basis_at(run, at, self.rank)
        sides = [torch.linspace(float(U[0]), float(U[-1]), SIDE) for U in grid.axes]
        X = torch.cartesian_prod(*sides).to(run.problem.train.X)
        first, x = self._first(len(index)), _in_file_units(run, X)
        frame = pd.DataFrame({"x": x[:, 0], "y": x[:, 1], "value": _values(basis, X)[first]})
        frame.attrs |= {"map": True, "xlabel": run_rows.input_name(run, 0), "ylabel": run_rows.input_name(run, 1)}
        ranks = ", ".join(str(k + 1) for k in index[first].tolist())
        frame.attrs["title"] = f"rank {first + 1}, a product of the 1-D ranks {ranks}"
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
            frame = layers["map"]
            values = frame.sort_values(["y", "x"])["value"].to_numpy().reshape(SIDE, SIDE)
            image = hv.Image((np.unique(frame["x"]), np.unique(frame["y"]), values), ["x", "y"], "value")
            colours = layer(image, "map", cmap=SEQUENTIAL, colorbar=True, clabel="eigenfunction")
            return hv.Overlay([colours]).opts(responsive=True, **labels(frame))
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


def _values(basis: Basis, X: Tensor) -> np.ndarray:
    with torch.no_grad():
        return basis(X).cpu().double().numpy()


def _in_file_units(run: Run, X: Tensor) -> np.ndarray:
    return run_rows.inputs_of(replace(run.problem.train, X=X, y=X[:, 0]))
