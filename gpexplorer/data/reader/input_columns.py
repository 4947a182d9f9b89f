"""The inputs of a model that are made from the columns of a table, such as "colour = red" from "colour".

value            the number, the days or the hours; a gap has the median
level            1 where the row has this word
missing          1 where the cell is a gap
part             sine and cosine of the hour of a date within its day, week or year
mean             the mean of the target of the training rows with this word; see `target_statistics`
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np

from .cells import Floats
from .column_cells import Cells, ColumnReader

LEVEL = " = "
PERIODS = {"hour": 1.0, "weekday": 7.0, "month": 365.2425}  # days: the hour within a day, ...
RESIDUALS = 9  # quantiles of what the other inputs do not say about the mean of a word
CLOCK = 24.0  # hours
NO_WORD = 1e-9  # of the range of the means, by which that of a word that training does not have may exceed it
ROLES = ("value", "level", "missing", "part", "mean")


class InputColumn(NamedTuple):
    """One input of a model.

    Attributes
    ----------
    source : str
        The column of the table.
    role : str
        What is made from it; see this module.
    detail : str
        The word of a level, or a part such as "hour sin".
    values : tuple of float
        Of a mean: one number per word of the column, and one more for gaps. Of a value with `given`: its range.
    default : float
        Of a mean: the number for a word that training does not have.
    target : str
        Of a mean: the name of the target.
    given : tuple of float
        Of a mean, and of a value whose gaps other inputs explain: the ridge regression on the other inputs and their
        squares, constant first, from which a word that training does not have gets its mean, and a gap its value.
    residuals : tuple of float
        Of a mean: quantiles of what that regression does not explain.
    """

    source: str
    role: Annotated[str, ROLES] = "value"
    detail: str = ""
    values: tuple[float, ...] = ()
    default: float = 0.0
    target: str = ""
    given: tuple[float, ...] = ()
    residuals: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """Its name among the inputs of the model."""
        return {
            "value": self.source, "level": f"{self.source}{LEVEL}{self.detail}", "missing": f"{self.source} is missing",
            "part": f"{self.source}: {self.detail}", "mean": f"{self.source}: mean of {self.target}",
        }[self.role]  # fmt: skip

    def of_cells(self, cells: Cells, reader: ColumnReader) -> Floats:
        """This input [n] from the cells of its column, with gaps filled."""
        if self.role == "missing":
            return cells.gap.astype(np.float64)
        if self.role == "level":
            place = reader.levels.names.index(self.detail)
            present = (cells.values == place).astype(np.float64)
            share = reader.levels.counts[place] / max(sum(reader.levels.counts), 1)
            unknown = cells.unseen | (cells.gap & (reader.on_gap != "level"))
            return np.where(unknown, share, present)
        if self.role == "mean":
            return self._means(cells, reader)
        values = cells.values
        filled = np.where(np.isnan(values), reader.median, values)
        return self.of_days(filled) if self.role == "part" else filled

    def of_days(self, days: Floats) -> Floats:
        """A part of dates [n] in days, or of times of day in hours, on a circle."""
        part, wave = self.detail.split(" ")
        angle = 2.0 * math.pi * np.mod(days / (CLOCK if part == "clock" else PERIODS[part]), 1.0)
        return np.asarray(np.sin(angle) if wave == "sin" else np.cos(angle))

    def _means(self, cells: Cells, reader: ColumnReader) -> Floats:
        """The number of the word, or its mean once the means are known."""
        k = len(reader.levels.names)
        code = np.where(cells.gap, float(k), np.where(cells.unseen, k + 1.0, cells.values))
        if not self.values:
            return code
        table = np.array([*self.values, self.default])
        if reader.on_gap != "level":
            table[k] = self.default
        return np.asarray(table[code.astype(int)])

    def from_others(self, others: Floats) -> Floats:
        """The mean of words that training does not have, or the value of a gap [n], from other inputs [n, q].

        Those are the inputs that `can_fill` names.
        """
        if len(self.given) != 2 * others.shape[1] + 1:
            return np.full(len(others), self.default)
        low, high = min(self.values), max(self.values)
        beyond = NO_WORD * (high - low) if self.role == "mean" else 0.0  # so that the number is not that of a word
        return np.asarray(self.regression(others).clip(low - beyond, high + beyond))

    def regression(self, others: Floats) -> Floats:
        """The ridge regression [n] at other inputs [n, q]."""
        q = others.shape[1]
        constant, linear, squares = self.given[0], np.array(self.given[1 : q + 1]), np.array(self.given[q + 1 :])
        return np.asarray(constant + others @ linear + np.square(others) @ squares)

    def can_fill(self, other: InputColumn) -> bool:
        """Whether a word or a gap of another input is filled from this one."""
        return self.role != "mean" and (other.role == "mean" or self.source != other.source)

    def alternatives(self, reader: ColumnReader) -> Floats:
        """The value of this input for each of the values that the column may have, in the order of their weights.

        Of a mean: what is added to the value that the other inputs give.
        """
        if self.role == "missing":
            return np.zeros(len(possible_weights(reader)))
        if reader.kind != "words":
            days = np.array(reader.quantiles or (reader.median,))
            return self.of_days(days) if self.role == "part" else days
        if self.role == "level":
            return np.array([float(name == self.detail) for name in reader.levels.names])
        return np.array(self.residuals or (0.0,))


def possible_weights(reader: ColumnReader) -> Floats:
    """The probabilities of the values that a cell of this column may have, as training has them."""
    if reader.kind != "words" or reader.encoding == "mean":
        k = len(reader.quantiles) or 1 if reader.kind != "words" else RESIDUALS
        return np.full(k, 1.0 / k)
    counts = np.array(reader.levels.counts or (1,), dtype=np.float64)  # training may have gaps alone
    return np.asarray(counts / counts.sum())


def inputs_from(reader: ColumnReader, target: str) -> list[InputColumn]:
    """All inputs that can be made from a column, before it is known which of them matter."""
    name = reader.name
    if reader.kind == "words":
        if reader.encoding == "mean":
            return [InputColumn(name, "mean", target=target)]
        chosen = reader.levels.names
        chosen = chosen[1:] if len(chosen) == 2 and reader.on_gap != "level" else chosen
        levels = [InputColumn(name, "level", level) for level in chosen]
        return [*levels, *([InputColumn(name, "missing")] if reader.on_gap == "level" else [])]
    inputs = [InputColumn(name)] if reader.low < reader.high or not reader.gaps else []
    if reader.kind == "date":
        # the parts of a date that can matter are those of which the rows span two periods
        parts = [part for part, period in PERIODS.items() if reader.high - reader.low >= 2.0 * period]
        inputs += [InputColumn(name, "part", f"{part} {wave}") for part in parts for wave in ("sin", "cos")]
    if reader.kind == "time of day":
        return [InputColumn(name, "part", f"clock {wave}") for wave in ("sin", "cos")]
    if reader.gaps and reader.on_gap == "fill":
        inputs.append(InputColumn(name, "missing"))
    return inputs
