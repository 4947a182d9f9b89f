"""The interface between a minibatch method and the shared loop: a learner takes one minibatch after another.

Its parameters are one flat vector, which an optimiser moves in place, with its running averages.
"""

from __future__ import annotations

import logging
import math
import sys
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ...kernels.theta.restrictions import noise_limits
from ...linalg.deferred_reads import WARM_UP, Number, RareCases, RecordedMinibatch
from ...linalg.interruption import go_on
from ...linalg.randomness import generator
from .exact_likelihood import ExactLikelihood
from .gradients import Parameters
from .model import Model
from .optimisers import OPTIMISERS
from .settings import MinibatchSettings
from .state import MinibatchState

CPU = torch.device("cpu")
_log = logging.getLogger(__name__)
LARGEST_LOG_NOISE = 0.5 * math.log(sys.float_info.max)  # of the standard deviation: with more, the variance overflows
WORTH = 100  # a graph is recorded if it stays valid for this many minibatches; recording takes as long as some of them


class MinibatchRows:
    """The rows of each minibatch, drawn without replacement.

    An epoch is a new random order of the rows. Rows that do not fill a minibatch at the end of an epoch are left out.

    Parameters
    ----------
    seed : int
        Seed of the method.
    n : int
        Number of rows.
    size : int
        Rows per minibatch; n if n is smaller.
    stream : str
        Name of the random stream, so that several streams of one method are independent.
    device : device, optional
        Where the indices are needed; an order is sent there once per epoch.
    """

    def __init__(self, seed: int, n: int, size: int, stream: str, device: torch.device = CPU) -> None:
        self.seed, self.n, self.stream, self.size, self.device = seed, n, stream, min(size, n), device
        self.per_epoch = n // self.size
        self._epoch, self._order = -1, torch.zeros(0, dtype=torch.int64)

    def __call__(self, t: int) -> Tensor:
        """Return the row indices [b] of minibatch t, counted from the first epoch."""
        epoch, k = divmod(t, self.per_epoch)
        if epoch != self._epoch:
            source = generator(self.seed, self.stream, epoch)
            self._epoch, self._order = epoch, torch.randperm(self.n, generator=source).to(self.device)
        return self._order[k * self.size : (k + 1) * self.size]


class Learner(ABC):
    """Parameters, running averages and matrices, updated in place; `state` returns copies of them.

    Parameters
    ----------
    model : Model
        The feature map and the rows.
    state : MinibatchState
        The state to continue from.
    batch_size : int, optional
        Rows per minibatch; None for all rows.
    """

    refresh: int = 0  # minibatches after which the matrices are recomputed from all rows; 0: never
    defers_reads: bool = True  # on a GPU, a minibatch needs no value on the host

    def __init__(
        self, method: MinibatchSettings, model: Model, state: MinibatchState, batch_size: int | None = None
    ) -> None:
        self.model, self.rate, self.seed = model, state.rate, method.seed
        size = model.n if batch_size is None else batch_size
        self.rows = MinibatchRows(method.seed, model.n, size, "rows", model.rows_device)
        self.optimiser = OPTIMISERS[method.optimiser]
        self.parameters = self.begin(state)
        x = self.parameters.x
        begun = [average.clone() for average in state.averages]
        self.averages = tuple(begun or [torch.zeros_like(x) for _ in range(self.optimiser.averages)])
        self.log_floor, self.largest = math.log(method.noise_floor), method.largest
        self.log_ceiling, self.noise_limits = math.inf, noise_limits(model.problem.kernel, model.problem.theta)
        if self.noise_limits is not None:
            self.log_ceiling = self.noise_limits.high
            self.log_floor = max(min(self.log_floor, self.log_ceiling), self.noise_limits.low)
        self.decay, self.last = method.rate_decay, method.epochs * self.rows.per_epoch
        self.cosine = method.schedule == "cosine"
        like = self.parameters.theta
        self.on_gpu = self.defers_reads and not like.is_cpu
        self._estimates: Number = like.new_zeros((), dtype=torch.float64) if self.on_gpu else 0.0  # sum of 2 NLML / n
        self._count, self._cases = 0, RareCases(like)
        self._graph: RecordedMinibatch | None = None
        self._recorded: tuple[float, ...] = ()  # the constants of the graph
        self._launched = 0  # minibatches without a graph
        has_prior = self.noise_limits is not None and self.noise_limits.prior is not None  # which reads the noise
        self._is_recordable = not has_prior and self.model.map.closed and self.rows.device.type == like.device.type

    @abstractmethod
    def begin(self, state: MinibatchState) -> Parameters:
        """Return copies of the parameters and set up the matrices, from the state or, at the start, from all rows."""

    @abstractmethod
    def gradient(self, index: Tensor, t: int) -> Number:
        """Write the gradient of NLML / n on these rows into the parameters; return their estimate of 2 NLML / n."""

    def indices(self, t: int) -> tuple[Tensor, ...]:
        """Return the rows [b] of the gradient of minibatch t, then those that `after` needs."""
        return (self.rows(t),)

    def moved(self) -> tuple[Tensor, ...]:
        """Return everything that a minibatch changes and a later one depends on, not copied."""
        return (self.parameters.x, *self.averages)

    def carried(self) -> tuple[str, ...]:
        """Return the names of attributes that a minibatch replaces by new tensors, which later ones need."""
        return ()

    def constants(self, t: int) -> tuple[float, ...]:
        """Return the numbers of the schedules at minibatch t, except the learning rate."""
        return ()

    def matrices(self) -> tuple[Tensor, ...]:
        """Return copies of the matrices that the state keeps beside the parameters."""
        return ()

    def gap(self, exact: ExactLikelihood) -> tuple[float, float]:
        """Return the relative error of the matrix that approximates F, and the penalty; nan if there is none."""
        return math.nan, math.nan

    def take(self, first: int, end: int) -> None:
        """Take the minibatches first, ..., end - 1; on a GPU without a read, except for one at the end.

        There the decisions that need a value on the host are made for the usual case. If another case has happened,
        everything is put back, and the same minibatches are taken again with reads.
        """
        if not self.on_gpu:
            for t in range(first, end):
                go_on()
                self.move(t)
            return
        changed = self._changed()
        saved, count = [part.clone() for part in changed], self._count
        with self._cases.assumed_away():
            for t in range(first, end):
                if not self._replay(t):
                    self.move(t)
        if bool(self._cases.happened):
            with torch.inference_mode():
                for part, value in zip(changed, saved, strict=True):
                    part.copy_(value)
            self._count = count
            for t in range(first, end):
                self.move(t)

    def move(self, t: int) -> None:
        """Take minibatch t by launching one operation after another.

        If no gradient needs autograd, it is disabled, which saves a tenth of the time per minibatch.
        """
        with torch.inference_mode(self.model.map.closed):
            carried = self._carried()
            self.before(t)
            self.minibatch(self.indices(t), t, t, self.scheduled_rate(t))
            self._carry(carried)
        self._launched += 1
        self._count += 1

    def minibatch(self, indices: tuple[Tensor, ...], t: int, earlier: Number, rate: Number) -> None:
        """Move everything by one minibatch, then project the parameters onto their bounds.

        Parameters
        ----------
        indices : tuple of Tensor
            Its rows, as returned by `indices`.
        t : int
            Its number, for the constants of the schedules.
        earlier, rate : Number
            Earlier minibatches and learning rate; numbers, or tensors on the device.
        """
        self.parameters.forget_noise()
        self._estimates += self.gradient(indices[0], t)
        if self.noise_limits is not None and self.noise_limits.prior is not None:
            self.parameters.into[-1].add_(self.noise_limits.penalty(float(self.parameters.theta[-1]))[1] / self.model.n)
        self.optimiser.move(self.parameters.x, self.parameters.g, self.averages, earlier, rate)
        self.parameters.project(self.log_floor, self.largest, self.log_ceiling)
        self.after(t, *indices[1:])

    def _replay(self, t: int) -> bool:
        """Take minibatch t as a CUDA graph; False if that is not possible, or not worth it."""
        constants = self.constants(t)
        if (
            not self._is_recordable
            or self._launched < WARM_UP
            or self.refreshes(t)
            or constants != self.constants(t + WORTH)
        ):
            return False
        with torch.inference_mode():
            if self._graph is None or self._recorded != constants:
                self._graph, self._recorded = self._record(t), constants
            if self._graph is None:
                self._is_recordable = False
                return False
            self._graph.replay(self.indices(t), t, self.scheduled_rate(t))
        self.parameters.forget_noise()
        self._count += 1
        return True

    def _record(self, t: int) -> RecordedMinibatch | None:
        """Record a minibatch with the constants of minibatch t; None if this GPU or torch cannot."""
        carried = self._carried()

        def work(indices: tuple[Tensor, ...], earlier: Tensor, rate: Tensor) -> None:
            self.minibatch(indices, t, earlier, rate)
            self._carry(carried)

        try:
            return RecordedMinibatch(work, self.indices(t))
        except RuntimeError as error:
            _log.warning("A minibatch cannot be recorded as a CUDA graph (%s): it is launched piece by piece.", error)
            for name, tensor in carried.items():
                setattr(self, name, tensor)
            return None

    def _carried(self) -> dict[str, Tensor]:
        """The tensors of `carried`; none on a CPU, where each minibatch may have its own."""
        return {name: getattr(self, name) for name in self.carried()} if self.on_gpu else {}

    def _carry(self, carried: dict[str, Tensor]) -> None:
        """Write what a minibatch has replaced into the tensors that a graph reads."""
        for name, tensor in carried.items():
            tensor.copy_(getattr(self, name))
            setattr(self, name, tensor)

    def _changed(self) -> list[Tensor]:
        """Everything on a GPU that minibatches change in place."""
        return [*self.moved(), *self._carried().values(), self._estimates, self._cases.happened]

    def scheduled_rate(self, t: int) -> float:
        """Return the learning rate a_t of minibatch t."""
        if self.cosine:
            return float(self.rate * 0.5 * (1.0 + math.cos(math.pi * min(t / self.last, 1.0))))
        return float(self.rate * (1.0 + t / self.rows.per_epoch) ** -self.decay)

    def refreshes(self, t: int) -> bool:
        """Whether matrices are recomputed from all rows before minibatch t."""
        return bool(self.refresh and t and t % self.refresh == 0)

    def before(self, t: int) -> None:  # noqa: B027 - most methods do nothing here
        """Prepare for minibatch t."""

    def after(self, t: int, *indices: Tensor) -> None:  # noqa: B027
        """Update the matrices after minibatch t has moved the parameters."""

    def estimate(self) -> float:
        """Return the mean estimate of the NLML by the minibatches since the last call."""
        value = 0.5 * self.model.n * float(self._estimates) / max(self._count, 1)
        self._estimates, self._count = self._estimates * 0.0, 0
        return value

    def penalty(self) -> float:
        """Return minus the log prior density of the noise; 0 where the error of rows set aside chooses theta."""
        if self.noise_limits is None or len(self.model.validation_rows):
            return 0.0
        return self.noise_limits.penalty(float(self.parameters.theta[-1]))[0]

    def within_bounds(self) -> bool:
        """Return whether all parameters are finite and inside their bounds, not on them: that would be divergence.

        The noise variance must be a number, too: its logarithm reaches that limit before the bound of all parameters.
        """
        theta, share = self.parameters.theta, max(self.largest / LARGEST_LOG_NOISE, 1.0)  # one read of the device
        scaled = torch.cat([self.parameters.w, theta[:-1], share * theta[-1:]])
        return float(torch.linalg.vector_norm(scaled, math.inf)) < self.largest

    def remark(self, gap: float) -> str:
        """Return a sentence for the outcome if the matrix that approximates F has a large relative error, else ""."""
        return ""

    def divergence(self, exact: ExactLikelihood | None = None) -> str:
        """Return a sentence that says what has diverged and how to prevent it; empty if nothing has.

        Parameters
        ----------
        exact : ExactLikelihood, optional
            The exact likelihood at the current theta, to which the matrices are compared; None leaves them out.
        """
        if self.within_bounds():
            return ""
        noise_is_beyond = abs(float(self.parameters.theta[-1])) >= LARGEST_LOG_NOISE
        bound = min(self.largest, LARGEST_LOG_NOISE) if noise_is_beyond else self.largest
        return f"A parameter reached its bound {bound:g}. Lower the rate {self.rate:.2g}."

    def state(self, state: MinibatchState) -> MinibatchState:
        """Return `state` with copies of everything that has changed."""
        return state._replace(
            theta=self.parameters.theta.clone(),
            w=self.parameters.w.clone(),
            averages=tuple(average.clone() for average in self.averages),
            matrices=self.matrices(),
        )
