"""CholQR: inducing points chosen from the data by swapping, one at a time, on the objective itself.

One epoch (Cao et al. 2013, section 3.4): up to min(60, m) swaps in random order, then nonlinear conjugate gradients
on the hyperparameters; until an epoch improves the objective by less than a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ....errors import SettingError
from ....objectives import Terms, nystrom
from ....posteriors import nystrom_posterior
from ....problem import Channel, Cost, Outcome, Posterior, Problem, Step, channel
from ...base import Method, Steps
from ...capabilities import Landscape
from .. import settings
from ..initial_sets import start, start_rows
from ..learning import descend
from ..moving.sparse_objectives import sparse_model
from ..moving.state import continuous_inputs
from ..selection.loop import random_order
from .costs import swap_cost
from .factor import Factor
from .pivot_policies import POLICIES
from .polish import polished
from .removal_order import ORDERS, least_loss, removal_order
from .settled import settled
from .state import Info as Report
from .state import State as At
from .state import begun, halves, swap_info
from .swap import Swapper
from .swap_landscape import force_swap, swap_landscape

Phase = Generator[Step, None, At]


class CholQR(Method):
    """Inducing points swapped on the variational free energy or the projected-process likelihood.

    By default every candidate is tested exactly (policy "scored", no proposals); `CholQR(**CholQR.published)` is the
    paper's, which tests the one with the best score.
    """

    key: ClassVar[str] = "cholqr"
    title: ClassVar[str] = "CholQR swaps"
    family: ClassVar[str] = "inducing"
    paper: ClassVar[str] = "Cao et al. (2013). Efficient optimization for sparse Gaussian process regression. NIPS."
    published: ClassVar[dict[str, Any]] = settings.PUBLISHED
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"\hat K = K_{nm} K_{mm}^{-1} K_{mn}",
        "objective": r"F = \tfrac12\left[y^\top(\hat K+\sigma^2 I)^{-1}y + \log|\hat K+\sigma^2 I|"
        r" + \sigma^{-2}\operatorname{tr}(K-\hat K)\right]",
        "num_pivots": r"K - \hat K \approx L_z L_z^\top",
        "polish": r"\min_{\theta, Z} F(\theta, Z),\quad Z \text{ no longer rows: what no subset has to reach}",
        "num_proposals": r"\Delta F = \tfrac12(\Delta E_D + \Delta E_C + \Delta E_V)",
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel("objective", "objective F", "nat", monotone=True),
        channel("fit", "data fit, E_D / 2", "nat"),
        channel("logdet", "complexity, E_C / 2", "nat"),
        channel("trace", "trace, E_V / 2", "nat"),
        channel("approx", "predicted reduction", "nat"),
        channel("exact", "exact reduction", "nat"),
        channel("correlation", "rank correlation of scores and exact falls"),
        channel("regret", "missed by the best score alone", "nat"),
        channel("acceptance", "accepted this epoch"),
        channel("drift", "drift of the carried objective", log=True),
        channel("moved", "how far the points moved, rms", "sd of x", log=True),
        channel("reads", "passes over the n x m factor"),
        channel("jitter", "jitter on K_mm", log=True),
    )

    num_inducing = param.Integer(
        64,
        bounds=(1, None),
        softbounds=(4, 512),
        doc="Inducing points m: more fit better and cost m times as much a swap.",
    )
    objective = settings.objective()
    num_pivots = param.Integer(
        64,
        bounds=(1, None),
        softbounds=(4, 128),
        doc="Information pivots z: more rank the candidates better, at n z^2 a swap.",
    )
    num_proposals = param.Integer(
        0,
        bounds=(0, None),
        softbounds=(0, 8),
        doc="Candidates tested exactly beside the pivots, half by score, half drawn evenly; the paper has 1.",
    )
    pivot_refresh = param.Integer(16, bounds=(1, None), softbounds=(4, 100), doc="Swaps before pivots are drawn anew.")
    pivot_policy: Any = param.Selector(
        default="scored",
        objects=list(POLICIES),
        doc="scored: by rank and variance; random: the paper's; optimised: trace norm; adaptive: grown where it fails.",
    )
    removal: Any = param.Selector(
        default="least loss",
        objects=list(ORDERS),
        doc="Which point is offered next: every one in turn, or those the objective would miss least, ranked exactly.",
    )
    start: Any = start("random")
    swaps_per_epoch = param.Integer(
        0, bounds=(0, None), softbounds=(0, 200), doc="Swaps tried before the hyperparameters move; 0 means min(60, m)."
    )
    learn = param.Boolean(True, doc="Learn the hyperparameters between swaps; off keeps them where they start.")
    optimiser = settings.optimiser()
    evaluations = settings.evaluations()
    max_epochs = settings.max_epochs()
    tolerance = settings.tolerance()
    polish = param.Integer(
        0,
        bounds=(0, None),
        softbounds=(0, 300),
        doc="Evaluations spent, once swaps end, on moving the points off their rows by gradient; 0 leaves them there.",
    )
    rebuild = param.Integer(
        1000,
        bounds=(1, None),
        softbounds=(50, 2000),
        doc="Swaps after which the factor is recomputed, its drift reported.",
    )

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        if self.polish:
            continuous_inputs(problem, "Setting polish")
        state = resume
        if state is None:
            order = random_order(problem, self.seed)
            state = begun(order[: self.num_inducing].clone(), problem.theta, problem.train.y.new_zeros(0, 2))
            yield Step(state, Report("start", math.nan, math.nan, math.nan, math.nan))
        if state.phase != "polish":
            state, outcome = yield from self._epochs(problem, state)
            if not self.polish:
                return outcome
        return (yield from polished(problem, state, self.objective, self.learn, self.polish))

    def _epochs(self, problem: Problem, state: At) -> Generator[Step, None, tuple[At, Outcome]]:
        swapper = None
        while state.epoch < self.max_epochs:
            if state.phase == "swap":
                swapper = swapper or self._swapper(problem, state)
                state = yield from self._swaps(swapper, state)
            if self.learn:
                state, swapper = (yield from self._learning(problem, state)), None

            gain = state.epoch_begin - state.objective
            if gain <= self.tolerance * max(abs(state.objective), 1.0):
                return state, Outcome("converged", settled(self, problem, state, gain))
            state = state._replace(
                epoch=state.epoch + 1, phase="swap", position=0, accepted=0, epoch_begin=state.objective
            )
        return state, Outcome("budget", f"All {self.max_epochs} epochs are done; raise max_epochs to go on.")

    @torch.inference_mode()  # no autograd in swaps: torch's records of versions are a tenth of a small one
    def _swapper(self, problem: Problem, state: At) -> Swapper:
        """The factor at this state, with its pivots if it has any."""
        inducing = state.inducing
        if state.step == 0:
            inducing = start_rows(self.start, problem, len(inducing), self.seed, self.objective)
        factor = Factor(problem.kernel, state.theta, problem.train, inducing, self.objective)
        swapper = Swapper(factor, self.num_pivots, self.num_proposals, self.seed, self.pivot_policy)
        swapper.recall(state.tested.clone())
        if len(state.pivots):
            swapper.choose(state.pivots, state.oldest, ranked=state.ranked.clone())
        return swapper

    @torch.inference_mode()
    def prepare(self, problem: Problem, state: At) -> tuple[Swapper, int]:
        """The swapper as the next swap would find it, and the slot it would offer for removal."""
        swapper = self._swapper(problem, state)
        turn, position = (state.epoch, state.position) if state.phase == "swap" else (state.epoch + 1, 0)
        slots = self._offers(swapper.factor, state, turn, min(position, self._limit(swapper.factor.m)))
        if swapper.pivots is None or position % self.pivot_refresh == 0:
            swapper.refresh(state.step + 1, slots)
        return swapper, slots[0]

    def _limit(self, m: int) -> int:
        return self.swaps_per_epoch or min(60, m)

    def _offers(self, factor: Factor, state: At, epoch: int, position: int) -> list[int]:
        """The slots to offer for removal from here on until the pivots are drawn anew, and the one after."""
        ahead = self.pivot_refresh - position % self.pivot_refresh
        if self.removal == "least loss":
            return state.slots.tolist() or least_loss(factor, ahead)
        order = removal_order(factor.m, epoch, self._limit(factor.m), self.seed)
        return order[position : position + ahead + 1]

    def _swaps(self, swapper: Swapper, state: At) -> Phase:
        """The discrete phase: each inducing point in turn is offered for removal, in random order."""
        factor = swapper.factor
        objective = factor.total
        begin = objective if math.isinf(state.epoch_begin) else state.epoch_begin
        state = state._replace(objective=objective, epoch_begin=begin, inducing=factor.inducing.clone())
        for k in range(state.position, self._limit(factor.m)):
            step, factor.reads = state.step + 1, 0
            with torch.inference_mode():
                drift = swapper.rebuild() if step % self.rebuild == 0 else math.nan
                slots = self._offers(factor, state, state.epoch, k)
                if (swapper.pivots is None or k % self.pivot_refresh == 0) and not swapper.refresh(step, slots):
                    break  # every row is explained, or is inducing
                tried = swapper.swap(slots, step)

            assert swapper.pivots is not None
            state = state._replace(
                step=step,
                position=k + 1,
                inducing=factor.inducing.clone(),
                pivots=swapper.pivots.rows.clone(),
                ranked=swapper.pivots.ranked.clone(),
                oldest=swapper.pivots.oldest,
                accepted=state.accepted + tried.accepted,
                objective=factor.total,
                tested=swapper.tested.clone(),
                slots=torch.tensor(slots[1:] if self.removal == "least loss" else []).to(state.inducing),
            )
            yield Step(state, swap_info(swapper, tried, state, drift))
        return state._replace(phase="learn", position=0, theta_begin=state.theta.clone(), slots=state.slots[:0])

    def _learning(self, problem: Problem, state: At) -> Phase:
        """The continuous phase; resumed by replaying its evaluations, since SciPy's memory is not part of the state."""
        Z = problem.train.rows(state.inducing).X
        limit = self.evaluations or min(20, max(15, 2 * len(state.theta)))
        found = descend(problem.kernel, state.theta_begin, problem.train, Z, self.objective, self.optimiser, limit)
        done = state.position
        for k, (theta, terms, jitter) in enumerate(found):
            if k < done:
                continue
            objective = terms.total(self.objective)
            state = state._replace(step=state.step + 1, phase="learn", position=k + 1, theta=theta, objective=objective)
            yield Step(state, Report("learn", objective, *halves(terms), jitter=jitter))
        return state

    # What pictures and the page ask for: `HasSwapLandscape` and `HasMovablePoints` of methods/capabilities.py.

    def landscape_entries(self, problem: Problem) -> float:
        return 1.0 * len(problem.train) * self.num_inducing

    def swap_landscape(self, problem: Problem, state: At, slot: int | None = None) -> Landscape | None:
        """Evaluate every row for one inducing point's place: 2 n m^2 flops, and 2 n m per exact evaluation."""
        if state.Z is not None:
            return None
        swapper, offered = self.prepare(problem, state)
        return swap_landscape(swapper, offered if slot is None else slot, self.seed, state.step)

    def force_swap(self, problem: Problem, state: At, row: int, slot: int | None = None) -> Step:
        """Return the step in which data row `row` takes the place of the point in `slot`: 4 n m^2 flops.

        The run continues from its state as from any other.

        Raises
        ------
        SettingError
            The points are no longer rows of the data, the row is an inducing point already, or it is explained by the
            points that stay.
        """
        if state.Z is not None:
            raise SettingError(
                "The inducing points are no longer rows of the data, so that no row can take the place of one; "
                "go back to a swap."
            )
        swapper, offered = self.prepare(problem, state)
        slot = offered if slot is None else slot
        factor, before = swapper.factor, swapper.factor.total
        removed = int(factor.inducing[slot])
        force_swap(factor, slot, row)

        learned = state.phase == "learn"  # then the swap is the first one of the next epoch
        forced = state._replace(
            step=state.step + 1,
            epoch=state.epoch + learned,
            phase="swap",
            position=1 if learned else state.position + 1,
            inducing=factor.inducing.clone(),
            accepted=1 if learned else state.accepted + 1,
            objective=factor.total,
            slots=state.slots[1:].clone(),
            epoch_begin=max(before, factor.total),
        )
        info = Report("forced", factor.total, *halves(factor.terms), exact=before - factor.total, jitter=factor.jitter)
        return Step(forced, info._replace(removed=removed, proposed=row, accepted=True))

    def move_point(self, problem: Problem, state: At, slot: int, position: Tensor) -> Step:
        """Swap the point in `slot` for the row nearest to `position` [d] that is not an inducing point yet."""
        distance = (problem.train.X - position).square().sum(1)  # [n]
        distance[state.inducing] = torch.inf
        return self.force_swap(problem, state, int(distance.argmin()), slot)

    def bound_terms(self, problem: Problem, state: At) -> Terms:
        Z = problem.train.rows(state.inducing).X if state.Z is None else state.Z
        return sparse_model(problem.kernel, state.theta, problem.train, Z, self.objective).terms

    def posterior(self, problem: Problem, state: At) -> Posterior:
        Z = problem.train.rows(state.inducing).X if state.Z is None else state.Z
        now = nystrom(problem.kernel, state.theta, problem.train, Z)
        return nystrom_posterior(problem.kernel, state.theta, Z, now)

    def cost(self, problem: Problem) -> Cost:
        return swap_cost(self, problem)
