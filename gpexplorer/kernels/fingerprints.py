"""Fourteen fingerprints of a molecule, computed by RDKit, which is imported when the first molecule is read.

A fingerprint counts substructures of one kind. A count c is written as c tokens (substructure, 0), ...,
(substructure, c - 1). Two molecules then have sum_q min(x_q, z_q) tokens in common, of sum_q max(x_q, z_q) in all, so
the MinMax kernel is the Jaccard similarity of two sets, which sparse products compute. Substructures are not hashed to
a fixed length, so no two of them collide.
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
MAX_COUNT = 64  # larger counts are reduced to this

Fingerprint = tuple[NDArray[np.uint64], ...]  # the distinct tokens of each kind


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
