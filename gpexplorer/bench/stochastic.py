"""A minibatch of every method, beside the arithmetic it cannot do without and beside plain torch and GPyTorch.

The floor is measured in the same process: the network's products forward and back, 6 b (size) flops, and a Cholesky
factor with its inverse, D^3 flops. Plain torch is SCGD as one would write it: modules, autograd, torch's Adam. All take
turns, and ratios are of the same round: they hold where a shared machine's milliseconds do not.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import median
from typing import Annotated, Any, cast

import torch
import typer
from torch import Tensor

from .. import data as data_sets
from .. import kernels
from ..methods.base import registry
from ..methods.minibatches.learner import Learner
from ..methods.minibatches.model import Model
from ..problem import Problem
from ..runs.run import Run
from ..runs.spec import Spec
from . import learning, streaming
from .limits import in_turns, ratio

PACE, FLOOR, PLAIN = "a square product", "floor: products and factor", "plain torch SCGD"
METHODS = ("scgd", "minimax", "bsgd", "svgp")
REPEATS = 20  # minibatches of a timing
SQUARE = 600  # rows of the product that tells the machine's pace
ALL_ROWS: dict[str, Any] = {"validation": 0.0, "patience": 0}  # every method takes all epochs on all rows
WHOLE = 10**6  # minibatches of a step: an epoch, which is the most


def command(  # noqa: PLR0913 - one argument an option
    data: Annotated[str, typer.Option(help="A registry set or generator.")] = "kin40k",
    batch: Annotated[int, typer.Option(help="Rows of a minibatch.", min=2)] = 64,
    width: Annotated[int, typer.Option(help="Outputs of each of two layers.", min=2)] = 128,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    epochs: Annotated[int, typer.Option(help="Then learn for so many; 0 only times minibatches.")] = 0,
    seconds: Annotated[float, typer.Option(help="Most for each method's learning.")] = 180.0,
    method: Annotated[list[str] | None, typer.Option(help="Only these.")] = None,
    choose: Annotated[bool, typer.Option(help="Choose the rate first, on a tenth of the training rows.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Keep what is learned here: the same command goes on.")] = None,
    rows: Annotated[int, typer.Option(help="Instead: memory on a file of so many rows.", min=0)] = 0,
) -> None:
    """Milliseconds a minibatch, the floor, rivals; with --epochs also NLML a row and test RMSE."""
    settings = {"batch_size": batch, "width": width}
    if rows:
        for line in streaming.report(rows, settings, tuple(method or METHODS[:3])):
            typer.echo(line)
        return
    for line in report(data, dtype, settings, tuple(method or METHODS)):
        typer.echo(line)
    for key in (method or METHODS) if epochs else ():
        asked: dict[str, Any] = {"epochs": epochs, "schedule": "cosine", "minibatches": WHOLE, **ALL_ROWS}
        asked |= {} if key == "svgp" else settings  # SVGP learns as the usual baseline, with its own defaults
        for line in learning.report(Spec(key, asked, data=data, dtype=dtype), seconds, choose, keep):
            typer.echo(line)


def report(
    name: str, dtype: str, settings: dict[str, Any], methods: tuple[str, ...], rounds: int = 15
) -> Iterator[str]:
    """Lines of the timings. All are timed in turns, so that ratios hold while the machine changes its pace."""
    problem, b, D = _run(name, dtype, "scgd", settings).problem, settings["batch_size"], settings["width"]
    load = os.getloadavg()[0]
    yield f"{name}: n = {len(problem.train)}, b = {b}, D = {D}, {torch.get_num_threads()} threads, load {load:.2f}"
    learners = {key: _learner(_run(name, dtype, key, settings)) for key in methods}
    square = torch.randn(SQUARE, SQUARE, generator=torch.Generator().manual_seed(0)).to(problem.train.y)
    rivals = {PLAIN: _plain(problem, b, D), "GPyTorch SVGP, its own modules": _gpytorch(problem, b, D)}
    once = {FLOOR: _arithmetic(problem, b, D), **rivals, **{key: _minibatch(each) for key, each in learners.items()}}
    if "scgd" in learners:
        once |= _parts(learners["scgd"])
    took = in_turns({PACE: lambda: square @ square, **{label: _several(work) for label, work in once.items()}}, rounds)
    gemm = 2e-9 * SQUARE**3 / median(took.pop(PACE))
    yield f"{'ms a minibatch':<32}  median   least     GEMM {gemm:.0f} GF/s"
    for label, times in took.items():
        ms = f"{1e3 * median(times) / REPEATS:8.2f}{1e3 * min(times) / REPEATS:8.2f}"
        yield f"{label:<32}{ms}{ratio(times, took[FLOOR]):8.1f} x floor{ratio(times, took[PLAIN]):8.2f} x plain torch"


def _run(name: str, dtype: str, key: str, settings: dict[str, Any]) -> Run:
    split, kind = data_sets.load(name).scaled(), {"float64": torch.float64, "float32": torch.float32}[dtype]
    train, kernel = split.train.to("cpu", kind), kernels.make("se-ard", split.train.d)
    problem = Problem(train, kernel, kernel.start(train))
    same_network = {"kernel": "linear", "layers": 2, "num_inducing": settings["batch_size"], "variational": "optimiser"}
    return Run(registry[key](**settings, **(same_network if key == "svgp" else {})), problem, split)


def _learner(run: Run) -> Learner:
    """A method's own loop before its first minibatch."""
    method: Any = run.method
    return cast(Learner, method.learner(Model(method, run.problem), next(method.steps(run.problem)).state))


def _several(work: Callable[[], object]) -> Callable[[], object]:
    """The same, often enough to be timed."""

    def several() -> None:
        for _ in range(REPEATS):
            work()

    return several


def _minibatch(learner: Learner) -> Callable[[], object]:
    """The next minibatch."""
    t = count()
    return lambda: learner.move(next(t))


def _parts(learner: Learner) -> dict[str, Callable[[], object]]:
    """A minibatch's pieces, each on its own, but for the head: averages, factor, inverse."""
    model, point, index = learner.model, learner.parameters, learner.rows(0)
    X, _ = model.rows(index)
    G, still = torch.ones_like(model.features(point.parts, X).Phi), point.x.clone()
    averages = tuple(held.clone() for held in learner.averages)

    @torch.inference_mode()
    def network() -> None:
        at = model.features(point.parts, X)
        model.pullback(point.parts, at, G.clone(), point.into)

    @torch.inference_mode()
    def optimiser() -> None:
        learner.optimiser.move(still, point.g, averages, 1, 0.0)

    return {
        "  rows of SCGD": lambda: model.rows(index),
        "  network, forward and back": network,
        "  optimiser": optimiser,
    }


def _arithmetic(problem: Problem, b: int, D: int) -> Callable[[], Any]:
    """Two layers forward and back, and one factor with its inverse."""
    draw, like = torch.Generator().manual_seed(0), problem.train.y
    X, H = problem.train.X[:b], torch.randn(b, D, generator=draw).to(like)
    W1, W2 = torch.randn(D, X.shape[1], generator=draw).to(like), torch.randn(D, D, generator=draw).to(like)
    F = H.T @ H + torch.eye(D).to(like)

    def step() -> None:
        _ = X @ W1.T, H @ W2.T, H.T @ X, H.T @ H, H @ W2
        torch.cholesky_inverse(torch.linalg.cholesky(F))

    return step


def _network(d: int, D: int, like: Tensor) -> torch.nn.Module:
    relu, linear = torch.nn.ReLU, torch.nn.Linear
    return torch.nn.Sequential(linear(d, D), relu(), linear(D, D), relu()).to(like)


def _plain(problem: Problem, b: int, D: int) -> Callable[[], Any]:
    """One minibatch of SCGD by modules and autograd."""
    train, n = problem.train, len(problem.train)
    with torch.random.fork_rng(devices=[]):
        net = _network(train.d, D, train.y)
    w, log_sd = (torch.nn.Parameter(part) for part in (train.y.new_zeros(D), train.y.new_zeros(())))
    optimiser, S, eye = torch.optim.Adam([*net.parameters(), w, log_sd], 1e-3), torch.eye(D).to(train.y), torch.eye(D)

    def step() -> None:
        nonlocal S
        index = torch.randint(n, (b,))
        Phi, y, s2 = net(train.X[index]), train.y[index], (2.0 * log_sd).exp()
        S = (0.9 * S + 0.1 * Phi.T @ Phi / b).detach()
        M = torch.linalg.inv(n * S + s2.detach() * eye.to(S))
        fit = ((Phi @ w - y).square().sum() / s2 + (M * (Phi.T @ Phi)).sum()) * (n / b)
        loss = (fit + w @ w + (n - D) * s2.log() + s2 * M.trace()) / (2 * n)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def _gpytorch(problem: Problem, b: int, D: int) -> Callable[[], Any]:
    """One minibatch of SVGP as GPyTorch's users write it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import gpytorch
    train = problem.train

    class Deep(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            normal = gpytorch.variational.CholeskyVariationalDistribution(b)
            super().__init__(gpytorch.variational.VariationalStrategy(self, train.X[:b].clone(), normal))
            self.net = _network(train.d, D, train.y)
            self.mean, self.covar = gpytorch.means.ZeroMean(), gpytorch.kernels.LinearKernel()

        def forward(self, X: Tensor) -> Any:
            Z = self.net(X)
            return gpytorch.distributions.MultivariateNormal(self.mean(Z), self.covar(Z))

    with torch.random.fork_rng(devices=[]):
        gp, likelihood = Deep().to(train.y), gpytorch.likelihoods.GaussianLikelihood().to(train.y)
    bound = gpytorch.mlls.VariationalELBO(likelihood, gp, len(train))
    optimiser = torch.optim.Adam([*gp.parameters(), *likelihood.parameters()], 1e-3)

    def step() -> None:
        index = torch.randint(len(train), (b,))
        optimiser.zero_grad()
        (-bound(gp(train.X[index]), train.y[index])).backward()
        optimiser.step()

    return step
