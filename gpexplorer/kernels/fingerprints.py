"""Fourteen fingerprints of a molecule by RDKit, which is imported when the first molecule is read.

A fingerprint counts substructures of one kind. Counts are written in unary, as the tokens (substructure, 0), ...,
(substructure, count - 1): two molecules share sum_q min(x_q, z_q) of their sum_q max(x_q, z_q) tokens, so MinMax is the
Jaccard similarity of two sets, which sparse products compute. Nothing is folded: no two substructures collide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import KernelError

KINDS = (
    *(f"circles r={r}" for r in range(4)),
    *(f"roles r={r}" for r in range(1, 4)),
    *(f"pairs d<={d}" for d in (3, 7, 30)),
    *(f"torsions {k}" for k in (4, 6)),
    *(f"paths <={k}" for k in (3, 5)),
)
MOST = 64  # a count above this is cut: it says "many"

Fingerprint = tuple[NDArray[np.uint64], ...]  # the distinct tokens of each kind


def fingerprint(smiles: str) -> Fingerprint:
    """The fourteen token sets of one molecule; KernelError where RDKit is missing or cannot read the text."""
    read, counters = _rdkit()
    molecule = read(smiles)
    if molecule is None:
        raise KernelError(f"RDKit cannot read the molecule {smiles[:60]!r}: give SMILES, such as CCO for ethanol.")
    return tuple(tokens(count(molecule).GetNonzeroElements()) for count in counters)


def tokens(counts: dict[int, int]) -> NDArray[np.uint64]:
    """Counts in unary: for each substructure as many tokens as it occurs, numbered part * MOST + (0, 1, ...)."""
    parts = np.fromiter(counts.keys(), np.uint64, len(counts))
    times = np.fromiter(counts.values(), np.int64, len(counts)).clip(max=MOST)
    first = np.repeat(np.cumsum(times) - times, times)
    return np.repeat(parts * np.uint64(MOST), times) + (np.arange(times.sum()) - first).astype(np.uint64)


@cache
def _rdkit() -> tuple[Callable[[str], Any], tuple[Callable[[Any], Any], ...]]:
    """RDKit's reader, and its counters in the order of KINDS."""
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
        with rdBase.BlockLogs():  # the sentence about a molecule that cannot be read is ours
            return Chem.MolFromSmiles(smiles)

    return read, tuple(maker.GetSparseCountFingerprint for maker in makers)
