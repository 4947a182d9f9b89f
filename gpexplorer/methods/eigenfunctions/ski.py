"""Structured kernel interpolation (SKI) in any number of inputs: the kernel is interpolated from a full grid.

    k(x, z) ~ e(x)' K_UU e(z),   e(x) a Khatri-Rao product of 1-D cubic interpolation weights

By theorem 2 of Evans and Nair (2018), products with the leading eigenvectors of K_UU cost as much as products on each
axis alone, so a grid of mbar^d points is affordable (section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...features.basis_choices import Interpolated, Leading
from ...problem import Cost, Problem
from ..base import Steps, begun
from . import settings
from .grid_method import GridMethod
from .learning import BasisInfo, BasisState, evaluation_cost, initial_state, learn_hyperparameters

AXIS_CALLS = 335.0  # tensor operations per input: interpolation weights, covariances, and their derivatives


class SKI(GridMethod):
    """Regression on the leading part of a kernel interpolated from a grid, with theta by marginal likelihood.

    Parameters
    ----------
    num_eigenfunctions, grid_points : int
        The basis: p functions, and mbar equispaced grid points per input.
    learn, subset, starts, evaluations, max_rounds, tolerance : bool or int or float
        How hyperparameters are learned; see `learning.py`.

    Notes
    -----
    Wilson and Nickisch solve with the whole interpolated kernel, whose cost grows as mbar^d; here the p largest
    eigenvalues of the grid represent it, at 3 n p^2 flops per evaluation of the likelihood. The grid is longer than the
    range of the rows by a tenth on each side. Beyond it, where nothing can be interpolated, the functions are those of
    Nyström's formula, as in `Grief`: predictions go over to the prior within a few lengthscales, without a jump larger
    than the error of the interpolation.

    References
    ----------
    Wilson and Nickisch (2015); Evans and Nair (2018), section 4.2.
    """

    key: ClassVar[str] = "ski"
    title: ClassVar[str] = "Kernel interpolation (SKI)"
    paper: ClassVar[str] = (
        "Wilson and Nickisch (2015). Kernel interpolation for scalable structured Gaussian processes. ICML."
    )
    equations: ClassVar[dict[str, str]] = {"grid_points": r"k(x,z) \approx e(x)^\top K_{UU}\,e(z)"}
    added_settings: ClassVar[Mapping[str, Any]] = {"points_per_input": ""}
    functions: ClassVar[type[Leading]] = Interpolated

    starts = settings.starts()
    max_rounds = settings.max_rounds()
    tolerance = settings.tolerance()

    def steps(self, problem: Problem, resume: BasisState | None = None) -> Steps:
        state = yield from begun(resume, initial_state(problem, self.spacing), BasisInfo("start"))
        self.grid(problem)  # raises an error now if there is no grid for this problem
        _, outcome = yield from learn_hyperparameters(self, problem, state)
        return outcome

    def cost(self, problem: Problem) -> Cost:
        return evaluation_cost(problem, self.num_functions(problem), AXIS_CALLS * problem.train.d)
