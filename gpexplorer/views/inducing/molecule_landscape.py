"""The swap landscape of molecules: the structure that goes out, and those that would bring most in its place.

RDKit gives each atom a place on paper; lines and letters are drawn from these numbers alone, so nothing that a file
holds is ever markup. One cell a molecule, the row and the fall of the objective below it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import holoviews as hv
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...methods.inducing.forced import forced
from ...methods.inducing.swapping.swap_landscape import landscape
from ...problem import Step
from ...runs.run import Run
from ..base import Layers, View, labels, layer
from ..drawing.palette import ROLES
from .landscape_view import LARGEST, MOVED, scored

ACROSS, DOWN = 6, 2  # cells about as wide as high on a page
SIZE, BELOW = 0.84, 0.47  # of a cell: the structure's longest side, and how far below its middle the caption is
LETTER, APART = 0.28, 0.12  # of a bond: left free at a letter, and between the lines of a double bond
MISSING = 'Structures are drawn by RDKit, which is not installed: pip install "gpexplorer[molecules]".'


class Structure(NamedTuple):
    """A molecule on paper, within a unit cell about the origin."""

    bonds: NDArray[np.float64]  # [b, 4] x0, y0, x1, y1
    atoms: NDArray[np.float64]  # [a, 2] of atoms with a letter
    letters: tuple[str, ...]


class Structures(View):
    """The candidates of one swap as a grid of molecules."""

    key: ClassVar[str] = "structures"
    title: ClassVar[str] = "Molecules to swap in"
    help: ClassVar[str] = "First the molecule that goes out, then those that would lower the objective most."
    family: ClassVar[str] = "inducing"
    order: ClassVar[int] = 21
    click: ClassVar[str] = "Click a molecule to force its swap."

    def applies(self, run: Run) -> bool:
        """CholQR on SMILES, where a factor is cheap to rebuild."""
        X, size = run.problem.train.X, len(run.problem.train) * getattr(run.method, "num_inducing", 0)
        text = isinstance(X, list) and len(X) > 0 and isinstance(X[0], str)
        return super().applies(run) and run.method.key == "cholqr" and size <= LARGEST and text and readable(X[0])

    def data(self, run: Run, at: int) -> Layers:
        """Bonds, letters and captions of up to twelve molecules."""
        method: Any = run.method
        state = run.trace[at].step.state
        if state.Z is not None or not installed():
            return _grid([], [], MISSING if state.Z is None else MOVED)
        found = landscape(method, run.problem, state)
        best = scored(found).nlargest(ACROSS * DOWN - 1, "exact")
        shown = [found.removed, *best["row"].astype(int).tolist()]
        falls = [f"row {row}: {fall:+.3g} nat" for row, fall in zip(shown[1:], best["exact"], strict=True)]
        captions = [f"row {shown[0]} goes out", *falls]
        layers = _grid([structure(run.problem.train.X[row]) for row in shown], captions, "exact fall of the objective")
        layers["captions"]["row"] = shown
        return layers

    def clicked(self, run: Run, at: int, x: float, y: float) -> Step | None:
        """The swap for the molecule in the cell clicked; none for the one that goes out."""
        shown = self.data(run, at)["captions"]
        cell = round(x) + ACROSS * round(-y)
        if not 0 < cell < len(shown) or not 0 <= round(x) < ACROSS:
            return None
        method: Any = run.method
        return forced(method, run.problem, run.trace[at].step.state, int(shown["row"].iloc[cell]))

    def plot(self, layers: Layers) -> hv.Overlay:
        """Lines, letters on top, captions below."""
        bonds = hv.Segments(layers["bonds"], ["x0", "y0", "x1", "y1"])
        atoms = hv.Labels(layers["atoms"], ["x", "y"], "text")
        captions = hv.Labels(layers["captions"], ["x", "y"], "text")
        parts = [
            layer(bonds, "bonds", color=ROLES["data"], line_width=1.6),
            layer(atoms, "atoms", text_color=ROLES["inducing"], text_font_size="9px"),
            layer(captions, "captions", text_color=ROLES["data"], text_font_size="10px"),
        ]
        return hv.Overlay(parts).opts(
            responsive=True, xaxis=None, yaxis=None, hooks=[_without_grid], **labels(layers["captions"])
        )


def _without_grid(plot: Any, element: hv.Element) -> None:
    for grid in plot.state.grid:
        grid.visible = False


def installed() -> bool:
    """Whether RDKit is."""
    try:
        import rdkit  # noqa: F401
    except ImportError:
        return False
    return True


def readable(text: str) -> bool:
    """Whether RDKit reads this text as a molecule; without RDKit anything may be one."""
    if not installed():
        return True
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        return Chem.MolFromSmiles(text) is not None


@lru_cache(maxsize=512)
def structure(smiles: str) -> Structure:
    """A molecule's lines and letters; bonds stop short of letters, and double ones are two lines."""
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    molecule = Chem.MolFromSmiles(smiles)
    Chem.Kekulize(molecule, clearAromaticFlags=True)
    rdDepictor.Compute2DCoords(molecule)
    place = molecule.GetConformer().GetPositions()[:, :2]
    place = place - (place.max(0) + place.min(0)) / 2
    place = place * (SIZE / max(float(np.ptp(place, axis=0).max()), 3.0))  # a small molecule is not blown up
    letters = {a.GetIdx(): a.GetSymbol() for a in molecule.GetAtoms() if a.GetSymbol() != "C" or a.GetDegree() == 0}
    lines = [line for bond in molecule.GetBonds() for line in _lines(bond, place, letters)]
    return Structure(np.array(lines).reshape(-1, 4), place[list(letters)], tuple(letters.values()))


def _lines(bond: Any, place: NDArray[np.float64], letters: dict[int, str]) -> list[NDArray[np.float64]]:
    i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
    along = place[j] - place[i]
    begin, end = place[i] + LETTER * along * (i in letters), place[j] - LETTER * along * (j in letters)
    many = round(bond.GetBondTypeAsDouble())
    side = APART * np.array([-along[1], along[0]])
    return [np.concatenate([begin + k * side, end + k * side]) for k in np.arange(many) - (many - 1) / 2]


def _grid(shown: list[Structure], captions: list[str], title: str) -> Layers:
    """Each structure in its cell, left to right and down."""
    cells = [np.array([k % ACROSS, -(k // ACROSS)], dtype=float) for k in range(len(shown))]
    bonds = [s.bonds + np.tile(cell, 2) for s, cell in zip(shown, cells, strict=True)]
    atoms = [s.atoms + cell for s, cell in zip(shown, cells, strict=True)]
    text = [letter for s in shown for letter in s.letters]
    at, under = np.concatenate([np.empty((0, 2)), *atoms]), np.array(cells).reshape(-1, 2) - [0.0, BELOW]
    layers = {
        "bonds": pd.DataFrame(np.concatenate([np.empty((0, 4)), *bonds]), columns=["x0", "y0", "x1", "y1"]),
        "atoms": pd.DataFrame({"x": at[:, 0], "y": at[:, 1], "text": text}),
        "captions": pd.DataFrame({"x": under[:, 0], "y": under[:, 1], "text": captions}),
    }
    layers["captions"].attrs["title"] = title
    return layers
