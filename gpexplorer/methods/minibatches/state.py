"""State and report of the minibatch methods."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from torch import Tensor

from ...problem import channel
from ..langevin import Tuning


class Chains(NamedTuple):
    """What Langevin chains over weights and noise carry from step to step."""

    z: Tensor  # [C, D + 1] log w and log s2
    tuning: Tuning
    draws: Tensor  # [k, C, D + 1] one draw per chain and step, after the warm-up
    position: int  # steps so far


class MinibatchState(NamedTuple):
    """Everything that the next step depends on. Gram matrices are divided by the number of rows: F / n."""

    step: int
    phase: str  # "start" | "search" | "learn" | "fold" | "best" | "sample": the phase to which the step belongs
    batches: int  # minibatches taken in this phase
    theta: Tensor  # [p] parameters of the feature map and the kernel, log noise sd
    w: Tensor  # [D] weights of the features; for SVGP its variational parameters as one vector
    averages: tuple[Tensor, ...]  # running averages of the optimiser
    matrices: tuple[Tensor, ...]  # SCGD: Phi'Phi / n, Phi'y / n; MINIMAX: A / n, B and the averages of B
    rate: float  # learning rate
    trial: int = 0  # learning rates tried so far
    best_value: float = math.inf  # the lowest NLML, or the lowest validation error
    best_rate: float = math.nan
    best_theta: Tensor | None = None  # [p]
    best_w: Tensor | None = None  # [D]
    waited: int = 0  # evaluations since the last improvement
    best_batches: int = 0  # minibatches that the best theta took
    band_factor: float = 1.0  # factor of magnitude and noise variance that fits the bands to the rows set aside
    fold_thetas: tuple[Tensor, ...] = ()  # [p] each, learned without another part of the rows; empty if it diverged
    remark: str = ""  # for the outcome: where likelihood and rows set aside disagree, a matrix that lost F
    chains: Chains | None = None  # of sampling
    gradient: float = math.nan  # of the NLML at the best theta, in its standard errors

    def with_score(self, score: float) -> MinibatchState:
        """Return the state after an evaluation: with its best theta replaced if this score is lower."""
        if score < self.best_value or self.best_theta is None:
            return self._replace(
                best_value=score, best_theta=self.theta, best_w=self.w, best_batches=self.batches, waited=0
            )
        return self._replace(waited=self.waited + 1)

    def at_best_theta(self) -> MinibatchState:
        """Return the state with theta and w replaced by the best ones."""
        if self.best_theta is None or self.best_w is None:
            return self
        return self._replace(theta=self.best_theta, w=self.best_w)


class MinibatchInfo(NamedTuple):
    """The report of a step. A channel is nan when it does not apply."""

    phase: str
    objective: Annotated[float, channel("NLML", "nat")] = math.nan
    estimate: Annotated[float, channel("NLML estimated from the minibatches", "nat")] = math.nan
    noise: Annotated[float, channel("noise sd", log=True)] = math.nan
    error: Annotated[float, channel("RMSE on the validation rows")] = math.nan
    gap: Annotated[float, channel("relative error of the Gram matrix", log=True)] = math.nan
    penalty: Annotated[float, channel("penalty mu |A - F| / |A|", log=True)] = math.nan
    rate: Annotated[float, channel("learning rate", log=True)] = math.nan
    epoch: Annotated[float, channel("epochs")] = math.nan
    acceptance: Annotated[float, channel("acceptance of the Langevin chains")] = math.nan
    rhat: Annotated[float, channel("largest R-hat of the Langevin chains")] = math.nan
