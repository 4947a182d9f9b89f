"""Bayesian linear regression on p basis functions: likelihood and gradient in two passes over the rows.

    K ~ Phi Phi',  A = Phi'Phi + s2 I [p, p],  c = Phi'y [p],  w = A^-1 c [p]
    NLML = ((y'y - c'w) / s2 + (n - p) log s2 + log |A|) / 2                              eq 18 with W = I, P = A

Equation numbers refer to Evans and Nair (2018). The model and its gradient are those of `linalg.gaussian`. The rows are
read in strips, here or on the workers of a cluster, so that memory is O(p^2) and one block of Phi.

The evidence also chooses eigenfunctions: p of many candidates, under which the training rows are most likely.

The p largest eigenvalues are chosen without y. In d inputs they are the products of low degree, and a function that
needs a product of higher degree is not represented. Here the N largest eigenvalues are only candidates, N >> p:

    C = Phi Phi' + s2 I   of the functions chosen so far,   s_j = phi_j'C^-1 phi_j,   q_j = phi_j'C^-1 y
    gain_j = (q_j^2 / (1 + s_j) - log(1 + s_j)) / 2       rise of the log evidence if phi_j joins
    score_j = gain_j - log max(j / p, 1)                  j is the rank of the eigenvalue

    1. one pass over the rows gives q_j of all candidates, and phi_j'phi_j / s2 >= s_j. The gain falls in s_j, so that
       this bound in the place of s_j never overstates a gain. The best candidates are a shortlist.
    2. the Gram matrix of the functions chosen before, of the p largest eigenvalues, and of the shortlist
    3. forward selection: p times the candidate of the best exact score joins, and s_j and q_j of all others follow in
       O(p) each
    4. again from step 1 with the residual of the chosen functions

The second term of the score is a penalty on the rank: the first p ranks have none, and a function of rank 2 p is taken
to be half as probable. Without it, some of 10^4 candidates would have a positive gain by chance alone. If no score is
positive any more, the remaining functions are those of the largest eigenvalues.

The noise is learned on the rows for which the functions were chosen, and is therefore too small where there are few
rows: for 40 functions and 300 rows, bands of 95 % covered 87 % (mean of six draws). `held_out_noise` measures it on
rows that had no part in the choice. For 500 functions and 36,000 rows the learned noise covered 94 %.

q and s follow Tipping and Faul (2003), "Fast marginal likelihood maximisation for sparse Bayesian models"; here the
prior variance of a weight is that of the kernel, so that there is nothing to tune per function.

Symbols: n rows, p functions, N candidates, M functions of a Gram matrix.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...data.given_folds import drawn_parts
from ...features.basis_choices import Choice, Leading
from ...features.grid_eigenfunctions import Grid
from ...linalg.blocks import Map, row_blocks, sum_of_squares, sum_over_rows
from ...linalg.gaussian import LinearGaussian, Pullback, Sums, linear_gaussian
from ...linalg.randomness import generator
from ...objectives import noise_variance
from ...problem import Dataset

AXIS_NUMBERS = 32  # numbers per row and input that an evaluation of Phi needs: about four per grid point of an axis


def regress(choice: Choice, theta: Tensor, train: Dataset, mapper: Map = map) -> LinearGaussian:
    """Fit the weights of the basis functions and evaluate the likelihood.

    Parameters
    ----------
    choice : Choice
        The p basis functions.
    theta : Tensor [P]
        Hyperparameters; the last entry is the log noise standard deviation.
    train : Dataset
        n rows.
    mapper : callable, default the builtin map
        Does the strips of rows, perhaps on a cluster.

    Raises
    ------
    NotPositiveDefinite
        If A has no Cholesky factor.

    Notes
    -----
    The cost is n p^2 flops and O(p^2 + block) memory.
    """
    A, c = gram_products(choice, theta, train, mapper)  # [p, p], [p]
    return linear_gaussian(A, c, len(train), sum_of_squares(train.y), noise_variance(theta))  # eq 18


def gram_products(choice: Choice, theta: Tensor, train: Dataset, mapper: Map = map) -> tuple[Tensor, Tensor]:
    """Return Phi'Phi [p, p] and Phi'y [p] from one pass over the rows. n p^2 flops; memory O(p^2 + block)."""
    A, c = sum_over_rows(partial(strip_products, choice, theta.detach()), (train.X, train.y), mapper)
    return A, c


def strip_products(choice: Choice, theta: Tensor, strip: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return Phi'Phi [p, p] and Phi'y [p], of one strip of rows."""
    (X, y), sums = strip, Sums(len(choice), strip[1])
    with torch.no_grad():
        basis = choice(theta)
        for rows in row_blocks(len(y), _row_bytes(choice, X, 1.5), y):
            sums.add(basis(X[rows]), y[rows])
    return sums.A, sums.c


def evidence_gradient(
    choice: Choice, theta: Tensor, train: Dataset, regression: LinearGaussian, mapper: Map = map
) -> Tensor:
    """Return dNLML/dtheta [P] while the choice of functions stays the same.

    Parameters
    ----------
    choice, theta, train, mapper : Choice, Tensor, Dataset and Map
        As for `regress`.
    regression : LinearGaussian
        The result of `regress` at the same theta.

    Notes
    -----
    The cost is 2 n p^2 flops and a backward pass through Phi.
    """
    model = regression.pullback()
    part = partial(strip_gradient, choice, theta.detach(), model)
    gradient, beta_beta = sum_over_rows(part, (train.X, train.y), mapper)  # [P], []
    gradient[-1] += 2.0 * regression.s2 * model.by_noise(beta_beta)  # d s2 / d log s = 2 s2
    return gradient


def strip_gradient(choice: Choice, theta: Tensor, model: Pullback, strip: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the part of dNLML/dtheta [P] that goes through Phi, and beta'beta, of one strip of rows."""
    (X, y), total, beta_beta = strip, torch.zeros_like(theta), torch.zeros_like(theta[0])
    for rows in row_blocks(len(y), _row_bytes(choice, X, 3.0), y):
        with torch.inference_mode(False), torch.enable_grad():
            leaf = theta.clone().requires_grad_(True)
            F = choice(leaf)(X[rows])  # [p, block]
            beta = model.beta(F.detach(), y[rows])
            (gradient,) = torch.autograd.grad((F * model.columns(F.detach(), beta)).sum(), leaf)
        total += gradient
        beta_beta += beta @ beta
    return total, beta_beta


def _row_bytes(choice: Choice, X: Tensor, copies: float) -> int:
    """Bytes per row of a block: `copies` of its functions, and its covariances with the grid points of each axis."""
    return int(X.element_size() * (copies * len(choice) + AXIS_NUMBERS * X.shape[1]))


ROWS = 2**14  # functions are chosen on at most this many random rows; theta and weights are learned from all of them
SHORTLIST = 2  # this many times p candidates are on a shortlist
PASSES, MORE_PASSES = 3, 2  # passes over the rows without and with functions to begin with

FOLDS = 5  # folds of the cross-validation of the noise
FEW_ROWS = 20  # the noise is cross-validated below this many rows per function
NOISE_FACTORS = 81  # noise variances tried, from the learned one to e^4 times it


class Selected(NamedTuple):
    """The result of a forward selection."""

    order: Tensor  # [p] which functions, in the order in which they joined
    scores: Tensor  # [p] the score with which each joined; nan for one that joined by its eigenvalue


def choose_by_evidence(
    functions: type[Leading], grid: Grid, theta: Tensor, rows: Dataset, p: int, count: int, previous: Leading | None
) -> Leading:
    """Choose p of the `count` leading eigenfunctions by evidence.

    Parameters
    ----------
    functions : type of Leading
        How the functions follow from the grid.
    theta : tensor [P]
        Hyperparameters, at which the evidence is computed.
    rows : Dataset
        Rows on which the functions are chosen.
    p : int
        Number of functions. All candidates are returned if there are not more.
    count : int
        Number of candidates N.
    previous : Leading, optional
        Functions of the same grid with which to begin; they are candidates too.

    Returns
    -------
    Leading
        p functions in the order in which they joined.

    Notes
    -----
    A pass costs 4 n N multiplications and 1.2 n M^2 + p^2 M flops with M <= (SHORTLIST + 2) p, and O(M^2 + N) memory.

    References
    ----------
    Tipping and Faul (2003), eqs 19 to 24.
    """
    index, price, chosen = _candidates(grid, theta, p, count, previous)
    candidates = functions(grid, index)
    if len(index) <= p:
        return candidates
    for _ in range(MORE_PASSES if len(chosen) else PASSES):
        q, bound = _screened(candidates, functions(grid, index[chosen]), theta, rows)
        scores = gains(bound, q) - price
        best = scores.sort(descending=True, stable=True).indices[: SHORTLIST * p]
        members = torch.cat([chosen, best, torch.arange(p, device=best.device)]).unique()  # [M]
        A, c = gram_products(functions(grid, index[members]), theta, rows)
        selected = forward_selection(A, c, noise_variance(theta), p, price[members])
        chosen = members[selected.order]
    return functions(grid, index[chosen])


def gains(s: Tensor, q: Tensor) -> Tensor:
    """Return the rise of the log evidence if a function joins with weight 1, for each of them."""
    return 0.5 * (q.square() / (1.0 + s) - torch.log1p(s))


def forward_selection(
    A: Float[Tensor, "M M"], c: Float[Tensor, " M"], s2: float, p: int, price: Float[Tensor, " M"]
) -> Selected:
    """Choose p of M functions, each the one whose gain minus price is largest given those before it.

    Parameters
    ----------
    A, c : tensors [M, M] and [M]
        Phi'Phi and Phi'y; functions of larger eigenvalues come first.
    s2 : float
        Noise variance.
    p : int
        How many functions.
    price : tensor [M]
        The penalty on each function, in nat.

    Notes
    -----
    When phi_i joins, C^-1 becomes C^-1 - v v', v = C^-1 phi_i / sqrt(1 + s_i). So s_j falls by (phi_j'v)^2 and q_j by
    (phi_j'v) (v'y). The products phi_j'v [M] are kept for each function that joined: p^2 M flops and p M numbers.
    """
    A, c, p = A.double() / s2, c.double() / s2, min(p, len(c))
    s, q, price = A.diagonal().clone(), c.clone(), price.to(A)
    V = A.new_zeros(p, len(c))  # [p, M] phi_j'v of each function that joined
    order, scores = torch.zeros(p, dtype=torch.int64), A.new_full((p,), math.nan)
    free = torch.zeros_like(s)  # [M] -inf for functions that joined
    for k in range(p):
        score = gains(s, q) - price + free
        i = int(score.argmax())
        if float(score[i]) > 0.0:
            scores[k] = score[i]
        else:
            i = int(free.argmax())  # the largest eigenvalue that is left
        order[k] = i
        free[i] = -math.inf
        norm = math.sqrt(1.0 + float(s[i]))
        v = (A[i] - V[:k, i] @ V[:k]) / norm  # [M] phi_j'v
        q -= v * (float(q[i]) / norm)
        s = (s - v.square()).clamp_min_(0.0)
        V[k] = v
    return Selected(order.to(A.device), scores)


def held_out_noise(
    functions: type[Leading], grid: Grid, theta: Tensor, rows: Dataset, p: int, count: int, seed: int
) -> float:
    """Return the noise variance under which rows are most likely that had no part in the choice of functions.

    Parameters
    ----------
    functions, grid, theta, rows, p, count : type or Grid or Tensor or Dataset or int
        As in `choose_by_evidence`.
    seed : int
        Of the assignment of rows to folds.

    Returns
    -------
    float
        At least the noise variance of theta, because a choice that has seen the rows can only make it too small.

    Notes
    -----
    Each of FOLDS parts of the rows is predicted from functions chosen on the other parts, for every noise variance on
    a logarithmic grid; the one with the smallest sum of NLPD is returned. The choice itself keeps the noise of theta.
    The cost is FOLDS choices and FOLDS eigendecompositions of p^3.
    """
    variances = noise_variance(theta) * torch.linspace(0.0, 4.0, NOISE_FACTORS, dtype=torch.float64).exp()
    losses = torch.zeros(NOISE_FACTORS, dtype=torch.float64)
    for others, held_out in _divided(rows, seed):
        choice = choose_by_evidence(functions, grid, theta, others, p, count, None)
        A, c = gram_products(choice, theta, others)
        values, vectors = torch.linalg.eigh(A.double())  # [p], [p, p]
        values = values.clamp_min(0.0)
        with torch.no_grad():
            F = vectors.T @ choice(theta)(held_out.X).double()  # [p, rows of the fold]
        b, y = vectors.T @ c.double(), held_out.y.double()
        for j, s2 in enumerate(variances.tolist()):
            residual = y - (b / (values + s2)) @ F
            var = s2 + s2 * (1.0 / (values + s2)) @ F.square()  # of y, eq 2
            losses[j] += float(0.5 * (var.log() + residual.square() / var).sum())
    return float(variances[int(losses.argmin())])


def _divided(rows: Dataset, seed: int) -> list[tuple[Dataset, Dataset]]:
    """The pairs (rows to fit, held-out rows) of FOLDS folds; of fewer with few groups, and of none with one group."""
    if rows.groups is None:
        part = torch.randperm(len(rows), generator=generator(seed, "folds")).argsort() % FOLDS
    else:
        part = drawn_parts(rows.groups.number, len(rows) / FOLDS, seed)
    parts = range(int(part.max()) + 1)
    return [(rows.rows((part != k).nonzero()[:, 0]), rows.rows((part == k).nonzero()[:, 0])) for k in parts]


def _candidates(
    grid: Grid, theta: Tensor, p: int, count: int, previous: Leading | None
) -> tuple[Int[Tensor, "N d"], Float[Tensor, " N"], Int[Tensor, " q"]]:
    """The candidates, their penalties for the rank in nat, and which of them are the previous functions.

    Previous functions that are not among the largest eigenvalues have the price of the last rank.
    """
    index = grid.spectrum(theta, count).axis_indices  # [N, d]
    rank = torch.arange(1, len(index) + 1, device=index.device)
    chosen = rank[:0]
    if previous is not None:
        existing = previous.index[grid.exist(theta, previous.index)]
        unique, member = torch.unique(torch.cat([index, existing]), dim=0, return_inverse=True)
        ranks = torch.full((len(unique),), len(index), device=index.device)
        ranks[member[: len(index)]] = rank
        by_rank = ranks.sort(stable=True).indices
        index, chosen, rank = unique[by_rank], by_rank.argsort()[member[len(rank) :]], ranks[by_rank]
    return index, (rank.to(theta) / p).clamp_min(1.0).log(), chosen


def _screened(all_functions: Leading, chosen: Leading, theta: Tensor, rows: Dataset) -> tuple[Tensor, Tensor]:
    """Return q [N] given the chosen functions, and phi_j'phi_j / s2 [N], of all candidates."""
    s2, residual = noise_variance(theta), rows.y.clone()
    with torch.no_grad():
        if len(chosen):
            A, c = gram_products(chosen, theta, rows)
            w = linear_gaussian(A.double(), c.double(), len(rows), 0.0, s2).weights.to(residual)  # [p]
            chosen_basis = chosen(theta)
            for part in row_blocks(len(rows), 4 * w.element_size() * len(w), w):
                residual[part] -= w @ chosen_basis(rows.X[part])  # s2 C^-1 y
        basis = all_functions(theta)
        q, squares = residual.new_zeros(len(all_functions)), residual.new_zeros(len(all_functions))
        for part in row_blocks(len(rows), 4 * residual.element_size() * len(all_functions), residual):
            F = basis(rows.X[part])  # [N, block]
            q.addmv_(F, residual[part])
            squares += F.square_().sum(1)
    return q.double() / s2, squares.double() / s2
