"""A table that is not computed yet, such as a LazyFrame of polars, is refused at every door in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from gpexplorer.errors import DataError


class LazyFrame:
    """A table of polars that is not computed yet."""

    columns = ("x", "w")

    def collect(self) -> pd.DataFrame:
        return pd.DataFrame({"x": [0.0], "w": [1.0]})


@pytest.mark.parametrize(
    "door", ["load", "recommend", "pair", "fit", "predict", "partial_fit", "sample_y", "posterior"]
)
def test_a_table_that_is_not_computed_yet_is_refused_at_every_door(door: str) -> None:
    lazy, fitted = LazyFrame(), gpx.Estimator("ml", budget={"steps": 2})
    y = np.arange(10.0)
    if door in ("predict", "partial_fit", "sample_y", "posterior"):
        fitted.fit(pd.DataFrame({"x": y, "w": np.sin(y)}), y)
    doors: dict[str, Any] = {
        "load": lambda: gpx.load(lazy), "recommend": lambda: gpx.recommend(lazy, target="y"),
        "pair": lambda: gpx.load((lazy, y)), "fit": lambda: fitted.fit(lazy, y),
        "predict": lambda: fitted.predict(lazy),
        "partial_fit": lambda: fitted.partial_fit(lazy, y), "sample_y": lambda: fitted.sample_y(lazy),
        "posterior": lambda: fitted.posterior_(lazy),
    }  # fmt: skip
    with pytest.raises(DataError, match=r"A LazyFrame has no rows yet: give its collect\(\)"):
        doors[door]()
