"""What the methods on the eigenfunctions of a grid have in common: settings, the grid, and the choice of functions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...errors import NotPositiveDefinite, SettingError
from ...features.basis_choices import Leading
from ...features.grid_eigenfunctions import FEWEST, Grid, sizes_by_lengthscale
from ...kernels.row_scaled import input_count, unscaled_kernel
from ...linalg.randomness import generator, random_rows
from ...problem import Dataset, Problem, described_rows
from ..setting_kinds import choice, count
from . import settings
from .evidence import ROWS, choose_by_evidence, regress
from .learning import BasisMethod

SPACINGS = ("equispaced", "quantile", "mixed")
MOST_POINTS = 2000  # of an input: their eigendecomposition takes 3 s on one core, and cannot be interrupted


class GridPoints(param.Integer):  # type: ignore[type-arg]
    """A number of grid points: 0 for an automatic one, or 2 to `MOST_POINTS`."""

    takes = f"0, or a whole number from 2 to {MOST_POINTS:,}"

    def _validate(self, val: Any) -> None:
        super()._validate(val)
        if val == 1:
            raise ValueError(f"{self.name} is 1; give {self.takes}.")

    def schema(self, *_: Any, **__: Any) -> dict[str, Any]:
        """What it takes, in the words of JSON Schema."""
        return {"type": "integer", "minimum": 0, "maximum": MOST_POINTS, "not": {"const": 1}}


class PointsPerInput(param.String):  # type: ignore[type-arg]
    """Numbers of grid points, one for each input: empty, or each from 2 to `MOST_POINTS`."""

    takes = f"whole numbers from 2 to {MOST_POINTS:,} separated by commas, such as '20, 5, 2', or an empty text"

    def _validate(self, val: Any) -> None:
        super()._validate(val)
        if any(not 2 <= size <= MOST_POINTS for size in numbers_in(val)):
            raise ValueError(f"{self.name} is {val!r}; give {self.takes}.")

    def schema(self, *_: Any, **__: Any) -> dict[str, Any]:
        """What it takes, in the words of JSON Schema."""
        return {"type": "string", "pattern": self.regex}


def numbers_in(text: str) -> list[int]:
    """Whole numbers that commas separate."""
    return [int(size) for size in text.split(",") if size.strip()]


def spacing_setting() -> Any:
    """Where the grid points of an axis lie, as a setting."""
    return choice(
        [*SPACINGS, "by likelihood"],
        doc="Where the grid points lie. quantile puts them where the rows are, for inputs that are concentrated in a "
        "part of their range. mixed puts half of them where the rows are, and covers the range with the other half. by "
        "likelihood tries all three at every choice of basis functions; each costs one pass over the training rows.",
    )


def basis_setting() -> Any:
    """How the basis functions are chosen, as a setting."""
    return choice(
        ["eigenvalues", "evidence"],
        doc="Which eigenfunctions are used. eigenvalues takes the largest, without y, as the paper does. evidence "
        "takes those of many candidates that make the training rows most likely: it finds products of many inputs, "
        "and costs a few evaluations of the likelihood per choice. Use it with ten times as many rows as functions or "
        "more. With few rows, grief corrects the noise by cross-validation; the bands of grief-mcmc are too narrow.",
    )


def candidates_setting() -> Any:
    """Number of candidates of a choice by evidence, as a setting."""
    return count(
        20_000,
        (1000, 100_000),
        doc="Number of eigenfunctions among which the evidence chooses, those of the largest eigenvalues.",
    )


class GridMethod(BasisMethod):
    """A method that regresses on the leading eigenfunctions of a full grid.

    A subclass says how it learns; see `Grief`, `SKI` and `GriefMCMC`.
    """

    functions: ClassVar[type[Leading]] = Leading  # how the functions follow from the grid

    num_eigenfunctions = count(
        500,
        (10, 2000),
        doc="Number of eigenfunctions p. More functions fit better and cost n p^2 flops per pass over the rows.",
    )
    grid_points: Any = GridPoints(
        0,
        bounds=(0, MOST_POINTS),
        softbounds=(0, 40),
        doc="Grid points per input. The whole grid has this number to the power d, but it is never formed. 0 is "
        "automatic: each input has 10 to 160, as many as its lengthscale and the noise need.",
    )
    points_per_input: Any = PointsPerInput(
        "",
        regex=r"^\s*(\d{1,4}\s*(,\s*\d{1,4}\s*)*)?$",
        doc="Grid points of each input, separated by commas, such as 20, 5, 2. If empty, every input has grid_points.",
    )
    learn = settings.learn()
    subset = settings.subset()
    evaluations = settings.evaluations()

    spacing: Any = SPACINGS[0]  # a method may make these three settings
    basis: Any = "eigenvalues"
    candidates: Any = 1

    def grid(self, problem: Problem, spacing: str = SPACINGS[0], theta: Tensor | None = None) -> Grid:
        """Lay the grid over the training rows.

        Parameters
        ----------
        spacing : {"equispaced", "quantile", "mixed"}
        theta : tensor [P], optional
            Where the number of points follows the lengthscales, those of this theta; by default of the problem's.

        Raises
        ------
        SettingError
            If the inputs are objects and not columns of numbers, or points_per_input has another number of sizes.
        KernelError
            If the kernel is not a product over its inputs.
        """
        if not isinstance(problem.train.X, Tensor):
            raise SettingError(
                f"{self.title} lays a grid over columns of numbers, but the inputs are "
                f"{described_rows(problem.train.X)}. Choose a method of the family inducing."
            )
        kernel, d = unscaled_kernel(problem.kernel), input_count(problem)
        X, sizes = problem.train.X[:, :d], self.sizes(d)
        if self.grid_points == 0 and not self.points_per_input.strip():
            begin, functions = problem.theta if theta is None else theta, self.functions.functions
            sizes = sizes_by_lengthscale(kernel, X, begin, spacing, self.num_eigenfunctions, functions)
        grid = Grid(kernel, X, sizes, spacing)
        grid.axis_kernels(problem.theta)
        return grid

    def sizes(self, d: int) -> list[int]:
        """Return the number of grid points of each of d inputs, the fewest where it follows the lengthscales.

        Raises
        ------
        SettingError
            If points_per_input does not have one number for each input.
        """
        sizes = numbers_in(self.points_per_input)
        if sizes and len(sizes) != d:
            raise SettingError(
                f"points_per_input is {self.points_per_input!r}, but there are {d} inputs. Give {d:,} numbers of at "
                "least 2, separated by commas, or leave it empty."
            )
        return sizes or [self.grid_points or FEWEST] * d

    def num_functions(self, problem: Problem) -> float:
        """Return the number of basis functions: p, or fewer if the grid has fewer points."""
        return float(min(self.num_eigenfunctions, math.prod(self.sizes(input_count(problem)))))

    def spacings(self) -> tuple[str, ...]:
        """Return the spacings among which the likelihood may choose."""
        return SPACINGS if self.spacing == "by likelihood" else (self.spacing,)

    def choose(self, problem: Problem, theta: Tensor, spacing: str = "") -> Leading:
        """Return the eigenfunctions of the largest eigenvalues at this theta.

        Parameters
        ----------
        theta : tensor [P]
        spacing : {"equispaced", "quantile", "mixed", "by likelihood", ""}
            Where the grid points lie; by default as the method is set. "by likelihood" takes the spacing under which
            the training rows are more likely, at n p^2 flops per spacing.
        """
        grids, count = self._grids(problem, theta, spacing), self.num_eigenfunctions
        choices = [self.functions(grid, grid.spectrum(theta, count).axis_indices) for grid in grids]
        return self._most_likely(problem, choices, theta)

    def select(self, problem: Problem, theta: Tensor, spacing: str = "", previous: Leading | None = None) -> Leading:
        """Choose the basis functions for all rows at this theta, by eigenvalues or by evidence as the method is set.

        Parameters
        ----------
        problem, theta, spacing : Problem, Tensor, str, default ""
            As in `choose`.
        previous : Leading, optional
            Functions with which a choice by evidence begins, if their grid has as many points per input.

        Notes
        -----
        The evidence is that of at most `evidence_choice.ROWS` random rows.
        """
        if self.basis == "eigenvalues":
            return self.choose(problem, theta, spacing)
        rows = self.choice_rows(problem)
        choices = []
        for grid in self._grids(problem, theta, spacing):
            begin = previous if previous is not None and is_same_size(previous.grid, grid) else None
            sizes = self.num_eigenfunctions, self.candidates
            choices.append(choose_by_evidence(self.functions, grid, theta, rows, *sizes, begin))
        return self._most_likely(problem, choices, theta)

    def choice_rows(self, problem: Problem) -> Dataset:
        """Return the rows on which functions are chosen by evidence: all, or `evidence_choice.ROWS` random ones."""
        if len(problem.train) <= ROWS:
            return problem.train
        sample = random_rows(len(problem.train), ROWS, generator(self.seed, "choice"))
        return problem.train.rows(sample.to(problem.train.y.device))

    def origin(self, state: Any) -> tuple[Tensor, str]:
        """Return the theta [P] at which the functions of a state were chosen, and the spacing of their grid."""
        return state.chosen, state.spacing

    def eigenfunctions(self, problem: Problem, state: Any, count: int = 0) -> Leading:
        """Return the functions from which the predictions of a state are made.

        Parameters
        ----------
        count : int, optional
            How many functions; with more than the predictions use, those of the largest eigenvalues.
        """
        theta, spacing = self.origin(state)
        if state.functions is not None:
            index = state.functions.to(problem.train.y.device).long()
            return self.functions(self.grid(problem, spacing, theta), index[:count] if count else index)
        choice = self.choose(problem, theta, spacing)
        if not count:
            return choice
        return self.functions(choice.grid, choice.grid.spectrum(theta, count).axis_indices)

    def _grids(self, problem: Problem, theta: Tensor, spacing: str) -> list[Grid]:
        """The grid of this spacing, or one for each spacing that the method tries."""
        return [self.grid(problem, name, theta) for name in ((spacing,) if spacing in SPACINGS else self.spacings())]

    def _most_likely(self, problem: Problem, choices: list[Leading], theta: Tensor) -> Leading:
        def objective(choice: Leading) -> float:
            try:
                return regress(choice, theta, problem.train, self.map).value
            except NotPositiveDefinite:
                return math.inf

        return choices[0] if len(choices) == 1 else min(choices, key=objective)

    def functions_of(self, problem: Problem, state: Any) -> Leading:
        return self.eigenfunctions(problem, state)

    def fields(self, choice: Leading) -> dict[str, Any]:
        """Return the indices and the spacing of functions chosen by evidence; the others follow from theta."""
        if self.basis == "eigenvalues":
            return {}
        return {"functions": choice.index.to("cpu", torch.int16), "spacing": choice.grid.spacing}

    def is_outside(self, problem: Problem, X: Tensor) -> Tensor:
        """Return a mask [t] of the rows outside the grid, where the prediction goes over to the prior. O(n d + t d)."""
        return self.grid(problem).outside(X)


def is_same_size(grid: Grid, other: Grid) -> bool:
    """Whether two grids have as many points on each axis."""
    return [len(U) for U in grid.axes] == [len(U) for U in other.axes]
