"""The eigenfunctions: as curves or maps, and with a slider for the weight of each of the first ones."""

from __future__ import annotations

from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param
import torch
from torch import Tensor

from ...data.standardising import inputs_in_units, targets
from ...features.basis_choices import Basis
from ...features.grid_eigenfunctions import Grid
from ...linalg.cholesky import cholesky
from ...methods.capabilities import EstimatesNoise, HasGridEigenfunctions
from ...objectives import noise_variance
from ...runs.run import Run
from ..base import Layers, View, image, layer, line, named, overlay, segments, without_grid
from ..drawing import run_rows
from ..drawing.palette import DIVERGING, ROLES, cycled

POINTS = 200  # of a curve
CURVES, INPUTS = 4, 8  # eigenfunctions drawn together over one input; inputs drawn along their axes
SIDE, SUM_SIDE = 28, 60  # points along a side of a small map, and of the map of the sum
ACROSS, UP = 32, 40  # from one small map to the next, in points; below each is room for a bar and a number
PLACES = ((0, 2), (1, 2), (0, 1), (1, 1), (0, 0), (1, 0), (2, 0), (3, 0))  # columns and rows; the sum has the corner
SUM_PLACE = (2 * ACROSS, 3 * UP - SUM_SIDE)
LEVELS = 100  # a map has at most so many values above zero, and as many below
SLIDERS, MIXER_POINTS = 4, 160  # eigenfunctions with a slider; points of a curve beside them
MAX_ROWS = 2000  # training rows of the regression on weighted eigenfunctions
RANK = "The rank of the first eigenfunction drawn; 1 has the largest eigenvalue."
SHOWN = "How many eigenfunctions are drawn; the sum is that of all functions up to the last one."


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
    grid, theta = choice.grid, state.theta.detach()
    pairs = [[(values, _signed(Q)) for values, Q in grid.axis_eigen(theta, t)] for t in range(len(grid.terms(theta)))]
    return grid, type(choice)(grid.keeping(theta, pairs), choice.index)(theta), choice.index


def _signed(vectors: Tensor) -> Tensor:
    """Eigenvectors [mbar, k] whose largest entry is positive, of equally large ones the first: else chance decides."""
    slope = torch.linspace(1.0, 0.999, len(vectors)).to(vectors)  # the halves of a vector may be mirror images
    largest = (vectors.abs() * slope[:, None]).argmax(0)
    return vectors * vectors.gather(0, largest[None]).sign()


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

    Over one or two inputs, the weighted sum of all functions up to the last one drawn is beside them.
    """

    key: ClassVar[str] = "grief-eigenfunctions"
    title: ClassVar[str] = "Eigenfunctions"
    help: ClassVar[str] = (
        "Eigenfunctions of higher rank change sign more often. From which rank on do they no longer matter?"
    )
    order: ClassVar[int] = 15
    hero: ClassVar[bool] = True
    over_input: ClassVar[bool] = True
    needs: ClassVar[type] = HasGridEigenfunctions

    rank = param.Integer(1, bounds=(1, None), softbounds=(1, 100), label="Rank", doc=RANK)
    shown = param.Integer(len(PLACES), bounds=(1, len(PLACES)), label="Maps (2-D)", doc=SHOWN)

    def data(self, run: Run, at: int) -> Layers:
        """Return curves for one input, maps for two, and one curve per input for more."""
        return {1: self._curves, 2: self._maps}.get(run.problem.train.d, self._along_axes)(run, at)

    def _first(self, p: int) -> int:
        return min(self.rank, p) - 1

    def _curves(self, run: Run, at: int) -> Layers:
        grid, basis, index = basis_at(run, at, self.rank - 1 + CURVES)
        line, first = torch.linspace(float(grid.axes[0][0]), float(grid.axes[0][-1]), POINTS), self._first(len(index))
        weights = posterior_weights(run, at, basis).cpu().double().numpy()
        X = line[:, None].to(run.problem.train.X)
        x = inputs_in_units(X, run.problem.train)[:, 0]
        values = _values(basis, X)
        drawn = np.full((CURVES, POINTS), np.nan)
        drawn[: len(index) - first] = values[first : first + CURVES]
        layers = {f"phi{k}": pd.DataFrame({"x": x, "y": y}) for k, y in enumerate(drawn, 1)}
        last = min(first + CURVES, len(index))
        listed = ", ".join(f"{weight:.2g}".replace("-", "−") for weight in weights[first:last])
        title = f"ranks {first + 1} to {last}, with weights {listed}"
        named(layers["phi1"], run_rows.input_name(run, 0), "eigenfunction", title)
        layers["sum"] = pd.DataFrame({"x": x, "y": weights[:last] @ values[:last]})
        return layers

    def _maps(self, run: Run, at: int) -> Layers:
        """Small maps in the order of their ranks, all in standard deviations of the target, as is their sum."""
        most = grid_method(run).num_eigenfunctions  # no more than the model has
        grid, basis, index = basis_at(run, at, min(self.rank - 1 + self.shown, most))
        first = self._first(len(index))
        ranks = range(first, min(first + self.shown, len(index)))
        weights, train = posterior_weights(run, at, basis).cpu().double().numpy(), run.problem.train
        limit = float(np.quantile(train.y.abs().cpu(), 0.99)) or 1.0  # one scale for all maps, steps and methods
        small, large = (_values(basis, _square(grid, side).to(train.X)) for side in (SIDE, SUM_SIDE))

        maps = np.full((3 * UP, 4 * ACROSS), np.nan)
        corners = [(column * ACROSS, row * UP + UP - SIDE) for column, row in PLACES[: len(ranks)]]
        for rank, (left, bottom) in zip(ranks, corners, strict=True):
            maps[bottom : bottom + SIDE, left : left + SIDE] = small[rank].reshape(SIDE, SIDE).T
        total = (weights[: ranks.stop] @ large[: ranks.stop]).reshape(SUM_SIDE, SUM_SIDE).T
        x, y = np.array(corners, float).T
        words_x, words_y = [*(x + SIDE / 2), SUM_PLACE[0] + SUM_SIDE / 2], [*(y - 6.5), SUM_PLACE[1] - 5.0]
        bars = np.abs(weights[ranks]) / (np.abs(weights[: ranks.stop]).max() or 1.0)
        texts = [f"{rank + 1}: {weights[rank].round(2) + 0.0:.2f}".replace("-", "−") for rank in ranks]
        texts.append(f"sum of {ranks.stop}" if ranks.stop > 1 else "the first one alone")
        layers = {
            "map": _image_frame(maps, (0, 0), limit),
            "sum": _image_frame(total, SUM_PLACE, limit),
            "weights": pd.DataFrame({"x0": x, "y0": y - 2, "x1": x + SIDE * bars, "y1": y - 2}),
            "words": pd.DataFrame({"x": words_x, "y": words_y, "text": texts}),
        }
        names = [run_rows.input_name(run, q) for q in (0, 1)]
        title = f"rank and weight of each; in all maps {names[0]} goes to the right and {names[1]} upward"
        layers["map"].attrs |= {"map": True, "title": title, "colours": (-limit, limit)}
        unit = f"unit of {train.target}" if train.scale is None else f"sd of {train.target}"
        layers["map"].attrs["unit"] = f"value of the function [{unit}]"
        return layers

    def _along_axes(self, run: Run, at: int) -> Layers:
        grid, basis, index = basis_at(run, at, self.rank)
        first, layers = self._first(len(index)), {}
        for q in range(min(run.problem.train.d, INPUTS)):
            values = _values(basis, _along_axis(run, grid, q, POINTS))[first]
            layers[f"input{q + 1}"] = frame = pd.DataFrame({"x": np.linspace(0.0, 1.0, POINTS), "y": values})
            frame.attrs["name"] = run_rows.input_name(run, q)
        xlabel = "position on the axis of each input, the others at their medians"
        named(layers["input1"], xlabel, "eigenfunction", f"rank {first + 1}")
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw lines, or maps."""
        if "map" in layers:
            words = hv.Labels(layers["words"], ["x", "y"], "text")
            clabel = layers["map"].attrs["unit"]
            parts = [
                image(layers, "map", cmap=DIVERGING["light"], colorbar=False),
                image(layers, "sum", cmap=DIVERGING["light"], clabel=clabel),
                segments(layers, "weights", color=ROLES["mean"], line_width=3),
                layer(words, "words", text_color=ROLES["mean"], text_font_size="11px"),
            ]
            return overlay(parts, layers["map"], 0, show_grid=False, xaxis=None, yaxis=None, hooks=[without_grid])
        lines = [
            line(layers, name, frame.attrs.get("name", f"rank + {k}" if k else "rank"), line_width=2, **cycled(k))
            for k, (name, frame) in enumerate(layers.items())
            if name != "sum"
        ]
        if "sum" in layers:
            lines.append(line(layers, "sum", "sum up to here", color=ROLES["mean"], line_width=4, line_alpha=0.7))
        zero = hv.HLine(0.0).opts(color=ROLES["reference"], line_width=1)
        return overlay([zero, *lines], next(iter(layers.values())), legend_position="right")


def _along_axis(run: Run, grid: Grid, q: int, count: int) -> Tensor:
    """This many points along the grid's axis of input q, the other inputs at their medians."""
    line = run.problem.train.X.median(0).values.repeat(count, 1)
    line[:, q] = torch.linspace(float(grid.axes[q][0]), float(grid.axes[q][-1]), count).to(line)
    return line


def _square(grid: Grid, side: int) -> Tensor:
    """The points [side^2, 2] of a map; the second input runs fastest."""
    return torch.cartesian_prod(*(torch.linspace(float(U[0]), float(U[-1]), side) for U in grid.axes))


def _image_frame(values: np.ndarray, corner: tuple[int, int], limit: float) -> pd.DataFrame:
    """A grid of values [rows, columns], the lowest row first, in as few levels as can be told apart."""
    rows, columns = np.indices(values.shape)
    level = limit / LEVELS
    rounded = (np.round(values / level) * level).astype(np.float32)
    return pd.DataFrame(
        {"x": corner[0] + 0.5 + columns.ravel(), "y": corner[1] + 0.5 + rows.ravel(), "value": rounded.ravel()}
    )


def _values(basis: Basis, X: Tensor) -> np.ndarray:
    with torch.no_grad():
        return basis(X).cpu().double().numpy()


def _weight(rank: int) -> Any:
    doc = f"log10 of the weight of eigenfunction {rank}; 0 is its weight in the kernel."
    return param.Number(0.0, bounds=(-4.0, 4.0), step=0.25, label=f"log10 weight {rank}", doc=doc)


class Mixer(View):
    """The first eigenfunctions over one input, the others at their medians, and the mean with changed weights."""

    key: ClassVar[str] = "grief-mixer"
    title: ClassVar[str] = "Eigenfunction mixer"
    help: ClassVar[str] = "Change a weight. Which part of the mean depends on that eigenfunction?"
    order: ClassVar[int] = 30
    needs: ClassVar[type] = HasGridEigenfunctions

    first, second, third, fourth = (_weight(rank) for rank in range(1, SLIDERS + 1))
    column = param.Integer(
        1, bounds=(1, None), label="Input", doc="The input on the axis; the others stay at their medians."
    )

    def data(self, run: Run, at: int) -> Layers:
        """Return scaled eigenfunctions, and the mean with the weights of the kernel and with changed weights.

        If the target is transformed, the mean of the transformed target becomes the median of the target.
        """
        train, noise = run.problem.train, _noise(run, at)
        part = train.rows(run_rows.sampled(len(train), MAX_ROWS).to(train.y.device))
        grid, basis, index = basis_at(run, at)
        q = min(self.column, train.d) - 1
        line = _along_axis(run, grid, q, MIXER_POINTS)
        with torch.no_grad():
            Phi, Phi_line = basis(part.X).T, basis(line).T  # [rows, p], [MIXER_POINTS, p]
        x = inputs_in_units(line, train)[:, q]
        sliders = (self.first, self.second, self.third, self.fourth)
        mixed = torch.ones(len(index)).to(Phi)
        mixed[: len(sliders)] = torch.tensor(sliders[: len(index)]).to(Phi).mul(np.log(10.0)).exp()

        layers = {}
        for name, w in (("mean", torch.ones_like(mixed)), ("mixed", mixed)):
            mean = (Phi_line * w.sqrt()) @ _weights(Phi * w.sqrt(), part.y, noise)
            layers[name] = pd.DataFrame({"x": x, "y": targets(mean, train).cpu().numpy()})
        layers["mean"].attrs["label"] = "median" if run_rows.transforms_target(run) else "mean"
        spread = float(run_rows.targets_of(train).std()) or 1.0
        for k in range(SLIDERS):
            values = Phi_line[:, k] * mixed[k].sqrt() if k < len(index) else torch.zeros(MIXER_POINTS)
            layers[f"phi{k + 1}"] = pd.DataFrame({"x": x, "y": spread * values.cpu().double().numpy()})
        named(layers["mean"], run_rows.input_name(run, q), train.target)
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw thin lines for eigenfunctions, a dashed line for the mean, and a thick line for the changed mean."""
        thin = {"line_width": 1.2, "alpha": 0.8}
        parts = [line(layers, f"phi{k}", f"eigenfunction {k}", **cycled(k), **thin) for k in range(1, SLIDERS + 1)]
        name = layers["mean"].attrs["label"]
        parts.append(line(layers, "mean", name, color=ROLES["reference"], line_dash="dashed"))
        parts.append(line(layers, "mixed", f"{name}, changed", color=ROLES["mean"], line_width=3))
        return overlay(parts, layers["mean"], legend_position="right")


def _weights(Phi: Tensor, y: Tensor, s2: float) -> Tensor:
    """Posterior mean [p] of the weights of regression on functions with the values Phi [n, p]."""
    A = Phi.T @ Phi
    A.diagonal().add_(s2)
    return torch.cholesky_solve((Phi.T @ y)[:, None], cholesky(A, "Phi'Phi + s2 I").L)[:, 0]
