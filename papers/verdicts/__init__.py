"""Verdicts on every figure and table: what the paper printed, what this package gives, and how the two compare."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from . import of_cross_validation, of_eigenfunctions, of_exact, of_inducing, of_minibatches
from .rules import Verdict

__all__ = ["Verdict", "judge"]

_JUDGES: dict[str, Callable[[pd.DataFrame, bool], list[Verdict]]] = (
    of_inducing.JUDGES | of_exact.JUDGES | of_eigenfunctions.JUDGES | of_cross_validation.JUDGES | of_minibatches.JUDGES
)


def judge(name: str, frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """The verdicts on one figure or table.

    Parameters
    ----------
    name : str
        Such as "grief-table1".
    frame : pandas.DataFrame
        All rows that its pieces of work gave.
    full : bool
        Whether they were computed with the paper's rows and repeats.
    """
    return _JUDGES[name](frame, full)
