"""Pictures side by side: frames of one size, and one legend for all of a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import holoviews as hv
from bokeh.core.validation import silence
from bokeh.core.validation.warnings import FIXED_SIZING_MODE

FRAME = {"frame_width": 260, "frame_height": 220}
silence(FIXED_SIZING_MODE, True)  # a figure is as large as its frame, its axes and its legend make it


def ticks(values: Iterable[int]) -> list[tuple[int, str]]:
    """A mark at each of these; a logarithmic axis would write powers of ten."""
    return [(value, str(value)) for value in sorted(set(values))]


def panels(parts: Sequence[hv.Overlay], columns: int) -> hv.Layout:
    """Every row's legend stands at its right; axes are each picture's own."""
    framed = [
        part.opts(**FRAME, show_legend=(k + 1) % columns == 0 or k + 1 == len(parts), legend_position="right")
        for k, part in enumerate(parts)
    ]
    return hv.Layout(framed).opts(shared_axes=False).cols(columns)
