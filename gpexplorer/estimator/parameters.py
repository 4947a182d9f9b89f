"""Parameters of an estimator, which are checked when they are used: scikit-learn sets them without a check.

Apart because these are checks of single values; the estimator is the interface of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

import numpy as np
from torch import Tensor

from .. import kernels
from ..errors import KernelError, SettingError
from ..methods.base import Method
from ..problem import Dataset
from ..runs.setting_checks import number, quoted
from ..runs.studies.machine_speed import points_for_budget

SEEDS = 2**31 - 1
EPOCHS, EPOCHS_WITH_SECONDS = 3, 1  # of "auto": epochs of swaps and learning before the points move
POLISH, POLISH_WITH_SECONDS = 100, 1000  # of "auto": evaluations that move the points


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """Return the seed that a random state stands for; None is 0."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(SEEDS))
    return int(number("random_state", 0 if random_state is None else random_state, whole=True, low=0, high=SEEDS))


def mapping_of(name: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a parameter that maps names to values as a dict; SettingError if it is something else."""
    if not isinstance(given, (Mapping, NoneType)):
        raise SettingError(f"{name} is {quoted(given)}; give names with their values, or None.")
    return dict(given or {})


def sized_settings(
    settings: Mapping[str, Any],
    num_inducing: int | str | None,
    method: type[Method] | None,
    train: Dataset,
    kernel: str | dict[str, Any],
    budget: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the settings with the number of inducing points, and with what else follows from it.

    Parameters
    ----------
    settings : mapping
        Those that a person gave, which are kept.
    num_inducing : int, "auto" or None
        As for `Estimator`.
    method : type or None
        The method; None if its key is unknown.
    train : Dataset
        Training rows.
    kernel : str or dict
        As in `Spec`.
    budget : mapping
        As for `Estimator`.

    Notes
    -----
    With "auto", cholqr takes a few epochs of swaps and then moves the points by gradient. With 384 points and 40
    seconds of a processor on four fifths of the training rows, the NLPD of the others was 0.628, 0.411 and 1.033 on
    calhousing, elevators and protein; with swaps until the end it was 0.656, 0.403 and 1.063. Without a limit and with
    128 points, it was 0.269, -1.370, 0.374 and 0.594 on concrete, energy, airfoil and housing; with swaps until the end
    it was 0.285, -1.367, 0.389 and 0.613.
    """
    completed, n = dict(settings), len(train)
    if method is not None and "num_inducing" in method.param and num_inducing is not None:
        by_budget = num_inducing == "auto" and "gap" not in completed  # with a gap, the method chooses their number
        completed.setdefault("num_inducing", points_for_budget(n, budget) if by_budget else num_inducing)
    points = completed.get("num_inducing")
    if isinstance(points, (int, np.integer)) and points is not True:
        completed["num_inducing"] = points = min(int(points), n)
        can_move = method is not None and method.key == "cholqr" and points < n and _has_gradient(kernel, train)
        if num_inducing == "auto" and can_move and "gap" not in completed:
            timed = "seconds" in budget
            completed.setdefault("polish", POLISH_WITH_SECONDS if timed else POLISH)
            if completed["polish"]:
                completed.setdefault("max_epochs", EPOCHS_WITH_SECONDS if timed else EPOCHS)
    return completed


def _has_gradient(kernel: str | dict[str, Any], train: Dataset) -> bool:
    """Whether inducing points of this kernel may lie between the rows."""
    if not isinstance(train.X, Tensor):
        return False
    name = kernel if isinstance(kernel, str) else kernel.get("name", "")
    try:
        return kernels.make(name, train.d).inputs == "real"
    except KernelError:
        return False  # the spec says what is wrong with it
