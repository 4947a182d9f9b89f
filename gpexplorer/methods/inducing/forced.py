"""A swap that a person asked for: the point offered next goes out, the row they chose comes in, better or worse."""

from __future__ import annotations

import torch

from ...errors import SettingError
from ...problem import Problem, Step
from .swapping.cholqr import CholQR
from .swapping.state import Info, State, halves


def forced(method: CholQR, problem: Problem, state: State, row: int, slot: int | None = None) -> Step:
    """The step in which data row `row` takes the place of the point in `slot`, or of the one offered next.

    4 n m^2 flops. The run goes on from its state as from any other. Raises SettingError where the row is inducing
    already, or is explained by those that stay, the other one gone.
    """
    if state.Z is not None:
        raise SettingError("The points have left their rows, so that no row can take their place; go back to a swap.")
    swapper, offered = method.prepare(problem, state)
    slot = offered if slot is None else slot
    factor, before = swapper.factor, swapper.factor.total
    if bool(factor.is_inducing[row]):
        raise SettingError(f"Row {row} is an inducing point already; choose another row.")
    removal = factor.remove(slot, factor.times(factor.direction(slot)[None])[0])
    left, _ = factor.residual_columns(torch.tensor([row], device=factor.D.device), [], removal)
    if float(left[0, row]) <= float(factor.least[row]):
        raise SettingError(f"Row {row} is explained by the inducing points to rounding; choose another row.")
    inducing = factor.inducing.clone()
    removed, inducing[slot] = int(inducing[slot]), row
    factor.build(inducing)

    learned = state.phase == "learn"
    after = state._replace(
        step=state.step + 1,
        epoch=state.epoch + learned,
        phase="swap",
        position=1 if learned else state.position + 1,
        inducing=inducing,
        accepted=1 if learned else state.accepted + 1,
        objective=factor.total,
        slots=state.slots[1:].clone(),
        epoch_begin=max(before, factor.total),
    )
    terms = halves(factor.terms)
    report = Info("forced", factor.total, *terms, exact=before - factor.total, jitter=factor.jitter)
    return Step(after, report._replace(removed=removed, proposed=row, accepted=True))
