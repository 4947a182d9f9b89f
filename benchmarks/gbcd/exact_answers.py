"""Mean, exact variances and samples of the full GP on the same task: gbcd, preconditioned CG and GPyTorch.

gbcd sends targets, samples and points through the same kernel rows, until the targets have the residual of a run for
the mean alone and the error of every variance is certainly within the tolerance. Preconditioned CG does the same for
the same limits, with products of the whole matrix. GPyTorch uses its own settings: CG to a residual of 0.01 with a
pivoted Cholesky preconditioner, and LOVE for variances and samples. The last lines are what a run of gbcd gives with
bands="exact" once it has the mean, and what one Cholesky factor gives where it takes at most 1 GB. Errors are those
against LAPACK, where it runs: of the mean in noise standard deviations, and of the variance relative to that of y.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.gbcd.at_points import PointsRequest, posterior_at
from gpexplorer.linalg.preconditioners import drawn_root, woodbury
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods import gpytorch_parts
from gpexplorer.methods.base import registry
from gpexplorer.methods.exact.cg import begin, cg
from gpexplorer.methods.exact.posteriors import (
    FACTOR_BYTES,
    PATH_TOLERANCE,
    JointPosterior,
    JointSolver,
    exact_posterior,
)
from gpexplorer.methods.exact.right_hand_sides import Limit, sizes_for, variance_limit
from gpexplorer.methods.exact.system import SolverState, System
from gpexplorer.objectives import noise_variance
from gpexplorer.posteriors import exact_gp_posterior
from gpexplorer.posteriors.sample_paths import prior_paths
from gpexplorer.problem import Dataset, Prediction, Problem
from gpexplorer.runs.counting import Counted, Counter
from gpexplorer.runs.run import Run
from gpexplorer.runs.scores import scores

GPYTORCH_RANK = 100  # of its preconditioner, and of the roots of LOVE
PCG_ITERATIONS = 1000
Answer = tuple[Prediction, Tensor, str]  # mean and variance, samples [s, t], and a remark


class Work(NamedTuple):
    """What every solver is asked for."""

    points: int
    samples: int
    tolerance: float  # of variances
    mean_tolerance: float  # of the largest gradient entry
    cache: float  # gigabytes


def report(problem: Problem, Z: Tensor, work: Work, lapack: bool, gpytorch: bool) -> Iterator[str]:
    """Yield the lines of the comparison, each as soon as it is measured.

    Parameters
    ----------
    problem : Problem
        Training rows, kernel, and the theta that all solvers use.
    Z : Tensor [t, d]
        Points.
    work : Work
        Numbers of points and samples, tolerances and cache.
    lapack, gpytorch : bool
        Whether these run too.
    """
    n, s2 = len(problem.train), noise_variance(problem.theta)
    exact = exact_gp_posterior(problem.kernel, problem.theta, problem.train)(Z) if lapack else None
    yield f"mean, variances at {len(Z)} points within {work.tolerance:g}, and {work.samples} samples; noise {s2:.2g}"
    yield f"{'solver':<24}{'seconds':>9}{'CPU s':>8}{'entries / n^2':>15}{'mean error':>12}{'var error':>11}  remark"
    counter = Counter()
    counted = Problem(problem.train, Counted(problem.kernel, counter), problem.theta)
    stop = {"tolerance": work.mean_tolerance, "mean_tolerance": 0.0, "max_iterations": 10**6}
    alone = Run(registry["gbcd"](learn=False, cache=work.cache, **stop), problem)
    begun = time.process_time()
    alone.finish()
    last = alone.trace[-1]
    mean = alone.method.posterior(problem, last.step.state).mean(Z)
    entries = last.cost.entries / n**2
    seconds = last.seconds, time.process_time() - begun
    yield _line("gbcd, mean alone", seconds, entries, (mean, None), exact, s2, f"{alone.done} iterations")

    norm = float(last.step.state.norm)
    solvers: dict[str, Callable[[], Answer]] = {
        "gbcd, all together": lambda: _by_blocks(counted, Z, work, norm),
        "pcg, all together": lambda: _by_pcg(counted, Z, work, norm),
    }
    if gpytorch:
        solvers["GPyTorch, CG and LOVE"] = lambda: _by_gpytorch(problem, Z, work)
    solvers["gbcd, exact bands"] = lambda: _by_bands(counted, Z, work, last.step.state)
    if 8 * n**2 <= FACTOR_BYTES:
        solvers["cholesky, one factor"] = lambda: _by_factor(counted, Z, work)
    for name, solve in solvers.items():
        counter.entries, begun, begun_cpu = 0, time.perf_counter(), time.process_time()
        (mean, var), _, remark = solve()
        seconds, share = (time.perf_counter() - begun, time.process_time() - begun_cpu), counter.entries / n**2
        ratio = f"{share / entries:.2f} times the entries of the mean alone; " if counter.entries else ""
        yield _line(name, seconds, share, (mean, var), exact, s2, ratio + remark)


def _line(
    name: str,
    seconds: tuple[float, float],
    entries: float,
    prediction: tuple[Tensor, Tensor | None],
    exact: Prediction | None,
    s2: float,
    remark: str,
) -> str:
    """One line of the table; `seconds` are those by the clock and of all processors. Unknown errors are left out."""
    mean_error = var_error = "-"
    if exact is not None:
        mean_error = f"{float((prediction[0] - exact.mean).abs().max()) / s2**0.5:.1e}"
        if prediction[1] is not None:
            var_error = f"{float(((prediction[1] - exact.var) / (exact.var + s2)).abs().max()):.1e}"
    counted = f"{entries:.2f}" if entries else "-"
    return f"{name:<24}{seconds[0]:>9.2f}{seconds[1]:>8.1f}{counted:>15}{mean_error:>12}{var_error:>11}  {remark}"


def _limit(norm: float, n: int, s2: float) -> Limit:
    """The residual of the run for the mean alone for y, and 0.01 noise standard deviations per row for samples."""
    for_samples = max(PATH_TOLERANCE * (s2 * n) ** 0.5, norm)
    return lambda columns, values: torch.where(columns == 0, norm, for_samples).to(values)


def _by_blocks(problem: Problem, Z: Tensor, work: Work, norm: float) -> Answer:
    system = System(problem, problem.theta, work.cache * 1e9)
    request = PointsRequest(Z, work.samples, work.tolerance)
    answer = posterior_at(system, problem, request, _limit(norm, system.n, system.s2), sizes_for(system.n))
    remark = f"{answer.blocks} blocks" + (f", {answer.unfinished} columns unfinished" if answer.unfinished else "")
    return Prediction(answer.mean, answer.var), answer.samples, remark


def _by_pcg(problem: Problem, Z: Tensor, work: Work, norm: float) -> Answer:
    """CG for all columns at once, with the preconditioner of `pcg`, until all are within the same limits."""
    system, kernel, theta = System(problem, problem.theta, work.cache * 1e9), problem.kernel, problem.theta
    n, draw = system.n, generator(0, "posterior at points")
    paths = prior_paths(kernel, theta, work.samples, draw)
    noise = torch.randn(n, work.samples, generator=draw, dtype=torch.float64).to(system.y)
    right = torch.cat([system.y[:, None], paths(problem.train.X).T + system.s2**0.5 * noise], 1)
    K, prior = kernel(theta, problem.train.X, Z), kernel.diag(theta, Z)
    B, targets = torch.cat([right, K], 1), right.shape[1]
    root = system.y.new_empty(n, min(500, n // 2))
    drawn_root(system.columns, system.diag - system.s2, root, 0, 0.1 * system.s2)
    apply = woodbury(root, system.s2, damped=True)
    columns = torch.arange(B.shape[1])
    limits = _limit(norm, n, system.s2)(columns, B[0])
    first = begin(system.product, B, torch.zeros_like(B), apply)
    for number, iterate in enumerate(cg(system.product, first, apply), 1):
        values = -((B + iterate.r) * iterate.x).sum(0)  # 2 f
        limits[targets:] = variance_limit(prior, system.s2, work.tolerance)(columns[: len(Z)], values[targets:])
        if bool((iterate.r.norm(dim=0) <= limits).all()) or number >= PCG_ITERATIONS:
            break
    x, var = iterate.x, prior - ((B + iterate.r) * iterate.x).sum(0)[targets:]
    mean = K.T @ x[:, 0]
    samples = mean + paths(Z) - x[:, 1:targets].T @ K
    return Prediction(mean, var), samples, f"{number} iterations"


def _by_bands(problem: Problem, Z: Tensor, work: Work, state: SolverState) -> Answer:
    """What `gbcd` gives with bands="exact" after the run for the mean: a factor in place, or blocks of float32 rows."""
    posterior = exact_posterior(problem, state, 0, 0, tolerance=work.tolerance, cache=work.cache * 1e9)
    prediction = posterior(Z)
    samples = posterior.paths(work.samples)(Z)
    by_blocks = isinstance(posterior, JointPosterior)
    remark = "by blocks" if by_blocks else f"a factor of {8e-9 * len(problem.train) ** 2:.2f} GB"
    return prediction, samples, f"after the mean; {remark}"


def _by_factor(problem: Problem, Z: Tensor, work: Work) -> Answer:
    """Everything from one Cholesky factor: the method `cholesky` with bands="exact", whose posterior takes it over."""
    method = registry["cholesky"](learn=False, bands="exact", tolerance=work.mean_tolerance, mean_tolerance=0.0)
    *_, last = method.steps(problem)
    posterior = method.posterior(problem, last.state)
    return posterior(Z), posterior.paths(work.samples)(Z), "the mean too"


def _by_gpytorch(problem: Problem, Z: Tensor, work: Work) -> Answer:
    """GPyTorch at the same theta; predictions and samples with its fast settings."""
    gpytorch, train = gpytorch_parts.package(), problem.train
    settings, parts = gpytorch.settings, gpytorch_parts.parts(problem.kernel, problem.theta)

    class Exact(gpytorch.models.ExactGP):  # type: ignore[misc]
        """A GP with mean zero."""

        def __init__(self) -> None:
            super().__init__(train.X, train.y, parts.likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), parts.covariance

        def forward(self, X: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))

    model = Exact().to(train.y).eval()
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        settings.max_cholesky_size(0),
        settings.max_preconditioner_size(GPYTORCH_RANK),
        settings.max_root_decomposition_size(GPYTORCH_RANK),
        settings.max_cg_iterations(PCG_ITERATIONS),
        settings.eval_cg_tolerance(0.01),
        settings.fast_pred_var(),
        settings.fast_pred_samples(),
    ):
        warnings.simplefilter("ignore")
        predictive = model(Z)
        mean, var = predictive.mean, predictive.variance
        samples = predictive.rsample(torch.Size([work.samples]))
    return Prediction(mean, var), samples, f"residual 0.01, rank {GPYTORCH_RANK}"


def bands_report(problem: Problem, test: Dataset, tolerance: float) -> Iterator[str]:
    """Yield NLPD and coverage of the solver's bands from some rows, from all rows by blocks, and of a dense GP.

    Parameters
    ----------
    problem : Problem
        Training rows, kernel and theta.
    test : Dataset
        Test rows, scaled.
    tolerance : float
        Largest relative error of a predictive variance by blocks.
    """
    n = len(problem.train)
    method = registry["gbcd"](learn=False)
    run = Run(method, problem)
    run.finish()
    state = run.trace[-1].step.state
    kernel, theta, X = problem.kernel, problem.theta, problem.train.X
    solver = JointSolver(problem, theta, 1e9, tolerance, 0)
    posteriors = {
        f"gbcd, {n // 8} rows": exact_posterior(problem, state, n // 8, 0),
        f"gbcd, {n // 2} rows": exact_posterior(problem, state, n // 2, 0),
        "gbcd, all rows": JointPosterior(kernel, theta, (X, state.alpha), X, solver),
        "dense GP": exact_gp_posterior(kernel, theta, problem.train),
    }
    for name, posterior in posteriors.items():
        mean, var = posterior(test.X)
        values = scores(test.y, mean, var + noise_variance(theta), problem.train.y)
        yield (
            f"{name:<20}{values['nlpd']:>9.4f}{values['coverage68']:>8.3f}{values['coverage95']:>8.3f}{values['smse']:>9.4f}"
        )
