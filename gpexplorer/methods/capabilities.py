"""What a method can do beside taking steps: protocols that pictures and the page ask for, in place of its name.

A view calls `isinstance(method, Protocol)` and never compares `method.key`, so that a new method gets a picture by
having the methods that the picture needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from ..features.basis_choices import Leading
from ..objectives import Terms
from ..posteriors import Posterior
from ..problem import Problem, Step


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
class HasBandsOfSomeRows(Protocol):
    """A method whose variances may use all rows or some, so that both can be compared."""

    def posterior_of_some_rows(self, problem: Problem, state: Any) -> tuple[Posterior, int]:
        """The posterior whose variances use some rows only, and how many."""


@runtime_checkable
class NotesVariance(Protocol):
    """A method whose predictive variances may be bounds or estimates of those of its model."""

    def variance_note(self, problem: Problem, state: Any = None) -> str:
        """What the variances of a state are, in a few words to print beside a score; empty if they are the model's.

        Without a state, those of the result that is to be expected.
        """


@runtime_checkable
class NotesAnswer(Protocol):
    """A method whose answer is another one, usually a coarser one, before some step of it."""

    def answer_note(self, problem: Problem, state: Any) -> str:
        """Which answer a state gives, in a sentence for a run that ends there; empty if it is the method's own."""


@runtime_checkable
class HasGridEigenfunctions(Protocol):
    """A method that regresses on the leading eigenfunctions of a grid."""

    num_eigenfunctions: Any  # int
    candidates: Any  # int, among which a choice by evidence is made

    def origin(self, state: Any) -> tuple[Tensor, str]:
        """The theta [P] at which the functions of a state were chosen, and the spacing of their grid."""

    def eigenfunctions(self, problem: Problem, state: Any, count: int = 0) -> Leading:
        """The functions from which the predictions of a state are made, or `count` functions of the same grid."""


@runtime_checkable
class HasFeatureMap(Protocol):
    """A method that regresses on functions whose products approximate the kernel."""

    def feature_map(self, problem: Problem, state: Any) -> Callable[[Tensor], Tensor]:
        """A function from rows X [b, d] to the features [p, b] of a state."""


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
class EstimatesNoise(Protocol):
    """A method whose noise variance, which a prediction of y contains, may differ from that in the state's theta."""

    def noise_variance(self, problem: Problem, state: Any) -> float:
        """The noise variance of the predictions of this state, in the scaled space."""


@runtime_checkable
class LimitedToGrid(Protocol):
    """A method whose basis functions decay to 0 outside a grid, so that predictions go over to the prior there."""

    def is_outside(self, problem: Problem, X: Tensor) -> Tensor:
        """Which rows [t] of X lie outside the grid."""


class Landscape(NamedTuple):
    """What every row would bring in the place of one inducing point, in nat; the loss by its removal is included."""

    rows: Tensor  # int64 [n]
    approx: Tensor  # [n] approximate decrease of the objective; -inf where a row is inducing or already explained
    exact: Tensor  # [n] exact decrease; nan where it was not evaluated
    removed: int  # data row of the inducing point that is taken out
    correlation: float  # Spearman's rank correlation, over the rows that have both values
    pivots: Tensor  # int64 [z] rows of the information pivots


class NearRows(NamedTuple):
    """Some training rows in the order of the method, and whom each depends on."""

    order: Tensor  # int64 [n] training rows
    places: Tensor  # int64 [c] of these rows in the order
    neighbours: Tensor  # int64 [c, k] places of the rows that each depends on, the nearest first
    sd: Tensor  # [c] standard deviation of each scaled target given its neighbours; nan where there is none


@runtime_checkable
class DependsOnNearRows(Protocol):
    """A method in which each row depends on a few rows before it, in an order."""

    def near_rows(self, problem: Problem, state: Any, most: int) -> NearRows:
        """Whom the rows depend on at this state; a random sample of at most this many."""


@runtime_checkable
class FiltersRows(Protocol):
    """A method that goes through the rows in the order of their one input."""

    def filtered(self, problem: Problem, state: Any, t: Tensor, until: float) -> tuple[Tensor, Tensor]:
        """Mean [b] and variance [b] of f at each of these inputs [b], from the rows up to it, and up to `until`."""


@runtime_checkable
class HasInducingPoints(Protocol):
    """A method that represents all rows by a few points, whose number may follow the number of rows."""

    def num_points(self, n: int) -> int:
        """Number of inducing points for n training rows."""


@runtime_checkable
class HasSwapLandscape(Protocol):
    """A method that replaces inducing points by other rows, and can evaluate every replacement of one point."""

    def landscape_entries(self, problem: Problem) -> float:
        """Number of entries of the largest matrix that a landscape computes again; a view sets a limit to it."""

    def swap_landscape(self, problem: Problem, state: Any, slot: int | None = None) -> Landscape | None:
        """Evaluate all rows for the place of the point in `slot`, by default the one that the next swap would offer.

        None where the inducing points of the state are no longer rows of the data.
        """

    def force_swap(self, problem: Problem, state: Any, row: int, slot: int | None = None) -> Step:
        """Put data row `row` in the place of the point in `slot`, whether the objective decreases or not.

        Raises SettingError where the row cannot become an inducing point.
        """


@runtime_checkable
class HasMovablePoints(Protocol):
    """A method whose inducing points a person can put elsewhere by hand."""

    def move_point(self, problem: Problem, state: Any, slot: int, position: Tensor) -> Step:
        """Put inducing point `slot` at `position` [d], scaled inputs, or at the nearest place that is allowed.

        Raises SettingError where no inducing point can be there.
        """

    def bound_terms(self, problem: Problem, state: Any) -> Terms:
        """Compute the terms of the objective at a state; the report of the start has none."""


@runtime_checkable
class EstimatesLikelihoodGradient(Protocol):
    """A minibatch method that estimates the gradient of the exact marginal likelihood."""

    def stationary_matrices(self, model: Any, exact: Any) -> tuple[Tensor, ...]:
        """Return the running matrices at which the method would stay if theta did not move.

        Parameters
        ----------
        model : object
            The `minibatches.model.Model` of the method.
        exact : object
            The `ExactLikelihood` at the theta in question.
        """


@runtime_checkable
class KeepsGramMatrix(Protocol):
    """A minibatch method that keeps a matrix in place of the exact Gram matrix and reports its distance (`gap`)."""

    def multiplier_norm(self, state: Any) -> float:
        """Return the Frobenius norm of the multiplier that ties the matrix to the exact one; nan if there is none."""
