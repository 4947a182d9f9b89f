"""CholQR: inducing points chosen from the data by swapping, one at a time, on the objective itself.

    F = (E_D + E_C + E_V) / 2        eq 5, variational free energy, or its tight form; without E_V eq 4

One epoch (Cao et al. 2013, section 3.4) is up to min(60, m) swaps, see swap.py, and then nonlinear conjugate gradients
on the hyperparameters with min(20, max(15, 2 p)) evaluations. Epochs are repeated until one decreases F by less than a
tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ....errors import SettingError
from ....objectives import nystrom
from ....posteriors import Posterior, nystrom_posterior
from ....problem import Cost, Outcome, Problem, Step
from ...base import Steps, begun
from ...capabilities import Landscape
from ...setting_kinds import amount, choice, count
from .. import settings
from ..distinct_rows import check_precision, distinct_rows, random_order
from ..initial_sets import rows_before_work, start, start_rows
from ..moving.state import continuous_inputs, points_can_move
from ..reporting import halves
from .after_swaps import AUTO, Phase, learning_phase, polish, resize
from .compiled_swapper import CompiledSwapper
from .core_set import SwapMethod, core_set, core_size, cost_of_rows, largest_cost, memory, swap_cost
from .factor import Factor
from .policies import ORDERS, POLICIES, Turn
from .state import START, SwapInfo, SwapState, initial_state
from .swap import Swapper


class CholQR(SwapMethod):
    """Inducing points chosen by swaps on the variational free energy or the projected-process likelihood.

    Parameters
    ----------
    num_inducing, gap, objective, start, memory : int or float or str
        Size of the inducing set, until when it grows, what it minimises, how it is initialised, and on how many rows.
    num_pivots, num_proposals, pivot_refresh, pivot_policy, removal, swaps_per_epoch, rebuild : int or str
        The swaps; each setting has a sentence in `doc`.
    learn, optimiser, evaluations, max_epochs, tolerance : bool or str or int or float
        Learning of hyperparameters, and when a run ends.
    polish : int
        Evaluations for moving the points off their rows at the end.
    seed : int
        Seed of every random choice.

    Notes
    -----
    A swap costs O(n z + m^2) flops with the default settings; pivots are drawn again every `pivot_refresh` swaps, at
    2 n m z. Learning costs about 6 n m^2 per evaluation. Memory is n (2 m + 3 z + 16) numbers; where the setting
    `memory` does not allow them, points are chosen on a core set of rows, see core_set.py. With few points most of the
    time of a swap is Python's; it can be compiled, see compiled_swapper.py.

    By default all candidates are information pivots and every one is tested exactly (policy "scored", no proposals).
    `CholQR(**CholQR.published)` is the algorithm of the paper, which tests the candidate with the best score.

    References
    ----------
    Cao, Brubaker, Fleet and Hertzmann (2013). Efficient optimization for sparse Gaussian process regression. NIPS.

    Examples
    --------
    >>> import gpexplorer as gpx
    >>> run = gpx.Spec(method="cholqr", settings={"num_inducing": 32}, data="friedman1", kernel="se-ard").open()
    >>> run.finish(seconds=5)                                                                       # doctest: +SKIP
    """

    key: ClassVar[str] = "cholqr"
    title: ClassVar[str] = "CholQR swaps"
    paper: ClassVar[str] = "Cao et al. (2013). Efficient optimization for sparse Gaussian process regression. NIPS."
    # The settings of the paper, which does not say how often its pivots were drawn again.
    published: ClassVar[dict[str, Any]] = {
        "start": "random", "num_pivots": 16, "num_proposals": 1, "compete": False, "pivot_policy": "random",
        "pivot_refresh": 8, "removal": "random", "polish": 0,
    }  # fmt: skip
    State: ClassVar[type] = SwapState
    Info: ClassVar[type] = SwapInfo
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"\hat K = K_{nm} K_{mm}^{-1} K_{mn}",
        "objective": r"F = \tfrac12\left[y^\top(\hat K+\sigma^2 I)^{-1}y + \log|\hat K+\sigma^2 I|"
        r" + \sigma^{-2}\operatorname{tr}(K-\hat K)\right]",
        "num_pivots": r"K - \hat K \approx L_z L_z^\top",
        "polish": r"\min_{\theta, Z} F(\theta, Z),\quad Z \text{ no longer restricted to rows}",
        "num_proposals": r"\Delta F = \tfrac12(\Delta E_D + \Delta E_C + \Delta E_V)",
    }
    added_settings: ClassVar[Mapping[str, Any]] = {"gap": 0.0, "compete": True, "memory": 0.0}
    shorthands: ClassVar[Mapping[str, Any]] = {"num_inducing": {"auto": AUTO}}

    objective = settings.objective()
    gap = amount(
        0.0,
        (0.0, 100.0),
        doc="Add or remove points between epochs until the exact model is at most this many nat better; 0 does not. "
        "The value 'auto' of num_inducing means 32 points at the start and a gap of 3.",
    )
    num_pivots = count(
        64, (4, 128), doc="Information pivots z: more of them rank the candidates better, at n z^2 flops per ranking."
    )
    num_proposals = count(
        0,
        (0, 8),
        doc="Candidates tested exactly beside the pivots: half by score, half drawn uniformly; the paper has 1.",
    )
    compete = param.Boolean(
        True, doc="Test all pivots exactly at every swap. Off tests the best candidate by score alone, as in the paper."
    )
    pivot_refresh = count(16, (4, 100), doc="Swaps after which the pivots are drawn again.")
    pivot_policy: Any = choice(
        list(POLICIES),
        default="scored",
        doc="How pivots are chosen. scored: by score and variance; random: the paper's; optimised: by trace norm; "
        "adaptive: their number grows while scores rank badly.",
    )
    removal: Any = choice(
        list(ORDERS),
        default="least loss",
        doc="Which point is offered for removal: each in turn (random), or those the objective needs least.",
    )
    start: Any = start("random")
    swaps_per_epoch = count(
        0, (0, 200), doc="Swaps tried in an epoch, before hyperparameters are learned; 0 means min(60, m)."
    )
    polish = count(
        0,
        (0, 300),
        doc="Evaluations for moving the points off their rows by gradient once swaps end; 0 leaves them at rows.",
    )
    rebuild = count(
        1000, (50, 2000), doc="Swaps after which the factor is computed from scratch and its drift is reported."
    )
    memory = memory()

    def steps(self, problem: Problem, resume: SwapState | None = None) -> Steps:
        if self.polish:
            continuous_inputs(problem, "Setting polish")
        core, state = core_set(self, problem), resume
        if state is None or state.phase != "polish":
            state, outcome = yield from (self._epochs(problem, resume) if core is None else core.steps(state))
        if self.polish or state.phase == "polish":
            outcome = yield from polish(problem, state, self.objective, self.learn, self.polish)
        return outcome if core is None else core.noted(outcome)

    def _epochs(self, problem: Problem, resume: SwapState | None) -> Generator[Step, None, tuple[SwapState, Outcome]]:
        """Alternate discrete and continuous phases (section 3.4)."""
        rows = rows_before_work(self.start, problem, self.num_points(len(problem.train)), self.seed)
        state = yield from begun(resume, initial_state(rows, problem.theta, problem.train.y.new_zeros(0, 2)), START)
        if state.step == 0:
            check_precision(problem, state.theta)
        swapper = None
        while state.epoch < self.max_epochs:
            if state.phase == "swap":
                swapper = swapper or self._swapper(problem, state)
                state = yield from self._swap_phase(swapper, state)
            if self.learn:
                state = yield from learning_phase(problem, state, self)
                swapper = None

            changed, distance = yield from resize(problem, state, self.objective, self.gap)
            if changed is not None:
                swapper, state = None, changed
                continue
            if outcome := self.ending(problem, state, state.objective):
                return state, self._explained(outcome, problem, state, distance)
            state = state._replace(
                epoch=state.epoch + 1, phase="swap", position=0, accepted=0, epoch_begin=state.objective
            )
        return state, self.out_of_epochs()

    def _swap_phase(self, swapper: Swapper, state: SwapState) -> Phase:
        """The discrete phase: inducing points are offered for removal one after another."""
        factor = swapper.factor
        objective = factor.total
        epoch_begin = objective if math.isinf(state.epoch_begin) else state.epoch_begin
        state = state._replace(objective=objective, epoch_begin=epoch_begin, inducing=factor.inducing.clone())
        carried = state.slots.tolist()
        for k in range(state.position, self._limit(factor.m)):
            step, factor.reads = state.step + 1, 0
            with torch.inference_mode():
                drift = swapper.rebuild() if step % self.rebuild == 0 else math.nan
                slots = self._slots(factor, carried, state.epoch, k)
                limits = factor.limits() if k == 0 else (math.nan, math.nan)  # once per epoch
                is_due = swapper.pivots is None or k % self.pivot_refresh == 0
                if is_due and not swapper.refresh(step, slots):
                    break  # every row is an inducing point or explained by them
                tried = swapper.swap(slots, step)

            assert swapper.pivots is not None
            carried = ORDERS[self.removal].to_carry(slots)
            state = state._replace(
                step=step,
                position=k + 1,
                inducing=factor.inducing.clone(),
                pivots=swapper.pivots.rows.clone(),
                ranked=swapper.pivots.ranked.clone() if is_due else state.ranked,
                oldest=swapper.pivots.oldest,
                accepted=state.accepted + tried.accepted,
                objective=factor.total,
                tested=swapper.tested.clone(),
                slots=torch.tensor(carried, dtype=state.inducing.dtype),
            )
            info = SwapInfo(
                "swap",
                state.objective,
                *halves(factor.terms),
                correlation=swapper.correlation,
                acceptance=state.accepted / state.position,
                drift=drift,
                reads=factor.reads,
                jitter=factor.jitter,
                exact_least=limits[0],
                gap=limits[1],
                **tried._asdict(),
            )
            yield Step(state, info)
        if state.step == 0:  # no row can be swapped in from the beginning, as with m = n: report the objective
            state = state._replace(step=1)
            yield Step(state, SwapInfo("swap", state.objective, *halves(factor.terms), jitter=factor.jitter))
        return state._replace(phase="learn", position=0, theta_begin=state.theta.clone(), slots=state.slots[:0])

    @torch.inference_mode()  # without it, the version counters of autograd take a tenth of a small swap
    def _swapper(self, problem: Problem, state: SwapState) -> Swapper:
        """Build the factor of a state, with its pivots if it has any."""
        inducing, m = state.inducing, self.num_points(len(problem.train))
        if state.step == 0:
            inducing = start_rows(self.start, problem, len(inducing), self.seed, self.objective)
        is_short = state.phase == "swap" and state.position == 0 and len(inducing) < m and not self.gap
        if is_short and state.step > 0:  # rows that others explained may be distinct under the theta learned since
            order = random_order(problem, self.seed, inducing)  # [n], the inducing rows come first
            inducing = distinct_rows(problem.kernel, state.theta, problem.train, order, m)
            state = state._replace(pivots=state.pivots[:0])  # a pivot may have become an inducing point
        factor = Factor(problem.kernel, state.theta, problem.train, inducing, self.objective)
        counts, policy = (self.num_pivots, self.num_proposals), POLICIES[self.pivot_policy]
        swapper = CompiledSwapper(factor, *counts, self.seed, policy, self.compete)
        swapper.set_tested(state.tested.clone())
        if len(state.pivots):
            swapper.set_pivots(state.pivots, state.oldest, ranked=state.ranked.clone())
        return swapper

    @torch.inference_mode()
    def prepare(self, problem: Problem, state: SwapState) -> tuple[Swapper, int]:
        """Return the swapper as the next swap would find it, and the slot that it would offer for removal."""
        swapper = self._swapper(problem, state)
        epoch, position = (state.epoch, state.position) if state.phase == "swap" else (state.epoch + 1, 0)
        position_of_turn = min(position, self._limit(swapper.factor.m))
        slots = self._slots(swapper.factor, state.slots.tolist(), epoch, position_of_turn)
        if swapper.pivots is None or position % self.pivot_refresh == 0:
            swapper.refresh(state.step + 1, slots)
        return swapper, slots[0]

    def _limit(self, m: int) -> int:
        """Return the number of swaps per epoch."""
        return self.swaps_per_epoch or min(60, m)

    def _slots(self, factor: Factor, carried: list[int], epoch: int, position: int) -> list[int]:
        """Return the slots to offer for removal from here on until the pivots are drawn again."""
        swaps = self.pivot_refresh - position % self.pivot_refresh
        turn = Turn(epoch=epoch, position=position, per_epoch=self._limit(factor.m), swaps=swaps, seed=self.seed)
        return ORDERS[self.removal].slots(factor, turn, carried)

    def _explained(self, outcome: Outcome, problem: Problem, state: SwapState, distance: str) -> Outcome:
        """Say why no further epoch follows, and what could decrease the objective further."""
        message = outcome.message
        if not len(state.pivots):
            precision = str(problem.train.y.dtype).removeprefix("torch.")
            message = f"No row is left to swap in: the inducing points explain each row to the rounding of {precision}."
        if not self.polish and points_can_move(problem):
            message += " Points between the rows may fit better than any choice of rows: set polish to move them."
        return replace(outcome, message=message + distance)

    # -- what pictures and the page ask for: protocols of methods/capabilities.py -----------------------------

    def landscape_entries(self, problem: Problem) -> float:
        return 1.0 * len(problem.train) * self.num_points(len(problem.train))

    def swap_landscape(self, problem: Problem, state: SwapState, slot: int | None = None) -> Landscape | None:
        """Evaluate every row in the place of one inducing point: 2 n m^2 flops, and 2 n m per exact evaluation."""
        if state.Z is not None:
            return None
        if (core := core_set(self, problem)) is not None:
            return core.swap_landscape(state, slot)
        swapper, offered = self.prepare(problem, state)
        return swapper.landscape(offered if slot is None else slot, state.step)

    def force_swap(self, problem: Problem, state: SwapState, row: int, slot: int | None = None) -> Step:
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
        if (core := core_set(self, problem)) is not None:
            return core.force_swap(state, row, slot)
        swapper, offered = self.prepare(problem, state)
        slot = offered if slot is None else slot
        factor, before = swapper.factor, swapper.factor.total
        removed = int(factor.inducing[slot])
        swapper.force(slot, row)

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
        info = SwapInfo(
            "forced", factor.total, *halves(factor.terms), exact=before - factor.total, jitter=factor.jitter
        )
        return Step(forced, info._replace(removed=removed, proposed=row, accepted=True))

    def move_point(self, problem: Problem, state: SwapState, slot: int, position: Tensor) -> Step:
        """Swap the point in `slot` for the row nearest to `position` [d] that is not an inducing point yet."""
        if (core := core_set(self, problem)) is not None:
            return core.move_point(state, slot, position)
        distance = (problem.train.X - position.to(problem.train.X)).square().sum(1)  # [n]
        distance[state.inducing] = torch.inf
        return self.force_swap(problem, state, int(distance.argmin()), slot)

    def set_by_hand(self, problem: Problem, state: SwapState) -> Step:
        """Keep the inducing points; the next steps are those of a new epoch, with new pivots."""
        if state.step == 0 and core_set(self, problem) is not None:
            return super().set_by_hand(problem, state)
        if state.step == 0:  # the rows to start from were not chosen yet
            begin = self._swapper(problem, state._replace(theta=problem.theta))
            state = state._replace(inducing=begin.factor.inducing.clone())
        theta, Z = problem.theta, self.inducing_inputs(problem, state)
        model = nystrom(problem.kernel, theta, problem.train, Z, self.objective)
        total, moved = model.terms.total(self.objective), None if state.Z is None else state.Z.clone()
        state = state._replace(
            step=state.step + 1, phase="swap" if moved is None else "polish", position=0, accepted=0,
            theta=theta.clone(), theta_begin=theta.clone(), pivots=state.pivots[:0].clone(),
            ranked=state.ranked[:0].clone(), oldest=0, slots=state.slots[:0].clone(), tested=state.tested[:0].clone(),
            objective=total, epoch_begin=total,
            Z=moved, Z_begin=moved,
        )  # fmt: skip
        return Step(state, SwapInfo("forced", total, *halves(model.terms), jitter=model.jitter))

    # -- predictions and cost --------------------------------------------------------------------------------------

    def posterior(self, problem: Problem, state: SwapState) -> Posterior:
        Z = self.inducing_inputs(problem, state)
        model = nystrom(problem.kernel, state.theta, problem.train, Z)
        return nystrom_posterior(problem.kernel, state.theta, Z, model)

    def cost(self, problem: Problem) -> Cost:
        """Predict the cost of one swap: time for the points at the beginning, memory for the most that gap may add."""
        n = len(problem.train)
        cost, need = swap_cost(self, problem, self.num_points(n)), largest_cost(self, problem)
        share = core_size(self, problem, need) / n
        return replace(cost_of_rows(cost, share), arrays=cost_of_rows(need, share).arrays)
