"""Parameters of an estimator, which are checked when they are used: scikit-learn sets them without a check."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

import numpy as np

from ..errors import SettingError
from ..runs.setting_checks import number, quoted

SEEDS = 2**31 - 1


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
