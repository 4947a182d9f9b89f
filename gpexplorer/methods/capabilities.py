"""What a method can do beside taking steps: protocols that pictures and the page ask for, in place of its name.

A view calls `isinstance(method, Protocol)` and never compares `method.key`, so that a new method gets a picture by
having the methods that the picture needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from ..features.basis_choices import Leading
from ..problem import Problem


class Correlations(NamedTuple):
    """Correlation coefficients between gradient entries of pairs of rows; rows whose entry is constant are left out."""

    near: Tensor  # [<= centres * neighbours] between each centre and its nearest rows
    far: Tensor  # [<= centres * neighbours] between each centre and rows drawn at random
    iterations: int  # iterates over which they were computed; with fewer than two there are no coefficients


@runtime_checkable
class HasGradient(Protocol):
    """A method that minimises a quadratic over one coefficient per training row, in many iterations."""

    def gradient_entries(self, problem: Problem, state: Any, rows: Tensor) -> Tensor:
        """Entries [r] of the gradient at these rows [r]."""

    def gradient_correlations(self, problem: Problem, states: list[Any], centres: int, neighbours: int) -> Correlations:
        """Correlations, over these states, between gradient entries of neighbouring rows and of random rows."""


@runtime_checkable
class ReportsGains(Protocol):
    """A method that chooses rows one after another by the decrease of the objective that each promises."""

    def promised_gains(self, info: Any) -> Tensor:
        """Decrease [b] that each row of the last block promised alone, in the order in which the rows joined."""


@runtime_checkable
class HasGridEigenfunctions(Protocol):
    """A method that regresses on the leading eigenfunctions of a grid."""

    num_eigenfunctions: Any  # int
    grid_points: Any  # int, per input

    def origin(self, state: Any) -> tuple[Tensor, str]:
        """The theta [P] at which the functions of a state were chosen, and the spacing of their grid."""

    def eigenfunctions(self, problem: Problem, state: Any, count: int = 0) -> Leading:
        """The functions from which the predictions of a state are made, or `count` functions of the same grid."""


@runtime_checkable
class HasWeightPriors(HasGridEigenfunctions, Protocol):
    """A method on a grid that can give its eigenfunctions weights of their own."""

    def priors(self, theta: Tensor) -> tuple[Any, Any]:
        """The log-normal priors (mu, tau) of every weight and of the noise variance."""


@runtime_checkable
class SamplesWeights(HasWeightPriors, Protocol):
    """A method that samples the weights of its eigenfunctions with several chains."""

    chains: Any  # int


@runtime_checkable
class LimitedToGrid(Protocol):
    """A method whose basis functions vanish outside a grid, so that predictions there are those of the prior."""

    def is_outside(self, problem: Problem, X: Tensor) -> Tensor:
        """Which rows [t] of X lie outside the grid."""
