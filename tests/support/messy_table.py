"""A table as people have it: decimal commas, texts, dates, gaps, an id, a constant column and molecules."""

from __future__ import annotations

import numpy as np

SMILES = ("CCO", "CC(=O)O", "c1ccccc1", "CC(C)O", "C1CCCCC1", "CCN(CC)CC", "c1ccc(C(=O)O)cc1", "CC#N", "CCCl", "C=CC=C")


def messy_csv(rows: int = 240, seed: int = 0) -> bytes:
    """The bytes of the file, in Windows-1252. The target depends on `größe`, `colour` and `when`."""
    rng = np.random.default_rng(seed)
    size, day = rng.uniform(100.0, 106.0, rows), rng.integers(0, 900, rows)
    colour = rng.choice(["red", "green", "blue"], rows)
    y = 50.0 + np.sin(size) + 0.8 * (colour == "red") + 0.002 * day + 0.05 * rng.normal(size=rows)
    when = np.datetime64("2019-01-01") + day
    molecules = ["C" * (i // 10) + SMILES[i % 10] for i in range(rows)]
    lines = ["id;größe;colour;when;unit;smiles;empty;price"]
    for i in range(rows):
        gap = "" if i % 40 == 7 else f"{size[i]:.4f}".replace(".", ",")
        lines.append(f"{i + 1};{gap};{colour[i]};{when[i]};5;{molecules[i]};;" + f"{y[i]:.5f}".replace(".", ","))
    return "\n".join(lines).encode("cp1252") + b"\n"
