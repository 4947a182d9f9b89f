"""`benchmarks neighbours`: a long series and a map by near rows, beside the noise floor and other packages.

The series is a draw of a Matern 3/2 process, a sine and noise at irregular times; the map is a sum of random cosines of
two inputs and noise. Contenders that are not installed, celerite2 and GPBoost, are named and left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.optimize import minimize

from gpexplorer.estimator import Estimator

NOISE, PERIOD = 0.3, 10.0
ROWS_PER_LENGTHSCALE = 40
COSINES, FREQUENCY = 300, 10.0
HELD_OUT = 0.1
FAR = 1e12  # nats, where celerite2 has no Cholesky factor
VARIANCES = 500  # celerite2 computes a column of all rows for each
Array = NDArray[np.float64]
Moments = tuple[Array, Array]  # predictive mean and variance of y
Contender = Callable[["Case", int], Moments]


class Case(NamedTuple):
    """Rows to fit and rows to predict, whose noiseless function is known."""

    X: Array
    y: Array
    X_new: Array
    y_new: Array
    f_new: Array


def series(n: int, seed: int = 0) -> Case:
    """A Matern 3/2 process at irregular times, by the recursion of value and derivative, with a sine and noise."""
    random = np.random.default_rng(seed)
    x = np.sort(random.uniform(0.0, n / ROWS_PER_LENGTHSCALE, n))
    rate, dt = math.sqrt(3.0), np.diff(x)
    A = np.exp(-rate * dt)[:, None, None] * np.moveaxis(
        np.array([[1.0 + rate * dt, dt], [-(rate**2) * dt, 1.0 - rate * dt]]), 2, 0
    )
    P = np.diag([1.0, rate**2])
    Q = P - A @ P @ np.swapaxes(A, 1, 2)
    values, vectors = np.linalg.eigh(Q)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    state = np.sqrt(P.diagonal()) * random.standard_normal(2)
    f = [state[0]]
    for transition, root in zip(A, roots, strict=True):
        state = transition @ state + root @ random.standard_normal(2)
        f.append(state[0])
    return case_of(x[:, None], np.array(f) + np.sin(2.0 * math.pi * x / PERIOD), random)


def map_of(n: int, seed: int = 0) -> Case:
    """A sum of cosines of two inputs, with noise."""
    random = np.random.default_rng(seed)
    X, f = random.random((n, 2)), np.zeros(n)
    for w, phase in zip(FREQUENCY * random.standard_normal((COSINES, 2)), random.uniform(0, 7, COSINES), strict=True):
        f += math.sqrt(2.0 / COSINES) * np.cos(X @ w + phase)
    return case_of(X, f, random)


def case_of(X: Array, f: Array, random: np.random.Generator, noise: float = NOISE) -> Case:
    """Rows of a function with noise, a tenth of them held out at random."""
    y = f + noise * random.standard_normal(len(f))
    new, old = np.split(random.permutation(len(f)), [int(HELD_OUT * len(f))])
    return Case(X[old], y[old], X[new], y[new], f[new])


def vecchia(case: Case, neighbours: int) -> Moments:
    """Ours."""
    model = Estimator("vecchia", "matern32", settings={"num_neighbours": neighbours}).fit(case.X, case.y)
    mean, sd = model.predict(case.X_new, return_std=True)
    return mean, np.square(sd)


def states(case: Case, _: int) -> Moments:
    """Ours for one input, exact."""
    mean, sd = Estimator("states", "matern32").fit(case.X, case.y).predict(case.X_new, return_std=True)
    return mean, np.square(sd)


def gpboost(case: Case, neighbours: int) -> Moments:
    """GPBoost's Vecchia approximation, by maximum likelihood."""
    package: Any = importlib.import_module("gpboost")
    shape: dict[str, Any] = {"cov_function": "matern", "cov_fct_shape": 1.5, "likelihood": "gaussian"}
    model = package.GPModel(gp_coords=case.X, gp_approx="vecchia", num_neighbors=neighbours, **shape)
    model.fit(y=case.y)
    answer = model.predict(gp_coords_pred=case.X_new, predict_var=True, predict_response=True)
    return np.asarray(answer["mu"]), np.asarray(answer["var"])


def celerite2(case: Case, _: int) -> Moments:
    """celerite2's Matern 3/2 term, which is exact for one input, by maximum likelihood."""
    package: Any = importlib.import_module("celerite2")
    order = np.argsort(case.X[:, 0])
    t, y = case.X[order, 0], case.y[order]

    def model(log_theta: Array) -> Any:
        sd, lengthscale, noise = np.exp(log_theta)
        gp = package.GaussianProcess(package.terms.Matern32Term(sigma=sd, rho=lengthscale))
        gp.compute(t, diag=np.full(len(t), noise**2))
        return gp

    def nlml(log_theta: Array) -> float:
        try:
            return -float(model(log_theta).log_likelihood(y))
        except package.driver.LinAlgError:
            return FAR

    best = minimize(nlml, np.log([y.std(), 1.0, 0.5 * y.std()]))
    new, gp = np.argsort(case.X_new[:, 0]), model(best.x)
    blocks = [new[i : i + VARIANCES] for i in range(0, len(new), VARIANCES)]
    moments = [gp.predict(y, case.X_new[block, 0], return_var=True) for block in blocks]
    mean, var = (np.concatenate(parts) for parts in zip(*moments, strict=True))
    back = np.argsort(new)
    return mean[back], var[back] + math.exp(2.0 * best.x[2])


ONE_INPUT = ("states", "celerite2")
RIVALS: dict[str, Contender] = {"gpboost": gpboost, "celerite2": celerite2}


def report(name: str, case: Case, neighbours: int) -> Iterator[str]:
    """Fit each contender to the same rows and score the same held-out rows.

    Parameters
    ----------
    name : str
        Of the case.
    case : Case
        Its rows.
    neighbours : int
        Of the contenders that have such a number.

    Yields
    ------
    str
        A title, the floor, and a line for each contender.
    """
    yield f"{name}: {len(case.y):,} rows, d = {case.X.shape[1]}, {len(case.y_new):,} held out, k = {neighbours}"
    yield _scored("the true function", case, (case.f_new, np.full(len(case.f_new), NOISE**2)), 0.0)
    contenders = {"vecchia": vecchia, "states": states, **RIVALS}
    for label, contender in contenders.items():
        if label in ONE_INPUT and case.X.shape[1] > 1:
            continue
        if label in RIVALS and importlib.util.find_spec(label) is None:
            yield f"{label:<18} is not installed"
            continue
        begin = time.process_time()
        moments = contender(case, neighbours)
        yield _scored(label, case, moments, time.process_time() - begin)


def _scored(label: str, case: Case, moments: Moments, seconds: float) -> str:
    mean, var = moments
    smse = np.square(case.y_new - mean).mean() / case.y_new.var()
    nlpd = 0.5 * (np.log(2.0 * math.pi * var) + np.square(case.y_new - mean) / var).mean()
    return f"{label:<18} processor {seconds:>7.1f} s   SMSE {smse:.4f}   NLPD {nlpd:.4f}"


def command(
    rows: Annotated[int, typer.Option(help="Rows of the series and of the map.", min=100)] = 100_000,
    neighbours: Annotated[int, typer.Option(help="Neighbours of each row.", min=1)] = 15,
) -> None:
    """A long series and a map: the methods of near rows beside the noise floor, GPBoost and celerite2."""
    for name, case in (("series", series(rows)), ("map", map_of(rows))):
        for line in report(name, case, neighbours):
            typer.echo(line)
