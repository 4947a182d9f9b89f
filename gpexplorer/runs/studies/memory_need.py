"""The memory that a run will need, by formula and before anything is read, and the largest setting that fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ... import data as data_sets
from ...data.quoting import size
from ...data.sets.cards import card
from ...data.sets.generators import GENERATORS
from ...data.sets.poses import DIMENSION, TEST, TRAIN
from ...errors import GPExplorerError, SettingError
from ...methods.base import registry
from ...problem import Cost
from ..setting_checks import method_of
from ..spec import Spec
from .scaling_study import Axis, axes, hollow_problem

COPIES = 6  # of the rows in double precision while they are drawn, split and scaled: 3 to 6 were measured
LARGEST = 2**40  # of a setting for which a smaller value is searched


class Rows(NamedTuple):
    """The size of a data set.

    Attributes
    ----------
    n, d : int
        Rows and inputs.
    """

    n: int
    d: int


def rows_by_name(data: Any) -> Rows | None:
    """Return the size of named data without reading them; None for a file, rows in memory, or wrong options.

    Parameters
    ----------
    data : str or mapping
        As in `Spec.data`.
    """
    options = dict(data) if isinstance(data, Mapping) else {"name": data}
    name = options.get("name")
    if not data_sets.is_named(name):
        return None
    if name in GENERATORS:
        recipe = GENERATORS[str(name)]
        n, d = (options.get(key, default) for key, default in (("n", recipe.n), ("d", recipe.d)))
        return Rows(n, d) if isinstance(n, int) and isinstance(d, int) else None
    try:
        data_card = card(str(name))
    except GPExplorerError:
        return Rows(TRAIN + TEST, DIMENSION)  # of the poses, which have no card
    return Rows(data_card.n, data_card.d or 1)


def cost_of_step(spec: Spec, rows: Rows) -> Cost:
    """Return the cost of a step by the method's formula, which takes no memory.

    Raises
    ------
    SettingError
        If the kernel or the method cannot be used with rows of this size.
    """
    try:
        return method_of(spec).cost(hollow_problem(spec, *rows))
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise SettingError(f"{spec.method} has no formula for these rows ({type(error).__name__}).") from error


def default_costs(n: int, d: int) -> list[dict[str, Any]]:
    """Return the cost of a step of every method at its defaults, the smallest memory first.

    Parameters
    ----------
    n, d : int
        Rows and inputs. The kernel is SE-ARD.

    Returns
    -------
    list of dict
        With "key", "memory" in bytes, "flops", and "largest array", a name. Methods without a formula are left out.
    """
    entries = list[dict[str, Any]]()
    for key in registry:
        with suppress(SettingError):
            cost = cost_of_step(Spec(key, kernel=registry[key].example_kernel), Rows(n, d))
            largest = max(cost.arrays, key=lambda name: cost.arrays[name], default="")
            entries.append({"key": key, "memory": cost.memory, "flops": cost.flops, "largest array": largest})
    return sorted(entries, key=lambda entry: (entry["memory"], entry["key"]))


def memory_need(spec: Spec, rows: Rows) -> float:
    """Return the bytes that a run needs at most: its rows while they are prepared, or its rows and its arrays.

    Where there is no formula for the method, only the rows count.
    """
    try:
        return max(rows_need(rows), 2 * rows_need(rows) / COPIES + cost_of_step(spec, rows).memory)
    except GPExplorerError:
        return rows_need(rows)


def rows_need(rows: Rows) -> float:
    """Return the bytes that the rows of a run need while they are prepared."""
    return COPIES * 8.0 * rows.n * (rows.d + 1)


def refusal(spec: Spec, rows: Rows, free: float) -> str:
    """Return why a run does not fit into this memory, with a setting that would fit; empty where it fits.

    Parameters
    ----------
    spec : Spec
        The run.
    rows : Rows
        The size of its data.
    free : float
        Bytes that it may use.
    """
    need = memory_need(spec, rows)
    if need <= free:
        return ""
    inputs, way_out = f"{rows.d:,} input{'s' * (rows.d > 1)}", _way_out(spec, rows, free)
    return (
        f"This run is not started: {spec.method} on {rows.n:,} rows with {inputs} needs {size(need)} of "
        f"memory by formula, and {size(max(free, 0.0))} are free for it. {way_out}"
    )


def _way_out(spec: Spec, rows: Rows, free: float) -> str:
    """A sentence with the largest value of a setting, or else the largest number of rows, that fits."""
    choices = axes(spec) if data_sets.is_named(spec.data) else {}
    for axis in (choices[letter] for letter in ("m", "p", "b") if letter in choices):
        fits = _largest(partial(_fits, axis, spec, rows, free))
        if 0 < fits < LARGEST:
            return f"With {axis.setting} = {fits:,} it would fit."
    fits = _largest(lambda n: memory_need(spec, Rows(n, rows.d)) <= free)
    return f"With {fits:,} rows it would fit." if fits >= 3 else "Close other runs, or choose smaller data."


def _fits(axis: Axis, spec: Spec, rows: Rows, free: float, value: int) -> bool:
    try:
        grown, _ = axis.grown(spec, value)
    except GPExplorerError:  # outside the bounds of the setting
        return False
    return memory_need(grown, rows) <= free


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest value that fits, rounded down to two digits; 0 if 1 does not fit."""
    largest = bisect_left(range(1, LARGEST), True, key=lambda value: not fits(value))
    digits = max(len(str(largest)) - 2, 0)
    return largest // 10**digits * 10**digits
