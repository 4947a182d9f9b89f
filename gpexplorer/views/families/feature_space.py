"""The learned feature space in its two leading principal components."""

from __future__ import annotations

from typing import ClassVar

import holoviews as hv
import pandas as pd
import torch

from ...data.standardising import targets
from ...linalg.randomness import generator
from ...methods.minibatches.model import Model
from ...runs.run import Run
from ..base import Layers, View, layer, named, overlay
from ..drawing.palette import SEQUENTIAL

MAX_ROWS = 1000


class Features(View):
    """The rows in the plane of the two leading principal components of their features, coloured by their targets."""

    key: ClassVar[str] = "stochastic-features"
    title: ClassVar[str] = "Learned feature space"
    help: ClassVar[str] = "Rows with similar targets should move together. Do the colours separate?"
    family: ClassVar[str] = "minibatches"
    order: ClassVar[int] = 50

    def data(self, run: Run, at: int) -> Layers:
        """Return two components of at most 1000 rows, with signs such that both increase with the targets."""
        model = Model(run.method, run.problem)
        theta, train = run.trace[at].step.state.theta, run.problem.train
        index = torch.randperm(model.n, generator=generator(0, "features"))[:MAX_ROWS]
        X, y = model.rows(index)
        Phi = model.features(model.parts(theta), X).Phi
        size, Phi = float(Phi.square().sum()), Phi - Phi.mean(0)
        U, S, _ = torch.linalg.svd(Phi, full_matrices=False)
        plane = torch.zeros(len(y), 2).to(Phi)
        plane[:, : min(2, len(S))] = (U * S)[:, :2]
        plane = plane * torch.where(plane.T @ (y - y.mean()) < 0.0, -1.0, 1.0)
        columns = {"x": plane[:, 0], "y": plane[:, 1], "value": targets(y, train)}
        frame = pd.DataFrame({name: column.cpu().double().numpy() for name, column in columns.items()})
        variance = float(S.square().sum())
        title = f"the features are equal in all rows, coloured by {train.target}"
        if variance > torch.finfo(S.dtype).eps * size:
            share = float(S[:2].square().sum()) / variance
            title = f"{share:.0%} of the features' variance, coloured by {train.target}"
        return {"rows": named(frame, "first component", "second component", title)}

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the rows as points."""
        points = hv.Scatter(layers["rows"], "x", ["y", "value"])
        part = layer(points, "rows", color="value", cmap=SEQUENTIAL, colorbar=True, clabel="target", size=4)
        return overlay([part], layers["rows"], 0)
