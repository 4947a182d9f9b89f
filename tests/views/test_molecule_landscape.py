"""Drawings of molecules: lines for bonds, letters for atoms other than carbon, best candidates, clicks, messages."""

from __future__ import annotations

import sys

import holoviews as hv
import numpy as np
import pytest
import torch

from gpexplorer import Spec, views
from gpexplorer.runs import Run
from gpexplorer.views.families.landscape_view import ACROSS, _grid, structure

hv.extension("bokeh")
CHAINS = ["C" * a + end + "C" * b for a in range(1, 7) for b in range(4) for end in ("O", "N", "C(=O)")]


@pytest.fixture(scope="module")
def run() -> Run:
    y = torch.tensor([0.8 * len(text) - 2.0 * text.count("O") for text in CHAINS], dtype=torch.float64)
    settings = {"num_inducing": 8, "swaps_per_epoch": 6, "learn": False}
    run = Spec("cholqr", settings, data="m", kernel="molecules").open(data=(CHAINS, y))
    run.finish(steps=5)
    return run


def grid(run: Run) -> views.View:
    return next(view for view in views.for_run(run) if view.key == "structures")


@pytest.mark.parametrize(
    ("smiles", "lines", "letters"),
    [
        ("CCO", 2, ("O",)),
        ("C=O", 2, ("O",)),
        ("C#N", 3, ("N",)),
        ("c1ccccc1", 9, ()),
        ("C", 0, ("C",)),
        ("[Na+].[Cl-]", 0, ("Na", "Cl")),
    ],
)
def test_a_structure_has_a_line_for_each_bond_of_a_bond(smiles: str, lines: int, letters: tuple[str, ...]) -> None:
    drawing = structure(smiles)
    assert drawing.bonds.shape == (lines, 4)
    assert drawing.letters == letters
    assert np.abs(drawing.bonds).max(initial=0.0) <= 0.5
    if smiles == "c1ccccc1":
        lengths = np.hypot(*(drawing.bonds[:, 2:] - drawing.bonds[:, :2]).T)
        assert lengths == pytest.approx(np.full(9, lengths[0]))


def test_bonds_keep_apart_from_letters_and_from_each_other_and_small_molecules_stay_small() -> None:
    bond = 1.5 * 0.84 / 3.0  # 1.5 is RDKit's length, and fewer than three of its units are drawn as three
    lines = structure("CCO").bonds
    lengths = sorted(np.hypot(*(lines[:, 2:] - lines[:, :2]).T))
    assert lengths == pytest.approx([(1 - 0.28) * bond, bond], rel=1e-3)
    for smiles, count in (("C=O", 2), ("C#N", 3)):
        lines = structure(smiles).bonds
        along = lines[0, 2:] - lines[0, :2]
        aside = (lines[:, :2] - lines[0, :2]) @ [-along[1], along[0]] / np.hypot(*along)
        assert sorted(np.abs(aside)) == pytest.approx([0.12 * bond * k for k in range(count)], rel=1e-3)
        assert np.hypot(*along) == pytest.approx((1 - 0.28) * bond, rel=1e-3)
        middle = (lines[:, :2].mean(0) + lines[:, 2:].mean(0)) / 2 + 0.14 * bond * along / np.hypot(*along)
        assert middle == pytest.approx([0.0, 0.0], abs=1e-3)
    large = structure("c1ccc2ccccc2c1").bonds.reshape(-1, 2)
    assert np.ptp(large, axis=0).max() == pytest.approx(0.84, rel=0.05)
    assert (large.max(0) + large.min(0)) == pytest.approx([0.0, 0.0], abs=0.05)


def test_molecules_lie_in_their_cells_with_letters_and_captions() -> None:
    parts = [structure(smiles) for smiles in ("CCO", "N", "C=O", "C#N", "CO", "CC")]
    layers = _grid(parts, list("abcdef"), "title")
    cells = np.array([[0, 0], [1, 0], [2, 0], [3, 0], [0, -1], [1, -1]])
    np.testing.assert_allclose(layers["captions"][["x", "y"]], cells - [0.0, 0.47])
    of_cell = np.repeat(np.arange(6), [len(part.bonds) for part in parts])
    bonds = np.concatenate([part.bonds for part in parts]) + np.tile(cells, 2)[of_cell]
    np.testing.assert_allclose(layers["bonds"], bonds)
    assert layers["atoms"]["text"].tolist() == ["O", "N", "O", "N", "O"]
    atoms = np.concatenate([part.atoms + cell for part, cell in zip(parts, cells, strict=True)])
    np.testing.assert_allclose(layers["atoms"][["x", "y"]], atoms)


def test_the_grid_shows_what_goes_out_and_the_best_candidates(run: Run) -> None:
    state = run.trace[5].step.state
    landscape = run.method.swap_landscape(run.problem, state)
    layers = grid(run).data(run, 5)
    shown = layers["captions"]
    assert shown["text"].iloc[0] == f"row {landscape.removed}\nis removed"
    exact = landscape.exact.nan_to_num(nan=-torch.inf)
    assert len(shown) == 12
    assert shown["text"].iloc[1] == f"row {shown['row'][1]}\n{exact.max():+.3g} nat"
    best = exact.topk(len(shown) - 1).values.tolist()  # alike molecules tie
    assert exact[shown["row"].tolist()[1:]].tolist() == pytest.approx(best)
    assert best[-1] < 0 < best[0]
    assert shown["text"].iloc[-1].endswith(f"\n−{-best[-1]:.3g} nat")
    X = run.problem.train.X
    assert len(layers["bonds"]) == sum(len(structure(X[row]).bonds) for row in shown["row"])
    assert grid(run).plot(layers) is not None


def test_a_click_forces_the_molecule_of_its_cell(run: Run) -> None:
    view = grid(run)
    row = int(view.data(run, 5)["captions"]["row"].iloc[ACROSS + 1])
    assert view.clicked(run, 5, 1.2, -0.9).info.proposed == row
    assert view.clicked(run, 5, 0.1, 0.1) is None  # the molecule that is removed
    rows = view.data(run, 5)["captions"]["row"]
    for x, y, cell in ((1.0, 0.0, 1), (3.4, 0.4, 3), (-0.4, -2.4, 8), (3.0, -2.0, 11)):  # in every corner
        assert view.clicked(run, 5, x, y).info.proposed == rows[cell]
    for x, y in ((9.0, 0.0), (4.0, 0.0), (-1.0, -1.0), (0.0, -3.0), (1.0, 1.0)):
        assert view.clicked(run, 5, x, y) is None


def test_text_that_is_no_molecule_has_no_grid_and_without_rdkit_a_sentence_says_why(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = Spec("cholqr", {"num_inducing": 4, "learn": False}, data="w", kernel="spectrum").open(
        data=(["xyz!" + "ab" * k for k in range(12)], torch.arange(12.0))
    )
    assert "structures" not in {view.key for view in views.for_run(words)}
    monkeypatch.setitem(sys.modules, "rdkit", None)
    layers = grid(run).data(run, 5)
    assert "gpexplorer[molecules]" in layers["captions"].attrs["title"]
    assert grid(run).plot(layers) is not None
