"""SVGP: inducing inputs and a variational normal, whose bound is a sum over rows (Hensman et al. 2013).

    log p(y) >= sum_i E_q log N(y_i | f_i, s2) - KL(q(u) || p(u)),    q(u) = N(L m, L S S' L'),  L L' = K_mm
    mean = a'm,   var = k(x, x) - a'a + |S'a|^2,   a = L^-1 k_m(x)                                    A = [a_1 ... a_b]

The kernel is SE-ARD on the inputs by default; with `layers` or `kernel="linear"` it is that of the other methods of
this family. The parameters of q follow natural gradients (`variational="natural"`), in whitened coordinates:

    Lambda <- (1 - r) Lambda + r (I + n / (b s2) A A')        Lambda = (S S')^-1            Hensman et al., section 3.2
    eta    <- (1 - r) eta    + r n / (b s2) A y               eta = Lambda m

Kernel, noise and inducing inputs follow the optimiser. With r = 1 and all rows, q is the optimal one (Titsias 2009).

The gradient of l = -ELBO / n on b rows is in closed form, with c = 1 / (b s2), e = A'm - y, and G_K = d l / d K:

    d l / d m   = c A e + m / n                       d l / d S = tril(c A A'S) + S / n - diag(1 / S_ii) / n
    d l / d A   = c (m e' - A + S S'A) = G_A          d l / d log sd = 1 - c (e'e + sum var)
    G_mb = L^-T G_A,   G_mm = -L^-T R L^-1            R: the symmetric matrix with half the lower part of G_A A'

Kernels are computed in the precision of the rows, and K_mm is factored in float64, as in GPyTorch, with whose bound
and gradients the tests compare these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...features.deep import views
from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky
from ...linalg.deferred_reads import Number, add_multiple, add_product, at_least, number
from ...linalg.randomness import generator, random_rows
from ...posteriors import CovarianceRoot, InducingPosterior, Posterior, PriorPosterior
from ...problem import Channel, Cost, Problem, channel, channels_of
from ..own_points import number_of_points, own_inputs, own_start
from ..setting_kinds import amount, choice, count, share
from . import settings
from .gradients import Parameters
from .learner import Learner
from .loop import ADDED_SETTINGS, Evaluation, Minibatches
from .model import MATCHED_ROWS, Model, factorisation_flops, feature_flops, step_cost
from .state import MinibatchInfo, MinibatchState

JITTER = {torch.float32: 1e-4, torch.float64: 1e-6}  # on K_mm, as in GPyTorch, if the setting `jitter` is 0
CALLS = 90.0  # torch operations of a minibatch
EVALUATED_ROWS = 50_000  # of these the bound is computed: of a million rows it takes as long as hundreds of minibatches
SCALE_ROWS = 8  # inducing inputs whose mean prior variance is the scale of rounding in K_mm


class SVGP(Minibatches):
    """Stochastic variational inference with inducing inputs, by default with an SE-ARD kernel of the inputs.

    Notes
    -----
    A minibatch of b rows and m inducing inputs costs 11/3 m^3 + 10 m^2 b + (4 m + 6 b) m D flops for kernels of D
    inputs or features, and three passes of m + b rows through the network. The objective that is reported is the
    negative bound, which is no less than the NLML; with more than EVALUATED_ROWS rows it is estimated from that many.

    References
    ----------
    Hensman, Fusi and Lawrence (2013), sections 3.1 and 3.2.
    """

    key: ClassVar[str] = "svgp"
    added_settings: ClassVar[Mapping[str, Any]] = {
        **ADDED_SETTINGS,
        "variational": "optimiser",
        "natural_rate": 0.1,
        "num_inducing": lambda settings: settings["batch_size"],
        "jitter": 0.0,
        "start": "random",
    }
    title: ClassVar[str] = "SVGP"
    paper: ClassVar[str] = "Hensman, Fusi and Lawrence (2013). Gaussian processes for big data. UAI."
    channels: ClassVar[tuple[Channel, ...]] = channels_of(
        MinibatchInfo,
        objective=channel("negative ELBO, an upper bound of the NLML", "nat"),
        estimate=channel("negative ELBO as the minibatches see it", "nat"),
    )

    objective_name: ClassVar[str] = "negative ELBO"
    refits: ClassVar[bool] = False

    kernel: Any = choice(
        ["linear", "gaussian"],
        default="gaussian",
        doc="Kernel on features: of the inputs, or of the learned features if there are layers. gaussian is SE-ARD.",
    )
    layers = count(0, (0, 4), least=0, most=20, doc="Layers of the network; with 0 the features are the inputs.")
    batch_size = settings.batch_size(128)
    rate = settings.rate(1e-2)
    validation = amount(0.0, most=0.5, doc="Fraction of the rows set aside; 0 chooses theta by the ELBO.")
    patience = count(0, (0, 50), least=0, doc="Stop after this many evaluations without improvement; 0 uses all.")
    refit: Any = param.Selector(
        default="held-out",
        objects=["held-out", "none"],
        precedence=-1,
        doc="Without effect: the ELBO chooses the noise.",
    )
    folds = param.Integer(5, bounds=(1, None), precedence=-1, doc="Without effect, since there is no refit.")
    samples = param.Integer(
        0, bounds=(0, None), precedence=-1, doc="0, since the weights of an inducing-point model are not sampled."
    )
    num_inducing = count(256, (16, 1000), doc="Inducing inputs m: all rows if there are fewer.")
    start = own_start("random", "Initial inducing inputs, by default random rows.")
    variational: Any = choice(
        ["natural", "optimiser"],
        doc="How the variational normal moves: by natural gradients, or by the optimiser as all other parameters.",
    )
    natural_rate = share(
        0.1,
        inclusive=(False, True),
        doc="Step length r of the natural gradients; 1 with all rows is the optimum for the present kernel.",
    )

    jitter = share(
        1e-4,
        doc="Jitter on K_mm as a share of the noise variance, and at least the rounding of K_mm. Large jitter costs "
        "likelihood where the noise is small. 0 adds 1e-6, in float32 1e-4, whatever the noise, as GPyTorch does.",
    )

    def learner(self, model: Model, state: MinibatchState) -> Learner:
        return SVGPLearner(self, model, state)

    def evaluate(self, model: Model, learner: Learner) -> Evaluation:
        """Compute -ELBO of all rows, with many from EVALUATED_ROWS random ones, and the error on the rows set aside."""
        theta, w = learner.parameters.theta, learner.parameters.w
        _, m, S = variational_parts(model, w)
        predict, s2, total = self.predictor(model, theta, w), math.exp(2.0 * float(theta[-1])), 0.0
        used = min(model.n, EVALUATED_ROWS)
        order = random_rows(model.n, used, generator(self.seed, "bound")).sort().values.to(model.rows_device)
        for rows in row_blocks(used, 8 * theta.element_size() * (len(m) + model.problem.train.d), theta):
            X, y = model.rows(rows if used == model.n else order[rows])
            mean, var = predict(X)
            total += float(((y - mean).square() + var).sum()) * model.n / (used * s2)
        S = S.tril()
        divergence = float(m.square().sum() + S.square().sum()) - len(m) - 2.0 * float(S.diagonal().abs().log().sum())
        objective, error = 0.5 * (total + model.n * math.log(s2) + divergence), math.nan
        if len(model.validation_rows):
            X, y = model.validation()
            error = float((predict(X).mean - y).square().mean().sqrt())
        return Evaluation(objective, error)

    def posterior(self, problem: Problem, state: MinibatchState) -> Posterior:
        model = Model(self, problem)
        if not state.batches:
            return PriorPosterior(model.covariance, model.matched(state.theta))
        return self.predictor(model, state.theta, state.w)

    def answer_note(self, problem: Problem, state: MinibatchState) -> str:
        """That a state before the first minibatch knows nothing of the targets; empty afterwards."""
        if state.batches:
            return ""
        return "No minibatch has been learned from: predictions are those of the prior. Continue the run for others."

    def predictor(self, model: Model, theta: Tensor, w: Tensor) -> InducingPosterior:
        """Return the posterior of f from the inducing inputs and the whitened variational normal."""
        Z, m, S = variational_parts(model, w)
        K_mm = model.covariance(theta, Z, Z)
        L = whitened(K_mm, jitter(K_mm, (2.0 * theta[-1]).exp(), self.jitter)).to(theta)
        return InducingPosterior(model.covariance, theta, Z, L, CovarianceRoot(m, S.tril()))

    def _finish(self, problem: Problem, model: Model, state: MinibatchState) -> tuple[MinibatchState, MinibatchInfo]:
        """Return to the best theta and its variational normal, which cannot be refitted by the features' spectrum."""
        state = state.at_best_theta()._replace(step=state.step + 1, phase="best", matrices=())
        evaluation = self.evaluate(model, self.learner(model, state))
        noise = math.exp(float(state.theta[-1]))
        Z = variational_parts(model, state.w)[0]
        added = float(jitter(model.covariance(state.theta, Z, Z), noise**2, self.jitter))
        remarks = [f"The jitter on K_mm is {added:.2g}, which is {added / noise**2:.2g} of the noise variance."]
        if model.n > EVALUATED_ROWS:
            remarks += [f"The negative ELBO is estimated from {EVALUATED_ROWS:,} of the {model.n:,} rows."]
        state = state._replace(remark=" ".join(filter(None, [state.remark, *remarks])))
        return state, MinibatchInfo("best", evaluation.objective, noise=noise, error=evaluation.error)

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        b, m = min(self.batch_size, model.n), number_of_points(self.start, self.num_inducing, model.n)
        width = model.D if model.waves is None else model.map.width
        algebra = 3.0 * m * feature_flops(model)  # the inducing inputs pass the network as well
        algebra += factorisation_flops(m) / 3.0 + 2.0 * m**3 + 10.0 * m * m * b + (4.0 * m + 6.0 * b) * m * width
        if self.variational == "natural":
            algebra += factorisation_flops(m) * 4.0 / 3.0
        cost = step_cost(self, model, self.batch_size, algebra=algebra, matrices=0, calls=CALLS)
        s, parameters = model.like.element_size(), model.size + sum(math.prod(shape) for shape in shapes(model, m))
        arrays = {
            "parameters, gradient and averages": 8.0 * s * parameters,
            "m x m matrices": 12.0 * s * m * m,
            "kernel of a minibatch": 6.0 * s * b * (m + b),
        }
        initial = 3.5 * s * min(model.n, MATCHED_ROWS) * model.D  # features that match the prior variance at the start
        arrays["features of the first rows"] = max(initial - sum(arrays.values()), 0.0)
        return replace(cost, arrays=arrays)


def shapes(model: Model, m: int) -> list[tuple[int, ...]]:
    """Return the shapes of inducing inputs, variational mean and factor, in their order in the vector w."""
    return [(m, model.problem.train.d), (m,), (m, m)]


def variational_parts(model: Model, w: Tensor) -> list[Tensor]:
    """Return inducing inputs [m, d], mean [m] and factor [m, m] as views of w, whose length m^2 + m (d + 1) gives m."""
    offset = 0.5 * (model.problem.train.d + 1)
    return views(w, shapes(model, round(math.sqrt(offset * offset + len(w)) - offset)))


def jitter(K_mm: Tensor, s2: Number, share: float) -> Number:
    """Return the jitter on K_mm: this share of the noise variance, or what rounding needs; fixed if the share is 0."""
    if not share:
        return JITTER[K_mm.dtype]
    scale = number(K_mm.diagonal()[:SCALE_ROWS].mean())
    return at_least(share * s2, len(K_mm) * torch.finfo(K_mm.dtype).eps * scale)


def whitened(K_mm: Tensor, jitter: Number) -> Tensor:
    """Return the Cholesky factor L [m, m] of K_mm with jitter, in float64."""
    shifted = K_mm.to(torch.float64, copy=True)
    shifted.diagonal().add_(jitter)
    return cholesky(shifted, "K_mm").L


class SVGPLearner(Learner):
    """One minibatch of SVGP: a natural-gradient step of q, then the gradient in the other parameters."""

    precision: Tensor  # [m, m] Lambda
    eta: Tensor  # [m] Lambda m

    def __init__(self, method: SVGP, model: Model, state: MinibatchState) -> None:
        self.start, self.natural_rate = method.start, method.natural_rate
        self.num_inducing = number_of_points(method.start, method.num_inducing, model.n)
        self.natural, self.jitter = method.variational == "natural", method.jitter
        super().__init__(method, model, state, method.batch_size)

    def begin(self, state: MinibatchState) -> Parameters:
        model, m = self.model, self.num_inducing
        if state.batches:
            w, theta = state.w, state.theta
        else:
            theta = model.matched(state.theta)
            rows = torch.randperm(model.n, generator=generator(self.seed, "inducing"))[:m]
            Z = model.rows(rows)[0] if isinstance(self.start, str) else own_inputs(self.start, model.problem)[:m]
            w = torch.cat([Z.flatten(), theta.new_zeros(m), torch.eye(m).to(theta).flatten()])
        parameters = Parameters(model, w, theta)
        self.Z, self.mean, self.S = variational_parts(model, parameters.w)
        if self.natural:
            self.precision, self.eta = (matrix.clone() for matrix in state.matrices or self._natural_parameters())
        self.into_Z, self.into_mean, self.into_S = variational_parts(model, parameters.g_w)
        return parameters

    def matrices(self) -> tuple[Tensor, ...]:
        return (self.precision.clone(), self.eta.clone()) if self.natural else ()

    def moved(self) -> tuple[Tensor, ...]:
        return (*super().moved(), *((self.precision, self.eta) if self.natural else ()))

    def gradient(self, index: Tensor, t: int) -> Number:
        """Write the gradient by the formulas above, and return -2 ELBO / n of the minibatch."""
        model, parameters, m = self.model, self.parameters, self.num_inducing
        (X, y), s2 = model.rows(index), parameters.s2()
        b, c = len(y), 1.0 / (len(y) * s2)
        tape = model.covariance.first_rows(parameters.parts, torch.cat([self.Z, X]), m)
        K_mm, K_mb = tape.K[:, :m], tape.K[:, m:]
        added = jitter(K_mm, s2, self.jitter)
        L = whitened(K_mm, added)
        A = torch.linalg.solve_triangular(L, K_mb.double(), upper=False).to(y.dtype)  # [m, b]
        if self.natural:
            self._natural_step(A, y, s2)

        S, mean = self.S.tril(), self.mean
        T, e = torch.mm(S.T, A), torch.addmv(y, A.T, mean, beta=-1.0)  # [m, b], [b]
        variance = model.covariance.diag_sum(parameters.parts, tape, m) + b * added - _squares(A) + _squares(T)
        fit = (_squares(e) + variance) * c
        divergence = _squares(mean) + _squares(S) - m - 2.0 * number(S.diagonal().abs().log().sum())

        if not self.natural:
            torch.mv(A, e, out=self.into_mean).mul_(c).add_(mean, alpha=1.0 / model.n)
            torch.mm(A, T.T, out=self.into_S).tril_().mul_(c).add_(S, alpha=1.0 / model.n)
            self.into_S.diagonal().sub_(S.diagonal().reciprocal(), alpha=1.0 / model.n)
        G_A = torch.addmm(A, S, T, beta=-1.0).addr_(mean, e).mul_(c)  # [m, b]
        G_K = self._gradient_of_K(L, A.double(), G_A.double()).to(y.dtype)
        model.covariance.pullback(parameters.parts, tape, G_K, 0.5 * c, parameters.into, self.into_Z)
        parameters.into[-1].fill_(1.0 - fit)
        return fit + parameters.log_s2() + divergence / model.n

    @staticmethod
    def _gradient_of_K(L: Tensor, A: Tensor, G_A: Tensor) -> Tensor:
        """The gradient [m, m + b] with respect to K_mm and K_mb, from that with respect to A = L^-1 K_mb."""
        R = torch.mm(G_A, A.T).tril_()
        R = (R + R.T).mul_(0.5)  # the diagonal of the lower part counts half
        R.diagonal().mul_(0.5)
        G_K = torch.linalg.solve_triangular(L.T, torch.cat([R, G_A], 1), upper=True)
        G_mm = torch.linalg.solve_triangular(L.T, G_K[:, : len(L)].T, upper=True)
        G_K[:, : len(L)] = -G_mm
        return G_K

    def _natural_parameters(self) -> tuple[Tensor, Tensor]:
        """Lambda and eta of the present mean and factor."""
        precision = torch.cholesky_inverse(self.S.tril())
        return precision, precision @ self.mean

    def _natural_step(self, A: Tensor, y: Tensor, s2: Number) -> None:
        """Hensman et al., section 3.2: move Lambda and eta by a minibatch, then write mean and factor from them."""
        r = self.natural_rate
        weight = r * self.model.n / (len(y) * s2)
        add_product(self.precision.mul_(1.0 - r), A, A.T, weight)
        self.precision.diagonal().add_(r)
        add_multiple(self.eta.mul_(1.0 - r), torch.mv(A, y), weight)
        R = cholesky(self.precision, "Lambda").L
        covariance_q = torch.cholesky_inverse(R)  # [m, m]
        self.mean.copy_(covariance_q @ self.eta)
        self.S.copy_(cholesky(covariance_q, "Lambda^-1").L)


def _squares(values: Tensor) -> Number:
    """The sum of squares."""
    flat = values.flatten()
    return number(torch.dot(flat, flat))
