"""The swap landscape of molecules: the molecule that is removed, and those that would bring most in its place.

RDKit computes a position on the plane for each atom. Lines and letters are drawn from these numbers, so no text of a
data file is ever used as markup. Each molecule has one cell, with its row and the decrease of the objective below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import holoviews as hv
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...methods.capabilities import HasSwapLandscape
from ...problem import Dataset, MixedRows, Step
from ...runs.run import Run
from ..base import Layers, View, layer, overlay, segments, without_grid
from ..drawing.palette import ROLES
from .landscape_view import POINTS_MOVED, both_values, has_cheap_landscape, landscape_at

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
        rows = [landscape.removed, *best["row"].astype(int).tolist()]
        decreases = [f"row {row}\n{value:+.3g} nat" for row, value in zip(rows[1:], best["exact"], strict=True)]
        smiles = smiles_of(run.problem.train) or ()
        drawings = [structure(smiles[row]) for row in rows]
        layers = _grid(drawings, [f"row {rows[0]}\nis removed", *decreases], "exact decrease of the objective")
        layers["captions"]["row"] = rows
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
    try:
        import rdkit  # noqa: F401
    except ImportError:
        return False
    return True


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
    letter_xy = np.concatenate([np.empty((0, 2)), *atoms])  # [a, 2]
    caption_xy = np.array(cells).reshape(-1, 2) - [0.0, BELOW]  # [cells, 2]
    layers = {
        "bonds": pd.DataFrame(np.concatenate([np.empty((0, 4)), *bonds]), columns=["x0", "y0", "x1", "y1"]),
        "atoms": pd.DataFrame({"x": letter_xy[:, 0], "y": letter_xy[:, 1], "text": letters}),
        "captions": pd.DataFrame({"x": caption_xy[:, 0], "y": caption_xy[:, 1], "text": captions}),
    }
    layers["captions"].attrs["title"] = title
    return layers
