"""The interface between a minibatch method and the shared loop: a learner takes one minibatch after another."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from ...linalg.randomness import generator
from .exact_likelihood import ExactLikelihood
from .gradients import Parameters
from .model import Model
from .optimisers import OPTIMISERS
from .state import State


class LearningSettings(Protocol):
    """The settings of a method that every learner needs."""

    seed: Any  # int
    optimiser: Any  # key of OPTIMISERS
    noise_floor: Any  # float, smallest noise sd
    largest: Any  # float, bound of all parameters
    rate_decay: Any  # float
    epochs: Any  # int
    schedule: Any  # "power" | "cosine"


class MinibatchRows:
    """The rows of each minibatch, drawn without replacement.

    An epoch is a new random order of the rows. Rows that do not fill a minibatch at the end of an epoch are left out.

    Parameters
    ----------
    seed : seed of the method.
    n : number of rows.
    size : rows per minibatch; n if n is smaller.
    stream : name of the random stream, so that several streams of one method are independent.
    """

    def __init__(self, seed: int, n: int, size: int, stream: str) -> None:
        self.seed, self.n, self.stream, self.size = seed, n, stream, min(size, n)
        self.per_epoch = n // self.size
        self._epoch, self._order = -1, torch.zeros(0, dtype=torch.int64)

    def __call__(self, t: int) -> Tensor:
        """Return the row indices [b] of minibatch t, counted from the first epoch."""
        epoch, k = divmod(t, self.per_epoch)
        if epoch != self._epoch:
            place = generator(self.seed, self.stream, epoch)
            self._epoch, self._order = epoch, torch.randperm(self.n, generator=place)
        return self._order[k * self.size : (k + 1) * self.size]


class Learner(ABC):
    """Parameters, running averages and matrices, updated in place; `state` returns copies of them.

    Parameters
    ----------
    method : the settings.
    model : the feature map and the rows.
    state : the state to continue from.
    batch_size : rows per minibatch; None for all rows.
    """

    closed: ClassVar[bool] = True  # all gradients are in closed form, except those of the model's feature map

    def __init__(self, method: LearningSettings, model: Model, state: State, batch_size: int | None = None) -> None:
        self.model, self.rate, self.seed = model, state.rate, method.seed
        self.rows = MinibatchRows(method.seed, model.n, model.n if batch_size is None else batch_size, "rows")
        self.optimiser = OPTIMISERS[method.optimiser]
        self.parameters = self.begin(state)
        x = self.parameters.x
        self.averages = tuple(average.clone() for average in state.averages) or tuple(
            torch.zeros_like(x) for _ in range(self.optimiser.averages)
        )
        self.log_floor, self.largest = math.log(method.noise_floor), method.largest
        self.decay, self.last = method.rate_decay, method.epochs * self.rows.per_epoch
        self.cosine = method.schedule == "cosine"
        self._estimates, self._count = 0.0, 0  # sum and number of the minibatches' estimates of 2 NLML / n

    @abstractmethod
    def begin(self, state: State) -> Parameters:
        """Return copies of the parameters and set up the matrices, from the state or, at the start, from all rows."""

    @abstractmethod
    def gradient(self, index: Tensor, t: int) -> float:
        """Write the gradient of NLML / n on these rows into the parameters; return their estimate of 2 NLML / n."""

    def matrices(self) -> tuple[Tensor, ...]:
        """Return copies of the matrices that the state keeps beside the parameters."""
        return ()

    def gap(self, exact: ExactLikelihood) -> tuple[float, float]:
        """Return the relative error of the matrix that approximates F, and the penalty; nan if there is none."""
        return math.nan, math.nan

    def move(self, t: int) -> None:
        """Take minibatch t at the learning rate of the schedule, then project the parameters onto their bounds.

        If no gradient needs autograd, it is disabled, which saves a tenth of the time per minibatch.
        """
        with torch.inference_mode(self.closed and self.model.map.closed):
            self.before(t)
            self._estimates += self.gradient(self.rows(t), t)
            self._count += 1
            self.optimiser.move(self.parameters.x, self.parameters.g, self.averages, t, self.scheduled_rate(t))
            self.parameters.project(self.log_floor, self.largest)
            self.after(t)

    def scheduled_rate(self, t: int) -> float:
        """Return the learning rate a_t of minibatch t."""
        if self.cosine:
            return float(self.rate * 0.5 * (1.0 + math.cos(math.pi * min(t / self.last, 1.0))))
        return float(self.rate * (1.0 + t / self.rows.per_epoch) ** -self.decay)

    def before(self, t: int) -> None:  # noqa: B027 - most methods do nothing here
        """Prepare for minibatch t."""

    def after(self, t: int) -> None:  # noqa: B027
        """Update the matrices after minibatch t has moved the parameters."""

    def estimate(self) -> float:
        """Return the mean estimate of the NLML by the minibatches since the last call."""
        value = 0.5 * self.model.n * self._estimates / max(self._count, 1)
        self._estimates, self._count = 0.0, 0
        return value

    def within_bounds(self) -> bool:
        """Return whether all parameters are finite and inside their bounds, not on them: that would be divergence."""
        return float(torch.cat([self.parameters.w, self.parameters.theta]).abs().max()) < self.largest

    def divergence(self, exact: ExactLikelihood | None = None) -> str:
        """Return a sentence that says what has diverged and how to prevent it; empty if nothing has.

        Parameters
        ----------
        exact : the exact likelihood at the current theta, to which the matrices are compared; None leaves them out.
        """
        if self.within_bounds():
            return ""
        return f"A parameter reached its bound {self.largest:g}. Lower the rate {self.rate:.2g}."

    def state(self, state: State) -> State:
        """Return `state` with copies of everything that has changed."""
        return state._replace(
            theta=self.parameters.theta.clone(),
            w=self.parameters.w.clone(),
            averages=tuple(average.clone() for average in self.averages),
            matrices=self.matrices(),
        )
