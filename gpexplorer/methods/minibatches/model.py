"""The kernel that the minibatch methods learn: k(x, x') = phi(x)'phi(x') with D features, all parameters in theta.

    theta = [feature map, (log lengthscale), log magnitude m, log noise sd],   s2 = exp(2 theta_last)
    linear      phi = e^m z(x)                       z: a network, or the inputs with one scale per input
    gaussian    phi = D random Fourier features of z(x)

The kernel of the problem is used once, for the initial prior variance; its theta gives the initial noise.

`step_cost` is what a step of the minibatch methods costs, by formula.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from ...data.given_folds import drawn_parts
from ...errors import SettingError
from ...features.deep import Network, Parts, Scaled, views
from ...features.learned import LearnedKernel
from ...features.pretrained import Module, Pretrained
from ...features.random_fourier import RandomFourier, Waves
from ...linalg.blocks import BLOCK_BYTES
from ...linalg.randomness import generator
from ...problem import Cost, Problem, described_rows
from .settings import MinibatchSettings

MIN_VALIDATION_ROWS = 20  # rows set aside, but at most one part of all rows, if parts are set aside in turn
MATCHED_ROWS = 500  # the initial prior variance is matched on this many rows
HALF_RATE_ORDER = 512.0  # LAPACK factorises and inverts a matrix of this order at half the speed of a matrix product
FOURIER_CALLS = 20.0  # torch calls for random Fourier features, forward and backward
BLOCK_CALLS = 15.0  # torch calls per block of rows in the exact likelihood


class Tape(NamedTuple):
    """The features of some rows, with the intermediate values that their gradient needs."""

    Phi: Tensor  # [b, D]
    H: list[Tensor]  # outputs of the layers
    scale: Tensor  # [1] e^m
    waves: Waves | None


class Model:
    """The feature map phi, the layout of theta, and the rows from which theta is learned.

    Parameters
    ----------
    method : MinibatchSettings
        Settings of the features.
    problem : Problem
        The training rows, and the initial noise and prior variance.
    validation : float, default 0.0
        Fraction of the rows that is set aside for validation, in [0, 1).
    fold : which part of the rows is set aside; the parts follow each other in a random order of the rows. If the rows
        have groups, each part consists of whole groups.

    Attributes
    ----------
    n : number of rows for learning.
    D : number of features.
    size : number of entries of theta.
    validation_rows : indices of the rows set aside; none if the rows are one group.
    learning_rows : indices of the other rows, in random order; None if no row is set aside.
    num_parts : int
        Number of parts that can be set aside in turn.
    rows_device : where the inputs are, and with them the indices of rows: a CPU if they are in a file.
    covariance : LearnedKernel
        The kernel as a function of theta; Gaussian where random Fourier features approximate it.

    Raises
    ------
    SettingError : if the inputs are not numbers, or if a given feature map does not fit them.
    """

    def __init__(self, method: MinibatchSettings, problem: Problem, validation: float = 0.0, fold: int = 0) -> None:
        train = problem.train
        if not isinstance(train.X, Tensor):
            raise SettingError(
                f"{method.title} needs columns of numbers, but the inputs are {described_rows(train.X)}."
            )
        self.problem, self.seed, self.n, self.like = problem, method.seed, len(train), train.y
        self.rows_device, self.learning_rows = train.X.device, cast("Tensor | None", None)
        self.validation_rows, self.num_parts = torch.zeros(0, dtype=torch.int64), 0
        num_aside = min(math.ceil(validation * self.n), self.n - 1)
        if num_aside and method.folds > 1:
            num_aside = max(num_aside, min(MIN_VALIDATION_ROWS, self.n // method.folds))
        if num_aside:
            self._set_aside(num_aside, fold)
        linear = method.kernel == "linear"
        self.map = _feature_map(method, train.d, self.like)
        self.waves = None
        if not linear:
            waves = RandomFourier(self.map.width, method.num_features, method.frequencies, method.seed)
            self.waves = waves.to(train.y)
        self.covariance = LearnedKernel(self.map, linear)
        self.D = self.waves.width if self.waves else self.map.width
        self.shapes = [*self.map.shapes, (1,) if linear else (2,), (1,)]
        self.size = sum(math.prod(shape) for shape in self.shapes)

    def _set_aside(self, num_aside: int, fold: int) -> None:
        """Divide the rows into those to learn from and those set aside, which are whole groups where rows have them."""
        if self.problem.train.groups is None:
            order, first = torch.randperm(self.n, generator=generator(self.seed, "validation")), fold * num_aside
            validation = order[first : first + num_aside]
            learning = torch.cat([order[:first], order[first + num_aside :]])
            self.num_parts = self.n // num_aside
        else:
            part = drawn_parts(self.problem.train.groups.number, num_aside, self.seed)
            self.num_parts = int(part.max()) + 1
            validation, learning = (part == fold).nonzero()[:, 0], (part != fold).nonzero()[:, 0]
        self.validation_rows, self.learning_rows = validation.to(self.rows_device), learning.to(self.rows_device)
        self.n = len(learning)

    def start(self) -> Float[Tensor, " p"]:
        """Return the initial theta: lengthscale of the size of z, magnitude one, and the noise of the problem."""
        theta = torch.zeros(self.size, dtype=torch.float64)
        theta[: self.map.size] = self.map.start(self.seed)
        if self.waves:
            theta[-3] = 0.5 * math.log(self.map.width)
        theta[-1] = float(self.problem.theta[-1])
        return theta.to(self.like)

    def matched(self, theta: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """Return theta with the mean prior variance of the problem's own kernel on the first rows."""
        X = self.problem.train.X[:MATCHED_ROWS].to(self.like)
        variance = float(self.features(self.parts(theta), X).Phi.square().sum(1).mean())
        target = float(self.problem.kernel.diag(self.problem.theta, X).mean())
        theta = theta.clone()
        theta[-2] += 0.5 * math.log(target / variance) if variance > 0.0 else 0.0
        return theta

    def parts(self, theta: Float[Tensor, " p"]) -> Parts:
        """Return views of theta: the parameters of the feature map, of the kernel, and the noise."""
        return views(theta, self.shapes)

    def features(self, parts: Parts, X: Float[Tensor, "b d"]) -> Tape:
        """Compute phi of these rows [b, D]."""
        H, scale = self.map.layers(parts[:-2], X), parts[-2][-1:].exp()
        if self.waves is None:
            return Tape(H[-1] * scale, H, scale, None)
        waves = self.waves.waves(parts[-2], H[-1])
        return Tape(waves.Phi, H, scale, waves)

    def pullback(self, parts: Parts, tape: Tape, G: Float[Tensor, "b D"], into: Parts) -> None:
        """Write the gradient with respect to all parameters except the noise.

        Parameters
        ----------
        parts : Parts
            The parameters at which `tape` was computed.
        tape : Tape
            Result of `features`.
        G : Tensor [b, D]
            Gradient with respect to Phi; it is overwritten.
        into : Parts
            Views of the gradient vector, laid out like `parts`.
        """
        if self.waves is None or tape.waves is None:
            into[-2].copy_(torch.dot(G.flatten(), tape.Phi.flatten()))
            G.mul_(tape.scale)
        else:
            G = self.waves.pullback(parts[-2], tape.waves, G, into[-2])
        self.map.pullback(parts[:-2], tape.H, G, into[:-2])

    def rows(self, index: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs [b, d] and targets [b] of these learning rows, on the device of theta; X may be a file."""
        return self._select(index if self.learning_rows is None else self.learning_rows[index])

    def validation(self) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of the validation rows."""
        return self._select(self.validation_rows)

    def _select(self, index: slice | Tensor) -> tuple[Tensor, Tensor]:
        train = self.problem.train
        return send_rows(train.X, index, self.like.device, self.like.dtype), select_rows(train.y, index)


def _feature_map(method: MinibatchSettings, d: int, like: Tensor) -> Network | Scaled | Module:
    """The map from x to z: `method.features` if it is given, otherwise the network of the settings."""
    features: Any = method.features  # a person may give anything
    if features is None:
        sizes, constant = [d, *[method.width] * method.layers], method.kernel == "linear"
        return Network(sizes, method.activation) if method.layers else Scaled(d, constant)
    if isinstance(features, torch.nn.Module):
        return Module(features, d, like)
    if not isinstance(features, Pretrained):
        choices = "a torch module, or the result of features.pretrained.load"
        raise SettingError(f"{method.title}'s features are a {type(features).__name__}; give {choices}.")
    if features.sizes[0] != d:
        raise SettingError(f"The weights belong to a network with {features.sizes[0]} inputs, but the data have {d}.")
    return features


def select_rows(X: Tensor, index: slice | Tensor) -> Tensor:
    """Return these rows of X, on the device of X."""
    return X[index] if isinstance(index, slice) else X.index_select(0, index.to(X.device))


def send_rows(X: Tensor, index: slice | Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return these rows of X on a device; rows go to a GPU through page-locked memory, without waiting for the copy."""
    selected = select_rows(X, index)
    if device.type == "cuda" and X.device.type == "cpu":
        return selected.pin_memory().to(device, non_blocking=True).to(dtype)
    return selected.to(device, dtype)


def factorisation_flops(order: float) -> float:
    """Return order^3 flops of a factorisation and inverse, counted as flops of a product that takes equally long."""
    return order**3 * (1.0 + HALF_RATE_ORDER / order)


def feature_flops(model: Model) -> float:
    """Return the flops of the features of one row."""
    return 2.0 * model.map.size + (2.0 * model.waves.Omega.numel() if model.waves else 0.0)


def step_cost(
    method: MinibatchSettings, model: Model, batch_size: int, *, algebra: float, matrices: float, calls: float
) -> Cost:
    """Return the cost of a step: its minibatches, and its share of a pass over all rows for the exact likelihood.

    Parameters
    ----------
    method : MinibatchSettings
        The settings of the method.
    model : Model
        The feature map and the rows.
    batch_size : int
        Rows per minibatch; 0 for a method that takes all rows, block by block.
    algebra : float
        Flops of a minibatch apart from its features, which are computed once forward and once backward.
    matrices : float
        Number of D x D matrices in memory, in units of the precision of the features.
    calls : float
        Torch calls per minibatch with a network's features, from reading the rows to the optimiser's update.
    """
    s, D, p = model.like.element_size(), model.D, model.size
    in_memory = min(batch_size, model.n)
    b = in_memory or model.n
    minibatch = algebra + 3.0 * b * feature_flops(model) + 12.0 * (p + D)
    per_epoch = max(model.n // b, 1)
    count = min(method.minibatches, per_epoch)
    share = count / (per_epoch * method.evaluate_every)  # of an evaluation of the exact likelihood
    evaluation = share * model.n * (feature_flops(model) + 2.0 * D * D)
    bytes_moved = count * s * (3.0 * matrices * D * D + 10.0 * (p + D) + 8.0 * b * D)
    arrays = {
        "parameters, gradient and averages": 8.0 * s * (p + D),
        "D x D matrices": 1.0 * s * matrices * D * D,
        "minibatch": 6.0 * s * in_memory * (D + model.map.width),
        "block of features": min((4.0 if in_memory else 8.0) * s * model.n * D, 1.3 * BLOCK_BYTES),
        "order of the rows": 8.0 * model.n,
    }
    bytes_read = share * s * model.n * (D + model.problem.train.d)
    blocks = 1.0 + 4.0 * s * model.n * D / BLOCK_BYTES
    all_calls = count * (calls + (FOURIER_CALLS if model.waves else 0.0)) + BLOCK_CALLS * share * blocks
    return Cost(count * minibatch + evaluation, bytes_moved + bytes_read, arrays, all_calls)
