"""The loop that FITC and SGPR share: theta and Z descend one gradient together, by L-BFGS or conjugate gradients.

SciPy's memory is not part of a state. It is discarded every few evaluations, which are called an epoch, and a run is
resumed by repeating the evaluations of its epoch.

`objectives` computes the derivatives in the covariances K_mn and K_mm, for all four objectives and in one pass over the
rows. Here they go on to theta and Z, which may lie anywhere. For a stationary kernel both come from one pass over
G = dF/dk(Z, X): with W = G * sd^2 dk/dr2,

    d / d log l_q = sum_ij W_ij (z_iq - x_jq)^2 / l_q^2,    d / d z_i = sum_j W_ij (x_j - z_i) / l^2

and the derivative in the log sd is that trace tr S which `objectives.pull_back` returns. Other kernels use
`theta_gradient` and autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ....evidence_limits import BOUNDS, explained_energy, limit_from
from ....kernels.base import gradient_of
from ....kernels.distances import distances_of_scaled, scaled_again, scaled_rows, weighted_differences
from ....linalg.deferred_reads import RepeatedEvaluations
from ....linalg.replayed_descent import Evaluated, replayed_descent
from ....noise_floor import descent_limits
from ....objectives import BLOCK, Nystrom, Terms, is_kept, noise_variance, nystrom, pull_back
from ....posteriors import Posterior, PriorPosterior, nystrom_posterior
from ....problem import Cost, Dataset, Problem, Step
from ...base import Steps, begun
from ...setting_kinds import choice, count
from .. import settings
from ..initial_sets import start_inputs
from ..reporting import EVALUATION_CALLS, entry_flops
from .state import START, MovingInfo, MovingState, distance_moved, initial_state, report


class Gradient(NamedTuple):
    """The gradient of F."""

    theta: Tensor  # [p]
    Z: Tensor  # [m, d]


def sparse_gradient(
    kernel: Any, theta: Float[Tensor, " p"], train: Dataset, Z: Float[Tensor, "m d"], likelihood: str
) -> tuple[Nystrom, Gradient]:
    """Compute what `objectives.nystrom` does, and the gradient of F in theta and Z.

    Parameters
    ----------
    kernel : Covariance
        A kernel of columns of numbers.
    theta : Tensor [p]
        Log-hyperparameters, on the host or on the device of the rows.
    train : Dataset
        n rows.
    Z : Tensor [m, d]
        Inducing inputs.
    likelihood : {"pp", "vfe", "tight-vfe", "fitc"}
        Which objective.

    Raises
    ------
    NotPositiveDefinite
        K_mm has no Cholesky factor, even with jitter.

    Notes
    -----
    About 6 n m^2 flops, 10 n m^2 for FITC and the tight VFE, and 3 n m kernel entries. Memory is n m numbers, or, where
    these would take more than `objectives.KEPT_BYTES`, O(n) numbers for n m^2 flops and n m kernel entries more.
    """
    on_device = theta.to(Z.device)
    gradient = Gradient(torch.zeros_like(on_device), torch.zeros_like(Z))

    def receive(X: Tensor, G: Tensor, K: Tensor | None) -> None:
        add_gradient(gradient, kernel, on_device, (Z, X), G, K)

    model, rest, trace_S = pull_back(kernel, theta, train, Z, likelihood, receive)
    gradient.theta.add_(rest)
    if _is_simple(kernel):  # theta[0] is a log sd: its derivative is sum G K over K_mn, plus that over K_mm
        gradient.theta[0].add_(trace_S)
    return model, gradient


def add_gradient(
    gradient: Gradient, kernel: Any, theta: Tensor, pair: tuple[Tensor, Tensor], G: Tensor, K: Tensor | None = None
) -> None:
    """Add the gradient of sum_ij G_ij k(z_i, x_j) in theta and Z.

    Parameters
    ----------
    gradient : Gradient
        Changed in place.
    theta : Tensor [p]
    pair : tuple of Tensor
        Z [m, d] and X [k, d]. If X is Z itself, both arguments of k move; otherwise X is fixed.
    G : Tensor [m, k]
        It may be overwritten.
    K : Tensor [m, k], optional
        k(Z, X), if it is known and the kernel is its own derivative (`Stationary.is_own_derivative`).

    Notes
    -----
    For a stationary kernel both parts come from one pass: with W = G * sd^2 dk/dr2,

        d / d log l_q = sum_ij W_ij (z_iq - x_jq)^2 / l_q^2,    d / d z_i = sum_j W_ij (x_j - z_i) / l^2

    which is G * K for a kernel that is its own derivative. The derivative in the log sd, 2 sum G K, is left to the
    caller, who has it as a trace. Other kernels use `theta_gradient` and autograd.
    """
    Z, X = pair
    symmetric = X is Z
    if not _is_simple(kernel):
        gradient.theta.add_(kernel.theta_gradient(theta, Z, X, G))
        weights, others = (G + G.T, Z.clone()) if symmetric else (G, X)  # the derivative is that of one argument
        gradient.Z.add_(gradient_of(Z, lambda points: (kernel(theta, points, others) * weights).sum()))
        return
    lengthscale = theta[1:-1].exp()
    scaled = scaled_rows(Z, X, lengthscale) if K is None else scaled_again(Z, X, lengthscale)
    if K is not None:
        W = G.mul_(K)
    else:
        r2 = distances_of_scaled(scaled, Z, X, lengthscale)
        W = kernel.profile_derivative(theta, r2).mul_(G).mul_(torch.exp(2.0 * theta[0]))  # [m, k]
    if symmetric:  # z_i is an argument of row i and of column i; the sum over both has every pair twice
        W = W + W.T
    spread, in_Z = weighted_differences(W, scaled, Z, X, lengthscale)  # [d], [m, d]
    spread = spread if len(lengthscale) == len(spread) else spread.sum()
    gradient.theta[1:-1].add_(spread, alpha=0.5 if symmetric else 1.0)
    gradient.Z.addcdiv_(in_Z, lengthscale)


def _is_simple(kernel: Any) -> bool:
    """Return whether theta is [log sd, log lengthscales, log noise] of a stationary kernel, and nothing more."""
    return hasattr(kernel, "profile_derivative") and all(name.startswith("lengthscale") for name in kernel.names[1:-1])


ModelAndGradient = Callable[[Any, Tensor, Any, Tensor], tuple[Nystrom, Gradient]]  # kernel, theta, train, Z
PASS_FLOPS = 300.0  # flops of a product in the time of the passes over an entry in the gradient
OWN_PASS_FLOPS = 100.0  # the same for a kernel that is its own derivative: six passes, without an exponential
SOLVE = 10.0  # flops of a product in the time of one of a triangular solve: few rows, many right-hand sides
ROWWISE = {"fitc": 160.0, "tight-vfe": 100.0}  # likewise for the passes over n x m in which every row has a weight
BLOCK_CALLS = 50.0  # calls per block of rows in the gradient
PER_EPOCH = 40  # evaluations after which SciPy's memory is discarded


class Descent(NamedTuple):
    """One descent of theta and Z by SciPy, an epoch.

    Attributes
    ----------
    model_and_gradient : callable
        (kernel, theta, train, Z) -> the model with its terms, and the gradient.
    likelihood : {"pp", "vfe", "tight-vfe", "fitc"}
    learn : bool
        Whether theta moves too.
    optimiser : {"L-BFGS-B", "CG"}
    limit : int
        Evaluations, at most.
    is_recordable : bool
        Whether a GPU may repeat an evaluation as a CUDA graph.
    """

    model_and_gradient: ModelAndGradient
    likelihood: str
    learn: bool
    optimiser: str
    limit: int
    is_recordable: bool = True


class MovablePoints(settings.SparseMethod):
    """A sparse GP whose inducing points lie anywhere, so that a person may move them."""

    State: ClassVar[type] = MovingState
    Info: ClassVar[type] = MovingInfo

    def posterior(self, problem: Problem, state: MovingState) -> Posterior:
        if state.step == 0:
            return PriorPosterior(problem.kernel, state.theta)
        model = nystrom(problem.kernel, state.theta, problem.train, state.Z, self.likelihood_name)
        return nystrom_posterior(problem.kernel, state.theta, state.Z, model, self.likelihood_name == "fitc")

    def move_point(self, problem: Problem, state: MovingState, slot: int, position: Tensor) -> Step:
        """Return the step that puts inducing point `slot` at `position` [d], scaled inputs, with theta as it was.

        About 2 n m^2 flops. The run continues from it with a new descent.
        """
        Z = state.Z.clone()
        Z[slot] = position
        return self._begun_again(problem, state, Z, state.theta)

    def set_by_hand(self, problem: Problem, state: MovingState) -> Step:
        """Keep the points."""
        if state.phase == "start":
            return super().set_by_hand(problem, state)
        return self._begun_again(problem, state, state.Z.clone(), problem.theta)

    def _begun_again(self, problem: Problem, state: MovingState, Z: Tensor, theta: Tensor) -> Step:
        """The step that puts the points at Z [m, d] and the hyperparameters at theta, where a new descent begins."""
        model = nystrom(problem.kernel, theta, problem.train, Z, self.likelihood_name)
        moved = state._replace(
            step=state.step + 1, phase="move", position=0, terms=model.terms,
            Z=Z, Z_begin=Z.clone(), theta=theta.clone(), theta_begin=theta.clone(),
            epoch_begin=model.terms.total(self.likelihood_name),
        )  # fmt: skip
        distance = distance_moved(Z, state.Z)
        return Step(moved, report(moved, self.likelihood_name, distance, model.jitter)._replace(phase="forced"))


class MovingPoints(MovablePoints):
    """A sparse GP whose inducing inputs move with the hyperparameters down the gradient of one objective."""

    start: Any  # each method declares its own default

    optimiser: Any = choice(
        ["L-BFGS-B", "CG"],
        doc="SciPy's optimiser for points and hyperparameters together. L-BFGS-B needs fewer evaluations.",
    )
    evaluations: Any = count(
        0,
        (0, 100),
        doc=f"Evaluations of the objective per epoch, after which the optimiser starts again; 0 means {PER_EPOCH}.",
    )

    def descent(self, problem: Problem) -> Descent:
        """Return the objective and its descent; raise SettingError where the problem does not allow it."""
        gradient = partial(sparse_gradient, likelihood=self.likelihood_name)
        return Descent(gradient, self.likelihood_name, self.learn, self.optimiser, self.evaluations or PER_EPOCH)

    def steps(self, problem: Problem, resume: MovingState | None = None) -> Steps:
        """Run descents until an epoch lowers the objective by too little. A step is one evaluation and its gradient."""
        descent, m = self.descent(problem), self.num_points(len(problem.train))
        evaluations = _evaluations(problem, descent)
        state = yield from begun(resume, initial_state(problem, m, self.seed, self.title), START)
        if state.phase == "start":
            Z = start_inputs(self.start, problem, m, self.seed)
            state = state._replace(phase="move", Z=Z, Z_begin=Z.clone())

        phase = partial(descent_steps, problem, descent=descent, evaluations=evaluations)
        return (yield from self.epochs(problem, state, phase))

    def epoch_fields(self, state: MovingState) -> dict[str, Any]:
        return {"Z_begin": state.Z.clone()}

    def cost(self, problem: Problem) -> Cost:
        """Predict the cost of one evaluation of the objective and its gradient."""
        n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
        m = min(self.num_points(n), n)
        is_own, is_rowwise = getattr(problem.kernel, "is_own_derivative", False), self.likelihood_name in ROWWISE
        computed = 1.0 if is_own else 2.0  # times that K_mn or its derivative is computed
        flops = 6.0 * n * m * m + computed * n * m * (entry_flops(problem) + 4.0 * d) + 3.0 * m**3
        flops += (OWN_PASS_FLOPS if is_own else PASS_FLOPS) * n * m
        if is_rowwise:  # two more products and one solve
            flops += (4.0 + SOLVE) * n * m * m + ROWWISE[self.likelihood_name] * n * m
        block = min(1.0 * s * n * m, BLOCK / 3)
        memory = {"vectors of n numbers": 7.0 * s * n, "a block": (4.0 if is_rowwise else 3.0) * block}
        if is_kept(n, m, s):
            memory |= {"factor L": 1.0 * s * n * m, "K_mn": 1.0 * s * n * m}
        else:  # its columns are computed twice
            flops += SOLVE * n * m * m + n * m * entry_flops(problem)
        memory["m x m factors"] = 8.0 * s * m * m
        return Cost(flops, 16.0 * s * n * m, memory, EVALUATION_CALLS + BLOCK_CALLS * 3.0 * s * n * m / BLOCK)


def descent_steps(
    problem: Problem, state: MovingState, descent: Descent, evaluations: RepeatedEvaluations | None = None
) -> Generator[Step, None, MovingState]:
    """Yield one step per evaluation, with the best point so far; return the last state.

    A state in the middle of the descent is resumed by repeating the evaluations that led to it.
    """
    Z_before = state.Z.cpu()
    for point, terms, jitter, least in _descend(problem, state, descent, evaluations or _evaluations(problem, descent)):
        position, p = state.position + 1, len(state.theta)
        theta, Z = point[:p], point[p:].reshape(state.Z.shape)  # views of the point
        if state.epoch == 0 and position == 1:
            state = state._replace(epoch_begin=terms.total(descent.likelihood))
        state = state._replace(
            step=state.step + 1,
            phase="move",
            position=position,
            theta=theta.to(state.theta, copy=True),
            Z=Z.to(state.Z, copy=True),
            terms=terms,
        )
        yield Step(state, report(state, descent.likelihood, distance_moved(Z, Z_before), jitter, least))
        Z_before = Z
    return state


def _evaluations(problem: Problem, descent: Descent) -> RepeatedEvaluations:
    """The objective's terms, jitter, tr(K - K_hat), `explained_energy` and gradient at a point of the descent."""
    kernel, train, p = problem.kernel, problem.train, len(problem.theta)

    def parts(point: Tensor) -> tuple[Any, ...]:
        Z = point[p:].reshape(-1, train.d).to(train.y.device)
        model, gradient = descent.model_and_gradient(kernel, point[:p], train, Z)
        if not descent.learn:
            gradient.theta.zero_()
        has_limit = descent.likelihood in BOUNDS and len(model.c)
        energy = explained_energy(model) if has_limit else math.nan
        joined = torch.cat([gradient.theta, gradient.Z.reshape(-1)])
        return *model.terms, model.jitter, model.unexplained, energy, joined

    recordable = descent.is_recordable and _is_simple(kernel)
    return RepeatedEvaluations(parts, train.y, getattr(kernel, "counter", None), recordable)


def _descend(
    problem: Problem, state: MovingState, descent: Descent, evaluations: RepeatedEvaluations
) -> Generator[tuple[Tensor, Terms, float, float], None, None]:
    """Yield the best point, its terms, its jitter and the limit of the exact objective after each new evaluation.

    The descent is on the host: a GPU gets a point, and is asked once for all numbers of its evaluation.
    """
    train = problem.train
    begin = torch.cat([state.theta_begin, state.Z_begin.reshape(-1)]).cpu()
    theta_begin, yy = begin[: len(state.theta)], float(train.y @ train.y)

    def evaluate(point: Tensor) -> Evaluated:
        theta = point[: len(theta_begin)]
        *numbers, gradient = evaluations(point)
        fit, complexity, trace, jitter, unexplained, energy = map(float, numbers)
        terms = Terms(fit, complexity, trace)
        least = limit_from(yy - energy, noise_variance(theta), unexplained, complexity)
        return Evaluated(terms.total(descent.likelihood), gradient, (terms, jitter, least))

    limits = descent_limits(problem, descent.learn)
    for best in replayed_descent(evaluate, begin, descent.optimiser, descent.limit, state.position, **limits):
        yield best.theta, *best.extra
