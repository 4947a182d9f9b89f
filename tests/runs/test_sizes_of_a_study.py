"""The sizes of a scaling study along n are numbers of training rows, under every split and on every set."""

from __future__ import annotations

import pandas as pd
import pytest

from gpexplorer import Spec
from gpexplorer.errors import DataError
from gpexplorer.runs.budget import Budget
from gpexplorer.runs.studies import measured_run
from gpexplorer.runs.studies.machine_speed import Speed
from gpexplorer.runs.studies.measured_run import Measured
from gpexplorer.runs.studies.scaling_study import Scaling

SPEED = Speed(1e9, 1e10)
POSES = {"name": "poses", "train": 30, "test": 8}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("friedman1", 3),
        ("friedman1", {"test": 0.7, "seed": 4}),
        ("hypercube", {"folds": 2, "fold": 1}),
        ("hypercube", {"test": 0.99}),
        ("snelson-like", {"before": 1.5}),
        ("sin-product", {"folds": 40}),
    ],
)
def test_a_size_is_the_number_of_training_rows_under_every_split(name: str, split: int | dict[str, float]):
    spec = Spec("random", {"num_inducing": 3}, data={"name": name, "seed": 2}, split=split)
    sizes = [50, 131, 260]
    result = Scaling(spec, "n", sizes, lambda s, rows: measured_run.measure(s, rows, Budget(1, 1.0)), lambda: SPEED)

    table = pd.DataFrame(list(result))

    assert table["sentence"].tolist() == [""] * 3
    assert table["n"].tolist() == table["value"].tolist() == sizes


def test_other_rows_than_were_asked_for_are_what_is_fitted_and_forecast_from():
    def half(spec: Spec, rows: int | None) -> Measured:
        n = (rows or 0) // 2
        return Measured(n, 6, (n / 1000) ** 3, 8.0 * n * n, 0.1, 5)

    spec = Spec("cholesky", {"learn": False}, {"name": "friedman1", "d": 6})
    result = Scaling(spec, "n", [200, 400, 800, 1600], half, lambda: SPEED)
    list(result)

    assert result.table()["value"].tolist() == [100, 200, 400, 800]
    assert result.slope().at(1000)[0] == pytest.approx(1.0)
    predicted = result.table()["memory predicted"].tolist()
    assert predicted == [result.formula(n, n, 6).memory for n in (100, 200, 400, 800)]


@pytest.mark.parametrize(
    ("data", "split", "largest"),
    [
        ("gp-draw", 0, 3600),
        ({"name": "gp-draw", "d": 2}, {"test": 0.25}, 3000),
        ("snelson-like", {"before": -1.0}, 0),
        (POSES, 0, 30),
    ],
)
def test_a_set_that_is_too_small_is_refused_before_any_work(data, split, largest: int):
    spec = Spec("random", data=data, split=split)

    def never(spec: Spec, rows: int | None) -> Measured:
        raise AssertionError

    with pytest.raises(DataError, match=f"choose at most {largest:,}\\."):
        Scaling(spec, "n", [5, largest + 1], never)
    if largest:
        assert Scaling(spec, "n", [5, largest], never).values == [5, largest]
