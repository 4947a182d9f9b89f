"""What a method brings to the shared loop: one minibatch after another on buffers of its own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...linalg.randomness import generator
from .exact_likelihood import Exact
from .gradients import Point
from .model import Model
from .optimisers import OPTIMISERS
from .state import State


class Rows:
    """Minibatches without replacement: an epoch is a fresh order of the rows; what is left over is left out."""

    def __init__(self, seed: int, n: int, size: int, stream: str) -> None:
        self.seed, self.n, self.stream, self.size = seed, n, stream, min(size, n)
        self.per_epoch = n // self.size
        self._epoch, self._order = -1, torch.zeros(0, dtype=torch.int64)

    def __call__(self, t: int) -> Tensor:
        """Rows [b] of minibatch t, counted from the first epoch on."""
        epoch, k = divmod(t, self.per_epoch)
        if epoch != self._epoch:
            place = generator(self.seed, self.stream, epoch)
            self._epoch, self._order = epoch, torch.randperm(self.n, generator=place)
        return self._order[k * self.size : (k + 1) * self.size]


class Learner(ABC):
    """Parameters, averages and matrices in buffers that move in place; `state` copies them out."""

    closed: ClassVar[bool] = True  # no part of a minibatch is left to autograd, but for the model's map

    def __init__(self, method: Any, model: Model, state: State) -> None:
        self.method, self.model, self.rate = method, model, state.rate
        self.rows = Rows(method.seed, model.n, getattr(method, "batch_size", model.n), "rows")
        self.optimiser = OPTIMISERS[method.optimiser]
        self.point = self.begin(state)
        x = self.point.x
        self.averages = tuple(held.clone() for held in state.averages) or tuple(
            torch.zeros_like(x) for _ in range(self.optimiser.averages)
        )
        self.log_floor, self.largest = math.log(method.noise_floor), method.largest
        self.decay, self.last = method.rate_decay, method.epochs * self.rows.per_epoch
        self.cosine = method.schedule == "cosine"
        self.seen, self.count = 0.0, 0  # sum of estimates of 2 NLML / n, how many

    @abstractmethod
    def begin(self, state: State) -> Point:
        """Own copies of the state's parameters and matrices, or the first ones where it has none."""

    @abstractmethod
    def gradient(self, index: Tensor, t: int) -> float:
        """Write these rows' gradient of NLML / n into the point; return their estimate of 2 NLML / n."""

    @abstractmethod
    def matrices(self) -> tuple[Tensor, ...]:
        """Copies of what the state keeps beside the parameters."""

    @abstractmethod
    def gap(self, now: Exact) -> tuple[float, float]:
        """Relative error of the matrix that stands for F, and the penalty; nan where there is none."""

    def move(self, t: int) -> None:
        """Minibatch t at the rate its schedule gives it: parameters move, and back to where the constraints hold.

        Torch keeps no record for autograd where there is none to come: that is a tenth of a minibatch.
        """
        with torch.inference_mode(self.closed and self.model.map.closed):
            self.before(t)
            self.seen += self.gradient(self.rows(t), t)
            self.count += 1
            self.optimiser.move(self.point.x, self.point.g, self.averages, t, self.scheduled(t))
            self.point.hold(self.log_floor, self.largest)
            self.after(t)

    def scheduled(self, t: int) -> float:
        """The rate a_t of minibatch t."""
        if self.cosine:
            return float(self.rate * 0.5 * (1.0 + math.cos(math.pi * min(t / self.last, 1.0))))
        return float(self.rate * (1.0 + t / self.rows.per_epoch) ** -self.decay)

    def before(self, t: int) -> None:  # noqa: B027 - most methods have nothing to do
        """What comes before minibatch t."""

    def after(self, t: int) -> None:  # noqa: B027
        """What comes after minibatch t moved the parameters."""

    def estimate(self) -> float:
        """NLML as the minibatches since the last call saw it, on average."""
        value = 0.5 * self.model.n * self.seen / max(self.count, 1)
        self.seen, self.count = 0.0, 0
        return value

    def inside(self) -> bool:
        """Whether all parameters are numbers within the box, not on its walls: a clamp must not hide divergence."""
        return float(torch.cat([self.point.w, self.point.theta]).abs().max()) < self.method.largest

    def state(self, state: State) -> State:
        """The state with copies of what moved."""
        return state._replace(
            theta=self.point.theta.clone(),
            w=self.point.w.clone(),
            averages=tuple(held.clone() for held in self.averages),
            matrices=self.matrices(),
        )
