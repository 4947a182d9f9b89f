"""A scaling study: one method at growing sizes, with seconds per step and memory as measured and by its formulas.

The axis that grows is one of

    n   the training rows
    d   the inputs
    m   the setting that gives the rank, such as the number of inducing points
    p   the setting that gives the size of an expansion, such as the number of eigenfunctions
    b   the setting that gives the size of a block or batch
    k   the setting that gives the number of neighbours

Each size is measured in a process of its own (`measured_run.in_child`). Formulas need no data at any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd
import param
import torch

from ... import data as data_sets
from ... import kernels
from ...data.quoting import size
from ...data.sets.generators import GENERATORS, most_rows, rows_without_values
from ...data.splits import rows_to_draw, too_few
from ...display import ScalingDisplay
from ...errors import GPExplorerError, SettingError, closest, has_items, is_one_of, number, quoted
from ...problem import Cost, Dataset, Problem
from ..opening import DTYPES
from ..setting_checks import method_of, of_kind
from ..spec import Spec
from . import machine_speed, power_law
from .measured_run import Measured, in_child

SETTINGS = {
    "m": ("num_inducing", "num_rows", "grid_points", "num_features", "num_regressors"),
    "p": ("num_eigenfunctions", "num_pivots", "rank"),
    "b": ("block", "batch", "batch_size", "pairs", "num_candidates", "num_ahead"),
    "k": ("num_neighbours",),
}
APART = 3.0  # a forecast and a formula that differ by more than this factor cannot both be right
PREDICTED = ("seconds predicted", "memory predicted")
COLUMNS = ("value", "n", "d", "seconds", "memory", "first", "steps", *PREDICTED, "sentence")


class Forecast(NamedTuple):
    """What a size would cost.

    Attributes
    ----------
    value : float
        The size.
    seconds, low, high : float
        Seconds per step with their 95 % interval.
    memory : float
        Bytes by the method's formula.
    largest : str
        The largest array at this size, which overflows first.
    fits : bool
        Whether the memory is enough.
    refused : str
        Why no power law could be fitted; the seconds are then those of the formula, without an interval.
    sentence : str
        All of this in words.
    """

    value: float
    seconds: float
    low: float
    high: float
    memory: float
    largest: str
    fits: bool
    refused: str
    sentence: str


@dataclass(frozen=True)
class Axis:
    """What grows: n or d of the data, or a setting of the method.

    Attributes
    ----------
    name : str
        "n", "d", "m", "p", "b" or "k".
    setting : str
        The method's setting; empty for n and d.
    """

    name: str
    setting: str = ""

    def grown(self, spec: Spec, value: int) -> tuple[Spec, int | None]:
        """The spec at this value, and the number of its training rows to use (None for all)."""
        rows = dict(spec.data) if isinstance(spec.data, dict) else {"name": spec.data}
        if self.setting:
            return replace(spec, settings={**spec.settings, self.setting: value}), None
        if rows["name"] in GENERATORS:
            rows |= {"n": _drawn(rows, spec.split, value)} if self.name == "n" else {"d": value}
            spec = replace(spec, data=rows)
        return spec, value if self.name == "n" else None

    def check(self, spec: Spec, value: int) -> None:
        """Raise DataError if the data of this spec have fewer training rows than a size of n asks for."""
        name = str(spec.data.get("name") if isinstance(spec.data, dict) else spec.data)
        if self.name != "n":
            return
        if name in GENERATORS:
            self.grown(spec, value)
        elif (training := len((split := data_sets.load(spec.data, split=spec.split)).train)) < value:
            raise too_few(name, spec.split, training + len(split.test), training, value)


def _drawn(rows: dict[str, Any], split: Any, value: int) -> int:
    """How many rows of a generator are drawn, so that the split leaves this many for training."""
    name, options = rows["name"], {key: option for key, option in rows.items() if key != "name"}
    return rows_to_draw(lambda n: rows_without_values(name, {**options, "n": n}), split, value, most_rows(name), name)


def axes(spec: Spec) -> dict[str, Axis]:
    """The axes along which this spec can grow. There are none if its rows were in memory or in a file."""
    name = spec.data.get("name") if isinstance(spec.data, dict) else spec.data
    if not data_sets.is_named(spec.data):
        return {}
    by_name = {"n": Axis("n")}
    for letter, candidates in SETTINGS.items():
        available = [setting for setting in candidates if setting in spec.settings]
        by_name |= {letter: Axis(letter, available[0])} if available else {}
    if name in GENERATORS and GENERATORS[str(name)].d_bounds[0] < GENERATORS[str(name)].d_bounds[1]:
        by_name["d"] = Axis("d")
    return by_name


class Scaling(ScalingDisplay, param.Parameterized):
    """Runs of growing size. Iterate to measure one after another, then ask for slopes and forecasts.

    Parameters
    ----------
    spec : Spec
        The method, its settings and its data.
    axis : str
        What grows; `axes(spec)` gives the choices.
    values : sequence of int
        The sizes; along n, numbers of training rows.
    measure : callable
        Measures a spec on some of its rows. By default this happens in a child process.
    machine : callable
        Gives the speed of the machine, for the formulas.

    Raises
    ------
    SettingError
        If the method has no such axis, or a size is not a whole number of at least 1.
    DataError
        If the split leaves fewer training rows than the largest size along n; the message says what the largest is.

    Notes
    -----
    `advance` waits for a child process, so a page calls it from a thread of its own. The table may be read meanwhile.

    Examples
    --------
    >>> study = Scaling(Spec("cholesky", data="friedman1"), "n", [500, 1000, 2000, 4000])
    >>> list(study)
    >>> study.slope().sentence, study.forecast(100_000, memory=16e9).sentence
    """

    measured = param.Integer(0, constant=True, doc="Sizes measured so far: watch it to follow a study.")

    def __init__(
        self,
        spec: Spec,
        axis: str,
        values: Sequence[int],
        measure: Callable[[Spec, int | None], Measured] = in_child,
        machine: Callable[[], machine_speed.Speed] = machine_speed.machine,
    ) -> None:
        super().__init__()
        choices = axes(of_kind("What is to grow", spec, Spec, "a Spec and the sizes to measure it at"))
        if not is_one_of(axis, choices):
            reason = "its rows are in memory or a file, and cannot be redrawn"
            reason = f"it has {', '.join(choices)}" if choices else reason
            raise SettingError(f"{spec.method} on these data does not grow along {axis!r}; {reason}.")
        self.spec, self.axis = spec, choices[axis]
        sizes = list(values) if has_items(values) else []
        if not sizes:
            raise SettingError(f"The sizes are {quoted(values)}; give whole numbers, such as [1000, 2000, 4000].")
        self.values = sorted({number("A size", value, whole=True, low=1) for value in sizes})
        self.axis.check(spec, self.values[-1])
        self._measure, self._machine = measure, machine
        self.points: list[dict[str, Any]] = []

    @property
    def over(self) -> bool:
        """Whether every size has been measured."""
        return len(self.points) == len(self.values)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while not self.over:
            yield self.advance()

    def advance(self) -> dict[str, Any]:
        """Measure the next size and return its row. A size that fails has a sentence, and the others can follow."""
        value = self.values[len(self.points)]
        try:
            measured = self._measure(*self.axis.grown(self.spec, value))
        except GPExplorerError as error:
            measured = Measured(0, 0, sentence=str(error))
        if self.axis.name == "n" and not measured.sentence:
            value = measured.n  # what was measured is what is fitted, drawn and forecast from
        row = {"value": value, **vars(measured)}
        if not measured.sentence:
            cost = self.formula(value, measured.n, measured.d)
            row |= {"seconds predicted": self._machine().seconds(cost), "memory predicted": cost.memory}
        self.points.append(row)
        with param.edit_constant(self):
            self.measured = len(self.points)
        return row

    def table(self) -> pd.DataFrame:
        """One row per size: measured and predicted seconds per step and bytes, and the scaling factor between rows."""
        frame = pd.DataFrame(self.points, columns=list(COLUMNS))
        timed = list(zip(frame["value"], frame["seconds"].astype(float), strict=True))
        factors = [power_law.scaling_factor(n, n_0, s, s_0) for (n_0, s_0), (n, s) in pairwise(timed)]
        frame["scaling factor"] = [float("nan"), *factors][: len(frame)]
        return frame

    def slope(self, of: str = "seconds") -> power_law.Slope:
        """The fitted power law of one column.

        Parameters
        ----------
        of : str
            "seconds" or "memory" as measured, "seconds predicted" or "memory predicted" by the formulas.
        """
        frame = self.table()
        if of not in frame:
            raise SettingError(f"There is no slope of {quoted(of)}{closest(of, COLUMNS)}")
        return power_law.fit(frame["value"].tolist(), frame[of].astype(float).tolist())

    def formula(self, value: int, n: int, d: int) -> Cost:
        """The cost of a step by the method's formula, which takes no memory.

        Parameters
        ----------
        value : int
            The size along the axis.
        n, d : int
            Rows and inputs, where they are not the axis themselves.
        """
        spec = self.spec if self.axis.name == "n" else self.axis.grown(self.spec, value)[0]
        n, d = value if self.axis.name == "n" else n, value if self.axis.name == "d" else d
        return method_of(spec).cost(hollow_problem(spec, n, d))

    def forecast(self, value: int, memory: float) -> Forecast:
        """Forecast the cost of a size: by the fit, or by the formula if that is refused, but not below a smaller size.

        Parameters
        ----------
        value : int
            The size.
        memory : float
            The bytes of the machine.

        Raises
        ------
        SettingError
            If nothing has been measured yet.
        """
        measured = [row for row in self.points if not row["sentence"]]
        if not measured:
            raise SettingError("Nothing has been measured yet, so nothing can be forecast: measure some sizes first.")
        cost, fitted = self.formula(value, measured[-1]["n"], measured[-1]["d"]), self.slope()
        seconds = self._machine().seconds(cost)
        of_smaller = max((row["seconds"] for row in measured if row["value"] <= value), default=0.0)
        middle, low, high = (max(seconds, of_smaller), math.nan, math.nan) if fitted.refused else fitted.at(value)
        largest, array = max(cost.arrays.items(), key=lambda item: item[1])
        fits, interval = cost.memory <= memory, "" if math.isnan(low) else f" ({low:.3g} to {high:.3g})"
        sentence = f"{self.axis.name} = {value:,}: {middle:.3g} s per step{interval} and {size(cost.memory)} of memory."
        if fits:
            sentence += f" It fits; the largest array is “{largest}” with {size(array)}."
        else:
            first = f"“{largest}” overflows first, the largest array with {size(array)}"
            sentence += f" This machine has {size(memory)}; {first}."
        if fitted.refused and of_smaller > seconds:
            sentence += f" That is what a smaller size took; the formula says {seconds:.3g} s. {fitted.refused}"
        elif fitted.refused:
            sentence += f" The time is the formula's alone: {fitted.refused}"
        elif value > 100 * measured[-1]["value"]:
            sentence += f" That is {value / measured[-1]['value']:,.0f} times the largest size measured."
        if not fitted.refused and not low / APART <= seconds <= high * APART:
            sentence += (
                f" By the formula it is {seconds:.3g} s: measure larger sizes, "
                "where the time for small operations matters less."
            )
        return Forecast(
            value=value, seconds=middle, low=low, high=high, memory=cost.memory,
            largest=largest, fits=fits, refused=fitted.refused, sentence=sentence,
        )  # fmt: skip


def hollow_problem(spec: Spec, n: int, d: int) -> Problem:
    """A problem of this size that takes the memory of one number, because every row is the same place in memory."""
    zero = torch.zeros(1, dtype=DTYPES[spec.dtype])
    kernel = kernels.make(spec.kernel if isinstance(spec.kernel, str) else spec.kernel["name"], d)
    return Problem(Dataset(zero.expand(n, d), zero.expand(n)), kernel, zero.expand(len(kernel.names)))
