"""A fixed function plus the posterior of its residuals: sums, files, and files that contradict themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

from gpexplorer import load_posterior
from gpexplorer.errors import PosteriorError
from gpexplorer.kernels import make
from gpexplorer.posteriors import LinearMean, NeighboursMean, ShiftedPosterior, TreesMean, exact_gp_posterior
from gpexplorer.problem import Dataset
from gpexplorer.recommendation.simple_members import as_trees


def rows(n: int = 60, d: int = 3, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, d)) + shift
    return X, np.sin(X[:, 0]) + (X[:, 1] > shift) + 0.1 * rng.normal(size=n)


def of_trees(X: np.ndarray, y: np.ndarray) -> tuple[HistGradientBoostingRegressor, TreesMean]:
    model = HistGradientBoostingRegressor(max_iter=25, min_samples_leaf=4, random_state=0).fit(X, y)
    return model, as_trees(model)


@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_trees_as_numbers_predict_what_the_fitted_trees_do(shift: float) -> None:
    X, y = rows(300, shift=shift)
    model, trees = of_trees(X, y)
    new = np.random.default_rng(5).normal(size=(500, 3)) * 2.0 + shift
    for Z in (X, new):
        np.testing.assert_allclose(trees(torch.from_numpy(Z)).numpy(), model.predict(Z), rtol=1e-12)


def test_the_mean_moves_and_the_covariance_is_that_of_the_residuals() -> None:
    X, y = (torch.from_numpy(part) for part in rows())
    kernel = make("se", 3)
    train = Dataset(X, y - X[:, 0])
    inner = exact_gp_posterior(kernel, kernel.start(train), train)
    line = LinearMean(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64))
    shifted = ShiftedPosterior(line, inner, y, inner.noise_variance)
    new = X[:7] + 0.3
    torch.testing.assert_close(shifted.mean(new), inner.mean(new) + new[:, 0] + 2.0)
    torch.testing.assert_close(shifted.cov(new), inner.cov(new))
    paths, of_inner = shifted.paths(3, seed=1)(new), inner.paths(3, seed=1)(new)
    torch.testing.assert_close(paths, of_inner + new[:, 0] + 2.0)
    more = shifted.with_rows(new, new[:, 0] + 2.0, 0.01)
    torch.testing.assert_close(
        more.mean(new), inner.with_rows(new, torch.zeros(7).double(), 0.01).mean(new) + new[:, 0] + 2
    )


def test_nearest_rows_give_the_mean_of_their_targets() -> None:
    X, y = (torch.from_numpy(part) for part in rows(40))
    own = NeighboursMean(X, y, torch.tensor([1]))
    torch.testing.assert_close(own(X), y)
    order = (X[:1] - X).square().sum(1).argsort()[:5]
    torch.testing.assert_close(NeighboursMean(X, y, torch.tensor([5]))(X[:1])[0], y[order].mean())


def test_a_file_of_trees_predicts_the_same_and_broken_trees_are_refused(tmp_path) -> None:
    X, y = rows(200)
    _, trees = of_trees(X, y)
    Z, targets = torch.from_numpy(X), torch.from_numpy(y)
    posterior = ShiftedPosterior(trees, None, targets, 0.04)
    posterior.save(tmp_path / "m.safetensors")
    loaded = load_posterior(tmp_path / "m.safetensors")
    torch.testing.assert_close(loaded.mean(Z), posterior.mean(Z))
    torch.testing.assert_close(loaded.var(Z, noise=True), torch.full((200,), 0.04, dtype=torch.float64))
    endless = TreesMean(
        trees.feature, trees.threshold, trees.left * 0, trees.right * 0, trees.value, trees.roots, trees.constant
    )
    ShiftedPosterior(endless, None, targets, 0.04).save(tmp_path / "endless.safetensors")
    with pytest.raises(PosteriorError, match="are no trees"):
        load_posterior(tmp_path / "endless.safetensors")
    with pytest.raises(PosteriorError, match="fit it again"):
        posterior.with_rows(Z[:2], targets[:2])
