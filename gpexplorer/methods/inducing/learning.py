"""The continuous phase: hyperparameters by SciPy's nonlinear conjugate gradients or L-BFGS, inducing points fixed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple

from torch import Tensor

from ...linalg.deferred_reads import RepeatedEvaluations
from ...linalg.replayed_descent import Evaluated, replayed_descent
from ...noise_floor import descent_limits
from ...objectives import Terms, nystrom_gradient
from ...problem import Problem, Step
from .settings import LearningMethod, SparseMethod

Objective = Callable[[Tensor], tuple[Terms, Tensor, float]]


class Evaluation(NamedTuple):
    """The best hyperparameters after some evaluations of the objective.

    Attributes
    ----------
    position : int
        Evaluations done.
    theta : Tensor [p]
    terms : Terms
        Terms of the objective at theta.
    jitter : float
        What was added to the diagonal of K_mm there.
    """

    position: int
    theta: Tensor
    terms: Terms
    jitter: float


def learn_hyperparameters(
    problem: Problem, Z: object, method: SparseMethod, begin: Tensor, done: int
) -> Generator[Evaluation, None, None]:
    """Decrease the objective over the hyperparameters, with the inducing inputs fixed.

    SciPy's memory is not part of a state, so a phase is resumed by repeating its evaluations from the beginning.

    Parameters
    ----------
    Z : Tensor [m, d] or sequence
        Inducing inputs.
    method : SparseMethod
        Its objective, its optimiser and the number of evaluations of a phase: by default min(20, max(15, 2 p)) (Cao
        et al. 2013, section 4).
    begin : Tensor [p]
        Hyperparameters at the beginning of the phase.
    done : int
        Evaluations of this phase that were done before; they are repeated, and not yielded again.

    Yields
    ------
    Evaluation
        After each evaluation. The objective never increases.

    Notes
    -----
    About 6 n m^2 flops per evaluation. A theta at which K_mm has no Cholesky factor counts as infinitely bad, and so
    does a noise variance that the floating-point type does not resolve, unless it is the one at the beginning.
    """

    def terms_at(theta: Tensor) -> tuple[Terms, Tensor, float]:
        model, gradient = nystrom_gradient(problem.kernel, theta, problem.train, Z, method.objective)
        return model.terms, gradient, model.jitter

    return minimise(terms_at, problem, method, begin, done)


def minimise(
    terms_at: Objective, problem: Problem, method: LearningMethod, begin: Tensor, done: int
) -> Generator[Evaluation, None, None]:
    """Decrease an objective over the hyperparameters, evaluation by evaluation.

    Parameters
    ----------
    terms_at : callable
        Takes theta [p] on the host; returns the terms of the objective, its gradient [p], and the jitter it needed.
    problem : Problem
        The restrictions of its kernel hold, and the log density of its priors is added.
    method, begin, done : LearningMethod or Tensor or int
        As for `learn_hyperparameters`, with the same yields.
    """

    def parts(theta: Tensor) -> tuple[Any, ...]:
        terms, gradient, jitter = terms_at(theta)
        return *terms, jitter, gradient

    evaluations, start = RepeatedEvaluations(parts, problem.train.y, is_recordable=False), begin.cpu()

    def evaluate(theta: Tensor) -> Evaluated:
        *numbers, gradient = evaluations(theta)
        fit, complexity, trace, jitter = map(float, numbers)
        terms = Terms(fit, complexity, trace)
        return Evaluated(terms.total(method.likelihood_name), gradient, (terms, jitter))

    limit = method.evaluations or min(20, max(15, 2 * len(begin)))
    for best in replayed_descent(evaluate, start, method.optimiser, limit, done, **descent_limits(problem)):
        yield Evaluation(best.position, best.theta.to(begin), *best.extra)


def learning_steps(
    state: Any, evaluations: Iterable[Evaluation], report: Callable[[Any, float], Any]
) -> Generator[Step, None, Any]:
    """Yield one step per evaluation, with the best hyperparameters so far; return the last state.

    Parameters
    ----------
    report : callable
        Returns what a step reports, from its state and its jitter.
    """
    for position, theta, terms, jitter in evaluations:
        state = state._replace(step=state.step + 1, position=position, phase="learn", theta=theta, terms=terms)
        yield Step(state, report(state, jitter))
    return state
