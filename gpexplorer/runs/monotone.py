"""Watches the channels that a method declares monotone: such a channel never rises, apart from rounding.

A rise shows that the computation went wrong, for example that a number which is updated step by step has lost its
digits. The run reports it (`Run.rises`, the outcome's message, the status line of the page), and pictures do not draw
the values from there on as if they were right.

A value v after a value u counts as a rise if

    v - u > sqrt(eps) max(1, |u|, |v|),     eps = 2.2e-16 in float64 and 1.2e-7 in float32
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from ..problem import Channel
from .trace import Record

# Phases that may raise any channel: a person's change, another size of model, and more rows.
NEW_STARTS = ("forced", "resize", "all rows")


class Rise(NamedTuple):
    """A channel that rose although its method declares that it never does.

    Attributes
    ----------
    channel : Channel
        The channel.
    index : int
        The index of the record with the higher value.
    before, after : float
        The last finite value before this record, and the value of this record.
    """

    channel: Channel
    index: int  # type: ignore[assignment]  # in place of tuple.index, which a rise does not need
    before: float
    after: float


class MonotoneWatch:
    """Compares every new record with the last finite value of each monotone channel.

    Parameters
    ----------
    channels : sequence of Channel
        The channels of the method. Those that are not monotone are ignored.
    dtype : torch.dtype
        The precision of the run, which decides what counts as rounding.
    """

    def __init__(self, channels: Sequence[Channel], dtype: torch.dtype) -> None:
        self._channels = [channel for channel in channels if channel.monotone]
        self._dtype = dtype
        self._last: dict[str, float] = {}

    def check(self, record: Record) -> list[Rise]:
        """The rises of this record. A step of the phases in NEW_STARTS is never a rise."""
        rises = []
        is_new_start = getattr(record.step.info, "phase", "") in NEW_STARTS
        for channel in self._channels:
            value = float(getattr(record.step.info, channel.name, math.nan))
            before = self._last.get(channel.name, math.inf)
            if not is_new_start and _rose(before, value, self._dtype):
                rises.append(Rise(channel, record.index, before, value))
            if not math.isnan(value):
                self._last[channel.name] = value
        return rises


def first_rise(values: Iterable[float], dtype: torch.dtype = torch.float64) -> int | None:
    """The position of the first rise in a series, which may contain nan; None if there is none."""
    before = math.inf
    for position, value in enumerate(values):
        if _rose(before, value, dtype):
            return position
        before = before if math.isnan(value) else value
    return None


def rise_sentence(rises: Sequence[Rise]) -> str:
    """The first rise of each channel as a sentence with a way out, or an empty text if there is none."""
    first: dict[str, Rise] = {}
    for rise in rises:
        first.setdefault(rise.channel.name, rise)
    return " ".join(
        f"Do not trust the {rise.channel.label} from step {rise.index} on: it rose there from {rise.before:.6g} to "
        f"{rise.after:.6g}, which it never does in exact arithmetic ({_count(rises, rise)}). Raise the noise, drop "
        "duplicate rows, or use float64."
        for rise in first.values()
    )


def _count(rises: Sequence[Rise], rise: Rise) -> str:
    count = sum(other.channel.name == rise.channel.name for other in rises)
    return "the only rise" if count == 1 else f"one of {count} rises"


def _rose(before: float, value: float, dtype: torch.dtype) -> bool:
    """Whether the step from `before` (inf if there is no value yet) to `value` is a rise beyond rounding."""
    if math.isnan(value) or value <= before:
        return False
    if math.isinf(before) or math.isinf(value):
        return True
    return value - before > math.sqrt(torch.finfo(dtype).eps) * max(1.0, abs(before), abs(value))
