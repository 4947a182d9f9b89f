"""Figures 1 and 2 of Evans and Nair (2018): a surface from ten rows, and a covariance matrix in 100 inputs."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.features.basis_choices import Fourier
from gpexplorer.features.grid_eigenfunctions import Eigenfunctions, Grid
from gpexplorer.features.random_fourier import RandomFourier
from gpexplorer.linalg.preconditioners import nystrom_root
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import Method, registry
from gpexplorer.problem import Dataset, Problem
from gpexplorer.views.drawing.palette import CYCLE, ROLES, SEQUENTIAL
from gpexplorer.views.families.approximation_quality import errors

from .base import Figure, Rows, Unit

# Figure 1. The paper says n = 10 and N(0, 0.1), and not where the rows are.
SIDE, ROWS, HALF_WIDTH, NOISE = 30, 10, math.pi / 2, 0.1
# Figure 2. The lengthscale is sqrt(D), because the paper gives none.
D, MBAR, SIZES = 100, 100, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
NESTED = ("best", "GP-GRIEF")  # the first functions do not change when p grows


def surfaces() -> dict[str, Method]:
    """Return two methods with four basis functions each, and the exact GP."""
    return {
        "VFE, m = 4": registry["sgpr"](num_inducing=4),
        "GP-GRIEF, m = 25, p = 4": registry["grief"](
            num_eigenfunctions=4,
            grid_points=5,
            basis="eigenvalues",
            spacing="equispaced",
            subset=ROWS,
            evaluations=40,
            max_rounds=3,
        ),
        "exact GP": registry["cholesky"](subset=ROWS, evaluations=40),
    }


def task(seed: int) -> Problem:
    """Return ten rows of sin x1 sin x2, uniform on a square, with noise of variance 0.1."""
    source = generator(seed, "surface")
    X = HALF_WIDTH * (2.0 * torch.rand(ROWS, 2, generator=source, dtype=torch.float64) - 1.0)
    y = X.sin().prod(1) + math.sqrt(NOISE) * torch.randn(ROWS, generator=source, dtype=torch.float64)
    train, kernel = Dataset(X, y), kernels.make("se", 2)
    return Problem(train, kernel, kernel.start(train))


def square() -> Tensor:
    """Return the points [900, 2] at which the surface is scored."""
    side = torch.linspace(-HALF_WIDTH, HALF_WIDTH, SIDE, dtype=torch.float64)
    return torch.cartesian_prod(side, side)


@cache
def means(seed: int) -> dict[str, Tensor]:
    """Return the final posterior mean [900] of each method."""
    problem, result = task(seed), {}
    for name, method in surfaces().items():
        *_, last = method.steps(problem)
        result[name] = method.posterior(problem, last.state)(square()).mean
    return result


def units1(full: bool) -> list[dict[str, int]]:
    """Return the seeds of the draws of ten rows."""
    return [{"seed": seed} for seed in range(50 if full else 5)]


def work1(unit: Unit) -> Rows:
    """Return the RMSE of each surface against the function without noise."""
    truth = square().sin().prod(1)
    return [
        {"seed": unit["seed"], "method": name, "rmse": float((mean - truth).square().mean().sqrt())}
        for name, mean in means(unit["seed"]).items()
    ]


def plot1(frame: pd.DataFrame) -> hv.Layout:
    """Draw the surfaces of the first seed; each title gives its RMSE, and the median over all seeds."""
    first, side = int(frame["seed"].min()), np.linspace(-HALF_WIDTH, HALF_WIDTH, SIDE)
    parts = []
    for name, mean in ({"truth": square().sin().prod(1)} | means(first)).items():
        of_method = frame[frame["method"] == name]["rmse"]
        label = name if of_method.empty else f"{name}: {of_method.iloc[0]:.2f}, median {of_method.median():.2f}"
        image = hv.Image((side, side, mean.view(SIDE, SIDE).T.numpy()), ["x1", "x2"], "mean")
        rows = hv.Points(task(first).train.X.numpy(), ["x1", "x2"]).opts(color="white", marker="x", size=8)
        parts.append((image.opts(cmap=SEQUENTIAL, clim=(-1, 1)) * rows).opts(width=320, height=300, title=label))
    return hv.Layout(parts).opts(shared_axes=False).cols(2)


def units2(full: bool) -> list[dict[str, Any]]:
    """Return each way to make p functions; the random ones ten times."""
    n, seeds = (5000, 10) if full else (1000, 2)
    fixed = [{"way": way, "seed": 0, "n": n} for way in ("best", "GP-GRIEF")]
    return fixed + [{"way": way, "seed": s, "n": n} for s in range(seeds) for way in ("Fourier", "Nystrom")]


def work2(unit: Unit) -> Rows:
    """Return relative errors of the training covariance, and of that of training and test rows, for every p."""
    n, way = unit["n"], unit["way"]
    X = math.sqrt(3.0) * (2.0 * torch.rand(n, D, generator=generator(0, "uniform"), dtype=torch.float64) - 1.0)
    kernel = kernels.make("se", D)
    theta = torch.tensor([0.0, 0.5 * math.log(D), -2.0], dtype=torch.float64)
    sizes = [size for size in SIZES if size <= n // 5]  # far fewer functions than rows, otherwise the task is trivial
    rows = []
    for rows_scored, Z in (("training", X[: n // 2]), ("joint", X)):
        K, model = kernel(theta, Z, Z), (kernel, theta, X[: n // 2])
        if way in NESTED:
            scores = errors(K, _root(way, sizes[-1], model, Z, unit["seed"]))[[p - 1 for p in sizes]].tolist()
        else:
            scores = [float(errors(K, _root(way, p, model, Z, unit["seed"]))[-1]) for p in sizes]
        rows += [
            {"way": way, "seed": unit["seed"], "judged": rows_scored, "p": p, "error": error}
            for p, error in zip(sizes, scores, strict=True)
        ]
    return rows


def _root(way: str, p: int, model: tuple[Any, Tensor, Tensor], Z: Tensor, seed: int) -> Tensor:
    """F [p, n] with K ~ F'F, made from the training rows only; "best" uses all rows."""
    kernel, theta, train = model
    if way == "GP-GRIEF":
        grid = Grid(kernel, train, MBAR)
        return Eigenfunctions(grid, theta, grid.spectrum(theta, p).axis_indices)(Z)
    if way == "Fourier":
        return Fourier(RandomFourier(D, p, "plain", seed).to(theta))(theta)(Z)
    if way == "Nystrom":
        chosen = torch.randperm(len(train), generator=generator(seed, "nystrom"))[
            :p
        ]  # the first rows of Z are the training rows
        return nystrom_root(lambda rows: kernel(theta, Z, Z[rows]), chosen).T
    values, vectors = torch.linalg.eigh(kernel(theta, Z, Z))
    return (vectors[:, -p:] * values[-p:].clamp_min(0.0).sqrt()).T.flip(0)


def plot2(frame: pd.DataFrame) -> hv.Layout:
    """Draw errors against p, averaged over the seeds."""
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
