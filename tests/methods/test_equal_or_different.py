"""Kernels that ask only whether inputs are equal: every method fits them or says in a sentence why it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gpexplorer import Estimator, kernels, methods
from gpexplorer.errors import GPExplorerError, SettingError
from gpexplorer.kernels.row_scaled import RowScaled
from gpexplorer.methods.base import registry
from gpexplorer.problem import Columns
from steps_of import SMALL

METALS = ("iron", "zinc", "tin", "lead")
MOVING = ("sgpr", "fitc", "kmeans")
SELECTING = ("random", "greedy-variance", "ivm", "titsias", "csi")


def rows(kernel: str) -> tuple[Any, np.ndarray]:
    """Words, or codes of words, and targets that depend on the word."""
    rng = np.random.default_rng(8)
    code = np.r_[0, 1, 2, 3, rng.integers(0, 4, 36)]
    y = 10.0 + np.array([1.0, -2.0, 0.5, 3.0])[code] + 0.2 * rng.standard_normal(40)
    if kernel == "category":
        return [METALS[k] for k in code], y
    second = rng.standard_normal((40, 1)) if "x0" in kernel else np.zeros((40, 0))
    return np.hstack([100.0 * code[:, None], second]), y


@pytest.mark.parametrize("kernel", ["category", "same", "same[x0]", "same * same"])
@pytest.mark.parametrize("key", sorted(methods))
def test_a_method_fits_or_refuses_in_a_sentence(key: str, kernel: str) -> None:
    X, y = rows(kernel)
    settings = {name: value for name, value in SMALL.items() if name in registry[key].param and name != "num_inducing"}
    own = {"num_inducing": 4} if "num_inducing" in registry[key].param else {}
    estimator = Estimator(key, kernel, settings=settings, budget={"steps": 4}, **own)
    if key in MOVING:
        with pytest.raises(SettingError, match=r"moves inducing inputs between the rows, .* cholqr .* or titsias"):
            estimator.fit(X, y)
        return
    try:
        estimator.fit(X, y)
    except GPExplorerError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert refusal.endswith(".")
        return
    mean, var = estimator.posterior_(X)
    assert bool(torch.isfinite(mean).all() & (var > 0.0).all())


@pytest.mark.parametrize("kernel", ["category", "same", "same[x0]"])
@pytest.mark.parametrize("key", SELECTING)
def test_points_of_all_words_give_the_exact_posterior(key: str, kernel: str) -> None:
    """The matrix of all rows has as many independent columns as there are words."""
    X, y = rows(kernel)
    # Codes are standardised, which keeps them equal or different.
    settings = {"learn": False} if "learn" in registry[key].param else {}
    fitted = Estimator(key, kernel, num_inducing=4, settings=settings, budget={"steps": 30}).fit(X, y)
    posterior = fitted.posterior_.asked_for("f")
    train, theta = fitted.run_.problem.train, posterior.inner.theta
    K, s2 = fitted.run_.problem.kernel(theta, train.X, train.X), float((2.0 * theta[-1]).exp())
    A = K + s2 * torch.eye(len(K), dtype=K.dtype)
    scale = train.scale

    expected = K @ torch.linalg.solve(A, train.y) * scale.y_sd + scale.y_mean
    torch.testing.assert_close(posterior(X).mean, expected, rtol=1e-6, atol=0.0)
    exact = (K - K @ torch.linalg.solve(A, K)).diagonal() * scale.y_sd**2
    torch.testing.assert_close(posterior(X).var, exact, rtol=1e-4, atol=1e-9)


def test_a_kernel_of_parts_compares_where_all_of_its_parts_do() -> None:
    columns = Columns(("a", "b"), ())
    texts = {"same": True, "same[a] + same[b]": True, "same[a] * se[b]": False, "se + same": False}
    for text, compares in texts.items():
        kernel = kernels.make(text, 2, columns)
        assert kernel.compares is compares, text
        assert RowScaled(kernel).compares is compares
