"""One method at growing sizes: seconds a step and memory as measured, beside what its formulas say.

    axis  n rows, d inputs; m, p and b are whichever setting of the method sizes its rank, its expansion or its block

A size is measured in a process of its own (`measuring.in_child`); formulas are evaluated at any size without data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd
import torch

from ... import data as data_sets
from ... import kernels
from ...data.sets.generators import GENERATORS
from ...errors import GPExplorerError, SettingError, closest
from ...methods.base import registry
from ...problem import Cost, Dataset, Problem
from ..opening import DTYPES
from ..setting_checks import arguments, number, of_kind, quoted
from ..spec import Spec
from . import machine_speed, power_law
from .measured_run import Measured, in_child

SETTINGS = {
    "m": ("num_inducing", "num_rows", "grid_points", "num_features", "num_regressors"),
    "p": ("num_eigenfunctions", "num_pivots", "rank"),
    "b": ("block", "batch", "batch_size", "pairs", "num_candidates", "num_ahead"),
}
APART = 3.0  # times: a forecast and a formula that are further from each other do not both hold
SPARE = 1.15  # more rows are drawn than are trained on: a tenth goes to the test
COLUMNS = (
    "value",
    "n",
    "d",
    "seconds",
    "memory",
    "first",
    "steps",
    "seconds predicted",
    "memory predicted",
    "sentence",
)


class Forecast(NamedTuple):
    """What a size would cost: `seconds` a step with an interval, bytes by formula, and what does not fit.

    Where `refused` is not empty the seconds are those of the formula, without an interval.
    """

    value: float
    seconds: float
    low: float
    high: float
    memory: float
    largest: str  # the array that is largest there, hence overflows first
    fits: bool
    refused: str
    sentence: str


@dataclass(frozen=True)
class Axis:
    """What grows: the data's n or d, or a setting of the method."""

    name: str
    setting: str = ""

    def grown(self, spec: Spec, value: int) -> tuple[Spec, int | None]:
        """The spec at this value, and how many of its training rows are used (None is all)."""
        rows = dict(spec.data) if isinstance(spec.data, dict) else {"name": spec.data}
        if self.setting:
            return replace(spec, settings={**spec.settings, self.setting: value}), None
        if rows["name"] in GENERATORS:
            rows |= {"n": int(SPARE * value) + 8} if self.name == "n" else {"d": value}
            spec = replace(spec, data=rows)
        return spec, value if self.name == "n" else None


def axes(spec: Spec) -> dict[str, Axis]:
    """The axes along which this spec can grow; empty where no name brings its rows."""
    name = spec.data.get("name") if isinstance(spec.data, dict) else spec.data
    if not data_sets.is_named(spec.data):
        return {}
    found = {"n": Axis("n")}
    for letter, known in SETTINGS.items():
        own = [setting for setting in known if setting in spec.settings]
        found |= {letter: Axis(letter, own[0])} if own else {}
    if name in GENERATORS and GENERATORS[str(name)].d_bounds[0] < GENERATORS[str(name)].d_bounds[1]:
        found["d"] = Axis("d")
    return found


class Scaling:
    """Runs of growing size: iterate to measure one after another, then ask for slopes and forecasts.

    `advance` is for a thread of its own: it waits for a child process. The table may be read meanwhile.
    """

    def __init__(
        self,
        spec: Spec,
        axis: str,
        values: Sequence[int],
        measure: Callable[[Spec, int | None], Measured] = in_child,
        machine: Callable[[], machine_speed.Speed] = machine_speed.machine,
    ) -> None:
        """SettingError where the method has no such axis, or a value is not a whole number of at least 1."""
        known = axes(of_kind("What is to grow", spec, Spec, "a Spec and the sizes to measure it at"))
        if axis not in known:
            why = f"it has {', '.join(known)}" if known else "its rows are in memory or a file, and cannot be redrawn"
            raise SettingError(f"{spec.method} on these data does not grow along {axis!r}; {why}.")
        self.spec, self.axis = spec, known[axis]
        if not isinstance(values, Iterable) or not list(values):
            raise SettingError(f"The sizes are {quoted(values)}; give whole numbers, such as [1000, 2000, 4000].")
        self.values = sorted({number("A size", value, whole=True, low=1) for value in values})
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
        """Measure the next size and return its row; a size that fails keeps its sentence, and the rest go on."""
        value = self.values[len(self.points)]
        try:
            found = self._measure(*self.axis.grown(self.spec, value))
        except GPExplorerError as error:
            found = Measured(0, 0, sentence=str(error))
        row = {"value": value, **vars(found)}
        if not found.sentence:
            cost = self.formula(value, found.n, found.d)
            row |= {"seconds predicted": self._machine().seconds(cost), "memory predicted": cost.memory}
        self.points.append(row)
        return row

    def table(self) -> pd.DataFrame:
        """A row a size: measured and predicted seconds a step and bytes, and the scaling factor from the row before."""
        frame = pd.DataFrame(self.points, columns=list(COLUMNS))
        took = list(zip(frame["value"], frame["seconds"].astype(float), strict=True))
        factors = [power_law.scaling_factor(n, before, s, s_before) for (before, s_before), (n, s) in pairwise(took)]
        frame["scaling factor"] = [float("nan"), *factors][: len(frame)]
        return frame

    def slope(self, of: str = "seconds") -> power_law.Slope:
        """The fitted power of one column: "seconds" and "memory" as measured, or either with " predicted"."""
        frame = self.table()
        if of not in frame:
            raise SettingError(f"There is no slope of {quoted(of)}{closest(of, COLUMNS)}")
        return power_law.fit(frame["value"].tolist(), frame[of].astype(float).tolist())

    def formula(self, value: int, n: int, d: int) -> Cost:
        """The method's own cost of a step at this value, n rows of d inputs elsewhere; takes no memory."""
        spec, _ = self.axis.grown(self.spec, value)
        n, d = value if self.axis.name == "n" else n, value if self.axis.name == "d" else d
        method = registry[spec.method](seed=spec.seed, **arguments(registry[spec.method], spec.settings))
        return method.cost(_hollow(spec, n, d))

    def forecast(self, value: int, memory: float) -> Forecast:
        """What this value would cost on a machine with so many bytes. SettingError before anything was measured."""
        known = [row for row in self.points if not row["sentence"]]
        if not known:
            raise SettingError("Nothing has been measured yet, so nothing can be forecast.")
        cost, fitted = self.formula(value, known[-1]["n"], known[-1]["d"]), self.slope()
        seconds = self._machine().seconds(cost)
        values = (seconds, float("nan"), float("nan")) if fitted.refused else fitted.at(value)
        largest = max(cost.arrays, key=lambda name: cost.arrays[name])
        fits = cost.memory <= memory
        sentence = _said(f"{self.axis.name} = {value:,}", values, cost, memory)
        if fitted.refused:
            sentence += f" The time is the formula's alone: {fitted.refused}"
        elif value > 100 * known[-1]["value"]:
            sentence += f" That is {value / known[-1]['value']:,.0f} times the largest size measured."
        if not fitted.refused and not values[1] / APART <= seconds <= values[2] * APART:
            sentence += f" By the formula it is {seconds:.3g} s: measure larger sizes, where small calls hide less."
        return Forecast(value, *values, cost.memory, largest, fits, fitted.refused, sentence)


def _hollow(spec: Spec, n: int, d: int) -> Problem:
    """A problem of this size that holds one number: every row is the same stretch of memory."""
    one = torch.zeros(1, dtype=DTYPES[spec.dtype])
    kernel = kernels.make(spec.kernel if isinstance(spec.kernel, str) else spec.kernel["name"], d)
    return Problem(Dataset(one.expand(n, d), one.expand(n)), kernel, one.expand(len(kernel.names)))


def _said(at: str, seconds: tuple[float, float, float], cost: Cost, memory: float) -> str:
    name = max(cost.arrays, key=lambda array: cost.arrays[array])
    middle, low, high = seconds
    span = f" ({low:.3g} to {high:.3g})" if low == low else ""
    said = f"{at}: {middle:.3g} s a step{span} and {size(cost.memory)} of memory."
    if cost.memory <= memory:
        return f"{said} It fits; the largest array is “{name}” with {size(cost.arrays[name])}."
    return f"{said} Of {size(memory)} there are, “{name}” overflows first, the largest with {size(cost.arrays[name])}."


def size(count: float) -> str:
    """Bytes in words: 1.50 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB" if count < 1000 else f"{count / 1000:,.0f} PB"
