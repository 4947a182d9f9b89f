"""Cross-validation by ADMM against exact maximum likelihood: seconds per step, the floor of each, and how both scale.

The floor of maximum likelihood is LAPACK's factor and inverse, n^3 flops. The floor of an ADMM iteration is the time of
the kernel entries that it computes and of its reads of them. Scaling factors are those of the paper,
(t_A / t_B) / (n_A / n_B): where n doubles, n^2 gives 2 and n^3 gives 4.

There are two tasks. Rows of a smooth function of one input, as in the paper, need 1 to 3 iterations of conjugate
gradients per solution, which flatters the method. Ten inputs with one lengthscale each and little noise need tens.

With --splits, the methods are judged by the test rows of so many splits of eight public sets.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from scipy import linalg

from gpexplorer import kernels
from gpexplorer.linalg.randomness import generator
from gpexplorer.linalg.workspace import Workspace
from gpexplorer.methods.base import Method, registry
from gpexplorer.methods.cross_validation.folds import FoldKernel
from gpexplorer.objectives import evidence, noise_variance
from gpexplorer.problem import Dataset, Problem

from ..timing.limits import median_seconds
from .splits import judged

SCHEMES = ("gpcv-admm-holdout", "gpcv-admm")
KEPT = Path(__file__).parent


def command(  # noqa: PLR0913 - the options of the command
    sizes: Annotated[list[int] | None, typer.Option("--n", help="Rows; give it several times.")] = None,
    inputs: Annotated[list[int] | None, typer.Option("--d", help="Inputs: 1 and 10 if left out.")] = None,
    kernel: Annotated[str, typer.Option(help="A kernel, such as se or 'se + lp'.")] = "se",
    iterations: Annotated[int, typer.Option(help="ADMM iterations that are timed.", min=3)] = 6,
    folds: Annotated[int, typer.Option(help="Folds of the K-fold scheme.", min=2)] = 2,
    baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", "--rivals/--no-rivals", help="Time scikit-learn and GPyTorch.")
    ] = True,
    dense: Annotated[int, typer.Option(help="Largest n for the methods that cost n^3.")] = 4000,
    splits: Annotated[int, typer.Option(help="Splits of eight sets on which test rows judge; 0 times.", min=0)] = 0,
    out: Annotated[
        Path, typer.Option(help="The folder of the cells and of the report of --splits, the kept ones by default.")
    ] = KEPT,
) -> None:
    """Print seconds per iteration or evaluation, floors, baselines, and scaling factors; or test scores over splits."""
    if splits:
        for line in judged(splits, out):
            typer.echo(line)
        return
    for d in inputs or (1, 10):
        for line in report(tuple(sizes or (500, 1000, 2000)), kernel, iterations, folds, (baselines, dense), d):
            typer.echo(line)


def report(
    sizes: tuple[int, ...], kernel: str, iterations: int, folds: int, others: tuple[bool, int], d: int = 1
) -> Iterator[str]:
    """Yield the lines of the report, each as soon as it is measured."""
    name = kernel if d == 1 else "se-ard"
    load = f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.2f}"
    yield f"{name}, d = {d}, {load}; seconds per step"
    times: dict[str, list[tuple[int, float]]] = {}
    for n in sizes:
        task = problem(n, kernel) if d == 1 else many_inputs(n, d)
        for name, seconds in timed(task, iterations, folds, others):
            times.setdefault(name, []).append((n, seconds))
            yield f"n = {n:<7}{name:<44}{seconds:>10.4f} s"
    yield "scaling factors, (t_A / t_B) / (n_A / n_B); n^2 gives n_A / n_B, n^3 its square"
    for name, row in times.items():
        steps = [f"{a}->{b}: {(s / t) / (b / a):.2f}" for (a, t), (b, s) in pairwise(row)]
        yield f"{name:<44}{'   '.join(steps)}"


def problem(n: int, kernel: str) -> Problem:
    """Make n standardised rows of a smooth function of one input, with noise sd 0.3."""
    rng = generator(0, "bench", n)
    X = 20.0 * torch.rand(n, 1, generator=rng, dtype=torch.float64)
    y = torch.sin(2.0 * X[:, 0]) + torch.sin(0.7 * X[:, 0]) + 0.3 * torch.randn(n, generator=rng, dtype=torch.float64)
    train = Dataset((X - X.mean()) / X.std(), (y - y.mean()) / y.std())
    covariance = kernels.make(kernel, 1)
    theta = covariance.start(train)
    theta[1] += math.log(0.2)  # close to the lengthscale of the function
    return Problem(train, covariance, theta)


def many_inputs(n: int, d: int) -> Problem:
    """Make n standardised rows of a function of d inputs, of which up to five matter, with noise sd 0.1."""
    rng = generator(0, "bench", n, d)
    X = torch.rand(n, d, generator=rng, dtype=torch.float64)
    weights = torch.tensor([6.0, 4.0, 3.0, 2.0, 1.0], dtype=torch.float64)[:d]
    y = torch.sin(X[:, : len(weights)] * weights).sum(1) + torch.sin(4.0 * X[:, 0] * X[:, 1])
    y = y + 0.1 * torch.randn(n, generator=rng, dtype=torch.float64)
    train = Dataset((X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std())
    covariance = kernels.make("se-ard", d)
    theta = covariance.start(train)
    theta[-1] = math.log(0.1)  # close to the noise of the function
    return Problem(train, covariance, theta)


def timed(task: Problem, iterations: int, folds: int, others: tuple[bool, int]) -> Iterator[tuple[str, float]]:
    """Yield name and seconds of everything that is timed at one size."""
    n, (baselines, dense) = len(task.train), others
    half = n // 2
    yield "floor: kernel of half the rows", median_seconds(lambda: _fold_kernel(task, half), 3)
    M, z = _fold_kernel(task, half), task.train.y[:half].clone()
    yield "floor: one product with it", median_seconds(lambda: M.times(z), 5)
    for key in SCHEMES:
        method = registry[key](tolerance=0.0, **({"folds": folds} if key == "gpcv-admm" else {}))
        yield f"{key} iteration", _per_step(method, task, iterations)
    if n > dense:
        return
    yield "floor: LAPACK factor and inverse", median_seconds(lambda: _lapack(task), 3)
    yield "ml evaluation", median_seconds(lambda: evidence(task.kernel, task.theta, task.train), 3)
    yield "loo evaluation", _per_step(registry["loo"](), task, 2)
    if baselines:
        for name, work in _baselines(task):
            yield name, median_seconds(work, 3)


def _fold_kernel(task: Problem, half: int) -> FoldKernel:
    return FoldKernel(task.kernel, task.theta, task.train.X, half, Workspace(1e12), noise_variance(task.theta))


def _per_step(method: Method, task: Problem, iterations: int) -> float:
    """Return the median seconds of the steps after the first two: the start, and the preparation."""
    times = []
    steps = islice(method.steps(task), iterations + 2)
    begin = time.perf_counter()
    for _ in steps:
        end = time.perf_counter()
        times.append(end - begin)
        begin = end
    return sorted(times[2:])[len(times[2:]) // 2]


def _lapack(task: Problem) -> None:
    A = task.kernel(task.theta, task.train.X, task.train.X)
    A.diagonal().add_(noise_variance(task.theta))
    factor, _ = linalg.lapack.dpotrf(np.asfortranarray(A.numpy()), lower=1, overwrite_a=1)
    linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)


def _baselines(task: Problem) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield one likelihood with its gradient of scikit-learn and of GPyTorch, for the kernel se alone."""
    if task.kernel.key != "se":
        return
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    X, y = task.train.X.numpy(), task.train.y.numpy()
    sd, scale, noise = task.theta.exp().tolist()
    kernel = ConstantKernel(sd**2) * RBF(scale) + WhiteKernel(noise**2)
    model = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    theta = np.array(model.kernel_.theta)
    yield "scikit-learn likelihood and gradient", lambda: model.log_marginal_likelihood(theta, eval_gradient=True)

    import gpytorch

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    exact = _gpytorch_model(task, likelihood, gpytorch).double()
    value = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, exact)

    def value_and_gradient() -> None:
        exact.zero_grad()
        with gpytorch.settings.fast_computations(log_prob=False):
            (-value(exact(task.train.X), task.train.y)).backward()

    exact.train()
    yield "GPyTorch likelihood and gradient", value_and_gradient


def _gpytorch_model(task: Problem, likelihood: Any, gpytorch: Any) -> Any:
    """Return GPyTorch's exact GP at the theta of the task. Its class can only be defined after the import."""

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
