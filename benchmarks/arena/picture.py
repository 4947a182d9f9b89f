"""The picture of the arena: for each set, NLPD against the seconds that were used, one line per contender.

`python -m benchmarks.arena.picture arena/cells.jsonl benchmarks/arena/arena.svg`, after `python -m benchmarks arena`.
"""

from __future__ import annotations

import math
import sys
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
from bokeh.models import Range1d
from bokeh.plotting import figure

from gpexplorer.views.drawing.static_svg import figure_svg

from .contenders import CONTENDERS, GP, OURS
from .kept_cells import read
from .verdicts import frame_of

WIDTH, HEIGHT, COLUMNS = 360, 250, 3  # pixels of one set; sets in a row
HEAD = 54  # pixels of the common legend
OF_OURS = ("#0b3c5d", "#1f77b4", "#17a2b8", "#3fa796", "#6a51a3", "#9e6bd1", "#5b8ff9", "#003f7f")
OF_OTHER_GPS = ("#a63603", "#e6550d", "#fd8d3c", "#c49c00", "#b5651d", "#7f2704", "#d94801")
OF_OTHERS = ("#31a354", "#74c476", "#8c8c8c")
WORST = 1.6  # nats: more than the constant's 1.42 is drawn at the edge


def picture(frame: pd.DataFrame) -> str:
    """Draw the rows of `frame_of` as SVG, the best of each set at the bottom."""
    names = list(dict.fromkeys(frame["set"]))
    rows = math.ceil(max(len(names), 1) / COLUMNS)
    width, height = COLUMNS * WIDTH, HEAD + rows * HEIGHT
    panels = []
    for place, name in enumerate(names):
        x, y = (place % COLUMNS) * WIDTH, HEAD + (place // COLUMNS) * HEIGHT
        panels.append(f'<g transform="translate({x} {y})">{_panel(name, frame[frame["set"] == name])}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12"><rect width="{width}" height="{height}" fill="#ffffff"/>'
        f"{_legend()}{''.join(panels)}</svg>"
    )


def colours() -> dict[str, str]:
    """A colour per contender: blue to violet for ours, orange for other Gaussian processes, and others for the rest."""
    palettes = {OURS: iter(OF_OURS), GP: iter(OF_OTHER_GPS)}
    others = iter(OF_OTHERS)
    return {name: next(palettes.get(contender.group, others)) for name, contender in CONTENDERS.items()}


def _panel(name: str, part: pd.DataFrame) -> str:
    plot = figure(
        title=name, x_axis_type="log", x_axis_label="seconds", y_axis_label="NLPD on test rows, nats", width=WIDTH,
        height=HEIGHT,
    )  # fmt: skip
    nlpd = part["nlpd"].clip(upper=WORST)
    low, high = float(nlpd.min()), float(nlpd.max())
    if not math.isfinite(low):
        low, high = 0.0, 1.0
    margin = 0.05 * (high - low) or 0.1
    plot.y_range = Range1d(start=low - margin, end=high + margin)
    seconds = part["seconds"].dropna()
    span = (float(seconds.min()) / 1.5, float(seconds.max()) * 1.5) if len(seconds) else (1.0, 10.0)
    plot.x_range = Range1d(start=span[0], end=span[1])
    for contender, colour in colours().items():
        mine = part[(part["contender"] == contender) & np.isfinite(part["nlpd"])].sort_values("seconds")
        if not mine.empty:
            x, y = mine["seconds"].to_numpy(), mine["nlpd"].clip(upper=WORST).to_numpy()
            thick = 2.4 if CONTENDERS[contender].group == OURS else 1.4
            plot.line(x, y, line_color=colour, line_width=thick)
            marker = "circle" if CONTENDERS[contender].group == OURS else "x"
            plot.scatter(x, y, marker=marker, size=7, fill_color=colour, line_color=colour)
    return figure_svg(plot, WIDTH, HEIGHT)


def _legend() -> str:
    signs = {OURS: "●"}
    parts, x, y = [], 12.0, 20.0
    for name, colour in colours().items():
        need = 34 + 7.2 * len(name)
        if x + need > COLUMNS * WIDTH:
            x, y = 12.0, y + 20.0
        sign = signs.get(CONTENDERS[name].group, "×")
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}"><tspan fill="{colour}">{sign}</tspan> {escape(name)}</text>')
        x += need
    return "".join(parts)


if __name__ == "__main__":
    cells = read(Path(sys.argv[1]))
    last = max(split for _, split, _, _ in cells)
    complete = {
        seconds for _, split, seconds, _ in cells if split == last
    }  # a mean over fewer splits is another number
    comparable = {key: cell for key, cell in cells.items() if key[2] in complete}
    Path(sys.argv[2]).write_text(picture(frame_of(comparable)), "utf-8")
