"""Minimisation of a function of a few parameters, one evaluation at a time, resumed by repeating its evaluations.

    for best in replayed_descent(function, begin, "L-BFGS-B", limit, done): ...

An optimiser of SciPy owns its loop, and its memory is no part of a method's state. Here the loop runs in a thread of
its own, which computes nothing but SciPy's algebra on [p] vectors. Each point that the optimiser wants evaluated is
yielded by `evaluations`, and the caller, in its own thread, sends back value and gradient. Closing the generator ends
the thread at once. A descent is resumed by beginning it again: with the same values it takes the same path, so that its
first `done` evaluations are repeated and not yielded again. Where they are expensive, `function` keeps their results.

Where the function changes much faster in some parameters than in others, `units` says how far a step goes in each, so
that the first step, along the gradient, does not leave the valley: the optimiser moves z, with point = begin + units z.

Restrictions on the point (`Restrictions`) are kept here, for every optimiser: it moves the free numbers alone, and the
penalty of a prior is added to the value. L-BFGS-B knows bounds; in place of CG, which does not, it is used where there
are any, and gradient descent projects its steps.

One entry may have a least value that depends on the others (`Floor`). A descent that comes near it and asks for less
goes on in other coordinates, in which the distance from it, with the bound 0, is in place of the entry.

The optimiser's line search goes back from a point without a value: where the function raises one of the errors that
the caller names, and where value or gradient is not finite. Such a point gets a very large value and the gradient 0.
No parameter moves farther than MAX_DISTANCE from its beginning.
"""

from __future__ import annotations

import math
import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import NotPositiveDefinite

MAX_DISTANCE = 12.0  # a parameter stays this close to its initial value
NEGLIGIBLE = 1e-5  # a decrease by this share of the value, at MAX_DISTANCE along the slope, is not worth evaluations
NEAR_FLOOR = 0.7  # a descent whose best point is nearer to a floor goes on along it: a factor of 2
GRADIENT_DESCENT = "gradient descent"
ARMIJO = 1e-4  # a step of gradient descent must achieve this share of the decrease that the gradient predicts
LONGEST = 1.0  # length of its first step; in log-hyperparameters, a factor of e
Item = TypeVar("Item")
Point = np.ndarray  # [p]
ValueAndGradient = tuple[float, np.ndarray]


class Evaluated(NamedTuple):
    """Value and gradient of the function at one point."""

    value: float
    gradient: Any  # [p]
    extra: Any = None  # what the caller wants returned with the best point


class Best(NamedTuple):
    """The best point so far."""

    point: Any  # [p]
    value: float
    extra: Any


class Replayed(NamedTuple):
    """The best point so far, after some evaluations."""

    position: int  # evaluations that had a value, since the beginning
    theta: Tensor  # [p]
    value: float  # with the penalty
    extra: Any
    penalty: float = 0.0

    @property
    def of_the_data(self) -> float:
        """The value without the penalty of a prior."""
        return self.value - self.penalty if self.penalty else self.value


class Watched(Generic[Item]):
    """A generator that keeps what it returns: of a descent, whether its optimiser says that it has converged."""

    def __init__(self, steps: Generator[Item, None, Any]) -> None:
        self.steps = steps
        self.result: Any = None

    def __iter__(self) -> Iterator[Item]:
        self.result = yield from self.steps

    def close(self) -> None:
        """End the generator: of a descent, its optimiser too."""
        self.steps.close()


class Recorded:
    """A function whose evaluations are kept, so that a descent which is resumed takes them from there.

    Parameters
    ----------
    function : callable
        theta [p] -> the value, any further numbers, and last the gradient [p].
    rows : Tensor [k, q]
        Earlier evaluations, each the q numbers that the function returns; nan where there is no value.
    undefined : tuple of exception types
        Those of a theta at which the function has no value.

    Attributes
    ----------
    rows : list of Tensor [q]
        All evaluations so far.
    """

    def __init__(
        self,
        function: Callable[[Tensor], tuple[Any, ...]],
        rows: Float[Tensor, "k q"],
        undefined: tuple[type[Exception], ...] = (NotPositiveDefinite,),
    ) -> None:
        self.function, self.rows, self.undefined = function, list(rows), undefined
        self._earlier, self._without_value = iter(rows), rows.new_full(rows.shape[1:], math.nan)

    def __call__(self, theta: Float[Tensor, " p"]) -> Evaluated:
        """Return value and gradient, and the further numbers as `extra`; first those of the earlier evaluations."""
        row = next(self._earlier, None)
        if row is None:
            row = self.evaluated(theta)
            self.rows.append(row)
        numbers, p = row.tolist(), len(theta)
        return Evaluated(numbers[0], torch.tensor(numbers[-p:], dtype=torch.float64), numbers[1:-p])

    def evaluated(self, theta: Float[Tensor, " p"]) -> Float[Tensor, " q"]:
        """Evaluate the function, and return the row without keeping it."""
        try:
            *numbers, gradient = self.function(theta)
        except self.undefined:
            return self._without_value
        row = torch.cat([gradient.new_tensor(numbers), gradient]).to(self._without_value)
        return row if bool(row.isfinite().all()) else self._without_value


def recorded_gradient(rows: Sequence[Tensor] | Tensor, value: float, p: int) -> Float[Tensor, " p"]:
    """Return the gradient [p] of the evaluation whose value is the nearest to this one."""
    values = torch.stack([row[0] for row in rows])
    return rows[int((values - value).abs().nan_to_num(math.inf).argmin())][-p:]


@runtime_checkable
class Restrictions(Protocol):
    """What restricts a descent: `kernels.theta.restrictions.Restrictions` of theta."""

    @property
    def parameters(self) -> Any:
        """Which entries are free: `kernels.theta.free_parameters.FreeParameters`, a layer above."""

    def to(self, device: torch.device) -> Restrictions:
        """Return the same restrictions of a theta on another device."""

    def penalty(self, theta: Tensor) -> tuple[float, Tensor]:
        """What is added to the value at theta [p], and its gradient [p]."""


@runtime_checkable
class Floor(Protocol):
    """The least value of one entry of a point, which depends on the others: `noise_floor.NoiseFloor`."""

    entry: int
    is_movable: bool  # whether a descent may go on along it

    def least(self, point: Tensor) -> tuple[float, Tensor]:
        """The least value of the entry at a point [p], and its gradient [p], 0 in the entry."""

    def admits(self, point: Tensor) -> bool:
        """Whether a point [p] is not below it."""


class BelowFloor(Exception):
    """A point below the floor, which has no value."""


def above(function: Callable[[Tensor], Evaluated], floor: Floor) -> Callable[[Tensor], Evaluated]:
    """Return the function with no value below the floor."""

    def of_point(point: Tensor) -> Evaluated:
        if not floor.admits(point):
            raise BelowFloor
        return function(point)

    return of_point


def restricted(function: Callable[[Tensor], Evaluated], restrictions: Restrictions) -> Callable[[Tensor], Evaluated]:
    """Return a function of the free numbers: with penalty, and (extra, penalty) in place of its extra."""
    parameters = restrictions.parameters
    p = len(parameters.given)

    def of_free(f: Tensor) -> Evaluated:
        at = parameters.with_others(len(f) - len(parameters.lower))
        point = at.full(f)
        value, gradient, extra = function(point)
        penalty, of_penalty = restrictions.penalty(point[:p])
        gradient = gradient.clone()
        gradient[:p] += of_penalty.to(gradient)
        return Evaluated(value + penalty, at.sums(gradient), (extra, penalty))

    return of_free


def replayed_descent(  # noqa: PLR0913 - a problem, an optimiser, and what it must know of both
    function: Callable[[Tensor], Evaluated],
    begin: Float[Tensor, " p"],
    optimiser: str,
    limit: int,
    done: int = 0,
    undefined: tuple[type[Exception], ...] = (NotPositiveDefinite,),
    restrictions: Restrictions | None = None,
    units: Float[Tensor, " p"] | None = None,
    floor: Floor | None = None,
) -> Generator[Replayed, None, bool | None]:
    """Minimise a function, and yield the best point so far after each evaluation.

    Parameters
    ----------
    function : callable
        theta [p], in the precision and on the device of `begin`, -> value, gradient [p] and anything else.
    begin : Tensor [p]
        Initial point.
    optimiser : {"L-BFGS-B", "CG", "gradient descent"}
        Limited-memory BFGS, nonlinear conjugate gradients, or gradient descent with Armijo's rule.
    limit : int
        Largest number of evaluations.
    done : int, default 0
        Steps that were yielded before: they are repeated, and not yielded again.
    undefined : tuple of exception types
        Errors of `function` which say that it has no value at a point.
    restrictions : Restrictions, optional
        Of the first entries of a point, on any device. The descent begins at the allowed point nearest to `begin`.
    units : Tensor [p], optional
        Of the parameters, 1 without them; those that are tied move in the smallest of theirs. Not of gradient descent.
    floor : Floor, optional
        The least value of one entry, which depends on the others. It has no value below.

    Returns
    -------
    bool or None
        Whether the optimiser found no slope, or no decrease above rounding, and not only that no point of a line search
        was lower; None if all evaluations are used.

    Yields
    ------
    Replayed
        Its value never rises. There is no step for a point without a value.
    """
    parameters, start = None, begin
    if floor is not None:
        function, undefined = above(function, floor), (*undefined, BelowFloor)
    if restrictions is not None:  # the descent is one of the free numbers
        restrictions = restrictions.to(begin.device)
        parameters = restrictions.parameters.with_others(len(begin) - len(restrictions.parameters.given))
        function, start = restricted(function, restrictions), parameters.free(begin)
        if units is not None:
            free = ~parameters.is_fixed
            units = torch.ones_like(start).scatter_reduce(0, parameters.group[free], units.to(start)[free], "amin")
    with closing(Watched(_descended(function, start, optimiser, limit, undefined, parameters, units, floor))) as steps:
        for position, best in enumerate(steps, 1):
            if position <= done:
                continue
            point, extra, penalty = torch.as_tensor(best.point).to(begin), best.extra, 0.0
            if parameters is not None:
                point = parameters.project(parameters.full(point))
                extra, penalty = (None, 0.0) if extra is None else extra
            yield Replayed(position, point, best.value, extra, penalty)
    return steps.result


def _descended(  # noqa: PLR0913 - all that `replayed_descent` is asked for
    function: Callable[[Tensor], Evaluated],
    begin: Tensor,
    optimiser: str,
    limit: int,
    undefined: tuple[type[Exception], ...],
    parameters: Any,
    units: Tensor | None,
    floor: Floor | None,
) -> Generator[Best, None, bool | None]:
    """The best point so far of a descent with the optimiser of this name, within the bounds of the parameters.

    Where it asks for a point below a floor and the best one is near it, or it ends, it goes on along the floor.
    """
    start, bounds = begin.double().cpu().numpy(), None
    steps_of = None if units is None else units.double().cpu().numpy()
    if parameters is not None and parameters.is_bounded:
        bounds = np.stack([parameters.lower.double().cpu().numpy(), parameters.upper.double().cpu().numpy()])
    along = FloorCoordinates(floor, parameters, begin) if floor is not None and floor.is_movable else None
    best, used, is_below = None, 0, False

    def evaluate(point: Point) -> Evaluated | None:
        nonlocal is_below
        try:
            value, gradient, extra = function(torch.as_tensor(point).to(begin))
        except undefined as error:
            is_below = is_below or isinstance(error, BelowFloor)
            return None
        numbers = gradient.double().cpu().numpy()
        return Evaluated(value, numbers, extra) if math.isfinite(value) and np.isfinite(numbers).all() else None

    with closing(Watched(descend(evaluate, start, optimiser, limit, bounds, steps_of))) as steps:
        for used, best in enumerate(steps, 1):  # noqa: B007 - it is read below
            yield best
            if is_below and along is not None and along.distance(best.point) < NEAR_FLOOR:
                break
    if along is None or best is None or not is_below:
        return steps.result
    function_of_distance, bounds = along.function(evaluate), along.bounds(bounds)
    start = along.distances(best.point)
    rest = Watched(descend(function_of_distance, start, optimiser, limit - used, bounds, steps_of))
    with closing(rest):
        for other in rest:
            best = other._replace(point=along.point(other.point)) if other.value < best.value else best
            yield best
    return rest.result


class FloorCoordinates:
    """Coordinates z of a point, in which the entry with a floor is its distance from it, with the bound 0.

    Parameters
    ----------
    floor : Floor
        The least value of the entry.
    parameters : FreeParameters or None
        Which numbers are free, if a point consists of these alone.
    like : Tensor
        Precision and device of a point.
    """

    def __init__(self, floor: Floor, parameters: Any, like: Tensor) -> None:
        self.floor, self.parameters, self.like = floor, parameters, like
        self.place = floor.entry if parameters is None else int(parameters.group[floor.entry])

    def least(self, z: Point) -> tuple[float, Point]:
        """The least value of the entry and its gradient, neither of which depends on the entry."""
        point = torch.as_tensor(z).to(self.like)
        least, gradient = self.floor.least(point if self.parameters is None else self.parameters.full(point))
        gradient = gradient if self.parameters is None else self.parameters.sums(gradient)
        return least, gradient.double().cpu().numpy()

    def distance(self, point: Point) -> float:
        """How far the entry is above its floor."""
        return float(point[self.place] - self.least(point)[0])

    def distances(self, point: Point) -> Point:
        """Return z, for a point that is not below the floor but for rounding."""
        z = point.copy()
        z[self.place] = max(self.distance(point), 0.0)
        return z

    def point(self, z: Point) -> Point:
        """Return the point."""
        point = z.copy()
        point[self.place] += self.least(z)[0]
        return point

    def function(self, evaluate: Callable[[Point], Evaluated | None]) -> Callable[[Point], Evaluated | None]:
        """Return a function of z, from one of the point."""

        def of_distance(z: Point) -> Evaluated | None:
            current = evaluate(self.point(z))
            if current is None:
                return None
            return current._replace(gradient=current.gradient + current.gradient[self.place] * self.least(z)[1])

        return of_distance

    def bounds(self, bounds: np.ndarray | None) -> np.ndarray:
        """Return the bounds [2, p] of z, from those of the point, of which the entry has none."""
        infinite = np.full(len(self.like), np.inf)
        bounds = np.stack([-infinite, infinite]) if bounds is None else bounds.copy()
        bounds[0, self.place] = 0.0
        return bounds


def descend(
    evaluate: Callable[[np.ndarray], Evaluated | None],
    start: np.ndarray,
    optimiser: str,
    limit: int,
    bounds: np.ndarray | None = None,
    units: np.ndarray | None = None,
) -> Generator[Best, None, bool | None]:
    """Minimise a function of a few parameters, and yield the best point so far after each evaluation.

    Parameters
    ----------
    evaluate : callable
        Maps a point [p] to value, gradient and anything else; None where the function does not exist.
    start : ndarray [p]
        Initial point.
    optimiser : {"CG", "L-BFGS-B", "gradient descent"}
        Nonlinear conjugate gradients, limited-memory BFGS, or `gradient_descent`.
    limit : int
        Largest number of evaluations.
    bounds : ndarray [2, p], optional
        Least and largest value of each parameter. With bounds, L-BFGS-B takes the place of CG, which knows none.
    units : ndarray [p], optional
        Of the parameters, in which the optimiser moves; 1 without them.

    Returns
    -------
    bool or None
        Whether SciPy says that it has converged, and no point beside the best one was without a value; None if all
        evaluations are used.

    Yields
    ------
    Best
        Its value never rises.

    Notes
    -----
    A point where the function does not exist gets a very large value and the gradient 0, so that the optimiser's line
    search goes back. Along a direction in which the function is flat, such as the lengthscale of an input that does not
    matter, the optimiser wants a point farther than MAX_DISTANCE from `start` in some parameter: then L-BFGS-B begins
    at the best point again, with that distance as bounds, unless the slope there promises nothing. CG, which knows no
    bounds, goes back.
    """
    from scipy import optimize  # on first use, since it takes as long to import as all of this package

    if optimiser == GRADIENT_DESCENT:
        return (yield from gradient_descent(evaluate, start, limit, bounds))
    if not len(start):  # nothing is free: SciPy takes no empty vector
        current = evaluate(start)
        if current is not None:
            yield Best(start, current.value, current.extra)
        return True
    origin, units = (np.zeros_like(start), np.ones_like(start)) if units is None else (start, units)

    optimiser = optimiser if bounds is None else "L-BFGS-B"
    options = {"CG": {"gtol": 1e-6, "norm": np.inf}, "L-BFGS-B": {"maxfun": limit}}[optimiser]

    def asked(begin: Point, bounds: np.ndarray | None) -> Generator[Point, ValueAndGradient | None, Any]:
        box, z = None if bounds is None else optimize.Bounds(*((bounds - origin) / units)), (begin - origin) / units
        minimize = partial(optimize.minimize, jac=True, method=optimiser, options=options, bounds=box)
        return evaluations(lambda fun: minimize(fun, z))

    requests, is_boxed, steepest = asked(start, bounds), False, 0.0
    best, answer, is_hindered = Best(start, np.inf, None), None, False
    try:
        for _ in range(limit):
            try:
                point = origin + units * (next(requests) if answer is None else requests.send(answer))
            except StopIteration as end:
                return bool(end.value.success) and not is_hindered
            is_far = not is_boxed and np.isfinite(point).all() and np.abs(point - start).max() > MAX_DISTANCE
            is_worth = steepest * MAX_DISTANCE > NEGLIGIBLE * max(abs(best.value), 1.0)
            if is_far and is_worth and optimiser == "L-BFGS-B":
                requests.close()
                near = np.stack([start - MAX_DISTANCE, start + MAX_DISTANCE])
                requests, is_boxed = asked(best.point, near if bounds is None else near.clip(*bounds)), True
                point, is_far = origin + units * next(requests), False
            current = evaluate(point) if np.isfinite(point).all() and not is_far else None
            if current is None:
                is_hindered = True
                answer = (10.0 * abs(best.value) + 1e3, np.zeros_like(point))
                continue
            if current.value < best.value:
                is_hindered = False
                best, steepest = Best(point, current.value, current.extra), float(np.abs(current.gradient).max())
            answer = (current.value, units * current.gradient)
            yield best
        return None
    finally:
        requests.close()


def gradient_descent(
    evaluate: Callable[[Point], Evaluated | None], start: Point, limit: int, bounds: np.ndarray | None = None
) -> Generator[Best, None, bool | None]:
    """Descend along the gradient with Armijo's rule.

    Yields the best point so far after each of at most `limit` evaluations, as `descend` does. A step doubles after a
    success and halves after a failure; the first has length LONGEST. It never says that it has converged.
    """
    current = evaluate(start)
    if current is None:
        return False
    point, length = start, LONGEST / max(float(np.linalg.norm(current.gradient)), 1e-12)
    yield Best(point, current.value, current.extra)
    for _k in range(limit - 1):
        proposal = point - length * current.gradient
        if bounds is not None:
            proposal = proposal.clip(bounds[0], bounds[1])
        expected = ARMIJO * float(current.gradient @ (point - proposal))
        result = evaluate(proposal)
        if result is not None and result.value <= current.value - expected:
            point, current, length = proposal, result, 2.0 * length
        else:
            length *= 0.5
        yield Best(point, current.value, current.extra)
    return None


class _Abandoned(BaseException):
    """Raised inside the optimiser's thread when the generator is closed."""


def evaluations(
    optimiser: Callable[[Callable[[Point], ValueAndGradient]], Any],
) -> Generator[Point, ValueAndGradient | None, Any]:
    """Yield each point that an optimiser wants evaluated; `send` back (value, gradient).

    Parameters
    ----------
    optimiser : callable
        A call such as ``lambda fun: scipy.optimize.minimize(fun, x0, jac=True, method="CG")``.

    Returns
    -------
    object
        The result of the optimiser. An exception of the optimiser is raised here.
    """
    requests: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    answers: queue.SimpleQueue[ValueAndGradient | None] = queue.SimpleQueue()

    def fun(x: Point) -> ValueAndGradient:
        requests.put(("point", np.array(x, dtype=float)))
        answer = answers.get()
        if answer is None:
            raise _Abandoned
        return answer

    def loop() -> None:
        try:
            requests.put(("result", optimiser(fun)))
        except _Abandoned:
            return
        except Exception as error:
            requests.put(("error", error))

    thread = threading.Thread(target=loop, name="optimiser", daemon=True)
    thread.start()
    try:
        while True:
            kind, payload = requests.get()
            if kind == "result":
                return payload
            if kind == "error":
                raise payload
            answers.put((yield payload))
    finally:
        answers.put(None)
        if sys is not None and not sys.is_finalizing():  # while Python 3.13 ends, its other threads do not run any more
            thread.join()
