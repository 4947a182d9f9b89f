"""The folds of cross-validation: which rows each one holds out, and the kernel matrix that serves their products.

    M [n, c]     the kernel matrix of all n rows of a group of folds against its c columns, the rows trained on
    one fold     its n_T training rows first, then its n_V validation rows:  M = [K_TT; K_VT],  c = n_T
    all folds    rows in shuffled order, each a training row of most folds:  M = K,  c = n;   masks select T and V

The folds of a group have one theta, one M, and one column each in every matrix of vectors: z is Z [c, K]. A product
with M serves all of them. Rows of M are stored while the memory budget allows it. The others are computed again, block
by block, in every product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ...data.given_folds import drawn_folds, drawn_share
from ...errors import SettingError
from ...linalg.blocks import row_blocks
from ...linalg.deferred_reads import Number, RepeatedEvaluations, add_multiple, sum_with_product
from ...linalg.randomness import generator
from ...linalg.workspace import Workspace
from ...objectives import deferred_noise_variance
from ...problem import Dataset, Problem, take
from .settings import GIGABYTE


@dataclass(frozen=True, eq=False)
class FoldGroup:
    """Folds that share theta and the kernel matrix. It is small enough to be sent to a worker, without its masks.

    Attributes
    ----------
    kernel : kernel of the problem
    X : inputs [n, d]
    y : targets [n]
    trained : int
        c, the number of rows, the first ones, that some fold trains on.
    validation : tuple of slice
        The validation rows of each of the K folds.
    workspace : Workspace
        The memory for the stored rows of M. All groups share it.
    """

    kernel: Any
    X: Any  # [n, d]
    y: Tensor  # [n]
    trained: int  # c
    validation: tuple[slice, ...]
    workspace: Workspace

    @property
    def validation_rows(self) -> int:
        """The number of validation rows, all folds together."""
        return sum(part.stop - part.start for part in self.validation)

    def __reduce__(self) -> tuple[Any, ...]:
        return FoldGroup, tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def V(self) -> Tensor:
        """The validation rows of each fold: [n, K], ones and zeros."""
        mask = self.y.new_zeros(len(self.y), len(self.validation))
        for k, part in enumerate(self.validation):
            mask[part, k] = 1.0
        return mask

    @cached_property
    def T(self) -> Tensor:
        """The training rows of each fold: [c, K], ones and zeros."""
        return 1.0 - self.V[: self.trained]

    @cached_property
    def y_T(self) -> Tensor:
        """The targets of the training rows of each fold: [c, K], zeros elsewhere."""
        return self.T * self.y[: self.trained, None]

    @cached_property
    def target_norm(self) -> float:
        """The norm of `y_T`, all folds together."""
        return float(self.y_T.norm())

    @cached_property
    def _positions(self) -> Tensor:
        """Where the training rows of each fold, fold after fold, lie in a matrix [c, K]."""
        is_training = self.T.T > 0.0  # [K, c]
        return torch.arange(self.T.numel(), device=self.y.device).view(self.T.shape).T[is_training]

    @cached_property
    def validation_energy(self) -> float:
        """The sum of the squared targets of all validation rows."""
        return float(self.V.sum(1) @ self.y.square())

    def kernel_matrix(self, theta: Tensor) -> FoldKernel:
        """Compute the kernel matrix M(theta) of all rows of the fold against its training rows; theta on any device."""
        s2, on_device = deferred_noise_variance(theta), theta.to(self.y.device)
        return FoldKernel(self.kernel, on_device, self.X, self.trained, self.workspace, s2)

    @cached_property
    def evaluations(self) -> dict[Any, RepeatedEvaluations]:
        """What a GPU has recorded for this group, by what it computes."""
        return {}

    def columns(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return [c, K] with one vector [n_T] per fold on its training rows, and zeros elsewhere."""
        out = self.y.new_zeros(self.trained, len(self.validation))
        out.view(-1).index_copy_(0, self._positions, torch.cat(list(vectors)))
        return out

    def vectors(self, columns: Tensor) -> list[Tensor]:
        """Return the training rows of each column: the inverse of `columns`."""
        return [
            torch.cat([columns[: part.start, k], columns[part.stop :, k]]) for k, part in enumerate(self.validation)
        ]


def equal_parts(n: int, count: int) -> list[slice]:
    """Divide n rows into `count` consecutive parts of nearly equal size, or into n parts where n < count."""
    count = min(count, n)
    edges = [round(k * n / count) for k in range(count + 1)]
    return [slice(begin, end) for begin, end in pairwise(edges)]


def ordered_by_fold(train: Dataset, drawn: list[slice], seed: int) -> tuple[Tensor, list[slice]]:
    """Order the rows so that each fold validates on consecutive ones.

    Parameters
    ----------
    train : Dataset
        All rows. If they have folds (`Dataset.groups`), these are used; if they have groups, each fold has whole ones.
    drawn : list of slice
        The validation rows of each fold of a random order, for rows without groups.
    seed : int
        It decides the random order, and which groups a fold has.

    Returns
    -------
    order : Tensor [n]
        Row numbers.
    validation : list of slice
        Positions in this order. Rows that no fold holds out stand at the end.

    Raises
    ------
    SettingError
        If there are several folds for a method that holds out one part of the rows, or one fold for the other methods,
        or fewer groups than folds.
    """
    n = len(train)
    order = torch.randperm(n, generator=generator(seed, "folds")).to(train.y.device)
    if train.groups is None:
        return order, drawn
    number = train.groups.number
    if not train.groups.are_folds:
        if len(drawn) == 1:
            number = drawn_share(number, (drawn[0].stop - drawn[0].start) / n, seed).long() - 1
        else:
            number = drawn_folds(number, len(drawn), seed)
    sizes = torch.bincount(number[number >= 0])  # [K]
    if (len(sizes) == 1) != (len(drawn) == 1):
        way_out = "Choose gpcv-admm-holdout for one fold, and gpcv-admm for several"
        raise SettingError(f"The rows have {len(sizes)} given folds, but the method has {len(drawn)}. {way_out}.")
    position = torch.where(number < 0, len(sizes), number)[order]
    order = order[torch.argsort(position, stable=True)]
    edges = [0, *sizes.cumsum(0).tolist()]
    return order, [slice(begin, end) for begin, end in pairwise(edges)]


def split(
    problem: Problem, validation: list[slice], seed: int, gigabytes: float, shared: bool = False
) -> list[FoldGroup]:
    """Make the folds: each validates on one slice of the ordered rows and trains on all other rows.

    Parameters
    ----------
    validation : list of slice
        The validation rows of each fold, as positions in a shuffled order, where the rows have no groups of their own;
        see `ordered_by_fold`.
    seed : int
        It alone decides the order of the rows.
    gigabytes : float
        Memory for the stored rows of one kernel matrix.
    shared : bool
        Whether all folds share theta, and are one group; otherwise each is a group of its own.
    """
    workspace = Workspace(gigabytes * GIGABYTE)
    train = problem.train
    order, validation = ordered_by_fold(train, validation, seed)
    if shared:
        rows = train.rows(order)
        return [FoldGroup(problem.kernel, rows.X, rows.y, len(order), tuple(validation), workspace)]
    groups = []
    for part in validation:
        training = torch.cat([order[: part.start], order[part.stop :]])
        rows, n_T = train.rows(torch.cat([training, order[part]])), len(training)
        groups.append(FoldGroup(problem.kernel, rows.X, rows.y, n_T, (slice(n_T, len(order)),), workspace))
    return groups


class FoldKernel:
    """The matrix M [n, c] of a group of folds at one theta.

    Notes
    -----
    It computes n c kernel entries once. Rows beyond the memory budget are computed again in every product. The noise
    variance `s2` is kept beside it, so that it is read from theta once. It is a tensor on a GPU where theta is there
    and rare cases are assumed away.
    """

    def __init__(self, kernel: Any, theta: Tensor, X: Any, trained: int, workspace: Workspace, s2: Number) -> None:
        self.kernel, self.theta, self.X, self.trained, self.s2 = kernel, theta, X, trained, s2
        self.X_T = X[:trained]
        self.stored = min(int(workspace.budget // (theta.element_size() * max(trained, 1))), len(X))
        self._M = workspace.matrix(self, self.stored, trained, theta)  # [stored, c]
        for rows in row_blocks(self.stored, theta.element_size() * trained, theta):
            kernel.fill(theta, X[rows], self.X_T, self._M[rows])

    def times(self, Z: Tensor) -> Tensor:
        """Return M Z [n, K] for Z [c, K]."""
        return self._first_times(len(self.X), Z)

    def noisy_times(self, Z: Tensor) -> Tensor:
        """Return (K_TT + s2 I) Z [c, K] for Z [c, K], from the first c rows of M."""
        if self.stored < self.trained:
            return add_multiple(self._first_times(self.trained, Z), Z, self.s2)
        return sum_with_product(Z, self._M[: self.trained], Z, beta=self.s2, alpha=1.0)

    def _first_times(self, count: int, Z: Tensor) -> Tensor:
        """The first rows of M Z."""
        stored, others = self._M[:count] @ Z, [K @ Z for _, K in self._recomputed_blocks(count)]
        return torch.cat([stored, *others]) if others else stored

    def transposed_times(self, U: Tensor) -> Tensor:
        """Return M'U [c, K] for U [n, K]."""
        out = (U[: self.stored].T @ self._M).T
        for rows, K in self._recomputed_blocks(len(self.X)):
            out = out + (U[rows].T @ K).T
        return out

    def columns(self, rows: Tensor) -> Tensor:
        """Return the columns K_T,rows [c, r] of the training rows `rows` [r]."""
        if self.stored >= self.trained:
            return self._M[rows].T
        return self.kernel(self.theta, self.X_T, take(self.X_T, rows))

    def gradient(self, u: Tensor, z: Tensor) -> Tensor:
        """Return the gradient [p] of u'M(theta) z in theta, for u [n, K] and z [c, K], summed over the columns.

        Where the kernel can derive its gradient from its own values, the stored rows need no new kernel entry. For
        all other rows the derivatives of c entries per row are computed.
        """
        kernel, X, m = self.kernel, self.X, self.stored
        gradient = kernel.theta_gradient_from_matrix(self.theta, X[:m], self.X_T, (u[:m], z), self._M)
        if gradient is None:
            gradient, m = torch.zeros_like(self.theta), 0
        if m < len(X):
            gradient += kernel.theta_gradient_bilinear(self.theta, X[m:], self.X_T, (u[m:], z))
        return gradient

    def _recomputed_blocks(self, end: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield those of the first rows that are not stored, one block at a time."""
        for block in row_blocks(end - self.stored, self.theta.element_size() * self.trained, self.theta):
            rows = slice(self.stored + block.start, self.stored + block.stop)
            K = self.theta.new_empty(rows.stop - rows.start, self.trained)
            self.kernel.fill(self.theta, self.X[rows], self.X_T, K)
            yield rows, K
