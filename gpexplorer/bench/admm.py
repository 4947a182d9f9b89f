"""Cross-validation by ADMM against exact maximum likelihood: a step of each, beside its floor, and how both scale.

The floor of maximum likelihood is LAPACK's factor and inverse, n^3 flops; the floor of an ADMM iteration is the kernel
entries it computes and its reads of them. Scaling factors are those of the paper, (t_A / t_B) / (n_A / n_B): doubling
n, n^2 gives 2 and n^3 gives 4. Rows come from one formula in one input, as there.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import Annotated, Any

import numpy as np
import torch
import typer
from scipy import linalg

from .. import kernels
from ..linalg.randomness import generator
from ..linalg.workspace import Workspace
from ..methods.base import registry
from ..methods.cross_validation.folds import FoldKernel
from ..objectives import evidence, noise_variance
from ..problem import Dataset, Problem
from .limits import median_seconds

SCHEMES = ("gpcv-admm-holdout", "gpcv-admm")


def command(
    sizes: Annotated[list[int] | None, typer.Option("--n", help="Rows; give it several times.")] = None,
    kernel: Annotated[str, typer.Option(help="A kernel, such as se or 'se + lp'.")] = "se",
    iterations: Annotated[int, typer.Option(help="ADMM iterations that are timed.", min=3)] = 6,
    folds: Annotated[int, typer.Option(help="Folds of the K-fold scheme.", min=2)] = 2,
    rivals: Annotated[bool, typer.Option(help="Time scikit-learn and GPyTorch too.")] = True,
    dense: Annotated[int, typer.Option(help="Largest n of the methods that cost its cube.")] = 4000,
) -> None:
    """Seconds of an iteration or evaluation, floors, rivals, and scaling factors."""
    for line in report(tuple(sizes or (500, 1000, 2000)), kernel, iterations, folds, (rivals, dense)):
        typer.echo(line)


def report(sizes: tuple[int, ...], kernel: str, iterations: int, folds: int, others: tuple[bool, int]) -> Iterator[str]:
    """Lines of the report, each as soon as it is known."""
    yield f"{kernel}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.2f}; seconds a step"
    times: dict[str, list[tuple[int, float]]] = {}
    for n in sizes:
        task = problem(n, kernel)
        for name, seconds in timed(task, iterations, folds, others):
            times.setdefault(name, []).append((n, seconds))
            yield f"n = {n:<7}{name:<44}{seconds:>10.4f} s"
    yield "scaling factors, (t_A / t_B) / (n_A / n_B); n^2 gives n_A / n_B, n^3 its square"
    for name, row in times.items():
        steps = [f"{a}->{b}: {(s / t) / (b / a):.2f}" for (a, t), (b, s) in pairwise(row)]
        yield f"{name:<44}{'   '.join(steps)}"


def problem(n: int, kernel: str) -> Problem:
    """n rows of a smooth function of one input, noise 0.3, standardised."""
    rng = generator(0, "bench", n)
    X = 20.0 * torch.rand(n, 1, generator=rng, dtype=torch.float64)
    y = torch.sin(2.0 * X[:, 0]) + torch.sin(0.7 * X[:, 0]) + 0.3 * torch.randn(n, generator=rng, dtype=torch.float64)
    train = Dataset((X - X.mean()) / X.std(), (y - y.mean()) / y.std())
    made = kernels.make(kernel, 1)
    theta = made.start(train)
    theta[1] += math.log(0.2)  # a lengthscale that the rows can tell
    return Problem(train, made, theta)


def timed(task: Problem, iterations: int, folds: int, others: tuple[bool, int]) -> Iterator[tuple[str, float]]:
    """Name and seconds of everything at one size."""
    n, (rivals, dense) = len(task.train), others
    half = n // 2
    yield "floor: kernel of half the rows", median_seconds(lambda: _cross(task, half), 3)
    M, z = _cross(task, half), task.train.y[:half].clone()
    yield "floor: read of it", median_seconds(lambda: M.times(z), 5)
    for key in SCHEMES:
        method = registry[key](tolerance=0.0, **({"folds": folds} if key == "gpcv-admm" else {}))
        yield f"{key} iteration", _per_step(method, task, iterations)
    if n > dense:
        return
    yield "floor: LAPACK factor and inverse", median_seconds(lambda: _lapack(task), 3)
    yield "ml evaluation", median_seconds(lambda: evidence(task.kernel, task.theta, task.train), 3)
    yield "loo evaluation", _per_step(registry["loo"](), task, 2)
    if rivals:
        for name, work in _rivals(task):
            yield name, median_seconds(work, 3)


def _cross(task: Problem, half: int) -> FoldKernel:
    return FoldKernel(task.kernel, task.theta, task.train.X, half, Workspace(1e12))


def _per_step(method: Any, task: Problem, iterations: int) -> float:
    """Median seconds of the steps after the start and the first, which prepares."""
    times = []
    steps = islice(method.steps(task), iterations + 2)
    begin = time.perf_counter()
    for _ in steps:
        now = time.perf_counter()
        times.append(now - begin)
        begin = now
    return sorted(times[2:])[len(times[2:]) // 2]


def _lapack(task: Problem) -> None:
    A = task.kernel(task.theta, task.train.X, task.train.X)
    A.diagonal().add_(noise_variance(task.theta))
    factor, _ = linalg.lapack.dpotrf(np.asfortranarray(A.numpy()), lower=1, overwrite_a=1)
    linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)


def _rivals(task: Problem) -> Iterator[tuple[str, Callable[[], object]]]:
    """One likelihood and gradient of the same kernel, where it is the squared exponential."""
    if task.kernel.key != "se":
        return
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    X, y = task.train.X.numpy(), task.train.y.numpy()
    sd, scale, noise = task.theta.exp().tolist()
    made = ConstantKernel(sd**2) * RBF(scale) + WhiteKernel(noise**2)
    model = GaussianProcessRegressor(made, optimizer=None).fit(X, y)
    at = np.array(model.kernel_.theta)
    yield "scikit-learn likelihood and gradient", lambda: model.log_marginal_likelihood(at, eval_gradient=True)

    import gpytorch

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    exact = _Exact(task, likelihood, gpytorch).double()
    value = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, exact)

    def both() -> None:
        exact.zero_grad()
        with gpytorch.settings.fast_computations(log_prob=False):
            (-value(exact(task.train.X), task.train.y)).backward()

    exact.train()
    yield "GPyTorch likelihood and gradient", both


def _Exact(task: Problem, likelihood: Any, gpytorch: Any) -> Any:
    """GPyTorch's exact GP at the task's theta; the class can only be written once GPyTorch is there."""

    class Exact(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(task.train.X, task.train.y, likelihood)
            self.mean, self.covariance = (
                gpytorch.means.ZeroMean(),
                gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()),
            )

        def forward(self, X: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(X), self.covariance(X))

    model = Exact()
    sd, scale, noise = task.theta.exp().tolist()
    model.covariance.outputscale, model.covariance.base_kernel.lengthscale = sd**2, scale
    likelihood.noise = noise**2
    return model
