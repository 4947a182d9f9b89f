"""What the methods on the eigenfunctions of a grid have in common: settings, the grid, and the choice of functions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import param
from torch import Tensor

from ...errors import NotPositiveDefinite, SettingError
from ...features.basis_choices import Leading
from ...features.grid_eigenfunctions import Grid
from ...problem import Problem
from ..base import Method
from . import settings
from .evidence import regress

SPACINGS = ("equispaced", "quantile")


def spacing_setting() -> Any:
    """Where the grid points of an axis lie, as a setting."""
    return param.Selector(
        default="equispaced", objects=[*SPACINGS, "by likelihood"],
        doc="Where the grid points lie. quantile puts them where the rows are, for inputs that are concentrated in a "
        "part of their range. by likelihood tries both at every choice of basis functions; each costs one pass over "
        "the training rows.",
    )  # fmt: skip


class GridMethod(Method):
    """A method that regresses on the leading eigenfunctions of a full grid.

    A subclass says how it learns; see `Grief`, `SKI` and `GriefMCMC`.
    """

    family: ClassVar[str] = "eigenfunctions"
    functions: ClassVar[type[Leading]] = Leading  # how the functions follow from the grid

    num_eigenfunctions = param.Integer(
        500, bounds=(1, None), softbounds=(10, 2000),
        doc="Number of eigenfunctions p. More functions fit better and cost n p^2 flops per pass over the rows.",
    )  # fmt: skip
    grid_points = param.Integer(
        10, bounds=(2, None), softbounds=(5, 40),
        doc="Grid points per input. The whole grid has this number to the power d, but it is never formed.",
    )  # fmt: skip
    learn = settings.learn()
    subset = settings.subset()
    evaluations = settings.evaluations()

    spacing: Any = SPACINGS[0]  # a method may make it a setting

    def grid(self, problem: Problem, spacing: str = SPACINGS[0]) -> Grid:
        """Lay the grid over the training rows.

        Raises
        ------
        SettingError
            If the inputs are objects and not columns of numbers.
        KernelError
            If the kernel is not a product over its inputs.
        """
        if not isinstance(problem.train.X, Tensor):
            raise SettingError(
                f"{self.title} lays a grid over columns of numbers, but these inputs are objects. Choose a method of "
                "the family inducing."
            )
        grid = Grid(problem.kernel, problem.train.X, self.grid_points, spacing)
        grid.axis_kernels(problem.theta)
        return grid

    def spacings(self) -> tuple[str, ...]:
        """Return the spacings among which the likelihood may choose."""
        return SPACINGS if self.spacing == "by likelihood" else (self.spacing,)

    def choose(self, problem: Problem, theta: Tensor, spacing: str = "") -> Leading:
        """Choose the eigenfunctions of the largest eigenvalues at this theta.

        Parameters
        ----------
        problem : Problem
        theta : tensor [P]
        spacing : {"equispaced", "quantile", "by likelihood", ""}
            Where the grid points lie; by default as the method is set. "by likelihood" takes the spacing under which
            the training rows are more likely, at n p^2 flops per spacing.
        """
        spacings = (spacing,) if spacing in SPACINGS else self.spacings()
        choices = []
        for each in spacings:
            grid = self.grid(problem, each)
            choices.append(self.functions(grid, grid.spectrum(theta, self.num_eigenfunctions).axis_indices))
        if len(choices) == 1:
            return choices[0]
        return min(choices, key=lambda choice: self._objective(problem, choice, theta))

    def origin(self, state: Any) -> tuple[Tensor, str]:
        """Return the theta [P] at which the functions of a state were chosen, and the spacing of their grid."""
        return state.chosen, state.spacing

    def eigenfunctions(self, problem: Problem, state: Any, count: int = 0) -> Leading:
        """Return the functions from which the predictions of a state are made, or `count` of the same grid."""
        theta, spacing = self.origin(state)
        choice = self.choose(problem, theta, spacing)
        if not count:
            return choice
        return self.functions(choice.grid, choice.grid.spectrum(theta, count).axis_indices)

    def _objective(self, problem: Problem, choice: Leading, theta: Tensor) -> float:
        """NLML; infinite if the Gram matrix has no factor."""
        try:
            return regress(choice, theta, problem.train, self.map).value
        except NotPositiveDefinite:
            return math.inf

    def is_outside(self, problem: Problem, X: Tensor) -> Tensor:
        """Return a mask [t] of the rows outside the grid, where the prediction is the prior. O(n d + t d)."""
        return self.grid(problem).outside(X)
