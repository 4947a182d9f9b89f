"""Figures 1 and 2 of Evans and Nair (2018): a surface from ten rows, and a covariance matrix in a hundred inputs."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from .. import kernels
from ..features.basis_choices import Fourier
from ..features.grid_eigenfunctions import Eigenfunctions, Grid
from ..features.random_fourier import RandomFourier
from ..linalg.preconditioners import nystrom_root
from ..linalg.randomness import generator
from ..methods.base import Method, registry
from ..problem import Dataset, Problem
from ..views.drawing.palette import CYCLE, ROLES, SEQUENTIAL
from ..views.eigenfunctions.covariance_matrix import errors
from .base import Figure, Rows, Unit

SIDE, ROWS, REACH, NOISE = 30, 10, math.pi / 2, 0.1  # the paper says n = 10 and N(0, 0.1), not where the rows lie
D, MBAR, SIZES = 100, 100, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # lengthscale sqrt(D): the paper gives none
NESTED = ("best", "GP-GRIEF")  # whose first functions do not change with p


def surfaces() -> dict[str, Method]:
    """Four basis functions each, and the exact GP."""
    return {
        "VFE, m = 4": registry["sgpr"](num_inducing=4),
        "GP-GRIEF, m = 25, p = 4": registry["grief"](
            num_eigenfunctions=4, grid_points=5, subset=ROWS, evaluations=40, max_rounds=3
        ),
        "exact GP": registry["cholesky"](subset=ROWS, evaluations=40),
    }


def task(seed: int) -> Problem:
    """Ten rows of sin x1 sin x2, uniform on a square, with noise of variance 0.1."""
    source = generator(seed, "surface")
    X = REACH * (2.0 * torch.rand(ROWS, 2, generator=source, dtype=torch.float64) - 1.0)
    y = X.sin().prod(1) + math.sqrt(NOISE) * torch.randn(ROWS, generator=source, dtype=torch.float64)
    train, kernel = Dataset(X, y), kernels.make("se", 2)
    return Problem(train, kernel, kernel.start(train))


def square() -> Tensor:
    """The grid [900, 2] on which the surface is judged."""
    side = torch.linspace(-REACH, REACH, SIDE, dtype=torch.float64)
    return torch.cartesian_prod(side, side)


@cache
def means(seed: int) -> dict[str, Tensor]:
    """The posterior mean [900] of each method at its end."""
    problem, found = task(seed), {}
    for name, method in surfaces().items():
        *_, last = method.steps(problem)
        found[name] = method.posterior(problem, last.state)(square()).mean
    return found


def units1(full: bool) -> list[dict[str, int]]:
    """Draws of ten rows."""
    return [{"seed": seed} for seed in range(50 if full else 5)]


def work1(unit: Unit) -> Rows:
    """RMSE of each surface against the truth without noise."""
    truth = square().sin().prod(1)
    return [
        {"seed": unit["seed"], "method": name, "rmse": float((mean - truth).square().mean().sqrt())}
        for name, mean in means(unit["seed"]).items()
    ]


def plot1(frame: pd.DataFrame) -> hv.Layout:
    """The surfaces of the first draw; each title says its RMSE, and the median of all draws."""
    first, side = int(frame["seed"].min()), np.linspace(-REACH, REACH, SIDE)
    parts = []
    for name, mean in ({"truth": square().sin().prod(1)} | means(first)).items():
        of_method = frame[frame["method"] == name]["rmse"]
        said = name if of_method.empty else f"{name}: {of_method.iloc[0]:.2f}, median {of_method.median():.2f}"
        image = hv.Image((side, side, mean.view(SIDE, SIDE).T.numpy()), ["x1", "x2"], "mean")
        rows = hv.Points(task(first).train.X.numpy(), ["x1", "x2"]).opts(color="white", marker="x", size=8)
        parts.append((image.opts(cmap=SEQUENTIAL, clim=(-1, 1)) * rows).opts(width=320, height=300, title=said))
    return hv.Layout(parts).opts(shared_axes=False).cols(2)


def units2(full: bool) -> list[dict[str, Any]]:
    """Each way of making p functions; the random ones ten times."""
    n, seeds = (5000, 10) if full else (1000, 2)
    fixed = [{"way": way, "seed": 0, "n": n} for way in ("best", "GP-GRIEF")]
    return fixed + [{"way": way, "seed": s, "n": n} for s in range(seeds) for way in ("Fourier", "Nystrom")]


def work2(unit: Unit) -> Rows:
    """Relative errors of the training covariance and of the joint one of training and test rows, for every p."""
    n, way = unit["n"], unit["way"]
    X = math.sqrt(3.0) * (2.0 * torch.rand(n, D, generator=generator(0, "uniform"), dtype=torch.float64) - 1.0)
    kernel = kernels.make("se", D)
    theta = torch.tensor([0.0, 0.5 * math.log(D), -2.0], dtype=torch.float64)
    sizes = [size for size in SIZES if size <= n // 5]  # far fewer than the rows, or there is nothing to rebuild
    rows = []
    for judged, Z in (("training", X[: n // 2]), ("joint", X)):
        K, given = kernel(theta, Z, Z), (kernel, theta, X[: n // 2])
        if way in NESTED:
            found = errors(K, _root(way, sizes[-1], given, Z, unit["seed"]))[[p - 1 for p in sizes]].tolist()
        else:
            found = [float(errors(K, _root(way, p, given, Z, unit["seed"]))[-1]) for p in sizes]
        rows += [
            {"way": way, "seed": unit["seed"], "judged": judged, "p": p, "error": error}
            for p, error in zip(sizes, found, strict=True)
        ]
    return rows


def _root(way: str, p: int, given: tuple[Any, Tensor, Tensor], Z: Tensor, seed: int) -> Tensor:
    """F [p, n] with K ~ F'F, learned from the training rows only; the best there is looks at all."""
    kernel, theta, train = given
    if way == "GP-GRIEF":
        grid = Grid(kernel, train, MBAR)
        return Eigenfunctions(grid, theta, grid.spectrum(theta, p).made_of)(Z)
    if way == "Fourier":
        return Fourier(RandomFourier(D, p, "plain", seed).to(theta))(theta)(Z)
    if way == "Nystrom":
        chosen = torch.randperm(len(train), generator=generator(seed, "nystrom"))[:p]  # train is the head of Z
        return nystrom_root(lambda rows: kernel(theta, Z, Z[rows]), chosen).T
    values, vectors = torch.linalg.eigh(kernel(theta, Z, Z))
    return (vectors[:, -p:] * values[-p:].clamp_min(0.0).sqrt()).T.flip(0)


def plot2(frame: pd.DataFrame) -> hv.Layout:
    """Errors against p, means over the draws."""
    colours = {"best": ROLES["reference"], "GP-GRIEF": CYCLE[0], "Nystrom": CYCLE[1], "Fourier": CYCLE[2]}
    panels = []
    for judged in ("training", "joint"):
        lines = []
        for way, of_way in frame[frame["judged"] == judged].groupby("way"):
            mean = of_way.groupby("p", as_index=False)["error"].mean()
            lines.append(hv.Curve(mean, "p", "error", label=str(way)).opts(color=colours[str(way)], line_width=2))
        panels.append(
            hv.Overlay(lines).opts(
                logx=True, logy=True, width=440, height=340, title=f"{judged} covariance",
                xlabel="basis functions p", ylabel="relative error (Frobenius)", legend_position="bottom_left",
            )
        )  # fmt: skip
    return hv.Layout(panels).opts(shared_axes=False)


FIGURES = (
    Figure(
        name="grief-fig1",
        title="GP-GRIEF: four eigenfunctions against four inducing points",
        paper="The paper, on one draw of ten rows: RMSE 0.47 for VFE, 0.34 for GP-GRIEF and for the exact GP.",
        units=units1,
        work=work1,
        plot=plot1,
    ),
    Figure(
        name="grief-fig2",
        title="GP-GRIEF: covariance reconstruction in 100 inputs",
        paper=(
            "The paper: GP-GRIEF lies close to the best of each rank on training and joint rows, far below random "
            "Fourier features and below a uniform Nystrom reconstruction, whose gap widens on the joint rows."
        ),
        units=units2,
        work=work2,
        plot=plot2,
    ),
)
