"""The draws of the Langevin chains, and the posterior of each weight beside its prior."""

from __future__ import annotations

import math
from typing import ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ...methods.capabilities import SamplesWeights
from ...methods.chain_diagnostics import bulk_ess, rhat
from ...runs.run import Run
from ...runs.studies.chain_draws import SAMPLED
from ..base import Layers, View, band, dots, line, named, overlay, segments
from ..drawing.palette import ROLES, cycled

COLUMNS = {name: column for column, name in enumerate(SAMPLED)}  # what is drawn -> column of State.watched
MAX_CHAINS, MAX_WEIGHTS = 8, 60  # drawn


class Chains(View):
    """Draws of one number, one line per chain; draws of the warm-up disappear when sampling begins."""

    key: ClassVar[str] = "grief-chains"
    title: ClassVar[str] = "Chains"
    help: ClassVar[str] = "Lines that cross all the time have mixed. Lines that stay apart, or drift, have not."
    order: ClassVar[int] = 12
    needs: ClassVar[type] = SamplesWeights

    watched = param.Selector(
        default="log noise variance", objects=list(COLUMNS), label="Show", doc="The number that is drawn."
    )

    def data(self, run: Run, at: int) -> Layers:
        """Return one series of draws per chain."""
        assert isinstance(run.method, SamplesWeights)
        state = run.trace[at].step.state
        draws = state.watched.cpu().double().numpy()  # [chains, draws, numbers]
        column = COLUMNS[self.watched]
        chains = range(min(run.method.chains, MAX_CHAINS))
        series = {f"chain{c + 1}": draws[c : c + 1, :, column : column + 1].ravel() for c in chains}  # or no draws yet
        x = np.arange(draws.shape[1]) * float(state.stride)
        layers = {name: pd.DataFrame({"x": x[: len(y)], "y": y}) for name, y in series.items()}
        titles = {"warm-up": "warming up", "sample": "sampling"}
        title = titles.get(state.phase, "no draws yet: hyperparameters are learned")
        if state.phase == "sample" and column < draws.shape[2]:
            title += diagnosed(draws[:, :, column])
        named(layers["chain1"], "draw", self.watched, title)
        return layers

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw one thin line per chain."""
        thin = {"line_width": 1, "alpha": 0.8}
        parts = [line(layers, name, name, **cycled(k), **thin) for k, name in enumerate(layers)]
        return overlay(parts, layers["chain1"], 0)


def diagnosed(draws: np.ndarray) -> str:
    """R-hat and the effective sample size of these draws [chains, draws]; empty while there are too few of them."""
    r_hat, size = rhat(draws), bulk_ess(draws)
    if not (math.isfinite(r_hat) and math.isfinite(size)):
        return ""
    return f": R-hat {r_hat:.3f}; {draws.size:,} draws, worth {size:,.0f} independent ones"


class Weights(View):
    """Mean and two standard deviations of the logarithm of each weight, over those of its prior."""

    key: ClassVar[str] = "grief-weights"
    title: ClassVar[str] = "Posterior of the weights"
    help: ClassVar[str] = (
        "Where a bar lies outside the band, the data determine the weight. Where it fills the band, they do not."
    )
    order: ClassVar[int] = 18
    needs: ClassVar[type] = SamplesWeights

    def data(self, run: Run, at: int) -> Layers:
        """Return log10 of the first weights in the orthogonal basis, in the order of their eigenvalues."""
        assert isinstance(run.method, SamplesWeights)
        state = run.trace[at].step.state
        moments = state.moments
        count = min(len(moments.weight), MAX_WEIGHTS)
        mean = moments.weight[:count].cpu().double().numpy() / np.log(10.0)
        sd = np.sqrt(moments.weight2[:count].cpu().double().numpy() / max(moments.size, 1)) / np.log(10.0)
        x = np.arange(1.0, count + 1)
        prior, ends = run.method.priors(state.theta)[0], np.array([1.0, max(count, 2)])
        low, high = ((prior.mu + sign * 2.0 * prior.tau) / np.log(10.0) for sign in (-1.0, 1.0))
        means, title = pd.DataFrame({"x": x, "y": mean}), f"{moments.size:,} draws" if moments.size else "no draws yet"
        return {
            "prior": pd.DataFrame({"x": ends, "lower": [low, low], "upper": [high, high]}),
            "spread": pd.DataFrame({"x0": x, "y0": mean - 2.0 * sd, "x1": x, "y1": mean + 2.0 * sd}),
            "mean": named(means, "function of the orthogonal basis", "log10 weight", title),
        }

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw a dot and a bar per weight, over the band of the prior."""
        parts = [
            band(layers, "prior", "prior, 2 sd", color=ROLES["band"], alpha=0.25, line_width=0),
            segments(layers, "spread", "posterior, 2 sd", color=ROLES["mean"], line_width=1.5),
            dots(layers, "mean", "posterior mean", color=ROLES["mean"], size=5),
        ]
        return overlay(parts, layers["mean"], 3)
