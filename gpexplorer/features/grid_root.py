"""A low-rank root of K from a grid larger than the rows are many: what a preconditioner for exact solves is made of.

K + s2 I ~ Phi Phi' + s2 I,  Phi [n, r] the leading eigenfunctions of the grid      Evans and Nair (2018), section 4.1
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..linalg.blocks import row_blocks
from ..problem import Kernel
from .grid_eigenfunctions import Eigenfunctions, Grid


def grid_root(
    kernel: Kernel, theta: Float[Tensor, " P"], X: Float[Tensor, "n d"], rank: int, points: int = 10
) -> Float[Tensor, "n r"]:
    """Phi, for `linalg.preconditioners.woodbury`. About 3 n r flops and n r entries, no kernel column.

    Raises KernelError where the kernel is no product over its inputs.
    """
    with torch.no_grad():
        grid = Grid(kernel, X, points)
        index = grid.spectrum(theta, min(rank, len(X))).made_of
        basis, root = Eigenfunctions(grid, theta, index), X.new_empty(len(X), len(index))
        for rows in row_blocks(len(X), 3 * X.element_size() * len(index)):
            root[rows] = basis(X[rows]).T
    return root
