"""A kernel on molecules given as SMILES: a weighted sum of fourteen MinMax kernels, one per kind of fingerprint.

    k(a, b) = sum_v sd_v^2 |A_v n B_v| / |A_v u B_v|,    A_v: the tokens of fingerprint v, see below

It has fourteen variances and a noise, as in the binding-affinity task of Cao et al. (2013), section 4.1, which used the
graph kernels of Ralaivola et al. (2005). Fingerprints of all molecules are cached. The latest similarities are cached
too, because learning evaluates the same rows at many values of theta.

A fingerprint counts substructures of one kind, by RDKit, which is imported when the first molecule is read. A count c
is written as c tokens (substructure, 0), ..., (substructure, c - 1). Two molecules then have sum_q min(x_q, z_q) tokens
in common, of sum_q max(x_q, z_q) in all, so the MinMax kernel is the Jaccard similarity of two sets, which sparse
products compute. Substructures are not hashed to a fixed length, so no two of them collide.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import KernelError
from .base import require_texts
from .discrete import Weighted

if TYPE_CHECKING:
    from scipy import sparse

KINDS = (
    *(f"circles r={r}" for r in range(4)),
    *(f"roles r={r}" for r in range(1, 4)),
    *(f"pairs d<={d}" for d in (3, 7, 30)),
    *(f"torsions {k}" for k in (4, 6)),
    *(f"paths <={k}" for k in (3, 5)),
)
MAX_COUNT = 64  # larger counts are reduced to this

Fingerprint = tuple[NDArray[np.uint64], ...]  # the distinct tokens of each kind
CACHE_BYTES = 256 * 2**20  # of similarities
MAX_DENSE = 2**21  # entries of a right-hand side that is multiplied without leaving out empty columns
Rows = tuple[str, ...]


class Table(NamedTuple):
    """Fingerprints of all molecules so far. A table is replaced by a larger one and never edited."""

    row_of: dict[str, int]  # row of each molecule
    columns: tuple[dict[int, int], ...]  # column of each token, per kind
    matrices: tuple[sparse.csr_array, ...]  # 0/1 [molecules, tokens], per kind


class Molecules(Weighted):
    """MinMax similarity of fourteen count fingerprints; X is a sequence of SMILES."""

    key, title, inputs = "molecules", "fourteen fingerprints of molecules", "strings"
    formula = r"\sum_{v=1}^{14} \sigma_v^2 \frac{|A_v\cap B_v|}{|A_v\cup B_v|}"
    views = KINDS

    def __init__(self, d: int = 1) -> None:
        from scipy import sparse

        super().__init__(d)
        empty = tuple(sparse.csr_array((0, 0), dtype=np.float32) for _ in KINDS)
        self._table = Table({}, tuple({} for _ in KINDS), empty)
        self._cache: OrderedDict[tuple[Rows, Rows], Tensor] = OrderedDict()  # the oldest first
        self._latest_rows: tuple[Rows, tuple[sparse.csr_array, ...]] = ((), empty)  # usually the training rows

    def check(self, X: Any) -> None:
        """Raise KernelError, naming the row, unless every row is a text that RDKit reads."""
        require_texts(self.key, X, "SMILES", ": choose the column of text")
        self._table_with(tuple(X))

    def similarities(self, X: Sequence[str], Z: Sequence[str], like: Tensor) -> Tensor:
        """Similarities S [14, n, m], from the cache if possible; otherwise m multiply-adds per token of the n rows."""
        request = (tuple(X), tuple(Z))
        S = self._cache.pop(request, None)
        if S is None:
            S = self._compute(*request)
        self._cache[request] = S  # the newest entry is the last one
        while len(self._cache) > 1 and sum(entry.nbytes for entry in list(self._cache.values())) > CACHE_BYTES:
            self._cache.popitem(last=False)
        return S.to(like)

    def self_similarities(self, X: Sequence[str], like: Tensor) -> Tensor:
        """The similarity of a molecule with itself is 1."""
        return like.new_ones(len(KINDS), len(X))

    def _compute(self, X: Rows, Z: Rows) -> Tensor:
        """S [14, n, m]; the longer side is the sparse left factor."""
        if len(X) < len(Z):
            return self._compute(Z, X).transpose(1, 2).contiguous()
        table = self._table_with(X + Z)
        left, right = self._rows(table, X), [table.row_of[text] for text in Z]
        pairs = zip(left, table.matrices, strict=True)
        return torch.stack([torch.from_numpy(jaccard(x, matrix[right])) for x, matrix in pairs])

    def _rows(self, table: Table, X: Rows) -> tuple[sparse.csr_array, ...]:
        """The rows X of the table, which are cached for the next call."""
        texts, matrices = self._latest_rows
        widths = [matrix.shape[1] for matrix in table.matrices]  # new molecules may add tokens to some kinds only
        if texts != X or widths != [matrix.shape[1] for matrix in matrices]:
            rows = [table.row_of[text] for text in X]
            matrices = tuple(matrix[rows] for matrix in table.matrices)
            self._latest_rows = (X, matrices)
        return matrices

    def _table_with(self, texts: Rows) -> Table:
        """The table, extended by those of these molecules that are new."""
        table = self._table
        new_texts = list(dict.fromkeys(text for text in texts if text not in table.row_of))
        if new_texts:
            # A larger table; the old one does not change, because another thread may be reading it
            fingerprints = [fingerprint(text) for text in new_texts]
            row_of = {**table.row_of, **{text: len(table.row_of) + i for i, text in enumerate(new_texts)}}
            columns = tuple(dict(columns_of_kind) for columns_of_kind in table.columns)
            matrices = tuple(
                _with_rows(matrix, [sets[v] for sets in fingerprints], columns[v])
                for v, matrix in enumerate(table.matrices)
            )
            self._table = table = Table(row_of, columns, matrices)
        return table


def _with_rows(matrix: sparse.csr_array, sets: Sequence[np.ndarray], columns: dict[int, int]) -> sparse.csr_array:
    """The matrix with one more row per token set; new tokens are added to `columns`."""
    from scipy import sparse

    distinct, position = np.unique(np.concatenate(sets), return_inverse=True)
    numbers = np.array([columns.setdefault(token, len(columns)) for token in distinct.tolist()], dtype=np.int32)
    ends, ones = np.cumsum([0, *map(len, sets)], dtype=np.int32), np.ones(len(position), dtype=np.float32)
    indices = numbers[position] if len(distinct) else position
    rows = sparse.csr_array((ones, indices, ends), (len(sets), len(columns)))
    matrix = matrix.copy()
    matrix.resize(matrix.shape[0], len(columns))
    return sparse.csr_array(sparse.vstack([matrix, rows]))


def jaccard(x: sparse.csr_array, z: sparse.csr_array) -> np.ndarray:
    """Jaccard similarity [n, m] of the rows of two 0/1 matrices; two empty rows have similarity 1."""
    sizes = np.diff(x.indptr)[:, None] + np.diff(z.indptr)[None, :]  # [n, m] tokens of both rows
    if z.shape[0] * z.shape[1] > MAX_DENSE:  # leave out tokens that no row of z has
        used = np.unique(z.indices)
        x, z = x[:, used], z[:, used]
    products = x @ np.ascontiguousarray(z.toarray().T)  # [n, m], whole numbers, which are exact in float32
    intersection = products.astype(np.float64)
    union = sizes - intersection
    return np.divide(intersection, union, out=np.ones_like(intersection), where=union > 0)


def fingerprint(smiles: str) -> Fingerprint:
    """Return the fourteen token sets of one molecule; KernelError if RDKit is missing or cannot read the text."""
    read, counters = _rdkit()
    molecule = read(smiles)
    if molecule is None:
        raise KernelError(f"RDKit cannot read the molecule {smiles[:60]!r}: give SMILES, such as CCO for ethanol.")
    return tuple(tokens(count(molecule).GetNonzeroElements()) for count in counters)


def tokens(counts: dict[int, int]) -> NDArray[np.uint64]:
    """Return one token per occurrence of each substructure, numbered substructure * MAX_COUNT + (0, 1, ...)."""
    parts = np.fromiter(counts.keys(), np.uint64, len(counts))
    times = np.fromiter(counts.values(), np.int64, len(counts)).clip(max=MAX_COUNT)
    first = np.repeat(np.cumsum(times) - times, times)
    return np.repeat(parts * np.uint64(MAX_COUNT), times) + (np.arange(times.sum()) - first).astype(np.uint64)


@cache
def _rdkit() -> tuple[Callable[[str], Any], tuple[Callable[[Any], Any], ...]]:
    """The function of RDKit that reads a molecule, and those that count, in the order of KINDS."""
    try:
        from rdkit import Chem, rdBase
        from rdkit.Chem import rdFingerprintGenerator as fp
    except ImportError:
        raise KernelError(
            'Molecules need RDKit, which is not installed: pip install "gpexplorer[molecules]". Without it, SMILES can '
            "be compared as text by the kernels spectrum and mismatch."
        ) from None
    roles = fp.GetMorganFeatureAtomInvGen()
    makers = (
        *(fp.GetMorganGenerator(radius=r) for r in range(4)),
        *(fp.GetMorganGenerator(radius=r, atomInvariantsGenerator=roles) for r in range(1, 4)),
        *(fp.GetAtomPairGenerator(maxDistance=d) for d in (3, 7, 30)),
        *(fp.GetTopologicalTorsionGenerator(torsionAtomCount=k) for k in (4, 6)),
        *(fp.GetRDKitFPGenerator(maxPath=k) for k in (3, 5)),
    )

    def read(smiles: str) -> Any:
        with rdBase.BlockLogs():  # our own error message replaces RDKit's
            return Chem.MolFromSmiles(smiles)

    return read, tuple(maker.GetSparseCountFingerprint for maker in makers)
