"""The swap landscape: what every row would bring in the place of the inducing point that is offered next.

Molecules have no place on an axis: beside the one that is removed stand those that would bring most in its place. RDKit
computes a position on the plane for each atom. Lines and letters are drawn from these numbers, so no text of a data
file is ever used as markup. Each molecule has one cell, with its row and the decrease of the objective below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import holoviews as hv
import numpy as np
import pandas as pd
import param
from numpy.typing import NDArray

from ...linalg.ranks import ranks
from ...methods.capabilities import HasSwapLandscape, Landscape
from ...problem import Dataset, MixedRows, Step
from ...runs.run import Run
from ..base import Layers, View, dots, layer, line, on_plane, overlay, segments, without_grid
from ..drawing import run_rows
from ..drawing.palette import ROLES, SEQUENTIAL

MOST_ENTRIES = 4e7  # entries of a factor: with more of them the picture would delay the run
COLUMNS = ("x", "y", "row", "exact", "approx")
DECREASE = "decrease of the objective [nat]"
SIDE, ROOM = 0.2, 0.2  # what the words at a row take of the range of the inputs, and of that of the exact values
SAME, FEWEST_RANKED = 1e-3, 3  # nat: decreases that differ by less may be rounding; rows whose ranks are compared
LEAST_NAMED = 0.05  # nat: a smaller number would read 0.0
WORTH_A_SWAP = (0.0, 1.0)  # nat; an axis or colours that end below would magnify what decides nothing
OVER_DATA, SCATTER, RANKS = "over the data", "predicted against exact", "ranks"
AXES = "Decrease over the inputs or their first two principal components, or predicted against exact decrease."
COLOUR = "Which decrease colours the rows where both axes are inputs."
POINTS_MOVED = "The inducing points are no longer rows of the data, so there is no swap to evaluate."


class SwapLandscape(View):
    """Approximate and exact decrease of the objective, over the data or against each other."""

    key: ClassVar[str] = "landscape"
    title: ClassVar[str] = "Swap landscape"
    help: ClassVar[str] = "Is the exact decrease largest where the pivots predict it?"
    family: ClassVar[str] = "inducing"
    order: ClassVar[int] = 20
    hero: ClassVar[bool] = True
    over_input: ClassVar[bool] = True
    click: ClassVar[str] = "Click a row to force its swap."

    show = param.Selector(default=OVER_DATA, objects=[OVER_DATA, SCATTER, RANKS], label="Axes", doc=AXES)
    colour = param.Selector(default="exact", objects=["exact", "predicted"], label="Colour", doc=COLOUR)

    def applies(self, run: Run) -> bool:
        """Return whether the method swaps rows and its factor is cheap to compute again."""
        return super().applies(run) and has_cheap_landscape(run)

    def data(self, run: Run, at: int) -> Layers:
        """Both values over one input, as a colour on the plane, or against each other; rank 1 is the best."""
        landscape = landscape_at(run, at)
        if landscape is None:
            # Empty layers for a polished state, whose points are no longer rows
            empty = pd.DataFrame(columns=list(COLUMNS), dtype=float)
            layers = self._against_each_other(empty) | {"pivots": empty}
            layers["exact"].attrs["title"] = POINTS_MOVED
            return layers
        frame = both_values(landscape)
        over_data = self.show == OVER_DATA and run_rows.numeric(run)
        if over_data and run.problem.train.d == 1:
            # Exact values as points, and the approximate ones of every row as a line
            x, approx = run_rows.inputs_of(run.problem.train)[:, 0], landscape.approx.cpu().double().numpy()
            order = np.argsort(x)
            order = order[np.isfinite(approx[order])]
            exact = frame.assign(x=x[frame["row"].to_numpy(int)], y=frame["exact"])
            exact.attrs = {"xlabel": run_rows.input_name(run, 0), "ylabel": "decrease [nat]"}
            layers = {"exact": exact, "approx": pd.DataFrame({"x": x[order], "y": approx[order]})} | _named(exact)
        elif over_data:
            layers = self._over_plane(run, frame, landscape)
        else:
            layers = self._against_each_other(frame)
        pivots = frame["row"].isin(landscape.pivots.tolist()).to_numpy()
        layers["pivots"] = layers["exact"][pivots].drop(columns="value", errors="ignore")
        place, agreement = f"in place of row {landscape.removed}", _agreement(frame, landscape.correlation)
        layers["exact"].attrs["title"] = f"{place}{agreement}" if len(frame) else f"no other row to swap in, {place}"
        return layers

    def _over_plane(self, run: Run, frame: pd.DataFrame, landscape: Landscape) -> Layers:
        plane, names = run_rows.plane(run)
        xy = plane[frame["row"].to_numpy(int)]
        value = frame["exact" if self.colour == "exact" else "approx"]
        exact = frame.assign(x=xy[:, 0], y=xy[:, 1], value=value)
        best = exact.iloc[[int(exact["value"].argmax())]] if len(exact) else exact
        exact.attrs = {"map": True, "xlabel": names[0], "ylabel": names[1]}
        if len(exact) and abs(value).max() < WORTH_A_SWAP[1]:
            exact.attrs["colours"] = WORTH_A_SWAP
        return {"exact": exact, "best": best[["x", "y"]], "removed": on_plane(plane[landscape.removed])}

    def _against_each_other(self, frame: pd.DataFrame) -> Layers:
        exact, quantity = frame.assign(x=frame["approx"], y=frame["exact"]), DECREASE
        if self.show == RANKS:
            exact["x"], exact["y"] = (ranks(-frame[column].to_numpy()) for column in ("approx", "exact"))
            quantity = "rank among the candidates; 1 is the best"
        ends = [float(exact["y"].min()), float(exact["y"].max())] if len(exact) else [0.0, 1.0]
        exact.attrs = {"xlabel": f"predicted {quantity}", "ylabel": f"exact {quantity}"}
        if self.show != RANKS:
            exact.attrs["at_least"] = WORTH_A_SWAP
        return {"exact": exact, "equal": pd.DataFrame({"x": ends, "y": ends})}

    def clicked(self, run: Run, at: int, x: float, y: float) -> Step | None:
        """Force the swap for the row nearest to the click, each axis being measured by its range."""
        exact = self.data(run, at)["exact"]
        if not len(exact) or not isinstance(run.method, HasSwapLandscape):
            return None
        places = exact[["x", "y"]].to_numpy(float)
        span = np.ptp(places, axis=0)
        distance = np.square((places - [x, y]) / np.where(span > 0.0, span, 1.0)).sum(1)
        row = int(exact["row"].iloc[int(distance.argmin())])
        return run.method.force_swap(run.problem, run.trace[at].step.state, row)

    def plot(self, layers: Layers) -> hv.Overlay:
        """Exact values as points; approximate ones as a line over one input; colours on a plane."""
        parts = _coloured(layers) if "removed" in layers else _points(layers)
        rings = {"fill_alpha": 0.0, "line_color": ROLES["inducing"], "size": 10, "marker": "diamond", "line_width": 2}
        return overlay([*parts, dots(layers, "pivots", "pivots", **rings)], layers["exact"])


def has_cheap_landscape(run: Run) -> bool:
    """Return whether the method can evaluate every row for a swap, fast enough for a picture that follows the run."""
    method = run.method
    return isinstance(method, HasSwapLandscape) and method.landscape_entries(run.problem) <= MOST_ENTRIES


def landscape_at(run: Run, at: int) -> Landscape | None:
    """Return the landscape of a record; None where the inducing points are no longer rows."""
    assert isinstance(run.method, HasSwapLandscape), "applies() accepts no other method"
    return run.method.swap_landscape(run.problem, run.trace[at].step.state)


def both_values(landscape: Landscape) -> pd.DataFrame:
    """Return the rows that have both an approximate and an exact value."""
    approx, exact = (values.cpu().double().numpy() for values in (landscape.approx, landscape.exact))
    rows = np.flatnonzero(np.isfinite(exact) & np.isfinite(approx))
    return pd.DataFrame({"row": rows, "exact": exact[rows], "approx": approx[rows]})


def _agreement(frame: pd.DataFrame, correlation: float) -> str:
    """The end of the title: how well the approximate decreases rank the rows, or why that cannot be said."""
    if len(frame) < FEWEST_RANKED:
        return ""
    for column, name in (("exact", "decreases"), ("approx", "predictions")):
        if np.ptp(frame[column]) < SAME:
            return f": {name} within {SAME:g} nat of each other, nothing to rank"
    return f": rank correlation {correlation:.2f}".replace("-", "\u2212")


def _points(layers: Layers) -> list[hv.Element]:
    exact = hv.Scatter(layers["exact"], "x", ["y", "row"], label="exact")
    parts = [layer(exact, "exact", color=ROLES["mean"], size=5, alpha=0.7)]
    if "approx" in layers:
        words = {"text_color": ROLES["words"], "text_baseline": "bottom", "text_font_size": "12px"}
        return [
            *parts,
            line(layers, "approx", "predicted", color=ROLES["test"], line_width=2),
            dots(layers, "foreseen", "best prediction", color=ROLES["proposed"], size=14, marker="star"),
            layer(hv.Labels(layers["words"], ["x", "y"], "text"), "words", **words),
        ]
    return [*parts, line(layers, "equal", "predicted = exact", color=ROLES["reference"], line_dash="dashed")]


def _named(exact: pd.DataFrame) -> Layers:
    """The row with the best prediction, and numbers above it and above the best row; one where two would touch."""
    best = exact.nlargest(1, "exact").assign(word="best: ")
    foreseen = exact.nlargest(1, "approx").assign(word="")  # the legend names its mark
    x_range, y_range = (float(np.ptp(exact[axis])) or 1.0 if len(exact) else 1.0 for axis in ("x", "y"))
    exact.attrs["at_least"] = (WORTH_A_SWAP[0], max(WORTH_A_SWAP[1], *(best["exact"] + ROOM * y_range), 0.0))
    apart = abs(best[["x", "y"]].to_numpy() - foreseen[["x", "y"]].to_numpy()) > [SIDE * x_range, ROOM * y_range]
    words = pd.concat([best, foreseen]) if apart.any() else best
    words = words[words["exact"].abs() >= LEAST_NAMED]
    names = [f"{word}{nat:,.{int(abs(nat) < 9.95)}f}" for word, nat in zip(words["word"], words["exact"], strict=True)]
    x = words["x"].clip(exact["x"].min() + SIDE / 2 * x_range, exact["x"].max() - SIDE / 2 * x_range)
    frame = pd.DataFrame({"x": x, "y": words["y"] + 0.3 * ROOM * y_range, "text": names})
    return {"foreseen": foreseen[["x", "y"]], "words": frame}


def _coloured(layers: Layers) -> list[hv.Element]:
    """Return rows on a plane coloured by their value, the point that is removed, and the row of the best value."""
    exact = hv.Points(layers["exact"], ["x", "y"], ["value", "row"], label="rows")
    ring = {"fill_alpha": 0.0, "line_color": ROLES["proposed"], "size": 16, "marker": "circle", "line_width": 3}
    return [
        layer(exact, "exact", color="value", cmap=SEQUENTIAL, colorbar=True, clabel=DECREASE, size=6, line_color=None),
        dots(layers, "removed", "removed", color=ROLES["removed"], size=13, marker="x", line_width=3),
        dots(layers, "best", "best row", **ring),
    ]


ACROSS, DOWN = 4, 3  # cells of the grid; on the page they are about as wide as high
SIZE, BELOW = 0.84, 0.47  # longest side of a molecule, and distance of the caption below its middle, in cells
LETTER, APART = 0.28, 0.12  # gap at a letter, and between the lines of a double bond, as parts of a bond
NOT_INSTALLED = 'RDKit computes the drawings of molecules, and is not installed: pip install "gpexplorer[molecules]".'


class Structure(NamedTuple):
    """The drawing of a molecule, within a unit cell around the origin."""

    bonds: NDArray[np.float64]  # [b, 4] x0, y0, x1, y1
    atoms: NDArray[np.float64]  # [a, 2] positions of the atoms that have a letter
    letters: tuple[str, ...]


class Structures(View):
    """The candidates of one swap as a grid of molecules."""

    key: ClassVar[str] = "structures"
    title: ClassVar[str] = "Molecules to swap in"
    help: ClassVar[str] = "The first molecule is removed; the others would decrease the objective most in its place."
    family: ClassVar[str] = "inducing"
    order: ClassVar[int] = 19
    hero: ClassVar[bool] = True
    click: ClassVar[str] = "Click a molecule to force its swap."

    def applies(self, run: Run) -> bool:
        """Return whether the method swaps rows, the inputs are SMILES, and the factor is cheap to compute again."""
        return super().applies(run) and has_cheap_landscape(run) and smiles_of(run.problem.train) is not None

    def data(self, run: Run, at: int) -> Layers:
        """Bonds, letters and captions of up to twelve molecules."""
        if not installed():
            return _grid([], [], NOT_INSTALLED)
        landscape = landscape_at(run, at)
        if landscape is None:
            return _grid([], [], POINTS_MOVED)
        best = both_values(landscape).nlargest(ACROSS * DOWN - 1, "exact")
        decreases = zip(best["row"].astype(int), best["exact"], strict=True)
        captions = {landscape.removed: f"row {landscape.removed}\nis removed"}
        captions |= {row: f"row {row}\n{value:+.3g} nat".replace("-", "−") for row, value in decreases}
        smiles = smiles_of(run.problem.train) or ()
        drawings = [structure(smiles[row]) for row in captions]
        layers = _grid(drawings, list(captions.values()), "exact decrease of the objective")
        layers["captions"]["row"] = list(captions)
        return layers

    def clicked(self, run: Run, at: int, x: float, y: float) -> Step | None:
        """Force the swap for the molecule in the clicked cell; a click on the molecule that is removed does nothing."""
        captions = self.data(run, at)["captions"]
        cell = round(x) + ACROSS * round(-y)
        outside = not 0 < cell < len(captions) or not 0 <= round(x) < ACROSS
        if outside or not isinstance(run.method, HasSwapLandscape):
            return None
        row = int(captions["row"].iloc[cell])
        return run.method.force_swap(run.problem, run.trace[at].step.state, row)

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the bonds as lines, the letters on top of them, and the captions below."""
        atoms = hv.Labels(layers["atoms"], ["x", "y"], "text")
        captions = hv.Labels(layers["captions"], ["x", "y"], "text")
        parts = [
            segments(layers, "bonds", color=ROLES["data"], line_width=1.6),
            layer(atoms, "atoms", text_color=ROLES["inducing"], text_font_size="9px"),
            layer(captions, "captions", text_color=ROLES["data"], text_font_size="10px"),
        ]
        return overlay(parts, layers["captions"], 0, xaxis=None, yaxis=None, hooks=[without_grid])


def installed() -> bool:
    """Return whether RDKit is installed."""
    return find_spec("rdkit") is not None


def smiles_of(train: Dataset) -> Sequence[str] | None:
    """The molecules of the rows: the inputs, or the first column of text that holds such; None without molecules."""
    X = train.X
    columns = X.texts if isinstance(X, MixedRows) else (X,) if isinstance(X, list) else ()
    texts = [column for column in columns if len(column) and isinstance(column[0], str)]
    return next((column for column in texts if readable(column[0])), None)


def readable(text: str) -> bool:
    """Return whether RDKit reads this text as a molecule; without RDKit every text may be one."""
    if not installed():
        return True
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        return Chem.MolFromSmiles(text) is not None


@lru_cache(maxsize=512)
def structure(smiles: str) -> Structure:
    """Compute the lines and letters of a molecule; a bond leaves a gap at a letter, and a double bond is two lines."""
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    molecule = Chem.MolFromSmiles(smiles)
    Chem.Kekulize(molecule, clearAromaticFlags=True)
    rdDepictor.Compute2DCoords(molecule)
    positions = molecule.GetConformer().GetPositions()[:, :2]  # [atoms, 2]
    positions = positions - (positions.max(0) + positions.min(0)) / 2
    positions = positions * (SIZE / max(float(np.ptp(positions, axis=0).max()), 3.0))  # small molecules stay small
    letters = {a.GetIdx(): a.GetSymbol() for a in molecule.GetAtoms() if a.GetSymbol() != "C" or a.GetDegree() == 0}
    lines = [line for bond in molecule.GetBonds() for line in _lines(bond, positions, letters)]
    return Structure(np.array(lines).reshape(-1, 4), positions[list(letters)], tuple(letters.values()))


def _lines(bond: Any, positions: NDArray[np.float64], letters: dict[int, str]) -> list[NDArray[np.float64]]:
    """Return the parallel lines of one bond, each as x0, y0, x1, y1."""
    i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
    direction = positions[j] - positions[i]
    begin = positions[i] + LETTER * direction * (i in letters)
    end = positions[j] - LETTER * direction * (j in letters)
    count = round(bond.GetBondTypeAsDouble())
    offset = APART * np.array([-direction[1], direction[0]])
    return [np.concatenate([begin + k * offset, end + k * offset]) for k in np.arange(count) - (count - 1) / 2]


def _grid(drawings: list[Structure], captions: list[str], title: str) -> Layers:
    """Place each molecule in its cell, from left to right and then down."""
    cells = [np.array([k % ACROSS, -(k // ACROSS)], dtype=float) for k in range(len(drawings))]
    bonds = [drawing.bonds + np.tile(cell, 2) for drawing, cell in zip(drawings, cells, strict=True)]
    atoms = [drawing.atoms + cell for drawing, cell in zip(drawings, cells, strict=True)]
    letters = [letter for drawing in drawings for letter in drawing.letters]
    words = on_plane(np.reshape(cells, (-1, 2)) - [0.0, BELOW]).assign(text=captions)
    words.attrs["title"] = title
    return {
        "bonds": pd.DataFrame(np.concatenate([np.empty((0, 4)), *bonds]), columns=["x0", "y0", "x1", "y1"]),
        "atoms": on_plane(np.concatenate([np.empty((0, 2)), *atoms])).assign(text=letters),
        "captions": words,
    }
