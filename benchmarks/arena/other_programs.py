"""Gaussian processes of other programs, as a practitioner would fit them within a time limit.

    GPyTorch exact GP    SE-ARD on all rows, Adam on the exact likelihood; products by CG from 800 rows on
    GPyTorch SGPR        512 random points and the hyperparameters, moved together by Adam on the collapsed bound
    GPyTorch SVGP        512 random points, minibatches of 256, natural gradients for q(u) and Adam for the rest
    GPBoost              Matern 3/2 by Vecchia's approximation with 15 neighbours, by its own defaults; nor can it
    celerite2            Matern 3/2 of one input, exact, by maximum likelihood; nor can it
    scikit-learn GP      an exact GP with SE-ARD on 1000 random rows by its own defaults; it cannot be given seconds

Each takes a split, seconds and a seed, and gives mean and variance of y at the test rows in the units of the file. The
seconds include the building of the model; a step that would end too late, by the time of the one before, is not begun.
The rates are those of GPyTorch's own examples (0.1 for the exact GP, 0.05 for SGPR; 0.1 and 0.01 for SVGP).
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpexplorer.data import Split
from gpexplorer.errors import SettingError
from gpexplorer.methods.gpytorch_parts import package

from .. import neighbours

Array = NDArray[np.float64]
MeanAndVar = tuple[Array, Array]  # mean and variance of y, [t] each

NEIGHBOURS = 15
POINTS, SUBSET, BATCH = 512, 1000, 256
EXACT_RATE, SGPR_RATE, NATURAL_RATE, ADAM_RATE = 0.1, 0.05, 0.1, 0.01


def scikit_gp(split: Split, seconds: float, seed: int) -> MeanAndVar:
    """An exact GP on 1000 random rows. scikit-learn cannot be given seconds, so that they are not used."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    X, y, X_new = arrays(split)
    rows = np.random.default_rng(seed).permutation(len(X))[:SUBSET]
    scaler = StandardScaler().fit(X[rows])
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(scaler.transform(X[rows]), y[rows])
    mean, sd = model.predict(scaler.transform(X_new), return_std=True)
    return mean, np.square(sd)


def gpboost(split: Split, seconds: float, seed: int) -> MeanAndVar:
    """GPBoost's Vecchia approximation, where it is installed."""
    return _of_case("gpboost", neighbours.gpboost, split)


def celerite2(split: Split, seconds: float, seed: int) -> MeanAndVar:
    """celerite2's exact GP of one input, where it is installed."""
    return _of_case("celerite2", neighbours.celerite2, split)


def _of_case(package_name: str, contender: neighbours.Contender, split: Split) -> MeanAndVar:
    """Fit to inputs and targets in units of their standard deviations, since these programs take no mean."""
    if importlib.util.find_spec(package_name) is None:
        raise SettingError(f"{package_name} is not installed")
    X, y, X_new = arrays(split)
    centre, spread, mean, sd = X.mean(0), X.std(0), y.mean(), y.std()
    new = (X_new - centre) / spread
    case = neighbours.Case((X - centre) / spread, (y - mean) / sd, new, new[:, 0], new[:, 0])
    answer, var = contender(case, NEIGHBOURS)
    return mean + sd * answer, sd**2 * var


def gpytorch_exact(split: Split, seconds: float, seed: int) -> MeanAndVar:
    """GPyTorch's exact GP on all rows."""
    gpytorch = package()

    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=split.train.d))
    return _collapsed(split, seconds, EXACT_RATE, lambda X, likelihood: kernel, seed)


def gpytorch_sgpr(split: Split, seconds: float, seed: int) -> MeanAndVar:
    """GPyTorch's SGPR with 512 random points."""
    gpytorch = package()

    def kernel(X: Tensor, likelihood: Any) -> Any:
        base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))
        return gpytorch.kernels.InducingPointKernel(base, _some_rows(X, seed), likelihood)

    return _collapsed(split, seconds, SGPR_RATE, kernel, seed)


def gpytorch_svgp(split: Split, seconds: float, seed: int) -> MeanAndVar:
    """GPyTorch's SVGP with natural gradients."""
    gpytorch = package()

    deadline, scaled = time.perf_counter() + seconds, split.scaled()
    X, y = scaled.train.X, scaled.train.y
    points = _some_rows(X, seed)

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            q = gpytorch.variational.NaturalVariationalDistribution(len(points))
            strategy = gpytorch.variational.VariationalStrategy(self, points, q, learn_inducing_locations=True)
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))

        def forward(self, inputs: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    model, likelihood = Model().double(), gpytorch.likelihoods.GaussianLikelihood().double()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, len(X))
    natural = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(X), lr=NATURAL_RATE)
    adam = torch.optim.Adam([*model.hyperparameters(), *likelihood.parameters()], ADAM_RATE)
    order = torch.Generator().manual_seed(seed)

    def step() -> None:
        rows = torch.randint(len(X), (min(BATCH, len(X)),), generator=order)
        natural.zero_grad()
        adam.zero_grad()
        (-objective(model(X[rows]), y[rows])).backward()
        natural.step()
        adam.step()

    model.train()
    likelihood.train()
    _repeat(step, deadline)
    model.eval()
    likelihood.eval()
    return _predicted(scaled, lambda X_new: likelihood(model(X_new)))


def arrays(split: Split) -> tuple[Array, Array, Array]:
    """Training inputs, training targets and test inputs as NumPy arrays."""
    return split.train.X.numpy(), split.train.y.numpy(), split.test.X.numpy()


def _some_rows(X: Tensor, seed: int) -> Tensor:
    return X[torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))[:POINTS]].clone()


def _collapsed(
    split: Split, seconds: float, rate: float, kernel: Callable[[Tensor, Any], Any], seed: int
) -> MeanAndVar:
    """Learn a model whose likelihood is in closed form, by Adam."""
    gpytorch = package()

    deadline, scaled = time.perf_counter() + seconds, split.scaled()
    X, y = scaled.train.X, scaled.train.y
    torch.manual_seed(seed)  # of the probes of CG's log-determinant

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            likelihood = gpytorch.likelihoods.GaussianLikelihood()
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = kernel(X, likelihood)

        def forward(self, inputs: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    model = Model().double()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), rate)

    def step() -> None:
        optimiser.zero_grad()
        (-objective(model(X), y)).backward()
        optimiser.step()

    model.train()
    _repeat(step, deadline)
    model.eval()
    return _predicted(scaled, lambda X_new: model.likelihood(model(X_new)))


def _repeat(step: Callable[[], None], deadline: float) -> None:
    last_seconds = 0.0
    while time.perf_counter() + last_seconds < deadline:
        begin = time.perf_counter()
        step()
        last_seconds = time.perf_counter() - begin


def _predicted(scaled: Split, answer: Callable[[Tensor], Any]) -> MeanAndVar:
    """Mean and variance of y at the test rows, in the units of the file."""
    scale = scaled.train.scale
    assert scale is not None
    with torch.no_grad():
        predicted = answer(scaled.test.X)
    mean = predicted.mean * scale.y_sd + scale.y_mean
    return mean.numpy(), (predicted.variance * scale.y_sd**2).numpy()
