"""The decrease of the objective that each row of the last block promised when it joined."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...methods.capabilities import ReportsGains
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES


class Gains(View):
    """Promised decrease of f against the position in the block: from which position on do rows hardly pay?"""

    key: ClassVar[str] = "gbcd-gains"
    title: ClassVar[str] = "What each row of the block promised"
    help: ClassVar[str] = (
        "If the curve drops steeply, a smaller block would do. If it stays flat, a larger block would pay."
    )
    family: ClassVar[str] = "exact"
    order: ClassVar[int] = 50

    def applies(self, run: Run) -> bool:
        """Whether the method chooses rows by the decrease that they promise."""
        return super().applies(run) and isinstance(run.method, ReportsGains)

    def data(self, run: Run, at: int) -> Layers:
        """log10 of the promised decreases, by position in the block."""
        method = run.method
        assert isinstance(method, ReportsGains)
        gains = method.promised_gains(run.trace[at].step.info).cpu().double().numpy()
        positive = gains > 0.0
        positions = np.arange(1, len(gains) + 1, dtype=float)
        rows = pd.DataFrame({"x": positions[positive], "y": np.log10(gains[positive])})
        title = f"sum if each row moved alone: {gains.sum():.2g}" if len(gains) else "no block yet"
        rows.attrs |= {"xlabel": "position in the block", "ylabel": "log10 decrease of f, row alone", "title": title}
        return {"rows": rows}

    def plot(self, layers: Layers) -> hv.Scatter:
        """One dot per row."""
        dots = hv.Scatter(layers["rows"], "x", "y")
        styled = layer(dots, "rows", color=ROLES["mean"], size=4)
        return styled.opts(responsive=True, show_grid=True, **labels(layers["rows"]))
