"""SVGP with GPyTorch: inducing inputs and a variational normal, whose bound is a sum over rows (Hensman et al. 2013).

    log p(y) >= sum_i E_q log N(y_i | f_i, s2) - KL(q(u) || p(u)),    q(u) = N(L m, L S S' L'),  L L' = K_mm
    mean = a'm,   var = k(x, x) - a'a + |S'a|^2,   a = L^-1 k_m(x)                                    A = [a_1 ... a_b]

The kernel is SE-ARD on the inputs by default; with `layers` or `kernel="linear"` it is that of the other methods of
this family. The parameters of q follow natural gradients (`variational="natural"`), in whitened coordinates:

    Lambda <- (1 - r) Lambda + r (I + n / (b s2) A A')        Lambda = (S S')^-1            Hensman et al., section 3.2
    eta    <- (1 - r) eta    + r n / (b s2) A y               eta = Lambda m

Kernel, noise and inducing inputs follow the optimiser. With r = 1 and all rows, q is the optimal one (Titsias 2009).

GPyTorch's variational strategy computes the bound, on the kernel of a Model and with all parameters as views of one
vector. GPyTorch is imported when it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...errors import SettingError
from ...features.deep import views
from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky
from ...linalg.randomness import generator
from ...posteriors import CovarianceRoot, InducingPosterior, Posterior
from ...problem import Channel, Cost, Problem, channel, channels_of
from .. import gpytorch_parts
from ..own_points import number_of_points, own_inputs, own_start
from . import settings
from .costs import feature_flops, step_cost
from .exact_likelihood import exact_posterior
from .gradients import Parameters
from .learner import Learner
from .loop import ADDED_SETTINGS, Evaluation, Minibatches
from .model import MATCHED_ROWS, Model
from .state import Info, State


def _gpytorch() -> tuple[Any, Any]:
    """The package, and the function that wraps a matrix without checking it."""
    try:
        gpytorch = gpytorch_parts.package()
        from linear_operator import to_linear_operator
    except ImportError:
        raise SettingError('SVGP needs GPyTorch, which is not installed: pip install "gpexplorer[race]".') from None
    return gpytorch, to_linear_operator


class VariationalBound:
    """The evidence lower bound of a minibatch and its gradient.

    Parameters
    ----------
    theta : Tensor
        Parameters of the kernel [p]; GPyTorch's parameters become views of it.
    parts : list of Tensor
        Inducing inputs Z [m, d], whitened mean [m] and factor [m, m] of the variational normal, likewise.
    """

    def __init__(self, model: Model, theta: Tensor, parts: list[Tensor]) -> None:
        (gpytorch, wrap), Z = _gpytorch(), parts[0]
        with torch.random.fork_rng(devices=[]):  # GPyTorch draws initial values, which are replaced below
            normal = gpytorch.variational.CholeskyVariationalDistribution(len(Z)).to(theta)

            class ApproximateModel(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
                def __init__(self) -> None:
                    super().__init__(gpytorch.variational.VariationalStrategy(self, Z.clone(), normal))
                    self.theta = torch.nn.Parameter(theta)

                def forward(self, X: Tensor) -> Any:
                    K = model.covariance(self.theta, X, X)
                    return gpytorch.distributions.MultivariateNormal(X.new_zeros(len(X)), wrap(K))

            self.gp = ApproximateModel().train()
        self.gp.variational_strategy.variational_params_initialized.fill_(1)
        variational = [
            self.gp.variational_strategy.inducing_points,
            normal.variational_mean,
            normal.chol_variational_covar,
        ]
        for parameter, part in zip([*variational, self.gp.theta], [*parts, theta], strict=True):
            parameter.data = part  # shared memory: the optimiser moves the vector, and with it GPyTorch's parameters
        self.parameters, self.n = [*variational, self.gp.theta], model.n

    def __call__(self, X: Tensor, y: Tensor, jitter: float) -> tuple[Tensor, list[Tensor]]:
        """Return -2 ELBO / n without its constant, and the gradient of half of it in Z, mean, factor and theta.

        `jitter` is added to K_mm, and by GPyTorch to the prior variances too.
        """
        self.gp.variational_strategy.jitter_val = jitter
        with torch.enable_grad():
            f = self.gp(X)
            s2 = (2.0 * self.gp.theta[-1]).exp()
            fit = ((y - f.mean).square() + f.variance).mean() / s2 + 2.0 * self.gp.theta[-1]
            loss = 0.5 * fit + self.gp.variational_strategy.kl_divergence() / self.n
            gradients = torch.autograd.grad(loss, self.parameters)
        return 2.0 * loss.detach(), list(gradients)


JITTER = {torch.float32: 1e-4, torch.float64: 1e-6}  # on K_mm, as in GPyTorch, if the setting `jitter` is 0
SCALE_ROWS = 8  # inducing inputs whose mean prior variance is the scale of rounding in K_mm
OVERHEAD = 2.0  # GPyTorch's Python code between two operations takes as long as an operation


class SVGP(Minibatches):
    """Stochastic variational inference with inducing inputs, by default with an SE-ARD kernel of the inputs.

    Notes
    -----
    A minibatch of b rows and m inducing inputs costs 8 m^3 + 12 m^2 b + 6 (m + b)^2 D flops for kernels of D inputs or
    features. The objective that is reported is the negative bound, which is no less than the NLML.

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
    title: ClassVar[str] = "SVGP (GPyTorch)"
    paper: ClassVar[str] = "Hensman, Fusi and Lawrence (2013). Gaussian processes for big data. UAI."
    channels: ClassVar[tuple[Channel, ...]] = channels_of(
        Info,
        objective=channel("negative ELBO, an upper bound of the NLML", "nat"),
        estimate=channel("negative ELBO as the minibatches see it", "nat"),
    )

    objective_name: ClassVar[str] = "negative ELBO"
    refits: ClassVar[bool] = False

    kernel: Any = param.Selector(
        default="gaussian",
        objects=["linear", "gaussian"],
        doc="Kernel on features: of the inputs, or of the learned features if there are layers. gaussian is SE-ARD.",
    )
    layers = param.Integer(
        0, bounds=(0, 20), softbounds=(0, 4), doc="Layers of the network; with 0 the features are the inputs."
    )
    batch_size = settings.batch_size(128)
    rate = settings.rate(1e-2)
    validation = param.Number(
        0.0, bounds=(0.0, 0.5), doc="Fraction of the rows set aside; 0 chooses theta by the ELBO."
    )
    patience = param.Integer(
        0, bounds=(0, None), softbounds=(0, 50), doc="Stop after this many evaluations without improvement; 0 uses all."
    )
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
    num_inducing = param.Integer(
        256, bounds=(1, None), softbounds=(16, 1000), doc="Inducing inputs m; all rows if there are fewer."
    )
    start = own_start("random", "Initial inducing inputs, by default random rows.")
    variational: Any = param.Selector(
        default="natural",
        objects=["natural", "optimiser"],
        doc="How the variational normal moves: by natural gradients, or by the optimiser as all other parameters.",
    )
    natural_rate = param.Number(
        0.1,
        bounds=(0.0, 1.0),
        inclusive_bounds=(False, True),
        doc="Step length r of the natural gradients; 1 with all rows is the optimum for the present kernel.",
    )

    jitter = param.Number(
        1e-4,
        bounds=(0.0, 1.0),
        doc="Jitter on K_mm as a share of the noise variance, and at least the rounding of K_mm. Large jitter costs "
        "likelihood where the noise is small. 0 adds 1e-6, in float32 1e-4, whatever the noise, as GPyTorch does.",
    )

    def learner(self, model: Model, state: State) -> Learner:
        return SVGPLearner(self, model, state)

    def evaluate(self, model: Model, learner: Learner) -> Evaluation:
        """Compute -ELBO of all rows, and the error on the rows set aside."""
        theta, w = learner.parameters.theta, learner.parameters.w
        _, m, S = variational_parts(model, w)
        predict, s2, total = self.predictor(model, theta, w), math.exp(2.0 * float(theta[-1])), 0.0
        for rows in row_blocks(model.n, 8 * theta.element_size() * (len(m) + model.problem.train.d), theta):
            X, y = model.rows(rows)
            mean, var = predict(X)
            total += float(((y - mean).square() + var).sum()) / s2
        S = S.tril()
        divergence = float(m.square().sum() + S.square().sum()) - len(m) - 2.0 * float(S.diagonal().abs().log().sum())
        objective, error = 0.5 * (total + model.n * math.log(s2) + divergence), math.nan
        if len(model.validation_rows):
            X, y = model.validation()
            error = float((predict(X).mean - y).square().mean().sqrt())
        return Evaluation(objective, error)

    def posterior(self, problem: Problem, state: State) -> Posterior:
        model = Model(self, problem)
        if not state.batches:
            return exact_posterior(model, state.theta)
        return self.predictor(model, state.theta, state.w)

    def predictor(self, model: Model, theta: Tensor, w: Tensor) -> InducingPosterior:
        """Return the posterior of f from the inducing inputs and the whitened variational normal."""
        Z, m, S = variational_parts(model, w)
        L = whitened(model, theta, Z, jitter(model, theta, Z, self.jitter))
        return InducingPosterior(model.covariance, theta, Z, L, CovarianceRoot(m, S.tril()))

    def _finish(self, problem: Problem, model: Model, state: State) -> tuple[State, Info]:
        """Return to the best theta and its variational normal, which cannot be refitted by the features' spectrum."""
        state = state.at_best_theta()._replace(step=state.step + 1, phase="best", matrices=())
        evaluation = self.evaluate(model, self.learner(model, state))
        noise = math.exp(float(state.theta[-1]))
        added = jitter(model, state.theta, variational_parts(model, state.w)[0], self.jitter)
        remark = f"The jitter on K_mm is {added:.2g}, which is {added / noise**2:.2g} of the noise variance."
        state = state._replace(remark=" ".join(filter(None, [state.remark, remark])))
        return state, Info("best", evaluation.objective, noise=noise, error=evaluation.error)

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        b, m = min(self.batch_size, model.n), number_of_points(self.start, self.num_inducing, model.n)
        width = model.D if model.waves is None else model.map.width
        algebra = 3.0 * m * feature_flops(model)  # the inducing inputs pass the network as well
        algebra += 8.0 * m**3 + 12.0 * m * m * b + 6.0 * (m + b) ** 2 * width
        if self.variational == "natural":
            algebra += 2.0 * m**3 + 4.0 * m * m * b
        cost = step_cost(self, model, self.batch_size, algebra=algebra, matrices=0, calls=OVERHEAD * 190.0)
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


def jitter(model: Model, theta: Tensor, Z: Tensor, share: float) -> float:
    """Return the jitter on K_mm: this share of the noise variance, or what rounding needs; fixed if the share is 0."""
    if not share:
        return JITTER[theta.dtype]
    some = Z[:SCALE_ROWS]
    scale = float(model.covariance(theta, some, some).diagonal().mean())
    return max(share * math.exp(2.0 * float(theta[-1])), len(Z) * torch.finfo(theta.dtype).eps * scale)


def whitened(model: Model, theta: Tensor, Z: Tensor, jitter: float) -> Tensor:
    """Return the Cholesky factor L [m, m] of K_mm with jitter."""
    K_mm = model.covariance(theta, Z, Z)
    K_mm.diagonal().add_(jitter)
    return cholesky(K_mm, "K_mm").L


class SVGPLearner(Learner):
    """One minibatch of SVGP: a natural-gradient step of q, then the gradient in the other parameters."""

    closed = False  # GPyTorch computes the gradient by autograd
    precision: Tensor  # [m, m] Lambda
    eta: Tensor  # [m] Lambda m

    def __init__(self, method: SVGP, model: Model, state: State) -> None:
        self.start, self.natural_rate = method.start, method.natural_rate
        self.num_inducing = number_of_points(method.start, method.num_inducing, model.n)
        self.natural, self.jitter = method.variational == "natural", method.jitter
        super().__init__(method, model, state, method.batch_size)

    def begin(self, state: State) -> Parameters:
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
        self.bound = VariationalBound(model, parameters.theta, [self.Z, self.mean, self.S])
        return parameters

    def matrices(self) -> tuple[Tensor, ...]:
        return (self.precision.clone(), self.eta.clone()) if self.natural else ()

    def gradient(self, index: Tensor, t: int) -> float:
        X, y = self.model.rows(index)
        with torch.no_grad():
            added = jitter(self.model, self.parameters.theta, self.Z, self.jitter)
            if self.natural:
                self._natural_step(X, y, added)
        value, gradients = self.bound(X, y, added)
        if self.natural:
            gradients[1:3] = [torch.zeros_like(gradients[1]), torch.zeros_like(gradients[2])]
        torch.cat([gradient.flatten() for gradient in gradients], out=self.parameters.g)
        return value.item()

    def _natural_parameters(self) -> tuple[Tensor, Tensor]:
        """Lambda and eta of the present mean and factor."""
        precision = torch.cholesky_inverse(self.S.tril())
        return precision, precision @ self.mean

    def _natural_step(self, X: Tensor, y: Tensor, added: float) -> None:
        """Hensman et al., section 3.2: move Lambda and eta by a minibatch, then write mean and factor from them."""
        theta, r = self.parameters.theta, self.natural_rate
        L = whitened(self.model, theta, self.Z, added)
        A = torch.linalg.solve_triangular(L, self.model.covariance(theta, self.Z, X), upper=False)  # [m, b]
        weight = r * self.model.n / (len(y) * self.parameters.s2())
        self.precision.mul_(1.0 - r).addmm_(A, A.T, alpha=weight)
        self.precision.diagonal().add_(r)
        self.eta.mul_(1.0 - r).addmv_(A, y, alpha=weight)
        R = cholesky(self.precision, "Lambda").L
        covariance_q = torch.cholesky_inverse(R)  # [m, m]
        self.mean.copy_(covariance_q @ self.eta)
        self.S.copy_(cholesky(covariance_q, "Lambda^-1").L)
