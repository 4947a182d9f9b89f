"""Time per minibatch of every method, compared with the necessary arithmetic, plain torch and GPyTorch.

The floor is the arithmetic that every method needs: the forward and backward products of the network, 6 b (size) flops,
and a Cholesky factor with its inverse, D^3 flops. The formulas of some methods need more: those of MINIMAX need three
factors of order D, two inverses and a product, and the features of other rows; SVGP passes m inducing inputs through
the network too. `its products` is the time of the products, solves and factors of one minibatch of a method, recorded
and repeated alone. The rest of its time is passes over memory, small operations and Python.

Plain torch is SCGD written with modules, autograd and torch's Adam. All are timed in turns in the same process. A ratio
compares times of the same round, so it stays valid when a shared machine changes its speed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Annotated, Any, cast

import torch
import typer
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gpexplorer import data as data_sets
from gpexplorer import kernels
from gpexplorer.linalg.cholesky import factor
from gpexplorer.methods.base import registry
from gpexplorer.methods.minibatches.learner import Learner
from gpexplorer.methods.minibatches.model import Model
from gpexplorer.problem import Problem
from gpexplorer.runs.run import Run
from gpexplorer.runs.spec import Spec

from . import streaming
from .timing import learning
from .timing.limits import in_turns, ratio

PACE, FLOOR, PLAIN = "a square product", "floor: products and factor", "plain torch SCGD"
METHODS = ("scgd", "minimax", "bsgd", "svgp")
REPEATS = 20  # minibatches per timing
SQUARE = 600  # rows of the square product that measures the speed of the machine
ALL_ROWS: dict[str, Any] = {"validation": 0.0, "patience": 0}  # every method uses all rows for all epochs
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "cholesky_inverse", "linalg_solve_triangular"}
WHOLE = 10**6  # minibatches per step: the method limits this to one epoch


def command(  # noqa: PLR0913 - one argument per option
    data: Annotated[str, typer.Option(help="Name of a data set or of a generator.")] = "kin40k",
    batch: Annotated[int, typer.Option(help="Rows per minibatch.", min=2)] = 64,
    width: Annotated[int, typer.Option(help="Outputs of each of the two layers.", min=2)] = 128,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    epochs: Annotated[int, typer.Option(help="Epochs of learning after the timings; 0 for timings only.")] = 0,
    seconds: Annotated[float, typer.Option(help="Time limit of the learning, per method.")] = 180.0,
    method: Annotated[list[str] | None, typer.Option(help="Only these methods.")] = None,
    choose: Annotated[bool, typer.Option(help="First choose the rate on a tenth of the training rows.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Store runs here; the same command continues them.")] = None,
    rows: Annotated[int, typer.Option(help="Measure memory instead, on a file with this many rows.", min=0)] = 0,
) -> None:
    """Milliseconds per minibatch, the floor and baselines; with --epochs also NLML per row and test RMSE."""
    settings = {"batch_size": batch, "width": width}
    if rows:
        for line in streaming.report(rows, settings, tuple(method or METHODS[:3])):
            typer.echo(line)
        return
    for line in report(data, dtype, settings, tuple(method or METHODS)):
        typer.echo(line)
    for key in (method or METHODS) if epochs else ():
        learning_settings = {"epochs": epochs, "schedule": "cosine", "minibatches": WHOLE, **ALL_ROWS}
        if key != "svgp":  # SVGP is the usual baseline and learns with its own defaults
            learning_settings |= settings
        for line in learning.report(Spec(key, learning_settings, data=data, dtype=dtype), seconds, choose, keep):
            typer.echo(line)


def report(
    name: str, dtype: str, settings: dict[str, Any], methods: tuple[str, ...], rounds: int = 15
) -> Iterator[str]:
    """Time one minibatch of every method, of the baselines and of the floor.

    Parameters
    ----------
    name : str
        A data set or a generator.
    dtype : {"float64", "float32"}
        Precision of the rows and of the parameters.
    settings : dict
        `batch_size` and `width`, for every method.
    methods : tuple of str
        Keys of the methods.
    rounds : int, default 15
        In each round everything is timed once, in turns, so that ratios stay valid when the machine changes its speed.

    Yields
    ------
    str
        A title, the heading of the table, and one line per piece of work.
    """
    problem, b, D = _run(name, dtype, "scgd", settings).problem, settings["batch_size"], settings["width"]
    load = os.getloadavg()[0]
    yield f"{name}: n = {len(problem.train)}, b = {b}, D = {D}, {torch.get_num_threads()} threads, load {load:.2f}"
    learners = {key: _learner(_run(name, dtype, key, settings)) for key in methods}
    square = torch.randn(SQUARE, SQUARE, generator=torch.Generator().manual_seed(0)).to(problem.train.y)
    baselines = {PLAIN: _plain(problem, b, D), "GPyTorch SVGP, its own modules": _gpytorch(problem, b, D)}
    works = {FLOOR: _arithmetic(problem, b, D), **baselines}
    for key, learner in learners.items():
        works |= {key: _minibatch(learner), f"  its products ({key})": _products(learner)}
    if "scgd" in learners:
        works |= _parts(learners["scgd"])
    repeated = {label: _several(work) for label, work in works.items()}
    times_of = in_turns({PACE: lambda: square @ square, **repeated}, rounds)
    gemm = 2e-9 * SQUARE**3 / median(times_of.pop(PACE))
    yield f"{'ms per minibatch':<32}  median   least     GEMM {gemm:.0f} GF/s"
    for label, times in times_of.items():
        ms = f"{1e3 * median(times) / REPEATS:8.2f}{1e3 * min(times) / REPEATS:8.2f}"
        ratios = f"{ratio(times, times_of[FLOOR]):8.1f} x floor{ratio(times, times_of[PLAIN]):8.2f} x plain torch"
        yield f"{label:<32}{ms}{ratios}"


def _run(name: str, dtype: str, key: str, settings: dict[str, Any]) -> Run:
    split = data_sets.load(name).scaled()
    torch_dtype = {"float64": torch.float64, "float32": torch.float32}[dtype]
    train, kernel = split.train.to("cpu", torch_dtype), kernels.make("se-ard", split.train.d)
    problem = Problem(train, kernel, kernel.start(train))
    same_network = {"kernel": "linear", "layers": 2, "num_inducing": settings["batch_size"], "variational": "optimiser"}
    return Run(registry[key](**settings, **(same_network if key == "svgp" else {})), problem, split)


def _learner(run: Run) -> Learner:
    """Return the learner of a method, before its first minibatch."""
    method: Any = run.method
    return cast(Learner, method.learner(Model(method, run.problem), next(method.steps(run.problem)).state))


def _several(work: Callable[[], object]) -> Callable[[], object]:
    """Repeat `work` REPEATS times, so that it is long enough to be timed."""

    def several() -> None:
        for _ in range(REPEATS):
            work()

    return several


def _minibatch(learner: Learner) -> Callable[[], object]:
    """Return a function that takes the next minibatch at each call."""
    t = count()
    return lambda: learner.move(next(t))


class _Products(TorchDispatchMode):
    """Records the products, solves and factors that are computed in this context, with copies of their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], object]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__.rstrip("_")
        if name == "linalg_cholesky_ex":
            self.calls.append(partial(factor, args[0].clone()))  # recorded in place, where it cannot be repeated
        if name in PRODUCTS:
            copies = [part.clone() if isinstance(part, Tensor) else part for part in args]
            named = {name: part.clone() if isinstance(part, Tensor) else part for name, part in kwargs.items()}
            self.calls.append(lambda: func(*copies, **named))
        return func(*args, **kwargs)


def _products(learner: Learner) -> Callable[[], object]:
    """Return the products, solves and factors of the first minibatch, in which MINIMAX raises no eigenvalues."""
    with _Products() as recorded:
        learner.move(0)

    @torch.inference_mode()
    def again() -> None:
        for call in recorded.calls:
            call()

    return again


def _parts(learner: Learner) -> dict[str, Callable[[], object]]:
    """Return the pieces of one minibatch, except the averages, the factor and its inverse."""
    model, point, index = learner.model, learner.parameters, learner.rows(0)
    X, _ = model.rows(index)
    G, parameters = torch.ones_like(model.features(point.parts, X).Phi), point.x.clone()
    averages = tuple(average.clone() for average in learner.averages)

    @torch.inference_mode()
    def network() -> None:
        features = model.features(point.parts, X)
        model.pullback(point.parts, features, G.clone(), point.into)

    @torch.inference_mode()
    def optimiser() -> None:
        learner.optimiser.move(parameters, point.g, averages, 1, 0.0)

    return {
        "  rows of SCGD": lambda: model.rows(index),
        "  network, forward and back": network,
        "  optimiser": optimiser,
    }


def _arithmetic(problem: Problem, b: int, D: int) -> Callable[[], Any]:
    """Return the products of two layers, forward and backward, and one Cholesky factor with its inverse."""
    draw, like = torch.Generator().manual_seed(0), problem.train.y
    X, H = problem.train.X[:b], torch.randn(b, D, generator=draw).to(like)
    W1, W2 = torch.randn(D, X.shape[1], generator=draw).to(like), torch.randn(D, D, generator=draw).to(like)
    F = H.T @ H + torch.eye(D).to(like)

    def step() -> None:
        _ = X @ W1.T, H @ W2.T, H.T @ X, H.T @ H, H @ W2
        torch.cholesky_inverse(factor(F)[0])

    return step


def _network(d: int, D: int, like: Tensor) -> torch.nn.Module:
    relu, linear = torch.nn.ReLU, torch.nn.Linear
    return torch.nn.Sequential(linear(d, D), relu(), linear(D, D), relu()).to(like)


def _plain(problem: Problem, b: int, D: int) -> Callable[[], Any]:
    """Return one minibatch of SCGD, written with torch modules and autograd."""
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
    """Return one minibatch of SVGP, written with the modules of GPyTorch."""
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
