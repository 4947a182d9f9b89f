"""What each row of the last block would have brought alone, in the order in which they joined."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd

from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES


class Gains(View):
    """The fall of f that a row promised when it was chosen, over the block: when do later rows stop being worth it?"""

    key: ClassVar[str] = "gbcd-gains"
    title: ClassVar[str] = "What each row of the block brought"
    help: ClassVar[str] = "A steep end says that a smaller block would have done; a flat one, that more rows would pay."
    family: ClassVar[str] = "exact"
    order: ClassVar[int] = 50

    def applies(self, run: Run) -> bool:
        """The one method that fills a block by what rows bring."""
        return super().applies(run) and run.method.key == "gbcd"

    def data(self, run: Run, at: int) -> Layers:
        """log10 of the gains, by place in the block."""
        gains = run.trace[at].step.info.gains.cpu().double().numpy()
        held = gains > 0.0
        places = np.arange(1, len(gains) + 1, dtype=float)
        rows = pd.DataFrame({"x": places[held], "y": np.log10(gains[held])})
        total = f"{gains.sum():.2g} in all, had they been alone" if len(gains) else "no block yet"
        rows.attrs |= {"xlabel": "place in the block", "ylabel": "log10 fall of f, row alone", "title": total}
        return {"rows": rows}

    def plot(self, layers: Layers) -> hv.Scatter:
        """A dot a row."""
        dots = hv.Scatter(layers["rows"], "x", "y")
        styled = layer(dots, "rows", color=ROLES["mean"], size=4)
        return styled.opts(responsive=True, show_grid=True, **labels(layers["rows"]))
