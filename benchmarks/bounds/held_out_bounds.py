"""The variational bound and its tighter form on held-out rows: points and hyperparameters learned on each.

Each cell is a run of SGPR, or of CholQR's swaps, with the same points at the beginning and the same number of steps,
and differs in the objective alone. SMSE and NLPD are those of the test rows of a split, means over the seeds. Each seed
draws a sample of the training rows, so that the table takes minutes.
"""

from __future__ import annotations

from typing import Annotated

import pandas as pd
import torch
import typer

from gpexplorer import data as data_sets
from gpexplorer.data import Split
from gpexplorer.linalg.randomness import generator
from gpexplorer.runs.spec import Spec

SETS = "airfoil,concrete,energy,housing,elevators,kin40k,protein,pumadyn32nm,stock"
SETTINGS = {"sgpr": {"max_epochs": 4}, "cholqr": {"max_epochs": 6}}


def command(
    sets: Annotated[str, typer.Option(help="Names of sets, joined by commas.")] = SETS,
    rows: Annotated[int, typer.Option(help="Training rows, at most.", min=10)] = 1500,
    m: Annotated[int, typer.Option(help="Inducing points.", min=1)] = 64,
    seeds: Annotated[int, typer.Option(help="Splits per set.", min=1)] = 2,
    method: Annotated[str, typer.Option(help="sgpr or cholqr.")] = "sgpr",
) -> None:
    """Compare `vfe` and `tight-vfe` on public sets."""
    lines = []
    for name in sets.split(","):
        cells = pd.DataFrame([_cell(name, seed, rows, m, method) for seed in range(seeds)])
        mean = cells.mean()
        lines.append(mean)
        print(f"| {name} | " + " | ".join(f"{value:.4f}" for value in mean) + " |", flush=True)
    table = pd.DataFrame(lines)
    for score in ("SMSE", "NLPD"):
        lower = int((table[f"{score} tight"] < table[f"{score} vfe"]).sum())
        print(f"{score}: tight-vfe is lower on {lower} of {len(table)} sets.")


def _cell(name: str, seed: int, rows: int, m: int, method: str) -> dict[str, float]:
    split = data_sets.load(name, split=seed)
    order = torch.randperm(len(split.train), generator=generator(seed, "rows"))
    sample = Split(train=split.train.rows(order[:rows]), test=split.test, name=name)
    cell: dict[str, float] = {}
    for objective in ("vfe", "tight-vfe"):
        settings = {"num_inducing": m, "objective": objective, **SETTINGS[method]}
        spec = Spec(method=method, settings=settings, data=name, split=seed, kernel="se-ard", seed=seed)
        run = spec.open(data=sample)
        run.finish()
        scores = run.scores()
        cell |= {f"SMSE {objective[:5]}": scores["smse"], f"NLPD {objective[:5]}": scores["nlpd"]}
    return {key: cell[key] for key in ("SMSE vfe", "SMSE tight", "NLPD vfe", "NLPD tight")}
