"""The rows of a run in the units of its file: which are shown, where they lie, and what their axes are called."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.data import Split
from gpexplorer.problem import Dataset
from gpexplorer.runs import Run
from gpexplorer.views.drawing import run_rows


def opened(X: np.ndarray, names: tuple[str, ...] = (), kernel: str = "se", **fields: str) -> Run:
    """A run that has these training rows."""
    rows = Dataset(torch.tensor(X), torch.linspace(1.0, 9.0, len(X), dtype=torch.float64), names)
    return gpx.Spec("cholesky", {"learn": False}, kernel=kernel, dtype="float64", **fields).open(
        data=Split(rows, rows, name="rows")
    )


def test_a_sample_of_rows_is_in_order_and_the_same_each_time_and_few_rows_are_all_shown():
    assert run_rows.sampled(5, 5).tolist() == [0, 1, 2, 3, 4]
    drawn = run_rows.sampled(400, 5)
    assert len(set(drawn.tolist())) == 5
    assert drawn.tolist() == sorted(drawn.tolist())
    assert 0 <= int(drawn.min()) < int(drawn.max()) < 400
    assert int(run_rows.sampled(10**6, 1500).max()) > 990_000  # from all of them
    assert len(run_rows.sampled(1501)) == 1500


@pytest.mark.parametrize(("shift", "kernel"), [(0.0, "se"), (1e4, "se"), (100.0, "minmax")])
def test_more_than_two_inputs_lie_on_their_principal_components_with_their_shares_of_the_variance(
    shift: float, kernel: str
):
    rng = np.random.default_rng(0)
    first, second, rest = np.linalg.qr(rng.standard_normal((40, 3)) - 0.0)[0].T
    Z = np.column_stack([3.0 * first + 0.1 * rest, 3.0 * first - second, 0.2 * second + rest, -3.0 * first])
    run = opened(shift + 10.0 * Z, kernel=kernel)  # minmax is for counts, which are not scaled
    scaled = run.problem.train.X.numpy()
    U, S, _ = np.linalg.svd(scaled - scaled.mean(0), full_matrices=False)

    place, names = run_rows.plane(run)

    assert place.shape == (40, 2)
    for k in (0, 1):
        np.testing.assert_allclose(np.abs(place[:, k]), np.abs(U[:, k] * S[k]), atol=1e-6)
        share = 100.0 * S[k] ** 2 / np.square(S).sum()
        assert names[k] == f"principal component {k + 1} ({share:.0f} %)"


@pytest.mark.parametrize("names", [(), ("width", "length")])
def test_two_inputs_lie_at_their_values_in_the_units_of_the_file(names: tuple[str, ...]):
    X = np.random.default_rng(0).uniform(300.0, 900.0, (20, 2))
    run = opened(X, names)

    place, axes = run_rows.plane(run)

    np.testing.assert_allclose(place, X)
    assert axes == (names or ("x1", "x2"))
    np.testing.assert_allclose(run_rows.targets_of(run.problem.train), np.linspace(1.0, 9.0, 20))
    assert run_rows.numeric(run)
    assert run_rows.input_name(run, 2) == "x3"


def test_inducing_points_are_rows_or_places_of_their_own_or_none():
    X = np.random.default_rng(0).uniform(300.0, 900.0, (20, 2))
    run = opened(X)
    scale = run.problem.train.scale
    rows, none = SimpleNamespace(inducing=torch.tensor([7, 2])), SimpleNamespace()
    Z = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    own = SimpleNamespace(inducing=torch.tensor([7, 2]), Z=Z)

    np.testing.assert_allclose(run_rows.inducing_inputs(run, rows), X[[7, 2]])
    assert run_rows.inducing_inputs(run, none).shape == (0, 2)
    np.testing.assert_allclose(run_rows.inducing_inputs(run, own), scale.inputs_in_units(Z))
    assert run_rows.inducing_rows(rows) is rows.inducing
    assert run_rows.inducing_rows(own) is None


def test_a_transform_of_the_target_is_known():
    X = np.random.default_rng(0).uniform(1.0, 2.0, (20, 2))

    assert run_rows.transforms_target(opened(X, target_transform="log"))
    assert not run_rows.transforms_target(opened(X))
