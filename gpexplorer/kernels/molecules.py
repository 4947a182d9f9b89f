"""Molecules given as SMILES: a weighted sum of fourteen MinMax kernels, one a kind of fingerprint.

    k(a, b) = sum_v sd_v^2 |A_v n B_v| / |A_v u B_v|         A_v: the tokens of fingerprint v, see `fingerprints`

Fourteen variances and a noise, as in the binding-affinity task of Cao et al. (2013), section 4.1, whose graph kernels
are Ralaivola et al.'s (2005). Fingerprints are kept for every molecule met; the last similarities are kept too, since
learning asks for the same rows at one theta after another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ..errors import KernelError
from .fingerprints import KINDS, fingerprint
from .weighted import Weighted

KEPT_BYTES = 256 * 2**20  # of similarities
DENSE = 2**21  # entries of a right-hand side that is multiplied as it is
Rows = tuple[str, ...]


class Table(NamedTuple):
    """Fingerprints of all molecules met, a sparse 0/1 matrix [molecules, tokens] a kind; replaced, never edited."""

    place: dict[str, int]
    tokens: tuple[dict[int, int], ...]
    held: tuple[sparse.csr_array, ...]


class Molecules(Weighted):
    """MinMax similarity of fourteen count fingerprints; X is a sequence of SMILES."""

    key, title, inputs = "molecules", "fourteen fingerprints of molecules", "strings"
    formula = r"\sum_{v=1}^{14} \sigma_v^2 \frac{|A_v\cap B_v|}{|A_v\cup B_v|}"

    def __init__(self, d: int = 1) -> None:
        super().__init__(d)
        nothing = tuple(sparse.csr_array((0, 0), dtype=np.float32) for _ in KINDS)
        self._table = Table({}, tuple({} for _ in KINDS), nothing)
        self._kept: OrderedDict[tuple[Rows, Rows], Tensor] = OrderedDict()
        self._last: tuple[Rows, tuple[sparse.csr_array, ...]] = ((), nothing)  # the training rows, nearly always

    @property
    def views(self) -> tuple[str, ...]:
        """The kinds of fingerprint."""
        return KINDS

    def check(self, X: Any) -> None:
        """Text that RDKit reads; a row it cannot read is named."""
        odd = next((i for i, s in enumerate(X) if not isinstance(s, str)), None)
        if odd is not None:
            kind = type(X[odd]).__name__
            raise KernelError(
                f"Kernel {self.key!r} needs SMILES, but row {odd} is a {kind}: choose the column of text."
            )
        self._with(tuple(X))

    def similarities(self, X: Sequence[str], Z: Sequence[str], like: Tensor) -> Tensor:
        """S [14, n, m]: the tokens of n molecules, m multiply-adds each, unless they are among the last asked for."""
        asked = (tuple(X), tuple(Z))
        found = self._kept.pop(asked, None)
        if found is None:
            found = self._similarities(*asked)
        self._keep(asked, found)
        return found.to(like)

    def self_similarities(self, X: Sequence[str], like: Tensor) -> Tensor:
        """A molecule equals itself."""
        return like.new_ones(len(KINDS), len(X))

    def _similarities(self, X: Rows, Z: Rows) -> Tensor:
        if len(X) < len(Z):
            return self._similarities(Z, X).transpose(1, 2).contiguous()
        table = self._with(X + Z)
        many, few = self._rows(table, X), [table.place[text] for text in Z]
        return torch.stack([torch.from_numpy(jaccard(x, held[few])) for x, held in zip(many, table.held, strict=True)])

    def _rows(self, table: Table, X: Rows) -> tuple[sparse.csr_array, ...]:
        """The rows X of the table, which are kept for the next call."""
        texts, held = self._last
        if texts != X or held[0].shape[1] != table.held[0].shape[1]:
            places = [table.place[text] for text in X]
            held = tuple(one[places] for one in table.held)
            self._last = (X, held)
        return held

    def _keep(self, asked: tuple[Rows, Rows], found: Tensor) -> None:
        """Put it last; forget the oldest beyond the bytes allowed."""
        self._kept[asked] = found
        while len(self._kept) > 1 and sum(kept.nbytes for kept in list(self._kept.values())) > KEPT_BYTES:
            self._kept.popitem(last=False)

    def _with(self, texts: Rows) -> Table:
        """The table with these molecules in it."""
        table = self._table
        new = list(dict.fromkeys(text for text in texts if text not in table.place))
        if new:
            self._table = table = _grown(table, new)
        return table


def _grown(table: Table, new: list[str]) -> Table:
    """A larger table; the old one stays as it is, so that another thread may go on reading it."""
    prints = [fingerprint(text) for text in new]
    place = {**table.place, **{text: len(table.place) + i for i, text in enumerate(new)}}
    tokens = tuple(dict(known) for known in table.tokens)
    held = tuple(
        _stacked(old, [one[v] for one in prints], known)
        for v, (old, known) in enumerate(zip(table.held, tokens, strict=True))
    )
    return Table(place, tokens, held)


def _stacked(old: sparse.csr_array, sets: Sequence[np.ndarray], known: dict[int, int]) -> sparse.csr_array:
    """The rows held so far, and one a new set; `known` numbers the tokens and grows."""
    met, columns = np.unique(np.concatenate(sets), return_inverse=True)
    numbers = np.array([known.setdefault(token, len(known)) for token in met.tolist()], dtype=np.int32)
    ends, ones = np.cumsum([0, *map(len, sets)], dtype=np.int32), np.ones(len(columns), dtype=np.float32)
    rows = sparse.csr_array((ones, numbers[columns] if len(met) else columns, ends), (len(sets), len(known)))
    old = old.copy()
    old.resize(old.shape[0], len(known))
    return sparse.csr_array(sparse.vstack([old, rows]))


def jaccard(x: sparse.csr_array, z: sparse.csr_array) -> np.ndarray:
    """Shared tokens over all tokens [n, m] of rows of 0 and 1; two empty rows are equal."""
    if z.shape[0] * z.shape[1] > DENSE:  # leave out tokens that no z has
        used = np.unique(z.indices)
        x, z = x[:, used], z[:, used]
    both = (x @ np.ascontiguousarray(z.toarray().T)).astype(np.float64)  # [n, m], whole numbers: exact in float32
    either = np.diff(x.indptr)[:, None] + np.diff(z.indptr)[None, :] - both
    return np.divide(both, either, out=np.ones_like(both), where=either > 0)
