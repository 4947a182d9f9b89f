"""The continuous phase: hyperparameters by SciPy's nonlinear conjugate gradients or L-BFGS, inducing points fixed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from ...errors import NotPositiveDefinite
from ...linalg.replayed_descent import Evaluated, replayed_descent
from ...objectives import Terms, may_learn, nystrom_gradient
from ...problem import Dataset, Kernel

Objective = Callable[[Tensor], tuple[Terms, Tensor, float]]


class LearningSettings(Protocol):
    """The settings of a method that the continuous phase reads."""

    optimiser: Any  # "CG" or "L-BFGS-B"
    evaluations: Any  # evaluations of the objective per epoch; 0 chooses from the number of hyperparameters


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
    kernel: Kernel, train: Dataset, Z: object, objective: str, begin: Tensor, settings: LearningSettings, done: int
) -> Generator[Evaluation, None, None]:
    """Decrease the objective over the hyperparameters, with the inducing inputs fixed.

    SciPy's memory is not part of a state, so a phase is resumed by repeating its evaluations from the beginning.

    Parameters
    ----------
    Z : Tensor [m, d] or sequence
        Inducing inputs.
    objective : {"vfe", "tight-vfe", "pp"}
    begin : Tensor [p]
        Hyperparameters at the beginning of the phase.
    settings : LearningSettings
        By default there are min(20, max(15, 2 p)) evaluations (Cao et al. 2013, section 4).
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
        model, gradient = nystrom_gradient(kernel, theta, train, Z, objective)
        return model.terms, gradient, model.jitter

    return minimise(resolved(terms_at, kernel, train, begin), kernel, begin, objective, settings, done)


def resolved(terms_at: Objective, kernel: Kernel, train: Dataset, begin: Tensor) -> Objective:
    """Return an objective that has no value where the noise variance is smaller than the floating-point type resolves.

    Parameters
    ----------
    terms_at : callable
        The objective, as `minimise` takes it.
    train : Dataset
        Its rows.
    begin : Tensor [p]
        Hyperparameters at the beginning; a noise variance as small as theirs has a value all the same.
    """

    def terms_where_resolved(theta: Tensor) -> tuple[Terms, Tensor, float]:
        if not may_learn(kernel, theta, train, begin):
            raise NotPositiveDefinite("K_hat + s2 I", len(train), 0.0)
        return terms_at(theta)

    return terms_where_resolved


def minimise(
    terms_at: Objective,
    kernel: Kernel,
    begin: Tensor,
    objective: str,
    settings: LearningSettings,
    done: int,
) -> Generator[Evaluation, None, None]:
    """Decrease an objective over the hyperparameters, evaluation by evaluation.

    Parameters
    ----------
    terms_at : callable
        Takes theta [p]; returns the terms of the objective, its gradient [p], and the jitter that it needed.
    kernel : Kernel
        Its restrictions of theta hold, and the log density of its priors is added.
    begin, objective, settings, done : Tensor or str or LearningSettings or int
        As for `learn_hyperparameters`, with the same yields.
    """

    def evaluate(theta: Tensor) -> Evaluated:
        terms, gradient, jitter = terms_at(theta)
        return Evaluated(terms.total(objective), gradient, (terms, jitter))

    limit = settings.evaluations or min(20, max(15, 2 * len(begin)))
    restrictions = getattr(kernel, "restrictions", None)
    for best in replayed_descent(evaluate, begin, settings.optimiser, limit, done, restrictions=restrictions):
        yield Evaluation(best.position, best.theta, *best.extra)
