"""Vecchia's approximation: each row depends on its nearest rows among the earlier ones, in an order that covers all.

    p(y) ~ p(y_1, ..., y_h) prod_i>h p(y_i | y_N(i)),   N(i) the k rows nearest to i among 1, ..., i - 1

With S = k(X, X) + s2 I for the rows (N(i), i), i the last, S = L L', w = L^-1 y, u = L'^-1 e_i and a = L'^-1 w,

    -log p(y_i | y_N(i)) = log L_ii + w_i^2 / 2
    its derivative       = u'dS v,   v = (1 + w_i^2) u / 2 - w_i a

which follows from S^-1 = [S_N^-1, 0; 0, 0] + u u'. The first h = k + 1 rows are together an exact GP, so that k = n - 1
is the exact likelihood. The constant n/2 log 2 pi is left out. All is computed in float64. If only b of the other rows
are used, chosen at random, their sum is multiplied by (n - h) / b: an unbiased estimate. Merged conditionals share one
factor: the rows after i are then left out by u = L'^-1 e_i and a = L'^-1 (w_1, ..., w_i, 0, ..., 0).

    maximin: row i+1 is the row whose distance to the nearest of the first i rows is largest         Guinness (2018)

A prefix of the order covers all rows evenly, so the first rows fix the large features and later ones fill in. Up to
EXACT rows the order is computed as defined, with O(n^2) distances. Beyond, rows are taken in rounds: each halves the
width of the cells of a grid, and takes the row that is nearest to its centre from every cell without an earlier row.
Within a round the order is random. That is O(n log n), and a prefix is spaced nearly as widely.

Learning minimises the negative log likelihood of that approximation by L-BFGS, one evaluation per step. Distances are
measured in units of the lengths over which the kernel loses its correlation, and around the circle of a season; see
`kernels.correlation_features`. Where learning has changed the proportions of these lengths, or a period, order and
neighbours are found again, and a new descent begins: a round. Above `conditionals` rows, a random sample of the
conditionals stands for all, the same throughout; each still depends on its nearest rows among all.

Noise is in the covariance of the targets (the response form), so that y_i depends on the noisy targets of its
neighbours.

References: Vecchia (1988), Estimation and model identification for continuous spatial processes; Datta et al. (2016),
Hierarchical nearest-neighbor Gaussian process models; Katzfuss and Guinness (2021), A general framework for Vecchia
approximations of Gaussian processes; Guinness (2018), Permutation and grouping methods for sharpening Gaussian process
approximations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import param
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...kernels.correlation_features import CorrelationFeatures
from ...kernels.groups import Groups, check_stationary
from ...linalg.blocks import row_blocks
from ...linalg.nearest import Nearest
from ...linalg.randomness import generator, random_rows
from ...objectives import evidence, noise_derivative, noise_variance
from ...posteriors import NearestRowsPosterior, Posterior
from ...problem import Cost, Outcome, Problem, Step, channel
from ..base import Steps, begun
from ..capabilities import NearRows
from ..setting_kinds import choice, count
from .merged_conditionals import Batch, merged_conditionals, single_conditionals
from .recorded_descent import DescendingMethod, no_answers, slope_of

EXACT = 3000  # rows: beyond, an order by grids
MOST_CELLS = 2**20  # per input, after which what is left joins in random order
ROUND = 1.5  # the rows before a row are sought among at most so many times as many
Rows = NDArray[np.int64]
Points = NDArray[np.float64]
GROUP_BYTES = 16 * 2**20  # of the temporaries of one chunk of conditionals
STRETCH = 1.25  # change of the proportions of the lengths above which neighbours are found again
FLOPS_PER_ENTRY = 200.0  # of a covariance with its derivative, the time of exponentials included
CHUNK_CALLS = 160.0  # per chunk of conditionals


def maximin_order(X: Points, seed: int) -> Rows:
    """An order [n] of rows X [n, d], all of whose prefixes are spread evenly.

    Parameters
    ----------
    X : array [n, d]
        Inputs, in units in which distances count alike.
    seed : int
        Of the first row and of ties.
    """
    random = np.random.default_rng(seed)
    return _exact_order(X, random) if len(X) <= EXACT else _order_by_grids(X, random)


def _exact_order(X: Points, random: np.random.Generator) -> Rows:
    n = len(X)
    order = np.empty(n, dtype=np.int64)
    order[0] = random.integers(n)
    distance = np.full(n, np.inf)
    for i in range(1, n):
        np.minimum(distance, np.square(X - X[order[i - 1]]).sum(1), out=distance)
        distance[order[i - 1]] = -1.0
        order[i] = distance.argmax()
    return order


def _order_by_grids(X: Points, random: np.random.Generator) -> Rows:
    low = X.min(0)
    unit = (X - low) / (float((X.max(0) - low).max()) or 1.0)  # [n, d] in [0, 1]
    multipliers = random.integers(1, 2**62, X.shape[1]) | 1  # of a hash that numbers the cells
    left, order, cells = random.permutation(len(X)), [], 1
    before = left[:0]
    while len(left) and cells < MOST_CELLS:
        cells *= 2
        scaled = unit[left] * cells
        cell = np.floor(scaled)
        number = cell.astype(np.int64) @ multipliers
        by_cell = np.lexsort((np.square(scaled - cell - 0.5).sum(1), number))  # from the centre of each cell outwards
        first = by_cell[np.flatnonzero(np.diff(number[by_cell], prepend=~number[by_cell[:1]]))]
        occupied = np.floor(unit[before] * cells).astype(np.int64) @ multipliers
        is_free = np.ones(len(first), dtype=bool)
        place = np.minimum(np.searchsorted(number[first], occupied), len(first) - 1)  # these numbers ascend
        is_free[place[number[first][place] == occupied]] = False
        chosen = random.permutation(first[is_free])
        order.append(left[chosen])
        before = np.concatenate([before, order[-1]])
        left = np.delete(left, chosen)
    return np.concatenate([*order, left])


def earlier_neighbours(X: Points, positions: Rows, k: int) -> Rows:
    """The k nearest of the rows before each of some rows, the nearest first.

    Parameters
    ----------
    X : array [n, d]
        All rows in their order.
    positions : array [b]
        Rows whose neighbours are asked for, in ascending order, each at least k.
    k : int
        Number of neighbours.

    Returns
    -------
    array [b, k]

    Notes
    -----
    Exact. Rows are asked in blocks, each among at most ROUND times as many rows as come before it.
    Where fewer than k of the nearest rows come before, twice as many are asked for.
    """
    neighbours = np.empty((len(positions), k), dtype=np.int64)
    begin = 0
    while begin < len(positions):
        size = min(len(X), max(int(ROUND * positions[begin]), 8 * k))
        end = int(np.searchsorted(positions, size))
        rows = Nearest(X[:size])
        left, asked = np.arange(begin, end), min(2 * k + 2, size)
        while len(left):
            nearest = rows.query(X[positions[left]], asked)[1]
            is_earlier = nearest < positions[left][:, None]
            is_earlier &= np.cumsum(is_earlier, 1) <= k
            enough = is_earlier.sum(1) == k
            neighbours[left[enough]] = nearest[enough][is_earlier[enough]].reshape(-1, k)
            left, asked = left[~enough], min(2 * asked, size)
        begin = end
    return neighbours


class Conditionals:
    """Which rows each row depends on, and the likelihood of that approximation.

    Parameters
    ----------
    problem : Problem
        Training rows and a stationary kernel.
    features : CorrelationFeatures
        Where rows lie when distances are measured.
    neighbours : int
        Number of neighbours k, fewer where there are not so many rows.
    most : int
        Conditionals that are used; a random sample of this size where there are more.
    seed : int
        Of the order and of the sample.
    merge : bool
        Whether conditionals that share rows are computed together, and know of each other.
    ordering : {"maximin", "sorted"}
        See `Vecchia`.

    Attributes
    ----------
    order : Tensor [n]
        The rows of the problem in the order of the approximation.
    positions : Tensor [b]
        Places in the order of the rows whose conditionals are used.
    neighbours : Tensor [b, k]
        Places of the rows that each depends on.
    """

    def __init__(
        self,
        problem: Problem,
        features: CorrelationFeatures,
        neighbours: int,
        most: int,
        seed: int,
        merge: bool = False,
        ordering: str = "maximin",
    ) -> None:
        self.kernel, n, device = problem.kernel, len(problem.train), problem.train.y.device
        k = min(neighbours, n - 1)
        inputs = (problem.train.X[:, : features.d].double() / features.lengths).cpu().numpy()
        order = np.argsort(inputs[:, 0], kind="stable") if ordering == "sorted" else maximin_order(inputs, seed)
        self.n, self.head, self.merge = n, k + 1, merge
        chosen = random_rows(n - self.head, most, generator(seed, "conditionals")) + self.head
        positions = chosen.sort().values.numpy()
        self.weight = (n - self.head) / max(len(positions), 1)
        self.order, self.positions = (torch.from_numpy(each).to(device) for each in (order, positions))
        self.rows: Any = problem.train.rows(self.order).to(device, torch.float64)
        X = self.rows.X
        found = [earlier_neighbours(places, positions, k) for places in features.places(X)]
        self.neighbours = features.neighbours(X, X[self.positions], found)

    @cached_property
    def batches(self) -> list[Batch]:
        """The blocks whose conditionals are used."""
        if self.merge:
            return merged_conditionals(self.positions, self.neighbours, self.n)
        return single_conditionals(self.positions, self.neighbours)

    def likelihood(self, theta: Float[Tensor, " p"]) -> tuple[float, Float[Tensor, " p"]]:
        """The negative log likelihood without its constant, and its gradient [p] in float64.

        Parameters
        ----------
        theta : Tensor [p]
            Log-hyperparameters.

        Raises
        ------
        NotPositiveDefinite
            If the covariance of some row and its neighbours is not positive definite.
        """
        theta, s2 = theta.double(), noise_variance(theta)
        of_head, slope = evidence(self.kernel, theta, self.rows.rows(range(self.head)))
        value, gradient = slope.new_tensor(of_head), slope.clone()
        for groups, X, y, L, places in self._chunks(theta, s2):
            w = torch.linalg.solve_triangular(L, y[:, :, None], upper=False)[:, :, 0]  # [c, g]
            row, place = torch.arange(groups.size, device=w.device), places[:, :, None]
            right = torch.cat([row == place, (row <= place) * w[:, None]], 1).mT  # [c, g, 2 r]
            u, a = torch.linalg.solve_triangular(L.mT, right, upper=True).chunk(2, 2)
            at = places.clamp_min(0)
            w_at, sd = w.gather(1, at), L.diagonal(dim1=1, dim2=2).gather(1, at)
            v = 0.5 * (1.0 + w_at.square())[:, None] * u - w_at[:, None] * a
            value += self.weight * ((sd.log() + 0.5 * w_at.square()) * (places >= 0)).sum()
            gradient += self.weight * groups.gradient(X, u, v)
            gradient[-1] += noise_derivative(self.kernel, self.weight * 2.0 * s2 * (u * v).sum())
        return float(value), gradient

    def sds(self, theta: Float[Tensor, " p"]) -> Float[Tensor, " b"]:
        """The standard deviation of each target given its neighbours, noise included, where nothing is merged."""
        chunks = self._chunks(theta.double(), noise_variance(theta))
        return torch.cat([theta.double()[:0], *(L[:, -1, -1] for _, _, _, L, _ in chunks)])

    def _chunks(self, theta: Tensor, s2: float) -> Iterator[tuple[Groups, Tensor, Tensor, Tensor, Tensor]]:
        """Rows X [c, g, D], targets y [c, g], factors L [c, g, g] and places [c, r] of some blocks at a time."""
        for batch in self.batches:
            groups = Groups(self.kernel, theta, batch.rows.shape[1])
            for chunk in row_blocks(len(batch.rows), 8 * groups.numbers, batch.rows, GROUP_BYTES):
                X, y = self.rows.X[batch.rows[chunk]], self.rows.y[batch.rows[chunk]]
                S = groups.matrices(X)
                if batch.padding is not None:  # rows that are independent of all others, with a target of 0
                    padding = batch.padding[chunk]
                    first = slice(padding.shape[1])
                    y[:, first].masked_fill_(padding, 0.0)
                    S[:, first].masked_fill_(padding[:, :, None], 0.0)
                    S[:, :, first].masked_fill_(padding[:, None], 0.0)
                yield groups, X, y, _factors(S, s2), batch.places[chunk, : batch.counts[chunk][-1]]


def _factors(S: Tensor, s2: float) -> Tensor:
    """Cholesky factors [c, g, g] of S + s2 I."""
    S.diagonal(dim1=1, dim2=2).add_(s2)
    L, info = torch.linalg.cholesky_ex(S)
    if bool(info.any() | ~L[:, -1, -1].sum().isfinite()):
        raise NotPositiveDefinite("K + s2 I of near rows", S.shape[1], 0.0)
    return L


class VecchiaState(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    theta: Tensor  # [p] the best of this round
    objective: float  # there
    round: int
    begin: Tensor  # [p] theta at which the neighbours of this round were found
    answers: Tensor  # [k, p + 1] value and gradient of every evaluation of this round; nan where there is no value


class VecchiaInfo(NamedTuple):
    """What a step reports."""

    phase: str  # "start", "neighbours" where they were found in this step, or "learn"
    objective: Annotated[float, channel("Vecchia NLML", "nat")] = math.nan
    slope: Annotated[float, channel("largest derivative", log=True)] = math.nan
    stretch: Annotated[float, channel("change of proportions since neighbours were found")] = math.nan


class Vecchia(DescendingMethod):
    """A GP in which each row depends on its nearest rows: for many rows of few inputs.

    References
    ----------
    Vecchia (1988). Estimation and model identification for continuous spatial processes.
    """

    key: ClassVar[str] = "vecchia"
    title: ClassVar[str] = "Vecchia"
    paper: ClassVar[str] = (
        "Vecchia (1988); Katzfuss and Guinness (2021). A general framework for Vecchia approximations of Gaussian "
        "processes."
    )
    equations: ClassVar[dict[str, str]] = {"num_neighbours": r"p(y) \approx \prod_i p(y_i \mid y_{N(i)}),\ |N(i)| = k"}
    State: ClassVar[type] = VecchiaState
    Info: ClassVar[type] = VecchiaInfo

    num_neighbours: Any = count(
        15, (1, 40), doc="Rows that each row depends on, k. Too few give a patchwork; time grows with k^2 to k^3."
    )
    num_nearest: Any = count(
        30,
        (5, 100),
        doc="Training rows from which a new row is predicted. All rows may be its neighbours, so more pay here.",
    )
    conditionals: Any = count(
        5000,
        (500, 50_000),
        doc="Rows whose conditionals make the likelihood: where there are more, a random sample of this size.",
    )
    merge: Any = param.Boolean(
        False,
        doc="Whether conditionals that share rows are computed together, each given the earlier rows of its block too: "
        "closer to the exact GP. It pays where conditionals are not sampled.",
    )
    ordering: Any = choice(
        ["maximin", "sorted"],
        doc="The order of the rows. maximin: first a few that are far apart, then those between them. sorted: by the "
        "first input. With one input and a Matérn 1/2 kernel, one neighbour is then nearly exact.",
    )
    rounds: Any = count(3, (1, 6), doc="How often neighbours are found and learning begins anew, at most.")

    def steps(self, problem: Problem, resume: VecchiaState | None = None) -> Steps:
        check_stationary(problem.kernel, problem.train.X, self.title)
        theta = problem.theta
        first = VecchiaState(0, theta.clone(), math.inf, 0, theta.clone(), no_answers(theta))
        state = yield from begun(resume, first, VecchiaInfo("start"))
        while True:
            features = CorrelationFeatures(problem.kernel, state.begin, problem.train.X)
            found = self._conditionals(problem, features, self.conditionals, self.merge)
            descent = self.descent(problem, found.likelihood, state)
            for state in descent:
                stretch = CorrelationFeatures(problem.kernel, state.theta, problem.train.X).stretch(features)
                phase = "neighbours" if len(state.answers) == 1 else "learn"
                yield Step(state, VecchiaInfo(phase, state.objective, slope_of(problem, state), stretch))
            if not math.isfinite(state.objective):
                return Outcome("failed", "The covariance of near rows has no Cholesky factor. Raise the noise.")
            stretch = CorrelationFeatures(problem.kernel, state.theta, problem.train.X).stretch(features)
            if stretch <= STRETCH or state.round + 1 >= self.rounds:
                return self._outcome(problem, state, stretch)
            state = VecchiaState(state.step, state.theta, math.inf, state.round + 1, state.theta, no_answers(theta))

    def posterior(self, problem: Problem, state: VecchiaState) -> Posterior:
        kernel, theta, train = problem.kernel, state.theta, problem.train
        lengths = CorrelationFeatures(kernel, theta, train.X).lengths
        return NearestRowsPosterior(kernel, theta, train.X, train.y, lengths=lengths, neighbours=self.num_nearest)

    def near_rows(self, problem: Problem, state: VecchiaState, most: int) -> NearRows:
        found = self._conditionals(problem, CorrelationFeatures(problem.kernel, state.begin, problem.train.X), most)
        try:
            sd = found.sds(state.theta)
        except NotPositiveDefinite:
            sd = torch.full((len(found.positions),), math.nan, dtype=torch.float64)
        return NearRows(found.order, found.positions, found.neighbours, sd)

    def cost(self, problem: Problem) -> Cost:
        n, d, k = len(problem.train), problem.train.d, min(self.num_neighbours, len(problem.train) - 1) + 1
        used = min(n, self.conditionals)
        pairs = 0.5 * k * (k + 1)
        flops = used * (pairs * (FLOPS_PER_ENTRY + 8.0 * d) + k**3 / 3.0 + 6.0 * k**2)
        arrays = {"rows in order": 8.0 * n * (d + 2), "neighbours": 16.0 * used * k, "chunk": 1.0 * GROUP_BYTES}
        chunk = max(1.0, GROUP_BYTES / (8.0 * pairs * (10.0 + 3.0 * d)))
        return Cost(flops, 8.0 * used * pairs * 130.0, arrays, CHUNK_CALLS * (1.0 + used / chunk))

    def _conditionals(
        self, problem: Problem, features: CorrelationFeatures, most: int, merge: bool = False
    ) -> Conditionals:
        return Conditionals(problem, features, self.num_neighbours, most, self.seed, merge, self.ordering)

    def _outcome(self, problem: Problem, state: VecchiaState, stretch: float) -> Outcome:
        rounds = f" in {state.round + 1} round{'s' if state.round else ''}"
        return self.ended(problem, state, rounds, "rounds" if stretch > STRETCH else "")
