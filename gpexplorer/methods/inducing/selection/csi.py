"""CSI kernel ridge: a low-rank kernel by Cholesky with side information, its hyperparameters by grid search.

Each step evaluates one point of the grid: pivots of the factor are chosen on four fifths of the rows, and ridge
regression on the columns of the factor is evaluated on the last fifth. At the end the best setting is fitted to all
rows. CSI has no likelihood whose gradient could be followed, and the grid makes it slow (Bach and Jordan 2005; Cao et
al. 2013, figure 3c).

The squared error does not depend on the size of the covariance, noise included, which alone sets the width of the
bands. With `calibrate`, which is not part of the paper, it maximises the evidence of all rows.

Pivots are chosen for the targets too:

    J(L) = kappa min_w |y - L w|^2 / |y|^2 + (1 - kappa) tr(K - L L') / tr K

A second factor W [a, n], of a look-ahead pivots, approximates the residual K - L L' by W'W. The column of candidate j
is approximated by u_j = W'w_j / |w_j|, with w_j = W e_j, so that all n gains cost O(n a^2). With Q' an orthonormal
basis of the columns of L, T = W W', B = Q W', S = T - B'B and g = W y - B'Q y,

    gain of j = kappa (g'w_j)^2 / (|y|^2 w_j'S w_j) + (1 - kappa) w_j'T w_j / (|w_j|^2 tr K)

The best j then joins L exactly, and is removed from W by one Householder reflection (Bach and Jordan 2005, sections 4
and 5). In contrast to the paper, T and B are computed again at each step, with n a (k + a) multiplications and
additions, so that nothing drifts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Annotated, Any, ClassVar, NamedTuple

import param
import torch
from torch import Tensor

from ....data.given_folds import drawn_share
from ....kernels.theta.restrictions import projected
from ....linalg.randomness import generator
from ....objectives import nystrom, rounding
from ....posteriors import Posterior, nystrom_posterior
from ....problem import Cost, Dataset, Kernel, Outcome, Problem, Step, channel
from ...base import Method, Steps, begun
from ...cross_validation.scale_direction import scale_direction
from ...setting_kinds import count, share
from .. import settings
from ..reporting import entry_flops
from .loop import subset_posterior
from .unsupervised import argmax_of_ties

HELD_OUT = 0.2  # part of the rows on which a grid point is evaluated
POINT_CALLS, LOOKAHEAD_CALLS = 125.0, 45.0  # tensor operations per point of the factor, and per look-ahead pivot


class Trial(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    tried: int  # grid points evaluated
    inducing: Tensor  # [m] rows of the best trial
    theta: Tensor  # [p] of the best trial
    error: float  # its SMSE on the held-out rows


class Tried(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str  # "start" | "grid" | "fit"
    objective: Annotated[float, channel("validation SMSE, the best so far", monotone=True)]
    tried: Annotated[float, channel("validation SMSE of this grid point")] = math.nan
    scale: Annotated[float, channel("lengthscales, relative to their initial values", log=True)] = math.nan
    noise: Annotated[float, channel("noise sd, relative to its initial value", log=True)] = math.nan


class CSI(Method):
    """Kernel ridge regression on a partial Cholesky factor whose pivots depend on the targets, tuned by validation.

    Parameters
    ----------
    num_inducing, num_ahead, weight : int, int, float
        Size of the factor, and how its pivots are chosen; see above.
    grid_size, grid_factor : int, float
        The grid of lengthscales and noise levels.
    calibrate : bool
        Whether the evidence determines the size of the covariance.
    seed : int
        Seed of the held-out rows and of ties.

    Notes
    -----
    Per grid point n m a (m + 12 a) flops with a look-ahead pivots, besides 2 n m^2 for ridge regression.

    References
    ----------
    Bach and Jordan (2005). Predictive low-rank decomposition for kernel methods. ICML.
    """

    key: ClassVar[str] = "csi"
    takes_priors: ClassVar[bool] = False
    title: ClassVar[str] = "CSI kernel ridge"
    family: ClassVar[str] = "inducing"
    row_noise: ClassVar[tuple[str, ...]] = ("relative",)
    paper: ClassVar[str] = "Bach & Jordan (2005). Predictive low-rank decomposition for kernel methods. ICML."
    State: ClassVar[type] = Trial
    Info: ClassVar[type] = Tried
    equations: ClassVar[dict[str, str]] = {
        "weight": r"J(L) = \kappa\,\frac{\min_w |y-Lw|^2}{|y|^2} + (1-\kappa)\,"
        r"\frac{\operatorname{tr}(K-LL^\top)}{\operatorname{tr}K}",
        "num_inducing": r"K \approx LL^\top,\quad L \in \mathbb{R}^{n\times m}",
    }
    uses_groups: ClassVar[bool] = True
    added_settings: ClassVar[Mapping[str, Any]] = {"calibrate": False}

    num_inducing = settings.num_inducing()
    num_ahead = count(40, (5, 100), doc="Look-ahead pivots a: more estimate the gains better; costs grow with a^2.")
    weight = share(0.99, doc="Weight of the targets when pivots are chosen; with 0 only the inputs count.")
    grid_size = count(5, (1, 9), most=99, doc="Number of noise levels on the grid, and number of lengthscales.")
    grid_factor = param.Number(
        2.0,
        bounds=(1.0, 1e6),
        inclusive_bounds=(False, True),
        softbounds=(1.2, 4.0),
        doc="Ratio of neighbouring grid values.",
    )
    calibrate = param.Boolean(
        True,
        doc="Scale the covariance, noise included, by the number that maximises the evidence. It changes the bands and "
        "no mean.",
    )

    def steps(self, problem: Problem, resume: Trial | None = None) -> Steps:
        none = torch.zeros(0, dtype=torch.int64, device=problem.train.y.device)
        first = Trial(0, 0, none, problem.theta.clone(), math.inf)
        state = yield from begun(resume, first, Tried("start", math.nan))
        grid = self._grid(problem)

        for scale, noise in grid[state.tried :]:
            theta = self._theta(problem, scale, noise)
            rows, error = self._validate(problem, theta)
            state = state._replace(step=state.step + 1, tried=state.tried + 1)
            if error < state.error:
                state = state._replace(inducing=rows, theta=theta, error=error)
            yield Step(state, Tried("grid", state.error, error, scale, noise))

        if state.step == len(grid):
            all_rows = torch.arange(len(problem.train), device=problem.train.y.device)
            rows = self._choose(problem, state.theta, all_rows)
            theta = self._calibrated(problem, state.theta, rows) if self.calibrate else state.theta
            state = state._replace(step=state.step + 1, inducing=rows, theta=theta)
            yield Step(state, Tried("fit", state.error))
        message = (
            f"All {len(grid):,} grid points were evaluated. The best, with SMSE {state.error:.4g} on held-out rows, is "
            "fitted to all rows."
        )
        return Outcome("converged", message)

    def num_points(self, n: int) -> int:
        return settings.resolve_num_inducing(self.num_inducing, n)

    def _grid(self, problem: Problem) -> list[tuple[float, float]]:
        """Return factors of the lengthscales (where the kernel has any) and of the noise; 1 is in the middle."""
        values = [self.grid_factor ** (k - self.grid_size // 2) for k in range(self.grid_size)]
        return list(product(values if _lengthscales(problem) else [1.0], values))

    def _theta(self, problem: Problem, scale: float, noise: float) -> Tensor:
        theta = problem.theta.clone()
        theta[_lengthscales(problem)] += math.log(scale)
        theta[-1] += math.log(noise)
        return projected(problem.kernel, theta)

    def _validate(self, problem: Problem, theta: Tensor) -> tuple[Tensor, float]:
        """Choose rows of the fitting part; return them and the SMSE of their ridge regression on the held-out part."""
        kernel, train = problem.kernel, problem.train
        test, fitting = self._held_out(train)
        rows = self._choose(problem, theta, fitting)
        Z = train.rows(rows).X  # ridge regression on the columns of the factor is the mean of projected process
        predict = nystrom_posterior(kernel, theta, Z, nystrom(kernel, theta, train.rows(fitting), Z))
        y = train.y[test]
        variance = float((y - train.y[fitting].mean()).square().mean())
        error = float((y - predict(train.rows(test).X).mean).square().mean())
        return rows, error / max(variance, 1e-300)

    def _held_out(self, train: Dataset) -> tuple[Tensor, Tensor]:
        """The rows of the held-out part, which are whole groups where rows have them, and the rows to fit."""
        if train.groups is not None:
            held_out = drawn_share(train.groups.number, HELD_OUT, self.seed)
            return held_out.nonzero()[:, 0], (~held_out).nonzero()[:, 0]
        size = max(1, round(HELD_OUT * len(train)))
        order = torch.randperm(len(train), generator=generator(self.seed, "held out")).to(train.y.device)
        return order[:size], order[size:]

    def _calibrated(self, problem: Problem, theta: Tensor, rows: Tensor) -> Tensor:
        """Return theta with the covariance and the noise multiplied by the number that maximises the evidence.

        That number is y'(K_hat + s2 I)^-1 y / n. The mean of the posterior stays. A kernel without such a direction, as
        one without an sd, keeps theta.
        """
        direction = scale_direction(problem)
        if direction is None or not len(rows):
            return theta
        train = problem.train
        scale = nystrom(problem.kernel, theta, train, train.rows(rows).X).terms.fit / len(train)
        return theta + 0.5 * math.log(scale) * direction if scale > 0.0 else theta

    def _choose(self, problem: Problem, theta: Tensor, among: Tensor) -> Tensor:
        """Choose up to m of the rows `among` by their gain."""
        m = min(self.num_points(len(problem.train)), len(among))
        factor = Lookahead(problem.kernel, theta, problem.train.rows(among), m, self.num_ahead)
        while len(factor.rows) < m:
            gains = factor.gains(self.weight)
            if float(gains.max()) == -math.inf:
                break
            factor.add(argmax_of_ties(gains, self.seed, len(factor.rows)))
        return among[factor.rows]

    def posterior(self, problem: Problem, state: Trial) -> Posterior:
        return subset_posterior(problem, state)

    def cost(self, problem: Problem) -> Cost:
        n, s = (1.0 - HELD_OUT) * len(problem.train), problem.train.y.element_size()
        m, a = min(self.num_points(len(problem.train)), int(n)), min(self.num_ahead, int(n))
        per_point = n * a * (1.0 * m + 12.0 * a) + 4.0 * n * m + 2.0 * n * entry_flops(problem)
        arrays = {"factors L and Q": 2.0 * s * n * m, "look-ahead W": 3.0 * s * n * a}
        calls = POINT_CALLS * m + LOOKAHEAD_CALLS * a
        return Cost(m * per_point + 2.0 * n * m * m, 8.0 * s * n * (m + a) * m, arrays, calls)


def _lengthscales(problem: Problem) -> list[int]:
    """Return the indices of the lengthscales in theta."""
    return [i for i, name in enumerate(problem.kernel.names) if "lengthscale" in name]


class Lookahead:
    """L, an orthonormal basis Q of its columns, and the look-ahead factor W.

    Parameters
    ----------
    kernel, theta, train : Kernel, Tensor, Dataset
        The model: covariance function, log-hyperparameters [p] and training rows.
    most : int
        Largest number of pivots m.
    ahead : int
        Look-ahead pivots a.

    Attributes
    ----------
    rows : Tensor [k]
        The pivots so far.

    Notes
    -----
    Memory is n (2 m + a) numbers.
    """

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, most: int, ahead: int) -> None:
        self.kernel, self.theta, self.train = kernel, theta, train
        n, y = len(train), train.y
        self.D = kernel.diag(theta, train.X).clone()  # [n] diag(K - L L'), is changed in place
        self.least, self.trace = rounding(y.dtype) * self.D, float(self.D.sum())  # [n], tr K
        self.Lt, self.Q = y.new_zeros(most, n), y.new_zeros(most, n)  # [m, n] each
        self.W, self.rows = y.new_zeros(0, n), torch.zeros(0, dtype=torch.int64, device=y.device)
        for _ in range(min(ahead, n)):
            self._add_lookahead_pivot()

    def gains(self, kappa: float) -> Tensor:
        """Estimate the decrease of J by adding each row [n]; -inf where it is explained. kappa weighs the targets."""
        Q, W, y = self.Q[: len(self.rows)], self.W, self.train.y
        T, B = W @ W.T, Q @ W.T  # [a, a], [k, a]
        S, g = T - B.T @ B, W @ y - B.T @ (Q @ y)  # [a, a], [a]
        norm = W.square().sum(0)  # [n] |w_j|^2
        eligible = (norm > self.least) & (self.D > self.least)
        norm = torch.where(eligible, norm, 1.0)
        wSw = torch.where(eligible, ((S @ W) * W).sum(0), 1.0)  # [n]
        floor = 1e2 * torch.finfo(y.dtype).eps * ((T @ W) * W).sum(0)
        tiny = 1e-300 if y.dtype == torch.float64 else 1e-30
        fit = torch.where(wSw > floor, (g @ W).square() / wSw.clamp_min(tiny), 0.0)
        gain = kappa * fit / max(float(y @ y), tiny) + (1.0 - kappa) * ((T @ W) * W).sum(0) / norm / self.trace
        return gain.masked_fill(~eligible, -torch.inf)

    def add(self, row: int) -> None:
        """Add a row to L: one kernel column, and one read of L, Q and W."""
        k = len(self.rows)
        r = self._column(row)
        beyond_W = r - self.W[:, row] @ self.W  # [n]
        is_new = bool(beyond_W[row] > self.least[row])
        if is_new:  # with this row in W as well, W'W contains its column exactly
            self.W = torch.cat([self.W, (beyond_W / beyond_W[row].sqrt())[None]])
        u = r / self.D[row].sqrt()
        self.Lt[k], self.Q[k] = u, self._orthonormal(u)
        self.D.addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.D[row] = 0.0
        self.rows = torch.cat([self.rows, self.rows.new_tensor([row])])
        self.W = _without(self.W, row)
        if not is_new:
            self._add_lookahead_pivot()

    def _column(self, row: int) -> Tensor:
        """Compute the residual column of a row [n]."""
        X, k = self.train.rows(torch.tensor([row], device=self.D.device)).X, len(self.rows)
        return self.kernel(self.theta, X, self.train.X)[0] - self.Lt[:k, row] @ self.Lt[:k]

    def _orthonormal(self, u: Tensor) -> Tensor:
        """Orthogonalise u against Q, twice since once is not accurate enough, and scale it to length 1 or 0."""
        Q, length = self.Q[: len(self.rows)], u.norm()
        for _ in range(2):
            u = u - (Q @ u) @ Q
        remaining = u.norm()
        vanishes = float(remaining) <= 1e2 * torch.finfo(u.dtype).eps * float(length)
        return torch.zeros_like(u) if vanishes else u / remaining

    def _add_lookahead_pivot(self) -> None:
        """Add the row to W that L and W explain least."""
        unexplained = (self.D - self.W.square().sum(0)).where(self.D > self.least, 0.0)  # [n]
        row = int(unexplained.argmax())
        if float(unexplained[row]) <= float(self.least[row]):
            return
        beyond_W = self._column(row) - self.W[:, row] @ self.W  # [n]
        if float(beyond_W[row]) > 0.0:
            self.W = torch.cat([self.W, (beyond_W / beyond_W[row].sqrt())[None]])


def _without(W: Tensor, row: int) -> Tensor:
    """Remove the direction W e_row: a Householder reflection makes it the first one, and the first row is dropped."""
    w = W[:, row]
    length = w.norm()
    if float(length) == 0.0:
        return W
    v = w / length
    v = torch.cat([(v[:1] + torch.where(v[:1] < 0.0, -1.0, 1.0)), v[1:]])
    return (W - torch.outer(v, v @ W) * (2.0 / v.square().sum()))[1:].clone()
