"""Every posterior answers the same from a file: of rows with weights, known noise, logarithms, or widened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpexplorer import Estimator, load_posterior, methods
from gpexplorer.errors import PosteriorError
from gpexplorer.kernels import make
from gpexplorer.methods.base import registry
from gpexplorer.objectives import nystrom
from gpexplorer.posteriors import (
    InUnits,
    LinearMean,
    MarginalPosterior,
    Posterior,
    ShiftedPosterior,
    UnitRowsPosterior,
    WidenedPosterior,
    Widening,
    nystrom_posterior,
    widened,
)
from gpexplorer.posteriors.saved.parts import kinds, kinds_below
from gpexplorer.problem import Dataset
from steps_of import SMALL, inputs_of

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights": {"sample_weight": np.linspace(0.5, 2.0, 36)},
    "known noise": {"noise": np.linspace(0.02, 0.2, 36)},
    "log": {"target_transform": "log"},
    "log and weights": {"target_transform": "log", "sample_weight": np.linspace(2.0, 0.5, 36)},
}


def takes(key: str, variant: str) -> bool:
    """Whether the method takes rows with such weights or such a noise."""
    needed = {"sample_weight": "relative", "noise": "known"}
    return all(needed[name] in registry[key].row_noise for name in VARIANTS[variant] if name in needed)


CASES = [(key, variant) for key in sorted(methods) for variant in VARIANTS if takes(key, variant)]


def fitted(key: str, variant: str) -> Estimator:
    """An estimator of this method after a few steps."""
    X = np.random.default_rng(5).uniform(3.0, 9.0, (36, inputs_of(key, 2)))
    y = 4.0 + np.sin(X[:, 0]) + 0.1 * np.cos(5.0 * X[:, -1])
    given = dict(VARIANTS[variant])
    settings = {name: value for name, value in SMALL.items() if name in registry[key].param and name != "num_inducing"}
    transform = given.pop("target_transform", "")
    own = {"num_inducing": 6} if "num_inducing" in registry[key].param else {}
    kernel = registry[key].example_kernel
    estimator = Estimator(key, kernel, settings=settings, budget={"steps": 6}, target_transform=transform, **own)
    return estimator.fit(X, y, **given)


@pytest.mark.parametrize(("key", "variant"), CASES)
def test_a_posterior_that_is_saved_is_read_with_the_same_moments_and_covariances(
    key: str, variant: str, tmp_path: Path
) -> None:
    posterior = fitted(key, variant).posterior_
    d = inputs_of(key, 2)
    X = torch.linspace(3.1, 10.0, 5 * d, dtype=torch.float64).reshape(5, d)
    wide = widened(posterior, Widening("x0", 8.0, (1.0, 3.0), (1.5, 4.0)))
    assert isinstance(wide.inner, WidenedPosterior)
    for number, own in enumerate((posterior, wide)):
        path = tmp_path / f"{number}.safetensors"
        inner: Any = own.inner
        while hasattr(inner, "inner"):
            inner = inner.inner
        if isinstance(inner, MarginalPosterior):
            with pytest.raises(PosteriorError, match="cannot be saved"):
                own.save(path)
            continue

        own.save(path)
        read = load_posterior(path)

        close = {"rtol": 1e-4, "atol": 1e-6} if "admm" in key else {"rtol": 1e-7, "atol": 1e-9}
        torch.testing.assert_close(read(X).mean, own(X).mean, **close)
        torch.testing.assert_close(read(X).var, own(X).var, **close)
        torch.testing.assert_close(read.cov(X), own.cov(X), **close)


def test_every_kind_is_read_inside_of_the_kinds_of_higher_levels() -> None:
    assert {"states", "rows", "inducing", "features"} <= set(kinds_below(UnitRowsPosterior.level))
    assert {"unit rows", "shifted", *kinds_below(1)} == set(kinds_below(WidenedPosterior.level))
    assert {"widened", *kinds_below(2)} == set(kinds_below(InUnits.level))
    assert not {"units", "average"} & set(kinds_below(InUnits.level))
    assert all(issubclass(kind, Posterior) for kind in kinds.values())


def test_the_residuals_of_a_function_may_have_any_posterior_of_rows(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(2)
    X = torch.rand(20, 2, generator=draw, dtype=torch.float64)
    rows, kernel = Dataset(X, torch.sin(4.0 * X[:, 0])), make("se", 2)
    theta, Z = kernel.start(rows), X[:7]
    line = LinearMean(torch.tensor([1.0, -2.0]).double(), torch.tensor([3.0]).double())
    inner = nystrom_posterior(kernel, theta, Z, nystrom(kernel, theta, rows, Z))
    posterior = ShiftedPosterior(line, inner, X, 0.1)
    posterior.save(tmp_path / "model")
    torch.testing.assert_close(load_posterior(tmp_path / "model")(X[:4]).mean, posterior(X[:4]).mean)
