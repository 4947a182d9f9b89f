"""A sparse GP that gains one inducing point at a time, with its exact objective at every size.

Rows I of the data are the inducing points, K_hat = L L' [n, n], D = diag(K - K_hat), A = L'L + s2 I = R R'.

    adding j      u = (k_j - L l_j) / sqrt(D_j),   L <- [L, u]                            Cao et al. 2013, eq 13
    reductions    dE_D = e^2 / (s2 s),   dE_C = log s2 - log s,   dE_V = u'u / s2         eqs 14-16

R, h = R^-1 L'y, and s and e of a new column are those of `linalg.gaussian`. The methods that choose rows one after
another grow one of these. They differ only in the row that they add next.

`GrowingGP` keeps L. `StreamedGP` is for more rows than fit: no column of n rows is kept, and blocks of them are
computed again. With points I, candidates J, a block B of rows, and K_II = L_I L_I' [k, k]

    columns so far        L_B' = L_I^-1 K_IB                                [k, b]
    residual columns      R = K_JB - L_J L_B',   L_J' = L_I^-1 K_IJ         [c, b]
    sums over the blocks  R R',  L'R',  R y,  and D_B = diag(K_BB) - sum of squares of L_B'

All that `GrowingGP` computes from columns follows from these sums. Rows that are known to join one after another take
one pass together, since their columns are rows of L_B' for all of them. A pass costs n k kernel entries and n k^2 flops
where GrowingGP reads L, so that m points with a pass each take as long as about m / 4 evaluations of the objective with
its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ....linalg.blocks import row_blocks
from ....linalg.cholesky import cholesky
from ....linalg.gaussian import Additions, GrowingGaussian
from ....objectives import BLOCK, Terms, is_kept, log_variance_ratio, noise_variance, residual_variance, rounding
from ....problem import Dataset, Kernel
from ..reductions import log_reductions, reductions


class Effect(NamedTuple):
    """The effect of adding each of c rows alone. The new column of L is `columns / root`."""

    reduction: Tensor  # [c] decrease of the objective; -inf where a row is explained
    columns: Tensor  # [c, n] residual columns
    root: Tensor  # [c] sqrt(D)
    uu: Tensor  # [c]
    additions: Additions


class _Growing:
    """What both models carry: R and h, the rows added so far, and the terms of the objective."""

    terms: Terms

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, objective: str, most: int) -> None:
        self.kernel, self.theta, self.train, self.objective, self.most = kernel, theta, train, objective, most
        self.s2 = noise_variance(theta)
        self.gaussian = GrowingGaussian(most, self.s2, train.y)
        self.rows = torch.zeros(0, dtype=torch.int64, device=train.y.device)

    @property
    def total(self) -> float:
        """The objective at this size."""
        return self.terms.total(self.objective)

    def _with_no_points(self, E_V: float) -> Terms:
        """Eqs 7 to 9 without inducing points."""
        y = self.train.y
        return Terms(float(y @ y) / self.s2, len(y) * math.log(self.s2), E_V)

    def _joined(self, row: int, additions: Additions, E_V: float) -> float:
        """Add a row to R and h; return the decrease of the objective, E_V being known (eqs 14-16)."""
        before, (dE_D, rise) = self.total, self.gaussian.add(additions)
        self.rows = torch.cat([self.rows, self.rows.new_tensor([row])])
        self.terms = Terms(self.terms.fit - dE_D, self.terms.complexity + rise, E_V)
        return before - self.total


class GrowingGP(_Growing):
    """L, R and h for the rows added so far.

    Parameters
    ----------
    kernel, theta, train : Kernel, Tensor, Dataset
        The model: covariance function, log-hyperparameters [p] and training rows.
    objective : {"vfe", "tight-vfe", "pp"}
    most : int
        Largest number of inducing points.

    Attributes
    ----------
    rows : Tensor [k]
        The inducing points so far.
    D : Tensor [n]
        Residual variances.

    Notes
    -----
    Memory is n m numbers. Adding a row reads L twice.
    """

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, objective: str, most: int) -> None:
        super().__init__(kernel, theta, train, objective, most)
        self.D = kernel.diag(theta, train.X).clone()  # [n] is changed in place, and may be one number for all rows
        self.least = rounding(train.y.dtype) * self.D  # [n] a residual variance below this is rounding
        self.Lt = train.y.new_zeros(most, len(train))
        self.terms = self._with_no_points(self._E_V(float(self.D.sum()) / self.s2))

    def _E_V(self, trace: float) -> float:
        """Return E_V, the trace of eq 9 being known."""
        return log_variance_ratio(self.D, self.s2) if self.objective == "tight-vfe" else trace

    @property
    def is_eligible(self) -> Tensor:
        """Which rows [n] are neither inducing points nor explained by them to rounding."""
        return self.D > self.least

    def columns(self, rows: Tensor) -> Tensor:
        """Compute the residual columns r = k - L l of these rows [c, n]: one read of L."""
        Lt = self.Lt[: len(self.rows)]
        K = self.kernel(self.theta, self.train.rows(rows).X, self.train.X)
        return K.addmm_(Lt[:, rows].T, Lt, alpha=-1.0)

    def reductions(self, rows: Tensor) -> Tensor:
        """Compute the exact decrease of the objective by each of these rows [c]. 4 n k flops per row."""
        blocks = row_blocks(len(rows), self.Lt.element_size() * len(self.D), self.Lt)
        return torch.cat([self._effect(rows[block]).reduction for block in blocks])

    def add(self, row: int) -> float:
        """Add one eligible row; return the decrease of the objective. 4 n k flops."""
        effect = self._effect(self.rows.new_tensor([row]))
        u, uu = effect.columns[0] / effect.root, float(effect.uu)
        self.Lt[len(self.rows)] = u
        self.D.addcmul_(u, u, value=-1.0).clamp_min_(0.0)
        self.D[row] = 0.0
        return self._joined(row, effect.additions, self._E_V(max(self.terms.trace - uu / self.s2, 0.0)))

    def _effect(self, rows: Tensor) -> Effect:
        """Compute the effect of adding each of these rows alone; no [c, n] array is made beside the columns."""
        k = len(self.rows)
        columns = self.columns(rows)  # [c, n]
        D = columns.gather(1, rows[:, None])[:, 0]  # [c]
        explained = D <= self.least[rows]
        root = torch.where(explained, torch.ones_like(D), D).sqrt()
        B = (columns @ self.Lt[:k].T).T / root  # [k, c] L'u
        uu = torch.linalg.vecdot(columns, columns) / root.square()
        new = self.gaussian.additions(B, uu, columns @ self.train.y / root)
        dE_V: Tensor | float = uu / self.s2 if self.objective == "vfe" else 0.0
        if self.objective == "tight-vfe":
            dE_V = log_reductions(columns, root.square(), self.s2 + self.D)
        reduction = reductions(new.e, new.s, self.s2, dE_V).masked_fill(explained, -math.inf)
        return Effect(reduction, columns, root, uu, new)


TOGETHER = 64  # candidates whose residual columns are computed in one pass


class Sums(NamedTuple):
    """What a row contributes as the next point, u being its column of L."""

    Lu: Tensor  # [k] L'u
    uu: float
    yu: float
    dE_V: float  # decrease of E_V


class Block(NamedTuple):
    """The columns of some rows."""

    rows: slice
    Lt: Tensor  # [k, b] L' of these rows
    R: Tensor  # [c, b] residual columns of the candidates
    D: Tensor  # [b] residual variances


class StreamedGP(_Growing):
    """The model of growing_gp.py for the rows added so far, by passes over the data.

    Parameters
    ----------
    kernel, theta, train, objective, most : Kernel or Tensor or Dataset or str or int
        As for GrowingGP.

    Attributes
    ----------
    rows : Tensor [k]
        The inducing points so far.

    Notes
    -----
    Memory is O(m^2) and a block of rows; [n] for D, once it is asked for.
    """

    def __init__(self, kernel: Kernel, theta: Tensor, train: Dataset, objective: str, most: int) -> None:
        super().__init__(kernel, theta, train, objective, most)
        self._D, self._of_D = train.y.new_empty(0), -1  # residual variances, and with how many points
        self._known: dict[tuple[int, ...], Sums] = {}  # by all points up to this one, in their order
        E_V = 0.0
        for rows in row_blocks(len(train), 8 * train.y.element_size(), train.y):
            prior = kernel.diag(theta, train.X[rows])
            E_V += log_variance_ratio(prior, self.s2) if objective == "tight-vfe" else float(prior.sum()) / self.s2
        self.terms = self._with_no_points(E_V)

    @property
    def D(self) -> Tensor:
        """Residual variances [n]; a pass over the rows, unless no point has joined since."""
        if self._of_D != len(self.rows):
            self._D = self.variances(0.0)
            self._D[self.rows] = 0.0
            self._of_D = len(self.rows)
        return self._D

    @property
    def is_eligible(self) -> Tensor:
        """Which rows [n] are neither inducing points nor explained by them to rounding. As D, a pass over the rows."""
        return rounding(self.theta.dtype) * self.kernel.diag(self.theta, self.train.X) < self.D

    def variances(self, noise: float) -> Tensor:
        """Compute the variances [n] of all rows given observations of the points with this noise variance."""
        out = torch.empty_like(self.train.y)
        for block in self._blocks(self.rows, self.rows[:0], noise):
            out[block.rows] = block.D
        return out

    def eligible_among(self, rows: Tensor) -> Tensor:
        """Return those of some rows [c] that are neither inducing points nor explained by them, without a pass."""
        if not len(rows):
            return rows
        _, explained = self._at(rows)
        return rows[~(explained | torch.isin(rows, self.rows))]

    def among(self, more: Sequence[int], rows: Tensor) -> tuple[GrowingGP, Tensor]:
        """Return the same points and some more on some of the rows [c] only, as a model that keeps its columns.

        Returns
        -------
        model : GrowingGP
        index : Tensor
            The row of the data for each row of the model, in ascending order; the points are among them.
        """
        points = torch.cat([self.rows, torch.tensor(list(more), dtype=torch.int64, device=rows.device)])
        index = torch.cat([points, rows]).unique()
        model = GrowingGP(self.kernel, self.theta, self.train.rows(index), "pp", self.most)
        for place in torch.searchsorted(index, points).tolist():
            model.add(place)
        return model, index

    def expect(self, rows: Sequence[int]) -> None:
        """Compute in one pass what these rows contribute when they are added in this order."""
        k, order = len(self.rows), (*self.rows.tolist(), *rows)
        if all(order[: k + i + 1] in self._known for i in range(len(rows))):
            return
        points = torch.tensor(order, device=self.rows.device)
        q, E_V = len(points), self.train.y.new_zeros(len(rows) + 1, dtype=torch.float64)
        products, yU = self.theta.new_zeros(len(rows), q), self.theta.new_zeros(len(rows))
        for block in self._blocks(points, self.rows[:0]):
            U = block.Lt[k:]  # [c, b]
            products.addmm_(U, block.Lt.T)
            yU.addmv_(U, self.train.y[block.rows])
            if self.objective == "tight-vfe":
                D = block.D
                for i in range(len(rows), -1, -1):  # from all points to those before
                    E_V[i] += log_variance_ratio(D, self.s2)
                    D = D if i == 0 else D + U[i - 1].square()
        uu = products[:, k:].diagonal()
        dE_V = -E_V.diff() if self.objective == "tight-vfe" else uu / self.s2
        for i in range(len(rows)):
            sums = Sums(products[i, : k + i].clone(), float(uu[i]), float(yU[i]), float(dE_V[i]))
            self._known[order[: k + i + 1]] = sums

    def reductions(self, rows: Tensor) -> Tensor:
        """Compute the exact decrease of the objective by each of these rows [c] alone: one pass per 64 of them."""
        return torch.cat([self._reductions(part) for part in rows.split(TOGETHER)])

    def _reductions(self, rows: Tensor) -> Tensor:
        k, c = len(self.rows), len(rows)
        D, explained = self._at(rows)
        root = D.masked_fill(explained, 1.0).sqrt()  # [c]
        LR, rr, Ry, logs = (self.theta.new_zeros(*shape) for shape in ((k, c), (c,), (c,), (c,)))
        for block in self._blocks(self.rows, rows):
            LR.addmm_(block.Lt, block.R.T)
            rr += torch.linalg.vecdot(block.R, block.R)
            Ry.addmv_(block.R, self.train.y[block.rows])
            if self.objective == "tight-vfe":
                logs += log_reductions(block.R, root.square(), self.s2 + block.D)
        B, uu, yu = LR / root, rr / root.square(), Ry / root
        dE_V = logs if self.objective == "tight-vfe" else uu / self.s2
        before = tuple(self.rows.tolist())
        for i, row in enumerate(rows.tolist()):
            self._known[*before, row] = Sums(B[:, i].clone(), float(uu[i]), float(yu[i]), float(dE_V[i]))
        new = self.gaussian.additions(B, uu, yu)
        reduction = reductions(new.e, new.s, self.s2, 0.0 if self.objective == "pp" else dE_V)
        return reduction.masked_fill(explained, -math.inf)

    def add(self, row: int) -> float:
        """Add one eligible row; return the decrease of the objective. A pass, unless the row was expected or tried."""
        self.expect([row])
        points = (*self.rows.tolist(), row)
        sums = self._known.pop(points)
        squares, targets = (sums.Lu.new_tensor([number]) for number in (sums.uu, sums.yu))
        self._known = {key: later for key, later in self._known.items() if key[: len(points)] == points}
        additions = self.gaussian.additions(sums.Lu[:, None], squares, targets)
        return self._joined(row, additions, max(self.terms.trace - sums.dE_V, 0.0))

    def _at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the residual variances of some rows [c], and whether the points explain them."""
        X = self.train.rows(rows).X
        prior, D = self.kernel.diag(self.theta, X), self.kernel.diag(self.theta, X)
        if len(self.rows):
            K_IJ = self.kernel(self.theta, self.train.rows(self.rows).X, X)  # [k, c]
            L_J = torch.linalg.solve_triangular(self._factor(self.rows, 0.0), K_IJ, upper=False)  # [k, c]
            D = residual_variance(prior, L_J)
        return D, rounding(D.dtype) * prior >= D

    def _factor(self, points: Tensor, noise: float) -> Tensor:
        """Return the Cholesky factor of K_II + noise I."""
        if not len(points):
            return self.gaussian.L[:0, :0]
        Z = self.train.rows(points).X
        K = self.kernel(self.theta, Z, Z)
        K.diagonal().add_(noise)
        return cholesky(K, "K_mm").L

    def _blocks(self, points: Tensor, candidates: Tensor, noise: float = 0.0) -> Iterator[Block]:
        """Yield the columns of all rows, block by block."""
        k, both, L_I = len(points), torch.cat([points, candidates]), self._factor(points, noise)
        Z = self.train.rows(both).X
        L_J = self.theta.new_zeros(len(candidates), k)
        if k and len(candidates):
            K_IJ = self.kernel(self.theta, Z[:k], Z[k:])
            L_J = torch.linalg.solve_triangular(L_I, K_IJ, upper=False).T  # [c, k]
        for rows in row_blocks(len(self.train), 2 * self.theta.element_size() * max(len(both), 1), self.theta, BLOCK):
            X = self.train.X[rows]
            K = self.kernel(self.theta, Z, X) if len(both) else self.theta.new_zeros(0, rows.stop - rows.start)
            Lt = torch.linalg.solve_triangular(L_I, K[:k], upper=False)  # [k, b]
            R = torch.addmm(K[k:], L_J, Lt, alpha=-1.0)  # [c, b]
            yield Block(rows, Lt, R, residual_variance(self.kernel.diag(self.theta, X), Lt))


GrowingModel = GrowingGP | StreamedGP


def growing_model(kernel: Kernel, theta: Tensor, train: Dataset, objective: str, most: int) -> GrowingModel:
    """Return a model that keeps its columns where they take at most 256 MiB, and one that computes them again else."""
    model = GrowingGP if is_kept(len(train), most, train.y.element_size()) else StreamedGP
    return model(kernel, theta, train, objective, most)
