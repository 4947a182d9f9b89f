"""Files in the format of a public set, for a machine that has neither the files nor a network."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpexplorer.data.sets.cards import Card, card

FOLDS = 10
NAMES = ("kin40k", "concrete")
FILES = Path(os.environ.get("GPEXPLORER_DATA_DIR") or Path(__file__).parents[3] / "shared" / "data" / "files")


def public_files() -> Path | None:
    """The folder of the real files, where this machine has them."""
    are_here = all((FILES / "uci" / name / "data.csv.gz").is_file() for name in NAMES)
    return FILES.resolve() if are_here else None


def write_like(like: Card, folder: Path) -> Card:
    """Write n rows of d uniform inputs with a smooth target, and ten folds; the card that these files fit."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-1.7, 1.7, (like.n, like.d or 1))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.02 * rng.standard_normal(like.n)
    masks = rng.permutation(like.n)[:, None] % FOLDS == np.arange(FOLDS)
    files = []
    for part, cells in zip(like.files, (np.column_stack([X, y - y.mean()]), masks), strict=True):
        path = folder / part.path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (",".join(f"{cell:.5g}" for cell in row) for row in cells.tolist())
        path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), compresslevel=1, mtime=0))
        content = path.read_bytes()
        files.append(replace(part, sha256=hashlib.sha256(content).hexdigest(), nbytes=len(content)))
    return replace(like, files=tuple(files))


@contextmanager
def believed(*cards: Card) -> Iterator[None]:
    """Within this block, the registry's cards have the files of these cards, found by their names."""
    before = {written.name: card(written.name).files for written in cards}
    for written in cards:
        object.__setattr__(card(written.name), "files", written.files)
    try:
        yield
    finally:
        for name, files in before.items():
            object.__setattr__(card(name), "files", files)
