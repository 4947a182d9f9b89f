"""Products of large matrices in float32 by oneDNN, which takes half of the time of the BLAS on some processors.

torch multiplies float32 matrices on a CPU with MKL, which uses only half of the width of the vector units of an AMD
processor. oneDNN, which is part of torch too, makes its own code for the processor: 190 instead of 100 Gflop/s per core
on an EPYC of 2024, at the same precision (products and sums in float32). torch offers it for layers of networks,
y = x w', by an operation that is not documented. Where it is missing, and for everything but float32 on a CPU with
AVX-512, the products here are those of the BLAS.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from .blocks import row_blocks

LEAST_COLUMNS = 128  # with fewer right-hand sides the product is limited by reading A
LEAST_ROWS = 16  # of A in A B': the BLAS takes twice as long from here on
TILE_BYTES = 8 * 2**20  # of a part of the result, which is still in the cache when it is added


def add_product(
    out: Float[Tensor, "n k"], A: Float[Tensor, "n m"], B: Float[Tensor, "m k"], factor: float = 1.0
) -> Tensor:
    """Add factor A B to `out` in place, and return it. 2 n m k flops.

    Parameters
    ----------
    out : Tensor [n, k]
        It may have a higher precision than A and B.
    A, B : Tensor [n, m], [m, k]
        Factors of one precision. A may be a transposed matrix.
    factor : float, default 1
        Multiplies the product.
    """
    if not _by_onednn(A, B):
        return out.addmm_(A, B, alpha=factor) if A.dtype == out.dtype else out.add_(A @ B, alpha=factor)
    weights = (factor * B).T.contiguous()  # [k, m]
    for rows in row_blocks(len(A), A.element_size() * B.shape[1], A, TILE_BYTES):
        out[rows] += _linear(A[rows], weights)
    return out


def product(A: Float[Tensor, "n m"], B: Float[Tensor, "m k"]) -> Float[Tensor, "n k"]:
    """Return A B. 2 n m k flops."""
    return _linear(A, B.T.contiguous()) if _by_onednn(A, B) else A @ B


def product_of_rows(A: Float[Tensor, "n m"], B: Float[Tensor, "k m"]) -> Float[Tensor, "n k"]:
    """Return A B', for a large B that is stored row by row, which oneDNN reads as it is. 2 n m k flops."""
    fast = len(A) >= LEAST_ROWS and min(B.shape) >= LEAST_COLUMNS and B.is_contiguous() and _are_for_onednn(A, B)
    return _linear(A, B) if fast else A @ B.T


def _linear(A: Tensor, weights: Tensor) -> Tensor:
    """A weights' by oneDNN: a linear layer without bias and activation."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(A, weights, None, "none", [], "")
    return result


def _by_onednn(A: Tensor, B: Tensor) -> bool:
    """Whether oneDNN is the faster one for these matrices."""
    return B.shape[1] >= LEAST_COLUMNS and min(A.shape) >= LEAST_COLUMNS and _are_for_onednn(A, B)


def _are_for_onednn(A: Tensor, B: Tensor) -> bool:
    """Whether oneDNN multiplies matrices of this precision and device, and no gradient is asked for."""
    single = A.dtype == B.dtype == torch.float32 and A.device.type == "cpu"
    return single and not A.requires_grad and not B.requires_grad and has_onednn()


@lru_cache(maxsize=1)
def has_onednn() -> bool:
    """Whether torch has the operation, and a processor for which it pays."""
    try:
        wide = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
        A = torch.ones(2, 3)
        return wide and bool((_linear(A, torch.ones(4, 3)) == 3.0).all())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
